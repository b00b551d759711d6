"""A message that the primary fails again and again, while it accepts others, is no sign of a sick queue."""

from __future__ import annotations

from collections.abc import Callable

import pytest

from sbpair import EntityState
from sbpair.events import BacklogWithdrawn
from sbpair.pair.pairing.decide.pair import Attempt, Result, SpoolUse, Step
from sbpair.pair.pairing.decide.steps import Choice
from sbpair.pair.pairing.outcome import Outcome, Refused, Stored, Stranded
from tests.pair.pairing.conftest import Driver

REJECTED = {"is_link_in_doubt": True}  # as an answer to the message itself
Answer = Callable[[Step], Result]


def sent(driver: Driver, ids: tuple[str, ...], answer: Answer, spool: SpoolUse = SpoolUse.NEVER) -> Outcome:
    """Send messages with these ids; ``answer`` says what comes of each step."""
    driver.now += 1.0
    flow = driver.pair.send_flow(
        "orders",
        len(ids),
        Choice(),
        now=driver.now,
        deadline=driver.now + 60.0,
        message_ids=lambda: ids,
        spool=spool,
    )
    driver.steps = []
    try:
        step = next(flow)
        while True:
            driver.steps.append(step)
            step = flow.send(answer(step))
    except StopIteration as finished:
        outcome: Outcome = finished.value
        return outcome


def everywhere(driver: Driver) -> Answer:
    return lambda step: driver.fail(**REJECTED)


def at_primary(driver: Driver) -> Answer:
    return lambda step: (
        driver.fail(**REJECTED) if isinstance(step, Attempt) and step.backlog is None else driver.ok()
    )


@pytest.mark.spec("W-5")
@pytest.mark.parametrize("redirects", [True, False])
def test_a_message_that_keeps_failing_while_others_pass_never_fails_the_entity_over(
    pair_of: Callable[..., Driver], redirects: bool
) -> None:
    driver = pair_of(redirects=redirects)
    for turn in range(200):
        outcome = sent(driver, ("bad",), everywhere(driver))
        assert isinstance(outcome, Stranded if redirects and turn == 0 else Refused)
        assert isinstance(sent(driver, (f"good {turn}",), lambda step: driver.ok()), Stored)
        driver.pair.handle_timer(driver.now)
    assert driver.pair.state_of("orders") is EntityState.HEALTHY
    assert [step.backlog for step in driver.steps if isinstance(step, Attempt)] == [None]


@pytest.mark.spec("W-5")
def test_a_message_that_fails_everywhere_withdraws_no_backlog_queue(pair_of: Callable[..., Driver]) -> None:
    driver = pair_of(redirects=True, backlogs=3)
    assert isinstance(sent(driver, ("bad",), everywhere(driver)), Stranded)
    assert len(driver.steps) == 4
    assert not [
        event for event in driver.pair.pass_to(lambda pending: None) if isinstance(event, BacklogWithdrawn)
    ]


@pytest.mark.spec("W-5")
def test_a_repeatedly_failing_message_fails_the_entity_over_if_no_message_passes(
    pair_of: Callable[..., Driver],
) -> None:
    driver = pair_of(redirects=False)
    for _ in range(70):
        sent(driver, ("same",), everywhere(driver))
        driver.pair.handle_timer(driver.now)
    assert driver.pair.state_of("orders") is EntityState.FAILED_OVER


@pytest.mark.spec("W-5")
@pytest.mark.parametrize("ids", [("",), ("a",), ("a", "b")])
def test_messages_that_were_stored_elsewhere_are_not_held_against_their_ids(
    pair_of: Callable[..., Driver], ids: tuple[str, ...]
) -> None:
    driver = pair_of(redirects=True)
    for turn in range(20):
        assert isinstance(sent(driver, ids, at_primary(driver)), Stored)
        assert isinstance(sent(driver, (f"good {turn}",), lambda step: driver.ok()), Stored)


@pytest.mark.spec("W-5")
def test_a_message_without_an_id_is_never_mistaken_for_another(pair_of: Callable[..., Driver]) -> None:
    driver = pair_of(redirects=True)
    for turn in range(3):
        assert isinstance(sent(driver, ("",), everywhere(driver)), Stranded)
        sent(driver, (f"good {turn}",), lambda step: driver.ok())
