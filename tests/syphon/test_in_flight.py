"""In-flight messages just before they are sent: locks that have ended, and remaining time to live."""

from __future__ import annotations

from dataclasses import dataclass, field

import pytest

from sbpair.envelope.restore import EXPIRED, Forward, Poison
from sbpair.syphon.in_flight import FRESH, InFlightMessage

LATE = Poison(EXPIRED, "the message was due before")


@dataclass
class Told:
    """Origin and destination at once: what they are told."""

    said: list[object] = field(default_factory=list)

    def lock_doubtful(self, message: InFlightMessage) -> None:
        self.said.append("doubted")

    def poisoned(self, message: InFlightMessage, poison: Poison) -> None:
        self.said.append(poison)

    def skipped(self, message: InFlightMessage) -> None:
        self.said.append("passed over")


def message(told: Told, *restore_again: Forward | Poison) -> InFlightMessage:
    """Restored at second 100, with a lock until 160; ``restore_again``: what restoring it anew comes to, in turn."""
    answers = iter(restore_again)
    return InFlightMessage(
        told,  # type: ignore[arg-type]
        1,
        "orders",
        b"as restored first",
        100.0,
        160.0,
        60.0,
        b"",
        told,  # type: ignore[arg-type]
        restore_again=(lambda: next(answers)) if restore_again else None,
        restored_at=100.0,
    )


@pytest.mark.spec("G-15")
def test_what_waited_with_a_deadline_goes_with_what_is_left_then() -> None:
    told = Told()
    one = message(told, Forward("orders", b"at 120", None, True), Forward("orders", b"at 140", None, True))
    sent = []
    for now in (100.0, 100.0 + FRESH / 2, 120.0, 120.0 + FRESH / 2, 140.0):
        assert one.may_go(now)
        sent.append(one.payload)
    assert sent == [b"as restored first"] * 2 + [b"at 120"] * 2 + [b"at 140"]
    assert told.said == []


@pytest.mark.spec("G-15")
def test_what_waited_past_its_deadline_does_not_go_and_is_set_aside() -> None:
    told = Told()
    assert not message(told, LATE).may_go(120.0)
    assert told.said == ["passed over", LATE]


def test_without_a_deadline_what_was_restored_goes_however_long_it_waited() -> None:
    told = Told()
    one = message(told)
    assert one.may_go(159.0)
    assert one.payload == b"as restored first"


@pytest.mark.spec("F-66")
def test_whose_lock_may_have_ended_is_asked_for_before_anything_is_restored() -> None:
    told = Told()
    assert not message(told, LATE).may_go(160.0)
    assert told.said == ["passed over", "doubted"]
