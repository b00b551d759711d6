"""The options of a pairing and their ranges."""

from __future__ import annotations

from dataclasses import FrozenInstanceError
from datetime import timedelta

import pytest

from sbpair import PairedNamespaceOptions
from sbpair.pair.pairing.shared.base_sender import timeout_seconds

SECOND = timedelta(seconds=1)


@pytest.mark.spec("P-3", "P-10", "P-32")
def test_the_defaults_are_those_of_the_articles() -> None:
    options = PairedNamespaceOptions()
    assert options.backlog_queue_count == 10
    assert options.failover_interval == options.ping_primary_interval == 60 * SECOND
    assert options.operation_timeout == 60 * SECOND


@pytest.mark.spec("P-3", "P-32")
@pytest.mark.parametrize(
    ("name", "good", "bad"),
    [
        ("failover_interval", [0 * SECOND, 3600 * SECOND], [-SECOND, 3601 * SECOND]),
        ("ping_primary_interval", [SECOND, 1800 * SECOND], [0.5 * SECOND, 1801 * SECOND]),
        ("failover_on_busy_after", [0 * SECOND, 3600 * SECOND], [-SECOND, 3601 * SECOND]),
        ("operation_timeout", [0.001 * SECOND, 86400 * SECOND], [0 * SECOND, 86401 * SECOND]),
    ],
)
def test_a_duration_out_of_range_is_refused_with_the_range(
    name: str, good: list[timedelta], bad: list[timedelta]
) -> None:
    for value in good:
        assert getattr(PairedNamespaceOptions(**{name: value}), name) == value
    for value in bad:
        with pytest.raises(ValueError, match=rf"{name} must be from .+ to .+, not "):
            PairedNamespaceOptions(**{name: value})


@pytest.mark.spec("P-10")
@pytest.mark.parametrize("count", [0, -1])
def test_zero_backlogs_are_refused(count: int) -> None:
    with pytest.raises(ValueError, match="1 or more"):
        PairedNamespaceOptions(backlog_queue_count=count)


@pytest.mark.parametrize(
    "wrong",
    [
        {"backlog_queue_count": True},
        {"backlog_queue_count": 2.0},
        {"backlog_queue_count": float("nan")},
        {"spool_max_messages": float("inf")},
        {"spill_on_quota": 1},
        {"classifier": "unavailable"},
        {"failover_on_busy_after": 30},
        {"ping_primary_interval": True},
        {"operation_timeout": float("inf")},
        {"backlog_queue_count": "10"},
        {"failover_interval": 60},
        {"failover_interval": float("nan")},
        {"operation_timeout": None},
        {"assume_backlogs_exist": "yes"},
        {"primary_namespace_name": 5},
    ],
)
def test_a_value_of_a_wrong_type_is_refused_by_name(wrong: dict[str, object]) -> None:
    with pytest.raises(TypeError, match=next(iter(wrong))):
        PairedNamespaceOptions(**wrong)  # type: ignore[arg-type]


@pytest.mark.spec("P-10")
@pytest.mark.parametrize("name", ["", " contoso", "a/b", "a\nb"])
def test_a_namespace_name_must_fit_into_a_queue_name(name: str) -> None:
    with pytest.raises(ValueError, match="primary_namespace_name"):
        PairedNamespaceOptions(primary_namespace_name=name)


def test_a_value_of_a_wrong_type_is_reported_with_the_range() -> None:
    with pytest.raises(TypeError, match=r"failover_interval must be a timedelta from 0:00:00 to 1:00:00"):
        PairedNamespaceOptions(failover_interval=float("nan"))  # type: ignore[arg-type]
    with pytest.raises(TypeError, match=r"backlog_queue_count must be a whole number, 1 or more, not inf"):
        PairedNamespaceOptions(backlog_queue_count=float("inf"))  # type: ignore[arg-type]


@pytest.mark.parametrize("name", ["suspect_policy", "probe"])
def test_an_unknown_choice_is_reported_with_the_known_ones(name: str) -> None:
    with pytest.raises(ValueError, match=rf"{name} must be '\w+' or '\w+', not 'perhaps'"):
        PairedNamespaceOptions(**{name: "perhaps"})  # type: ignore[arg-type]


def test_options_cannot_be_changed() -> None:
    with pytest.raises(FrozenInstanceError):
        PairedNamespaceOptions().backlog_queue_count = 3  # type: ignore[misc]


@pytest.mark.spec("G-18")
def test_a_call_may_set_its_own_timeout() -> None:
    assert timeout_seconds(None, PairedNamespaceOptions()) == 60.0
    assert timeout_seconds(2, PairedNamespaceOptions()) == 2.0
    assert (
        timeout_seconds(1e12, PairedNamespaceOptions()) == 1e9
    )  # practically for ever, yet representable on a clock
    for wrong in (0, -1, float("nan"), float("inf")):
        with pytest.raises(ValueError, match="greater than 0"):
            timeout_seconds(wrong, PairedNamespaceOptions())
    for mistyped in (True, "5"):
        with pytest.raises(TypeError, match="number of seconds"):
            timeout_seconds(mistyped, PairedNamespaceOptions())  # type: ignore[arg-type]
