"""The pump of one backlog on a driven clock: the fate of its messages, and their memory."""

from __future__ import annotations

import asyncio

import pytest

from sbpair.pair.amqp.performatives import (
    Accepted,
    Condition,
    DeliveryState,
    Modified,
    Rejected,
    Released,
)
from sbpair.pair.envelope.restore import Poison
from sbpair.pair.syphon.events import MessageSetAside, MessagesForwarded, MessagesInDoubt
from sbpair.pair.syphon.forward.credit import FIRST_LIMIT
from sbpair.pair.syphon.forward.pump import HELD_FACTOR, TICK
from tests.pair.syphon.played_backlog import Pumped, parked, renewals
from tests.pair.syphon.scripted import BUSY, GONE, PlayedLink, driven, turns
from tests.trials.simulation.virtual_loop import EPOCH

__all__ = ["renewals"]

pytestmark = pytest.mark.spec("R-66", "G-20")


# --- forwarding


@driven
async def test_a_message_is_completed_on_its_backlog_once_its_destination_accepted_it() -> None:
    pumped = Pumped()
    pump = pumped.pump
    assert (pump.is_open, pump.is_waiting, pump.unsettled) == (False, False, 0)
    await turns()
    assert pumped.receiver.flows == [(FIRST_LIMIT, False)]
    assert pumped.attached == ["b0"]
    assert (pump.is_open, pump.is_waiting, pumped.counters.receives) == (True, True, 1)
    assert pump.is_idle.is_set()
    await pumped.deliver(parked(1), parked(2), parked(3))
    assert not pump.is_idle.is_set()
    assert (pump.is_waiting, pump.unsettled) == (False, 3)
    (first, *_) = pumped.link.sent
    assert (first.tag, first.lock_ends, first.lock_span, first.posted_at) == (b"lock-1", 60.0, 60.0, 0.0)
    assert (first.size, pumped.budget.used) == (len(first.payload), 3 * first.size)
    assert pumped.receiver.settled == []
    await pumped.accept(3)
    assert pumped.receiver.settled == [(1, 3, Accepted())]
    assert pumped.counted() == {"received": 3, "forwarded": 3, "pending": 3}
    assert (pump.unsettled, pumped.budget.used) == (3, 0)
    pumped.receiver.confirm(1, 2)
    assert pumped.counted() == {"received": 3, "forwarded": 3, "completed": 2, "pending": 1}
    assert not pump.is_idle.is_set()
    pumped.receiver.confirm(1, 3)  # each counts once
    assert pumped.counted() == {"received": 3, "forwarded": 3, "completed": 3}
    assert pump.is_idle.is_set()
    assert (pump.is_waiting, pump.unsettled) == (True, 0)


@pytest.mark.parametrize(
    ("answer", "counter"),
    [
        (Accepted(), "completed"),
        (Rejected(), "dead_lettered"),
        (Rejected(Condition("com.microsoft:message-lock-lost")), "lock_lost"),
        (Modified(), "lock_lost"),
        (None, "lock_lost"),
    ],
)
@driven
async def test_the_answer_of_the_backlog_is_counted(answer: DeliveryState | None, counter: str) -> None:
    pumped = Pumped()
    await pumped.deliver(parked(1))
    await pumped.accept(1)
    pumped.receiver.confirm(1, 1, answer)
    assert pumped.counted() == {"received": 1, "forwarded": 1, counter: 1}


@driven
async def test_forwarded_messages_are_reported_before_they_are_completed() -> None:
    pumped = Pumped(report_forwards=True)
    await pumped.deliver(parked(1), parked(2))
    await pumped.accept(2)
    (event,) = pumped.scene.said(MessagesForwarded)
    assert (event.backlog, event.path, event.message_ids, event.side) == (
        "b0",
        "orders",
        ("m1", "m2"),
        "primary",
    )
    assert event.at == EPOCH
    quiet = Pumped()
    await quiet.deliver(parked(1))
    await quiet.accept(1)
    assert quiet.scene.events == []


@pytest.mark.spec("R-243")
@driven
async def test_messages_on_a_link_that_ends_unanswered_are_reported_as_in_doubt() -> None:
    pumped = Pumped(report_forwards=True, link=PlayedLink(credit=2))
    await pumped.deliver(parked(1), parked(2), parked(3))  # the third waits for credit: it was not sent
    pumped.link.detach()
    await turns()
    (event,) = pumped.scene.said(MessagesInDoubt)
    assert (event.backlog, event.path, event.message_ids, event.side) == (
        "b0",
        "orders",
        ("m1", "m2"),
        "primary",
    )
    await asyncio.sleep(5.0)
    while pumped.link.sent:
        await pumped.accept(1)
    assert [id for each in pumped.scene.said(MessagesForwarded) for id in each.message_ids] == [
        "m1",
        "m2",
        "m3",
    ]
    assert len(pumped.scene.said(MessagesInDoubt)) == 1


@pytest.mark.spec("R-243")
@driven
async def test_a_message_is_in_doubt_once_for_each_link_that_ended_with_it() -> None:
    pumped = Pumped(report_forwards=True)
    await pumped.deliver(parked(1))
    for _ in range(2):
        pumped.link.detach()
        await asyncio.sleep(5.0)
    await pumped.accept(1)
    assert [each.message_ids for each in pumped.scene.said(MessagesInDoubt)] == [("m1",), ("m1",)]


@pytest.mark.spec("R-243")
@driven
async def test_a_refused_message_is_not_in_doubt() -> None:
    pumped = Pumped(report_forwards=True)
    await pumped.deliver(parked(1))
    pumped.link.answer(BUSY)
    await turns()
    pumped.link.detach()
    await turns()
    assert pumped.scene.said(MessagesInDoubt) == []


@driven
async def test_poison_is_dead_lettered_with_its_reason_and_is_never_posted() -> None:
    pumped = Pumped()
    await pumped.deliver(parked(1, path="forbidden"), parked(2))
    (event,) = pumped.scene.said(MessageSetAside)
    assert (event.at, event.backlog, event.path, event.reason, event.message_id) == (
        EPOCH, "b0", None, "PathNotAllowed", "m1",
    )  # fmt: skip
    assert "'forbidden'" in event.description
    ((first, last, state),) = pumped.receiver.settled
    assert (first, last) == (1, 1)
    assert state == Rejected(
        Condition(
            "com.microsoft:dead-letter",
            event.description,
            {"DeadLetterReason": "PathNotAllowed", "DeadLetterErrorDescription": event.description},
        )
    )
    assert pumped.link.all_sent == [2]
    assert pumped.pump.unsettled == 2
    pumped.receiver.confirm(1, 1, Rejected())
    assert pumped.counted() == {"received": 2, "dead_lettered": 1, "pending": 1}


@driven
async def test_a_final_refusal_dead_letters_the_message_and_frees_its_memory() -> None:
    pumped = Pumped()
    await pumped.deliver(parked(1), parked(2))
    message = pumped.link.sent[1]
    pumped.link.answer(GONE)
    (event,) = pumped.scene.said(MessageSetAside)
    assert (event.path, event.reason) == ("orders", "DestinationNotFound")
    assert event.description == "'orders' refused the message: amqp:not-found: no orders here"
    pumped.pump.refused(message, None)
    assert [each.reason for each in pumped.scene.said(MessageSetAside)][1:] == ["DestinationRefused"]
    pumped.pump.refused(message, None)  # already settled
    assert len(pumped.scene.said(MessageSetAside)) == 2
    assert (pumped.budget.used, pumped.pump.unsettled) == (0, 2)


@driven
async def test_a_description_keeps_no_key_and_has_a_limit() -> None:
    pumped = Pumped()
    await pumped.deliver(parked(1))
    poison = Poison("Refused", "SharedAccessKey=c2VjcmV0;" + "x" * 5000)
    pumped.pump.poisoned(pumped.link.sent[0], poison)
    (event,) = pumped.scene.said(MessageSetAside)
    assert "c2VjcmV0" not in event.description
    assert len(event.description) == 4096


@driven
async def test_an_expired_message_may_show_a_clock_difference() -> None:
    pumped = Pumped()
    deadline = {"x-sbpair-deadline": "2030-01-01T00:00:00Z"}
    await pumped.deliver(parked(1, lock=60.0, **deadline))
    assert [each.reason for each in pumped.scene.said(MessageSetAside)] == ["TTLExpiredException"]
    assert pumped.ahead == []
    behind = Pumped()
    await behind.deliver(parked(1, lock=-540.0, **deadline))
    assert behind.ahead == [-600.0]
    bare = Pumped()
    await bare.deliver(parked(1, lock=None, **deadline))
    assert bare.ahead == []


@driven
async def test_a_message_with_a_deadline_is_restored_again_and_keeps_its_original_in_memory() -> None:
    pumped = Pumped(link=PlayedLink(credit=0))
    original = parked(1, **{"x-sbpair-deadline": "2030-03-17T17:46:55Z"})  # 15 s on the driven clock
    await pumped.deliver(original)
    assert pumped.budget.used > len(original)
    await asyncio.sleep(20.0)
    pumped.link.grant(1)
    assert [each.reason for each in pumped.scene.said(MessageSetAside)] == ["TTLExpiredException"]
    assert pumped.budget.used == 0


# --- messages that wait


@driven
async def test_held_messages_leave_room_for_others_and_count_again_when_sent() -> None:
    pumped = Pumped(window=4)
    await pumped.deliver(*map(parked, range(1, 5)))
    assert pumped.receiver.credit == 0
    pumped.link.answer(BUSY)
    await turns()
    assert pumped.budget.held == pumped.budget.used // 4
    for _ in range(3):
        pumped.link.answer(BUSY)
    await turns()
    assert pumped.receiver.credit == 4
    await asyncio.sleep(0.6)
    assert pumped.link.sent[0].posted_at == 0.5
    for _ in range(4):
        await pumped.accept(1)
        await asyncio.sleep(0.05)  # evenly, after busy
    assert pumped.counted() == {"received": 4, "forwarded": 4, "pending": 4}


@driven
async def test_above_the_hold_limit_only_locks_are_kept_and_messages_return_when_there_is_room() -> None:
    pumped = Pumped(window=2)
    await pumped.deliver(parked(1), parked(2))
    pumped.link.answer(BUSY)
    pumped.link.answer(BUSY)
    await turns()
    most = 2 * HELD_FACTOR
    for number in range(3, most + 3, 2):
        await pumped.deliver(parked(number), parked(number + 1))
    pump = pumped.pump
    assert pumped.scene.orders.waiting == most
    assert pump.unsettled == most + 2
    assert pumped.receiver.given_back == []
    await asyncio.sleep(0.6)
    while pumped.link.sent:
        await pumped.accept(1)
        await asyncio.sleep(0.05)  # evenly, after busy
    await asyncio.sleep(TICK)
    assert pumped.receiver.given_back == [(most + 1, most + 2, Released())]
    assert pumped.counted() == {
        "received": most + 2, "forwarded": most, "released": 2, "pending": most,
    }  # fmt: skip


@driven
async def test_stalled_messages_leave_room_until_they_are_answered() -> None:
    pumped = Pumped(window=2)
    await pumped.deliver(parked(1), parked(2))
    assert pumped.receiver.credit == 0
    await asyncio.sleep(0.6)
    assert pumped.receiver.credit == 2
    await pumped.accept(1)
    pumped.link.answer(GONE)


# --- memory


@driven
async def test_with_full_memory_the_socket_is_not_read_until_half_is_free() -> None:
    pumped = Pumped()
    await pumped.deliver(parked(1))
    pumped.budget.total = int(pumped.link.sent[0].size * 1.2)
    await pumped.deliver(parked(2))
    assert pumped.paused == [True]
    await pumped.accept(1)
    assert pumped.paused == [True]
    await pumped.accept(1)
    assert pumped.paused == [True, False]


@pytest.mark.spec("R-22", "R-27")
@driven
async def test_a_held_message_above_half_of_the_memory_does_not_stop_reading() -> None:
    pumped = Pumped()
    await pumped.deliver(parked(1))
    pumped.budget.total = int(pumped.link.sent[0].size * 1.2)
    pumped.link.answer(BUSY)
    await turns()
    await pumped.deliver(parked(2))
    assert pumped.paused == [True, False]


@pytest.mark.spec("R-22", "R-27")
@driven
async def test_a_held_message_above_all_of_the_memory_does_not_stop_reading() -> None:
    pumped = Pumped(budget=1)
    await pumped.deliver(parked(1))
    assert pumped.paused == [True]
    pumped.link.answer(BUSY)
    await turns()
    assert pumped.paused == [True, False]


class Traced:
    """A tracing backend that records what a syphon reports."""

    def __init__(self) -> None:
        self.spans: list[tuple[object, ...]] = []

    def forwarded(self, headers: object, attributes: object, path: str, seconds: float, refusal: str) -> None:
        self.spans.append((headers, attributes, path, seconds, refusal))


@pytest.mark.parametrize("is_landing", [False, True])
@driven
async def test_a_forwarded_message_has_a_span_with_its_backlog_and_accepting_side(
    monkeypatch: pytest.MonkeyPatch, is_landing: bool
) -> None:
    traced = Traced()
    monkeypatch.setattr("sbpair.pair.tracing.current.active", traced)
    pumped = Pumped()
    await pumped.deliver(parked(1, traceparent="00-1-2-01"), parked(2))
    pumped.link.sent[0].is_landing = is_landing
    await asyncio.sleep(1.5)
    await pumped.accept(2)
    attributes = {
        "messaging.message.id": "m1",
        "sbpair.backlog": "b0",
        "sbpair.side": "secondary" if is_landing else "primary",
    }
    assert traced.spans == [({"traceparent": "00-1-2-01"}, attributes, "orders", 1.5, "")]


@driven
async def test_a_dead_lettered_message_has_a_span_with_the_reason(monkeypatch: pytest.MonkeyPatch) -> None:
    traced = Traced()
    monkeypatch.setattr("sbpair.pair.tracing.current.active", traced)
    pumped = Pumped()
    await pumped.deliver(parked(1, path="forbidden", traceparent="00-1-2-01"))
    ((_, attributes, path, seconds, refusal),) = traced.spans
    assert attributes == {"messaging.message.id": "m1", "sbpair.backlog": "b0", "sbpair.side": "primary"}
    assert (path, seconds, refusal) == ("", 0.0, "PathNotAllowed")
