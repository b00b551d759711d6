"""What callers get while a side is only half down: in virtual time with default options, and shortly in real time."""

from __future__ import annotations

from dataclasses import replace

import pytest

from sbpair import PairedNamespaceOptions
from tests.trials.grey.page import stored
from tests.trials.grey.real import play
from tests.trials.grey.scenarios import DEFAULTS, SCENARIOS
from tests.trials.grey.virtual import SCENARIOS as VIRTUAL
from tests.trials.grey.virtual import broken, measure

REDIRECT, RAISE = (PairedNamespaceOptions(suspect_policy=policy) for policy in ("redirect", "raise"))


@pytest.mark.trial
@pytest.mark.spec("H-56")
@pytest.mark.parametrize(("clients", "rate"), [(50, 0.5), (5, 10.0)], ids=["quiet clients", "busy clients"])
@pytest.mark.parametrize("name", VIRTUAL)
def test_with_default_options_every_send_is_stored_within_seconds(
    name: str, clients: int, rate: float
) -> None:
    figures = measure(name, clients=clients, rate=rate, minutes=10 if rate < 1 else 5)
    assert broken(name, figures, rate) == []


@pytest.mark.trial
@pytest.mark.spec("H-57")
def test_a_silent_entity_is_left_one_interval_after_the_first_unanswered_attempt() -> None:
    figures = measure("100% unanswered", options=RAISE, clients=50, rate=2.0, minutes=3)
    assert max(figures.failed_over_at.values()) <= 10 + 60 + 2  # an attempt, the interval, and the first send


@pytest.mark.trial
@pytest.mark.spec("H-1", "G-12")
def test_old_failures_do_not_turn_a_blip_into_an_outage() -> None:
    name = "two bad seconds of 45, then 20 bad ones"
    assert not measure(name, options=RAISE, clients=50, minutes=10).failed_over_at


@pytest.mark.trial
@pytest.mark.spec("H-1", "H-6", "H-7")
@pytest.mark.parametrize("name", ["80% rejected", "95% rejected", "up 10 s, down 60 s"])
def test_with_redirect_a_mostly_failing_primary_raises_no_error(name: str) -> None:
    figures = measure(name, clients=50, options=REDIRECT, minutes=10)
    assert figures.ended["raised"] == 0
    assert figures.goodput >= 0.95
    assert len(figures.failed_over_at) == 50


@pytest.mark.trial
@pytest.mark.spec("H-1")
@pytest.mark.parametrize("name", ["80% rejected", "95% rejected"])
def test_a_primary_that_mostly_fails_is_left_within_two_intervals(name: str) -> None:
    figures = measure(name, clients=50, options=RAISE, minutes=5)
    assert max(figures.failed_over_at.values()) <= 130  # two intervals, and the pauses between retries


@pytest.mark.trial
@pytest.mark.spec("H-1")
@pytest.mark.parametrize("options", [REDIRECT, RAISE])
@pytest.mark.parametrize("name", ["5% rejected", "20% rejected"])
def test_a_primary_that_mostly_succeeds_is_not_left(name: str, options: PairedNamespaceOptions) -> None:
    assert not measure(name, clients=50, options=options, minutes=30).failed_over_at


@pytest.mark.trial
@pytest.mark.spec("H-4")
@pytest.mark.parametrize("name", ["95% unanswered", "each answer after 40 s"])
def test_a_primary_that_answers_late_or_not_is_left_within_three_intervals(name: str) -> None:
    figures = measure(name, clients=50, options=REDIRECT, minutes=10)
    assert figures.ended["raised"] == 0
    assert len(figures.failed_over_at) == 50
    assert sorted(figures.failed_over_at.values())[25] <= 180


@pytest.mark.trial
@pytest.mark.spec("H-5")
def test_a_mostly_busy_primary_is_left_only_with_failover_on_busy_after() -> None:
    scenario = "80% busy, failover_on_busy_after 60 s"
    left = measure(scenario, clients=50, options=REDIRECT, minutes=10, rate=2.0)
    stayed = measure("80% busy", clients=50, options=REDIRECT, minutes=10)
    assert (len(left.failed_over_at), len(stayed.failed_over_at)) == (50, 0)
    assert left.goodput >= 0.9


@pytest.mark.trial
@pytest.mark.spec("H-9")
def test_an_unavailable_partition_affects_only_its_keys() -> None:
    figures = measure("one partition of 16 down, with keys", clients=50, options=REDIRECT, minutes=10)
    assert figures.ended["raised"] == 0
    assert figures.ended["parked"] <= 0.1 * figures.ended.total()


@pytest.mark.trial
@pytest.mark.spec("H-9")
def test_keys_of_a_throttled_partition_are_parked_without_affecting_others() -> None:
    name = "one partition of 16 throttled, with keys"
    figures = measure(name, clients=50, options=REDIRECT, minutes=10)
    assert figures.ended["raised"] <= 0.02 * figures.ended.total()
    assert (
        figures.ended["parked"] <= 0.07 * figures.ended.total()
    )  # 63 of the 1,000 keys are that partition's


@pytest.mark.trial
@pytest.mark.timeout(60)
@pytest.mark.spec("H-1", "H-6")
def test_in_real_time_a_mostly_rejecting_primary_is_left_and_no_caller_gets_an_error() -> None:
    short = replace(SCENARIOS["rejected-95"], seconds=8.0, contestants=("pair redirect",))
    assert play(short)["holds"]


@pytest.mark.trial
@pytest.mark.timeout(60)
@pytest.mark.spec("H-24")
def test_in_real_time_sends_to_two_silent_sides_are_answered_in_time() -> None:
    short = replace(SCENARIOS["both-silent"], seconds=12.0)
    assert play(short)["holds"]


def test_the_page_has_every_scenario() -> None:
    assert [each["scenario"] for each in stored()["real"]] == [*SCENARIOS, *DEFAULTS]
    assert {each["scenario"] for each in stored()["virtual"]["rows"]} == set(VIRTUAL)
