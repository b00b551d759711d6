"""Small decisions: late openings, pings, the options of a watch, and differing backlog queues."""

from __future__ import annotations

from datetime import timedelta
from pathlib import Path
from types import SimpleNamespace
from typing import Any, cast

import pytest
from azure.servicebus._pyamqp.error import AMQPConnectionError
from azure.servicebus.exceptions import OperationTimeoutError
from azure.servicebus.management import EntityStatus, QueueProperties

from sbpair.pair.ground.own_copy import own_copy
from sbpair.pair.pairing.decide.health import EntityHealth, EntityState
from sbpair.pair.pairing.options import ObservationOptions
from sbpair.pair.pairing.request.request import LinkProbe, ping
from sbpair.pair.pairing.shared.address import _is_asked
from sbpair.pair.pairing.shared.backlog import FOREVER, differences
from sbpair.pair.pairing.shared.waiting import OVERDUE, SignsOfLife, StillWaitingError, unchain


@pytest.mark.spec("R-66", "R-8")
@pytest.mark.parametrize(
    ("sign_at", "late_at", "counts"),
    [(None, OVERDUE, True), (None, OVERDUE - 0.01, False), (5.0, 5.0 + OVERDUE, True), (5.0, 5.9, False)],
)
def test_a_late_opening_counts_against_a_peer_silent_for_a_second(
    sign_at: float | None, late_at: float, counts: bool
) -> None:
    signs = ["begun"]
    progress = SignsOfLife(0.0, lambda: signs[-1])
    if sign_at is not None:
        signs.append("answered")
        progress.probe(sign_at)
    late = progress.late(late_at)
    assert isinstance(late, OperationTimeoutError)
    assert isinstance(late, StillWaitingError) is not counts
    assert late.message == "The link was not opened in time."


@pytest.mark.spec("R-66", "R-8")
def test_an_unnoticed_sign_of_life_counts_at_the_deadline() -> None:
    signs = ["begun"]
    progress = SignsOfLife(0.0, lambda: signs[-1])
    signs.append("answered")
    assert isinstance(progress.late(10.0), StillWaitingError)
    assert not isinstance(progress.late(10.0 + OVERDUE), StillWaitingError)


@pytest.mark.spec("R-66", "R-8")
def test_each_caller_gets_its_own_copy_of_a_shared_error_with_the_same_causes() -> None:
    error = ValueError("text")
    error.__cause__, error.__context__ = KeyError("cause"), KeyError("context")
    error.__suppress_context__ = True
    copied = own_copy(error)
    assert copied is not error
    assert (type(copied), copied.args) == (ValueError, ("text",))
    assert copied.__cause__ is error.__cause__
    assert copied.__context__ is error.__context__
    assert copied.__suppress_context__ is True


@pytest.mark.spec("R-66", "R-8")
def test_an_uncopyable_error_is_raised_itself() -> None:
    class ForeignError(Exception):
        def __new__(cls, *, text: str) -> ForeignError:
            return super().__new__(cls, text)

        def __init__(self, *, text: str) -> None: ...

    error = ForeignError(text="cannot be made again")
    assert own_copy(error) is error


@pytest.mark.spec("P-3")
def test_an_amqp_error_is_copied_with_all_its_fields() -> None:
    inner = OSError("reset")
    error = AMQPConnectionError(b"amqp:connection:forced", description=b"maintenance", error=inner)
    copied = own_copy(error)
    assert copied is not error
    assert (type(copied), str(copied)) == (AMQPConnectionError, str(error))
    assert vars(copied) == vars(error)
    assert copied.inner_error is inner


@pytest.mark.spec("P-3")
def test_an_exception_the_caller_handles_is_removed_from_an_error_and_its_causes() -> None:
    handled, kept = FileNotFoundError("of the application"), KeyError("of the error")
    before = handled.__context__ = LookupError("before it")
    cause, inner = OSError("cause"), OSError("inner")
    kept.__context__ = cause.__context__ = inner.__context__ = handled
    error = AMQPConnectionError(b"amqp:connection:forced", error=inner)
    error.__context__, error.__cause__ = kept, cause
    unchain(error, None)
    assert kept.__context__ is handled
    unchain(error, handled)
    assert error.__context__ is kept
    assert (kept.__context__, cause.__context__, inner.__context__) == (None, None, None)
    assert handled.__context__ is before


@pytest.mark.spec("R-66", "P-30")
def test_a_ping_is_empty_short_lived_and_in_its_own_session() -> None:
    messages = [ping().messages[0] for _ in range(2)]
    for message in messages:
        assert b"".join(message.body) == b""
        assert message.content_type == "application/vnd.ms-servicebus-ping"
        assert message.time_to_live == timedelta(seconds=1)
    assert messages[0].session_id != messages[1].session_id
    assert len(LinkProbe().messages) == 0


@pytest.mark.spec("R-66")
@pytest.mark.parametrize(
    ("options", "told"),
    [
        ({"journal": ""}, "journal must be the path of a directory, not ''"),
        ({"journal": 7}, "journal must be the path of a directory, not 7"),
        ({"journal_sends": 1}, "journal_sends must be True or False, not 1"),
        ({"journal_sends": True}, "journal_sends needs a journal"),
        ({"status": ("", 80)}, "status must be a host and a port from 0 to 65535, such as"),
        ({"status": ("localhost", -1)}, "status must be a host"),
        ({"status": ("localhost", 65536)}, "status must be a host"),
        ({"status": ("localhost", True)}, "status must be a host"),
        ({"status": "localhost:80"}, "status must be a host .* not 'localhost:80'$"),
    ],
)
def test_an_operation_a_watch_cannot_do_is_refused_when_requested(options: dict[str, Any], told: str) -> None:
    with pytest.raises((ValueError, TypeError), match=told):
        ObservationOptions(**options)


@pytest.mark.spec("R-66")
def test_a_watch_accepts_the_ends_of_its_ranges() -> None:
    for port in (0, 65535):
        ObservationOptions(status=("localhost", port), journal=Path("here"), journal_sends=True)


def described(**different: object) -> QueueProperties:
    ours = {
        "name": "contoso/x-servicebus-transfer/0",
        "max_size_in_megabytes": 5120,
        "max_delivery_count": 2**31 - 1,
        "default_message_time_to_live": timedelta(days=10_675_199),
        "auto_delete_on_idle": None,
        "lock_duration": timedelta(minutes=1),
        "dead_lettering_on_message_expiration": True,
        "requires_session": False,
        "requires_duplicate_detection": False,
        "enable_partitioning": False,
        "forward_to": None,
        "enable_batched_operations": True,
        "status": EntityStatus.ACTIVE,
    }
    return cast("QueueProperties", SimpleNamespace(**ours | different))


@pytest.mark.spec("R-66", "R-83", "P-14")
@pytest.mark.parametrize(
    ("name", "value"),
    [
        ("status", "SendDisabled"),
        ("status", "Disabled"),
        ("enable_batched_operations", False),
        ("max_size_in_megabytes", 1024),
        ("max_delivery_count", 10),
        ("default_message_time_to_live", timedelta(days=9_999_999)),
        ("auto_delete_on_idle", timedelta(minutes=5)),
        ("lock_duration", timedelta(minutes=5)),
        ("dead_lettering_on_message_expiration", False),
        ("dead_lettering_on_message_expiration", None),
        ("requires_session", True),
        ("forward_to", "elsewhere"),
        ("requires_duplicate_detection", True),
    ],
)
def test_a_differing_backlog_queue_is_reported_with_its_differences(name: str, value: object) -> None:
    assert differences(described()) == []
    assert differences(described(default_message_time_to_live=timedelta(days=10_000_000))) == []
    assert differences(described(**{name: value})) == [f"{name} is {value}"]
    ordered = "contoso/x-servicebus-transfer/ordered/0"
    assert differences(described(name=ordered, requires_session=True)) == []
    assert differences(described(name=ordered)) == ["requires_session is False"]
    assert differences(described(enable_partitioning=True)) == []
    of_partitions = described(name=ordered, requires_session=True, enable_partitioning=True)
    assert differences(of_partitions) == ["enable_partitioning is True"]
    assert FOREVER == "P10675199DT2H48M5.4775807S"


@pytest.mark.spec("R-87")
def test_a_hold_and_a_manual_failover_are_reported_as_such() -> None:
    for act, cause in (("hold", "hold was called"), ("fail_over", "fail_over was called")):
        health = EntityHealth(60.0, 60.0, lambda: 0.0)
        (transition,) = getattr(health, act)(1.0)
        assert (transition.after, transition.cause.value) == (EntityState.FAILED_OVER, cause)


@pytest.mark.spec("H-31")
def test_a_self_signing_credential_is_passed_to_the_sdk_unchanged() -> None:
    class Signs:
        token_type = b"servicebus.windows.net:sastoken"

        def get_token(self, *scopes: str, **more: object) -> None: ...

    class Asks:
        def get_token(self, *scopes: str, **more: object) -> None: ...

    assert [_is_asked(each) for each in (Signs(), Asks(), "a key")] == [False, True, False]
