"""In-flight messages just before they are sent: their locks, their remaining time to live, and equality."""

from __future__ import annotations

from dataclasses import dataclass, field

import pytest

from sbpair.pair.envelope.restore import EXPIRED, Forward, Poison
from sbpair.pair.syphon.forward.in_flight import FRESH, InFlightMessage
from tests.pair.syphon.scripted import PAYLOAD, Scene, driven

LATE = Poison(EXPIRED, "the message was due before")


@dataclass
class Told:
    """Origin and destination in one, recording their calls."""

    said: list[object] = field(default_factory=list)

    def lock_doubtful(self, message: InFlightMessage) -> None:
        self.said.append("doubted")

    def poisoned(self, message: InFlightMessage, poison: Poison) -> None:
        self.said.append(poison)

    def skipped(self, message: InFlightMessage) -> None:
        self.said.append(("passed over", message.delivery_id))


def message(told: Told, *restore_again: Forward | Poison) -> InFlightMessage:
    """Create a message restored at second 100 and locked until 160; ``restore_again`` are the next results."""
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
def test_a_held_message_with_a_deadline_is_sent_with_its_remaining_time() -> None:
    told = Told()
    one = message(told, Forward("orders", b"at 120", None, True), Forward("orders", b"at 140", None, True))
    sent = []
    for now in (100.0, 100.0 + FRESH / 2, 120.0, 120.0 + FRESH / 2, 140.0):
        assert one.may_go(now)
        sent.append(one.payload)
    assert sent == [b"as restored first"] * 2 + [b"at 120"] * 2 + [b"at 140"]
    assert told.said == []


@pytest.mark.spec("G-15")
def test_a_held_message_past_its_deadline_is_dead_lettered() -> None:
    told = Told()
    assert not message(told, LATE).may_go(120.0)
    assert told.said == [("passed over", 1), LATE]


def test_a_held_message_without_a_deadline_is_sent_however_long_it_waited() -> None:
    told = Told()
    one = message(told)
    assert one.may_go(159.0)
    assert one.payload == b"as restored first"


@pytest.mark.spec("F-66")
def test_a_doubtful_lock_is_checked_before_anything_is_restored() -> None:
    told = Told()
    assert not message(told, LATE).may_go(160.0)
    assert told.said == [("passed over", 1), "doubted"]


@pytest.mark.spec("R-66", "R-22")
@driven
async def test_a_message_is_sent_until_its_lock_may_have_expired() -> None:
    scene = Scene()
    kept = scene.message(1, lock_ends=10.0)
    assert kept.may_go(9.999)
    assert not kept.may_go(10.0)
    assert scene.told == [("doubtful", 1)]
    released = scene.message(2, is_released=True)
    assert not released.may_go(0.0)
    assert scene.told_of("doubtful") == [1]  # its origin has let go of it


@pytest.mark.spec("R-66", "R-22")
@driven
async def test_after_a_suspension_each_lock_is_renewed_once(monkeypatch: pytest.MonkeyPatch) -> None:
    scene = Scene()
    message = scene.message(1)
    monkeypatch.setattr("sbpair.pair.syphon.forward.in_flight.time_suspended", lambda: 0.5)
    assert message.may_go(1.0)
    monkeypatch.setattr("sbpair.pair.syphon.forward.in_flight.time_suspended", lambda: 1.1)
    assert not message.may_go(1.0)
    message.is_released = False
    assert message.may_go(1.0)
    assert scene.told_of("doubtful") == [1]


@pytest.mark.spec("R-66", "R-22")
@driven
async def test_the_time_to_live_is_recomputed_after_half_a_second() -> None:
    scene = Scene()
    message = scene.message(1)
    message.restored_at = 1.0
    message.restore_again = lambda: Forward("orders", b"again", None)
    assert message.may_go(1.499)
    assert message.payload == PAYLOAD
    assert message.may_go(1.5)
    assert (message.payload, message.restored_at) == (b"again", 1.5)


@pytest.mark.spec("R-66", "R-22")
def test_a_message_equals_only_itself() -> None:
    fields = dict.fromkeys(("origin", "destination"))
    one, other = (
        InFlightMessage(delivery_id=1, path="a", payload=b"", posted_at=0.0, lock_ends=0.0, lock_span=0.0,
                        tag=b"", **fields)  # type: ignore[arg-type]
        for _ in range(2)
    )  # fmt: skip
    assert one != other
    assert len({one, other}) == 2
