"""The action for each outcome that a destination answers."""

from __future__ import annotations

import pytest

from sbpair.pair.amqp.performatives import Accepted, Condition, Modified, Received, Rejected, Released
from sbpair.pair.client.backoff import Backoff
from sbpair.pair.syphon.forward.in_flight import DeliveryAction, action_for


@pytest.mark.spec("G-20")
def test_only_an_accepted_message_is_completed() -> None:
    assert action_for(Accepted()) is DeliveryAction.COMPLETE


@pytest.mark.spec("F-56", "G-20")
@pytest.mark.parametrize(
    "state", [None, Released(), Modified(), Modified(True, True), Received(0, 0), Rejected()]
)
def test_an_undefined_outcome_settles_nothing(state: object) -> None:
    assert action_for(state) is DeliveryAction.HOLD


@pytest.mark.spec("F-42", "F-43", "F-70")
@pytest.mark.parametrize(
    "symbol",
    [
        "amqp:not-found",
        "com.microsoft:entity-disabled",
        "amqp:link:message-size-exceeded",
        "amqp:not-allowed",
        "com.microsoft:argument-error",
    ],
)
def test_a_final_refusal_dead_letters_the_message(symbol: str) -> None:
    assert action_for(Rejected(Condition(symbol))) is DeliveryAction.DEAD_LETTER


@pytest.mark.spec("F-44", "F-61")
@pytest.mark.parametrize(
    "symbol",
    [
        "com.microsoft:server-busy",
        "com.microsoft:timeout",
        "amqp:resource-limit-exceeded",
        "amqp:unauthorized-access",
        "com.microsoft:auth-failed",
        "amqp:internal-error",
        "amqp:link:detach-forced",
        "amqp:connection:forced",
        "com.microsoft:never-heard-of",
    ],
)
def test_a_temporary_refusal_holds_the_message(symbol: str) -> None:
    assert action_for(Rejected(Condition(symbol))) is DeliveryAction.HOLD


def test_the_pause_doubles_up_to_its_cap_and_is_jittered_downwards() -> None:
    longest, shortest = Backoff(10.0, 1.0, lambda: 1.0), Backoff(10.0, 1.0, lambda: 0.0)

    assert [longest.next_pause() for _ in range(6)] == [1, 2, 4, 8, 10, 10]
    assert [shortest.next_pause() for _ in range(5)] == [0.5, 1, 2, 4, 5]
    longest.succeeded()
    assert longest.next_pause() == 1
