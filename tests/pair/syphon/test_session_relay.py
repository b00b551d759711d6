"""The relay of one session on a driven clock: posting, settling, releasing, and when it ends."""

from __future__ import annotations

import asyncio
from collections import deque
from typing import Any

import pytest

from sbpair.pair.amqp.events import DispositionReceived
from sbpair.pair.amqp.message import DataBody, Message
from sbpair.pair.amqp.performatives import (
    ACCEPTED,
    Accepted,
    Condition,
    DeliveryState,
    Modified,
    Rejected,
    Released,
)
from sbpair.pair.client.errors import ConnectionLostError
from sbpair.pair.envelope.inspect import message_id_of
from sbpair.pair.envelope.ordering import OrderStamp
from sbpair.pair.envelope.restore import BATCH
from sbpair.pair.syphon.events import MessageSetAside, MessagesForwarded, MessagesInDoubt, SessionHeld
from sbpair.pair.syphon.forward.delivery import STALLED_AFTER
from sbpair.pair.syphon.order.order_check import MAX_CLIENTS, OrderCheck
from sbpair.pair.syphon.order.session_relay import HELD_FOR, LAST_ANSWERS, RelaySettings, SessionRelay
from sbpair.pair.syphon.status import SyphonCounters
from tests.pair.syphon.played_session import CLIENT, EPOCH, PlayedSession, parked
from tests.pair.syphon.scripted import BUSY, GONE, PlayedLink, Scene, driven, now, turns
from tests.trials.simulation.virtual_loop import EPOCH as STARTED_AT

pytestmark = pytest.mark.spec("R-66", "O-6")


class Relayed:
    """A session with its relay, and a destination whose host and link the test plays."""

    def __init__(self, *payloads: bytes, link: PlayedLink | None = None, **settings: Any) -> None:
        self.scene = Scene(opens=[] if link is None else [link])
        self.counters = SyphonCounters()
        self.check = OrderCheck()
        self.busy: list[tuple[float, bool]] = []
        self.doubted: list[float] = []
        self.paths: list[str] = []
        defaults: dict[str, Any] = {
            "is_allowed": lambda path: path != "forbidden",
            "destination_of": self._destination_of,
            "counters": self.counters,
            "emit": self.scene.events.append,
            "check": self.check,
            "credit": lambda largest: 2 if largest else 1000,
        }
        self.relay = SessionRelay(
            "ordered/0",
            RelaySettings(**(defaults | settings)),
            self._noted,
            lambda relay: self.doubted.append(now()),
        )
        self.relay.lock_ends = now() + 60.0
        self.session = PlayedSession(deque(payloads))
        self.session.on_message, self.session.on_disposition = (
            self.relay.on_message,
            self.relay.on_disposition,
        )
        self.running = asyncio.ensure_future(self.relay.run(self.session))  # type: ignore[arg-type]

    def _noted(self, relay: SessionRelay, is_busy: bool) -> None:
        assert relay is self.relay
        self.busy.append((now(), is_busy))

    def _destination_of(self, path: str) -> Any:
        self.paths.append(path)
        return self.scene.orders

    @property
    def link(self) -> PlayedLink:
        return self.scene.link

    async def accept(self, count: int) -> None:
        for _ in range(count):
            await turns()
            self.link.answer()
        await turns()

    def counted(self) -> dict[str, int]:
        """Return the counters that are not zero."""
        names = ("received", "forwarded", "completed", "dead_lettered", "released", "lock_lost", "pending")
        return {name: getattr(self.counters, name) for name in names if getattr(self.counters, name)}


@driven
async def test_one_message_is_in_flight_at_a_time_and_an_empty_session_is_released() -> None:
    relayed = Relayed(*map(parked, range(3)))
    assert relayed.relay.receiver is None
    await turns()
    assert relayed.relay.receiver is relayed.session
    assert relayed.link.all_sent == [1]
    assert relayed.counted() == {"received": 3, "pending": 3}
    await relayed.accept(1)
    assert relayed.link.all_sent == [1, 2]
    assert relayed.session.settled == []  # with more to come, several are completed at once
    await relayed.accept(2)
    await relayed.running
    assert relayed.session.settled == [(1, 3, Accepted())]
    assert relayed.session.credits == [1000, 2]
    assert relayed.session.closed_at == 0.0
    assert relayed.session.given_back == []
    assert relayed.counted() == {"received": 3, "forwarded": 3, "completed": 3}
    assert relayed.paths == ["orders"] * 3
    assert (relayed.scene.events, relayed.busy) == ([], [])


@driven
async def test_ten_messages_are_completed_together_while_more_wait() -> None:
    relayed = Relayed(*map(parked, range(13)))
    await relayed.accept(9)
    assert relayed.session.settled == []
    await relayed.accept(1)
    assert relayed.session.settled == [(1, 10, Accepted())]
    await relayed.accept(3)
    await relayed.running
    assert relayed.session.settled == [(1, 10, Accepted()), (11, 13, Accepted())]
    assert relayed.counted() == {"received": 13, "forwarded": 13, "completed": 13}


@driven
async def test_credit_follows_the_largest_message_and_the_session_is_polled_until_empty() -> None:
    sizes: list[int] = []
    payloads = [parked(0), parked(1, more="x" * 5000), parked(2), parked(3)]

    def credit(largest: int) -> int:
        sizes.append(largest)
        return 3

    relayed = Relayed(*payloads, credit=credit)
    await relayed.accept(4)
    await relayed.running
    assert sizes == [0, len(payloads[1]), len(payloads[1])]
    assert relayed.session.credits == [3, 3, 3]


@driven
async def test_a_forwarded_message_is_reported_before_it_is_completed() -> None:
    relayed = Relayed(parked(0), parked(1), report_forwards=True)
    await relayed.accept(2)
    await relayed.running
    (event,) = relayed.scene.said(MessagesForwarded)
    assert (event.backlog, event.path, event.message_ids, event.side) == (
        "ordered/0", "orders", ("m0", "m1"), "primary",
    )  # fmt: skip
    assert event.at == pytest.approx(1_900_000_000.0)


@pytest.mark.spec("R-243")
@driven
async def test_a_message_without_an_answer_is_reported_as_in_doubt() -> None:
    relayed = Relayed(parked(0), report_forwards=True)
    await turns()
    relayed.link.detach()
    await asyncio.sleep(10.0)
    (event,) = relayed.scene.said(MessagesInDoubt)
    assert (event.backlog, event.path, event.message_ids) == ("ordered/0", "orders", ("m0",))


@pytest.mark.spec("R-243")
@driven
async def test_a_message_accepted_after_its_session_was_lost_is_reported_as_forwarded() -> None:
    relayed = Relayed(parked(0), report_forwards=True)
    await turns()
    relayed.session.detached.set_result(None)
    await turns()
    assert relayed.scene.said(MessagesForwarded) == []
    await relayed.accept(1)
    assert [each.message_ids for each in relayed.scene.said(MessagesForwarded)] == [("m0",)]


@driven
async def test_unrequested_reports_are_not_made() -> None:
    relayed = Relayed(parked(0))
    await relayed.accept(1)
    assert relayed.scene.events == []


# --- poison, and messages out of order


@driven
async def test_poison_is_dead_lettered_after_earlier_messages_were_completed() -> None:
    relayed = Relayed(parked(0), parked(1, path="forbidden"), parked(2))
    await relayed.accept(1)
    (first, second) = relayed.session.settled
    assert first == (1, 1, Accepted())
    assert second[:2] == (2, 2)
    assert isinstance(second[2], Rejected)
    error = second[2].error
    assert error is not None
    (event,) = relayed.scene.said(MessageSetAside)
    assert (event.at, event.backlog, event.path, event.reason, event.message_id) == (
        STARTED_AT, "ordered/0", None, "PathNotAllowed", "m1",
    )  # fmt: skip
    assert "'forbidden'" in event.description
    assert str(error.symbol) == "com.microsoft:dead-letter"
    assert error.description == event.description
    assert error.info == {
        "DeadLetterReason": "PathNotAllowed",
        "DeadLetterErrorDescription": event.description,
    }
    await relayed.accept(1)
    await relayed.running
    assert relayed.link.all_sent == [1, 3]
    assert relayed.counted() == {"received": 3, "forwarded": 2, "completed": 2, "dead_lettered": 1}


@driven
async def test_a_final_refusal_of_the_destination_dead_letters_the_message_with_its_reason() -> None:
    relayed = Relayed(parked(0), parked(1))
    await turns()
    relayed.link.answer(GONE)
    await relayed.accept(1)
    await relayed.running
    (event,) = relayed.scene.said(MessageSetAside)
    assert (event.path, event.reason, event.message_id) == ("orders", "DestinationNotFound", "m0")
    assert event.description == "'orders' refused the message: amqp:not-found: no orders here"
    assert relayed.link.all_sent == [1, 2]
    assert relayed.counted() == {"received": 2, "forwarded": 1, "completed": 1, "dead_lettered": 1}


@driven
async def test_a_refusal_without_a_condition_concerns_the_destination() -> None:
    relayed = Relayed(parked(0))
    await turns()
    (message,) = relayed.link.sent
    relayed.relay.refused(message, None)
    assert [each.reason for each in relayed.scene.said(MessageSetAside)] == ["DestinationRefused"]
    relayed.relay.refused(message, None)  # no longer held by the relay
    assert len(relayed.scene.said(MessageSetAside)) == 1


@driven
async def test_a_message_behind_a_completed_later_one_of_its_client_is_dead_lettered_as_out_of_order() -> (
    None
):
    relayed = Relayed(parked(0, ordinal=5), parked(1, ordinal=4), parked(2, ordinal=5), parked(3, ordinal=6))
    await relayed.accept(1)
    assert relayed.link.all_sent == [1, 2]  # the first is not completed, so it may be repeated
    relayed.relay._settle()
    await relayed.accept(1)
    relayed.relay._settle()
    await turns()
    await relayed.accept(2)
    await relayed.running
    assert relayed.link.all_sent == [1, 2, 3, 4]
    stamp = OrderStamp(CLIENT, EPOCH, 5)
    assert relayed.check.larger("s", stamp) == 6
    assert relayed.check.larger("another session", stamp) is None
    behind = Relayed(parked(7, ordinal=5), parked(8, ordinal=7), check=relayed.check)
    await behind.accept(1)
    await behind.running
    (event,) = behind.scene.said(MessageSetAside)
    assert (event.reason, event.message_id) == ("OutOfOrder", "m7")
    assert event.description == f"the message is number {stamp}, and 6 was forwarded before it"
    assert behind.link.all_sent == [2]
    assert behind.counted() == {"received": 2, "forwarded": 1, "completed": 1, "dead_lettered": 1}


@driven
async def test_poison_that_blocks_its_session_keeps_it_for_a_minute() -> None:
    relayed = Relayed(parked(0), parked(1, path="forbidden"), parked(2), holds_poison=True)
    await relayed.accept(1)
    (event,) = relayed.scene.said(SessionHeld)
    assert (event.backlog, event.session, event.reason, event.message_id) == (
        "ordered/0", "s", "PathNotAllowed", "m1",
    )  # fmt: skip
    assert relayed.relay.is_held
    assert relayed.session.settled == [(1, 1, Accepted())]
    assert relayed.busy == [(0.0, False)]
    await asyncio.sleep(HELD_FOR - 0.1)
    assert not relayed.running.done()
    await asyncio.sleep(0.2)
    assert relayed.running.done()
    assert relayed.session.given_back == [(3, 3, Released())]
    assert relayed.session.closed_at == HELD_FOR
    assert relayed.counted() == {"received": 3, "forwarded": 1, "completed": 1, "released": 2}
    assert relayed.scene.said(MessageSetAside) == []


@driven
async def test_a_held_session_is_released_as_soon_as_the_syphon_stops() -> None:
    relayed = Relayed(parked(0, path="forbidden"), holds_poison=True)
    await asyncio.sleep(1.0)
    relayed.relay.stop()
    await relayed.running
    assert relayed.session.closed_at == 1.0


@driven
async def test_a_message_out_of_order_holds_no_session() -> None:
    check = OrderCheck()
    check.completed("s", OrderStamp(CLIENT, EPOCH, 9))
    relayed = Relayed(parked(0, ordinal=3), check=check, holds_poison=True)
    await relayed.running
    assert not relayed.relay.is_held
    assert relayed.counted() == {"received": 1, "dead_lettered": 1}


# --- destinations that do not accept now


@driven
async def test_a_session_whose_destination_waits_releases_its_slot_and_takes_it_again() -> None:
    relayed = Relayed(parked(0), parked(1), parked(2))
    await relayed.accept(1)
    assert not relayed.relay.is_stuck
    relayed.link.answer(BUSY)
    assert relayed.relay.is_stuck
    await turns()
    assert relayed.busy == [(0.0, False)]
    assert relayed.session.settled == [(1, 1, Accepted())]  # forwarded messages are completed meanwhile
    await asyncio.sleep(0.5)
    assert relayed.busy == [(0.0, False), (0.5, True)]
    assert relayed.link.all_sent == [1, 2, 2]
    await relayed.accept(1)
    await asyncio.sleep(0.05)  # evenly, after busy
    await relayed.accept(1)
    await relayed.running
    assert relayed.link.all_sent == [1, 2, 2, 3]
    assert relayed.counted() == {"received": 3, "forwarded": 3, "completed": 3}


@driven
async def test_a_session_whose_destination_does_not_answer_releases_its_slot_until_it_does() -> None:
    relayed = Relayed(parked(0), parked(1))
    await asyncio.sleep(2 * STALLED_AFTER + 0.01)
    assert relayed.relay.is_stuck
    assert relayed.busy == [(2 * STALLED_AFTER, False)]
    await relayed.accept(1)
    assert [is_busy for _, is_busy in relayed.busy] == [False, True, False, True]  # the next waits its turn
    await relayed.accept(1)
    await relayed.running
    assert relayed.counted() == {"received": 2, "forwarded": 2, "completed": 2}


@driven
async def test_the_messages_of_a_session_wait_for_the_primary_and_never_land() -> None:
    relayed = Relayed(parked(0))
    await turns()
    (message,) = relayed.link.sent
    assert message.stays
    assert (message.lock_ends, message.lock_span, message.size) == (60.0, 60.0, len(message.payload))
    assert not await relayed.relay.complete_in([message], b"txn")
    relayed.relay.reported(message)
    relayed.relay.lock_given_up([message])
    assert relayed.counted() == {"received": 1, "pending": 1}


@driven
async def test_a_delayed_message_with_a_deadline_is_restored_again() -> None:
    deadline = "2030-03-17T17:46:55Z"  # 15 s on the driven clock
    relayed = Relayed(parked(0, **{"x-sbpair-deadline": deadline}), parked(1), link=PlayedLink(credit=0))
    await asyncio.sleep(20.0)
    relayed.link.grant(10)
    await turns()
    (event,) = relayed.scene.said(MessageSetAside)
    assert (event.reason, event.path, event.message_id) == ("TTLExpiredException", "orders", "m0")
    await relayed.accept(1)
    assert relayed.link.all_sent == [2]


# --- locks


@driven
async def test_a_message_with_a_doubtful_lock_is_posted_after_the_renewal() -> None:
    relayed = Relayed(parked(0), parked(1))
    relayed.relay.lock_ends = 0.0
    await turns()
    assert relayed.link.all_sent == []
    assert relayed.doubted == [0.0]
    await asyncio.sleep(3.0)
    relayed.relay.lock_ends = 63.0
    relayed.relay.lock_renewed()
    assert relayed.link.all_sent == [1]
    (message,) = relayed.link.sent
    assert (message.lock_ends, message.posted_at) == (63.0, 3.0)
    relayed.relay.lock_ends = 93.0
    relayed.relay.lock_renewed()  # the lock is certain: no second post
    assert (relayed.link.all_sent, message.lock_ends) == ([1], 93.0)
    await relayed.accept(2)
    await relayed.running
    relayed.relay.lock_renewed()
    assert relayed.counted() == {"received": 2, "forwarded": 2, "completed": 2}


@pytest.mark.spec("R-23", "F-66")
@driven
async def test_a_destination_forgotten_during_a_lock_renewal_is_looked_up_again() -> None:
    forgotten, current = scenes = Scene(), Scene()
    known = deque(each.orders for each in scenes)
    relayed = Relayed(parked(0), destination_of=lambda path: known.popleft())
    relayed.relay.lock_ends = 0.0
    await asyncio.sleep(1.0)
    forgotten.link.detach()
    relayed.relay.lock_ends = 60.0
    relayed.relay.lock_renewed()
    await turns()
    assert forgotten.orders.is_unused
    assert current.link.all_sent == [1]


@driven
async def test_a_stopped_session_does_not_wait_for_a_message_with_a_doubtful_lock() -> None:
    relayed = Relayed(parked(0), parked(1))
    relayed.relay.lock_ends = 0.0
    await turns()
    relayed.relay.stop()
    await relayed.running
    assert relayed.session.closed_at == 0.0
    assert relayed.session.given_back == [(2, 2, Released())]
    assert relayed.counted() == {"received": 2, "released": 2}


@pytest.mark.parametrize("answer", [Modified(), None, Released()])
@driven
async def test_an_unconfirmed_completion_ends_the_session(answer: DeliveryState | None) -> None:
    relayed = Relayed(parked(0), parked(1))
    relayed.session.is_silent = True
    await relayed.accept(1)
    relayed.relay._settle()
    relayed.relay.on_disposition(DispositionReceived(None, 1, 1, answer, True))  # type: ignore[arg-type]
    await turns()
    assert not relayed.running.done()  # the message in flight may still be accepted
    relayed.session.is_silent = False
    await relayed.accept(1)
    await relayed.running
    assert relayed.link.all_sent == [1, 2]
    assert relayed.session.credits == [1000]
    assert relayed.counted() == {"received": 2, "forwarded": 2, "completed": 1, "lock_lost": 1}


@driven
async def test_a_range_of_confirmations_counts_each_delivery_once() -> None:
    relayed = Relayed(*map(parked, range(3)))
    relayed.session.is_silent = True
    await relayed.accept(3)
    relayed.session.confirm(2, 3, ACCEPTED)
    assert relayed.counted() == {"received": 3, "forwarded": 3, "completed": 2, "pending": 1}
    relayed.session.confirm(1, 3, ACCEPTED)
    assert relayed.counted() == {"received": 3, "forwarded": 3, "completed": 3}
    await relayed.running


# --- the end


@driven
async def test_a_stop_waits_for_the_message_in_flight_and_releases_the_rest() -> None:
    relayed = Relayed(*map(parked, range(4)))
    await relayed.accept(1)
    relayed.relay.stop()
    await turns()
    assert not relayed.running.done()
    await relayed.accept(1)
    await relayed.running
    assert relayed.link.all_sent == [1, 2]
    assert relayed.session.settled == [(1, 2, Accepted())]
    assert relayed.session.given_back == [(3, 4, Released())]
    assert relayed.counted() == {"received": 4, "forwarded": 2, "completed": 2, "released": 2}


@driven
async def test_a_stop_waits_five_seconds_for_answers() -> None:
    relayed = Relayed(*map(parked, range(3)))
    await relayed.accept(1)
    await asyncio.sleep(0.1)
    relayed.relay.stop()
    began = now()
    await relayed.running
    assert relayed.session.closed_at == pytest.approx(began + LAST_ANSWERS, abs=STALLED_AFTER * 3)
    assert relayed.counted()["released"] == 2
    assert relayed.counters.pending == 0


@driven
async def test_missing_confirmations_end_with_the_session() -> None:
    relayed = Relayed(parked(0))
    relayed.session.is_silent = True
    await relayed.accept(1)
    await relayed.running
    assert relayed.session.closed_at == LAST_ANSWERS
    assert relayed.counted() == {"received": 1, "forwarded": 1}


@driven
async def test_a_stop_abandons_a_message_that_waits_for_its_destination() -> None:
    relayed = Relayed(parked(0), parked(1))
    await turns()
    relayed.link.answer(BUSY)
    relayed.relay.stop()
    assert relayed.scene.orders.waiting == 0
    await relayed.running
    assert relayed.session.given_back == [(2, 2, Released())]
    assert relayed.counted() == {"received": 2, "released": 2}
    await asyncio.sleep(5.0)
    assert relayed.link.all_sent == [1]


@driven
async def test_a_message_held_after_a_stop_is_dropped_at_once() -> None:
    relayed = Relayed(parked(0))
    await turns()
    relayed.relay.stop()
    relayed.link.answer(BUSY)
    await relayed.running
    assert relayed.session.closed_at == 0.0
    assert relayed.busy == []
    assert relayed.counted() == {"received": 1, "released": 1}


@driven
async def test_a_lost_session_is_dropped_and_a_late_acceptance_counts_as_a_lost_lock() -> None:
    relayed = Relayed(*map(parked, range(3)))
    await relayed.accept(1)
    relayed.session.is_silent = True
    relayed.relay._settle()
    relayed.session.detached.set_result(Condition("com.microsoft:session-lock-lost"))
    await relayed.running
    assert relayed.session.closed_at == 0.0
    assert relayed.counters.pending == 0
    relayed.link.answer()
    assert relayed.counted() == {"received": 3, "forwarded": 2, "released": 2, "lock_lost": 1}


@driven
async def test_events_about_a_message_no_longer_in_the_session_change_nothing() -> None:
    relayed = Relayed(parked(0))
    await turns()
    (message,) = relayed.link.sent
    relayed.session.detached.set_result(None)
    await relayed.running
    before, message.is_released = relayed.counted(), False
    relayed.relay.resumed(message)
    relayed.relay.stalled(message)
    relayed.relay.held(message)
    assert message.is_released
    message.is_released = False
    relayed.relay.lock_doubtful(message)
    assert message.is_released
    assert (relayed.busy, relayed.doubted, relayed.counted()) == ([], [], before)


@driven
async def test_a_relay_that_fails_to_connect_waits_like_any_destination() -> None:
    relayed = Relayed(parked(0))
    relayed.scene.opens.append(ConnectionLostError("no route"))
    await turns()
    assert relayed.relay.is_stuck
    await asyncio.sleep(0.5)
    await relayed.accept(1)
    await relayed.running
    assert relayed.counted() == {"received": 1, "forwarded": 1, "completed": 1}


# --- batches

WIDE = 262_144  # bytes that a link announces for a batch


def sent_in(message: Any) -> list[str]:
    """Return the ids of the messages in a transfer."""
    if message.message_format != BATCH:
        return [message_id_of(message.payload)]
    body = Message.decode(message.payload).body
    assert isinstance(body, DataBody)
    return [message_id_of(section) for section in body.sections]


class Batched(Relayed):
    """A relay whose link takes batches; the destination refuses the messages of ``bad``, and what holds one."""

    def __init__(self, *payloads: bytes, bad: frozenset[str] = frozenset(), **settings: Any) -> None:
        super().__init__(
            *payloads, link=PlayedLink(largest_batch=WIDE), **({"credit": lambda _: 1000} | settings)
        )
        self.bad = bad
        self.transfers: list[list[str]] = []
        self.sizes: list[int] = []  # of the transfers, in bytes

    async def answer(self) -> None:
        """Answer the transfer in flight, once there is one, as the service does: all of it, or none."""
        await turns()
        while not (self.scene.links and self.link.sent):
            await asyncio.sleep(0.01)
        ids = sent_in(self.link.sent[0])
        self.transfers.append(ids)
        self.sizes.append(len(self.link.sent[0].payload))
        self.link.answer(REFUSED if self.bad & set(ids) else ACCEPTED)
        await turns()

    async def answer_all(self) -> None:
        while not self.running.done():
            if self.scene.links and self.link.sent:
                await self.answer()
            else:
                await asyncio.sleep(0.01)

    @property
    def stored(self) -> list[str]:
        return [each for ids in self.transfers if not self.bad & set(ids) for each in ids]


REFUSED = Rejected(Condition("amqp:invalid-field", "no"))


@pytest.mark.spec("B-23")
@driven
async def test_later_messages_of_a_session_form_a_batch_once_the_link_limit_is_known() -> None:
    relayed = Batched(*map(parked, range(40)), report_forwards=True)
    await relayed.answer()
    await relayed.answer()
    await relayed.running
    assert [len(ids) for ids in relayed.transfers] == [1, 39]
    assert relayed.stored == [f"m{number}" for number in range(40)]
    assert relayed.session.settled == [(1, 40, Accepted())] or relayed.session.settled == [
        (1, 1, Accepted()),
        (2, 40, Accepted()),
    ]
    reported = [each for event in relayed.scene.said(MessagesForwarded) for each in event.message_ids]
    assert reported == relayed.stored
    assert relayed.counted() == {"received": 40, "forwarded": 40, "completed": 40}


@pytest.mark.spec("B-23")
@driven
async def test_a_batch_is_no_larger_than_the_link_announces() -> None:
    relayed = Batched(*(parked(number, more="x" * 100_000) for number in range(6)))
    await relayed.answer_all()
    assert [len(ids) for ids in relayed.transfers] == [1, 2, 2, 1]
    assert 200_000 < max(relayed.sizes) <= WIDE


@pytest.mark.spec("B-23")
@driven
async def test_a_batch_holds_messages_of_one_destination() -> None:
    paths = ["orders", "orders", "orders", "invoices", "orders", "orders"]
    relayed = Batched(*(parked(number, path=path) for number, path in enumerate(paths)))
    await relayed.answer_all()
    assert relayed.transfers == [["m0"], ["m1", "m2"], ["m3"], ["m4", "m5"]]


@pytest.mark.spec("B-23")
@pytest.mark.parametrize("bad", [1, 2, 37, 98, 99])
@driven
async def test_one_bad_message_of_a_batch_is_dead_lettered_alone(bad: int) -> None:
    relayed = Batched(*map(parked, range(120)), bad=frozenset({f"m{bad}"}))
    await relayed.answer_all()
    (event,) = relayed.scene.said(MessageSetAside)
    assert (event.message_id, event.path, event.reason) == (f"m{bad}", "orders", "DestinationRefused")
    assert relayed.stored == [f"m{number}" for number in range(120) if number != bad]
    assert len(relayed.transfers) < 24  # 7 halvings, then batches that double
    assert relayed.counted() == {"received": 120, "forwarded": 119, "completed": 119, "dead_lettered": 1}


@pytest.mark.spec("B-23")
@driven
async def test_a_batch_of_only_bad_messages_costs_hardly_more_than_one_transfer_each() -> None:
    relayed = Batched(*map(parked, range(100)), bad=frozenset(f"m{number}" for number in range(1, 100)))
    await relayed.answer_all()
    aside = [event.message_id for event in relayed.scene.said(MessageSetAside)]
    assert aside == [f"m{number}" for number in range(1, 100)]
    assert len(relayed.transfers) <= 100 + 7


@pytest.mark.spec("B-23")
@driven
async def test_a_bad_message_of_a_batch_blocks_its_session_where_poison_does() -> None:
    relayed = Batched(*map(parked, range(10)), bad=frozenset({"m4"}), holds_poison=True)
    for _ in range(6):
        if not relayed.relay.is_held:
            await relayed.answer()
    assert relayed.stored == ["m0", "m1", "m2", "m3"]
    assert [event.message_id for event in relayed.scene.said(SessionHeld)] == ["m4"]
    relayed.relay.stop()
    await relayed.running
    assert relayed.counted() == {"received": 10, "forwarded": 4, "completed": 4, "released": 6}


@pytest.mark.spec("B-23")
@driven
async def test_a_batch_whose_answer_is_lost_is_resent_unchanged() -> None:
    relayed = Batched(*map(parked, range(20)))
    await relayed.answer()
    (lost,) = relayed.link.sent
    relayed.scene.opens.append(PlayedLink(largest_batch=WIDE))
    relayed.link.detach()
    await asyncio.sleep(1.0)
    (again,) = relayed.link.sent
    assert sent_in(again) == sent_in(lost) == [f"m{number}" for number in range(1, 20)]
    await relayed.answer_all()
    assert relayed.counted() == {"received": 20, "forwarded": 20, "completed": 20}


@pytest.mark.spec("B-23")
@driven
async def test_a_batch_that_waits_counts_each_of_its_messages_when_its_session_is_given_up() -> None:
    relayed = Batched(*map(parked, range(20)))
    await relayed.answer()
    relayed.link.answer(BUSY)
    relayed.relay.stop()
    await relayed.running
    assert relayed.counted() == {"received": 20, "forwarded": 1, "completed": 1, "released": 19}


@pytest.mark.spec("B-23")
@driven
async def test_a_batch_accepted_after_its_session_was_lost_counts_each_message_as_a_lost_lock() -> None:
    relayed = Batched(*map(parked, range(20)))
    await relayed.answer()
    relayed.session.detached.set_result(Condition("com.microsoft:session-lock-lost"))
    await relayed.running
    relayed.link.answer()
    assert relayed.counted() == {
        "received": 20, "forwarded": 20, "released": 19, "lock_lost": 19,
    }  # fmt: skip


@pytest.mark.spec("B-23")
@driven
async def test_a_message_that_expires_in_a_waiting_batch_is_dead_lettered_and_the_others_go() -> None:
    deadline = {"x-sbpair-deadline": "2030-03-17T17:46:55Z"}  # 15 s on the driven clock
    relayed = Batched(parked(0), parked(1), parked(2, **deadline), parked(3))
    await relayed.answer()
    assert sent_in(relayed.link.sent[0]) == ["m1", "m2", "m3"]
    relayed.link.credit = 0
    relayed.scene.opens.append(PlayedLink(credit=0, largest_batch=WIDE))
    relayed.link.detach()
    await asyncio.sleep(20.0)
    relayed.link.grant(10)
    await relayed.answer_all()
    assert [(each.message_id, each.reason) for each in relayed.scene.said(MessageSetAside)] == [
        ("m2", "TTLExpiredException")
    ]
    assert relayed.stored == ["m0", "m1", "m3"]


@pytest.mark.spec("B-23")
@driven
async def test_a_paced_destination_gets_batches_for_a_tenth_of_a_second() -> None:
    relayed = Batched(*map(parked, range(60)))
    relayed.scene.pace.was_out_of_reach(now())  # 50 messages a second
    began = now()
    await relayed.answer_all()
    assert max(map(len, relayed.transfers[:3])) <= 5
    assert 0.5 < now() - began < 2.0  # it doubles in a second
    assert relayed.stored == [f"m{number}" for number in range(60)]


# --- the check of the order


def test_the_order_check_remembers_the_largest_number_per_client_epoch_and_session() -> None:
    check = OrderCheck()
    check.completed("s", OrderStamp("a", 1, 7))
    check.completed("s", OrderStamp("a", 1, 5))
    larger = [
        check.larger(*each)
        for each in (
            ("s", OrderStamp("a", 1, 6)),
            ("s", OrderStamp("a", 1, 7)),
            ("t", OrderStamp("a", 1, 6)),
            ("s", OrderStamp("b", 1, 6)),
            ("s", OrderStamp("a", 2, 6)),
        )
    ]
    assert larger == [7, None, None, None, None]


def test_the_order_check_forgets_the_client_longest_without_a_completion() -> None:
    check = OrderCheck()
    for number in range(MAX_CLIENTS):
        check.completed("s", OrderStamp(f"{number:x}", 1, 9))
    check.completed("s", OrderStamp("0", 1, 9))  # now the most recent
    check.completed("s", OrderStamp("new", 1, 9))
    assert check.larger("s", OrderStamp("0", 1, 1)) == 9
    assert check.larger("s", OrderStamp("1", 1, 1)) is None
    assert check.larger("s", OrderStamp("2", 1, 1)) == 9
