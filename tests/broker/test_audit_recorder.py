"""The audit recorder reports every message that enters or leaves an entity, and how."""

from __future__ import annotations

import random
from collections import Counter
from contextlib import suppress
from dataclasses import replace

import pytest

from sbpair.broker.entities import Namespace, QueueDescription, StoredMessage
from sbpair.broker.entities.audit_recorder import (
    MAX_MESSAGES,
    Arrival,
    AuditRecorder,
    DuplicatesDropped,
    Event,
    MessagesRemoved,
    MessagesStored,
    Removal,
)
from sbpair.broker.entities.descriptions import SubscriptionDescription, TopicDescription
from sbpair.broker.errors import EntityNotFoundError, LockLostError

NOON = 1_800_000_000_000
MINUTE = 60_000


class Told:
    """A namespace with an audit recorder, and its events so far."""

    def __init__(self) -> None:
        self.recorder = AuditRecorder()
        self.namespace = Namespace("contoso", audit=self.recorder)
        self.events: list[Event] = []

    def hear(self) -> list[Event]:
        new = self.recorder.take()
        self.events += new
        return new

    def fates(self) -> list[tuple[str, str, tuple[str, ...]]]:
        """Return the events as tuples of path, outcome and messages."""
        return [
            (
                each.path,
                "dropped" if isinstance(each, DuplicatesDropped) else each.how.value,
                each.message_ids,
            )
            for each in self.hear()
        ]


@pytest.fixture
def told() -> Told:
    return Told()


def message(key: str, **fields: object) -> StoredMessage:
    return StoredMessage(bare=b"body", message_id=key, **fields)


def queue(told: Told, **fields: object):
    return told.namespace.create_queue("orders", replace(QueueDescription(), **fields), NOON)


@pytest.mark.spec("G-2")
def test_messages_that_pass_a_queue_together_are_recorded_together(told: Told) -> None:
    orders = queue(told)
    numbers = orders.enqueue_all([message("a"), message("b", session_id="s")], NOON)
    assert told.hear() == [
        MessagesStored("orders", "", Arrival.SENT, ("a", "b"), ("", "s"), tuple(numbers)),
    ]
    first = orders.receive(NOON)
    assert told.recorder.is_empty  # a lock does not move the message
    orders.complete(first.lock_token, NOON)
    orders.receive_and_delete(NOON)
    assert told.hear() == [
        MessagesRemoved("orders", "", Removal.COMPLETED, "", ("a",), (numbers[0],)),
        MessagesRemoved("orders", "", Removal.RECEIVED, "", ("b",), (numbers[1],)),
    ]


def test_abandoned_and_deferred_messages_are_recorded_as_present(told: Told) -> None:
    orders = queue(told)
    orders.enqueue_all([message("a"), message("b"), message("c")], NOON)
    told.hear()
    orders.abandon(orders.receive(NOON).lock_token, NOON)
    orders.release(orders.receive(NOON).lock_token, NOON)
    orders.defer(orders.receive(NOON).lock_token, NOON)
    told.namespace.handle_timer(NOON + MINUTE * 10)

    assert told.recorder.is_empty


@pytest.mark.spec("G-2")
def test_a_dead_letter_is_recorded_with_its_reason_and_leaves_later(told: Told) -> None:
    orders = queue(told, max_delivery_count=1)
    orders.enqueue(message("a"), NOON)
    told.hear()
    orders.abandon(orders.receive(NOON).lock_token, NOON)
    (dead,) = told.hear()
    assert (dead.path, dead.how, dead.reason) == ("orders", Removal.DEAD_LETTERED, "MaxDeliveryCountExceeded")
    assert orders.dead_letter_queue is not None
    orders.dead_letter_queue.receive_and_delete(NOON)
    assert told.fates() == [("orders/$DeadLetterQueue", "received", ("a",))]


def test_expiry_is_recorded_as_expiry_or_as_dead_letter(told: Told) -> None:
    for buries, fate in ((False, "expired"), (True, "dead-lettered")):
        name = f"q{buries}"
        made = told.namespace.create_queue(
            name, QueueDescription(dead_lettering_on_message_expiration=buries), NOON
        )
        made.enqueue(message("a", time_to_live=1000), NOON)
        told.hear()
        assert made.receive(NOON + 2000) is None
        assert told.fates() == [(name, fate, ("a",))]


def test_a_dropped_duplicate_is_recorded_and_a_ping_is_not(told: Told) -> None:
    orders = queue(told, requires_duplicate_detection=True)
    orders.enqueue_all([message("a"), message("a")], NOON)
    orders.enqueue(message("", is_ping=True), NOON)
    orders.receive(NOON)

    assert told.fates() == [("orders", "sent", ("a",)), ("orders", "dropped", ("a",))]


def test_a_transfer_refused_by_its_destination_is_recorded_on_the_via_queue(told: Told) -> None:
    via = told.namespace.create_queue("via", QueueDescription(), NOON)
    via.dead_letter_untransferred(message("a"), EntityNotFoundError("orders"), NOON)
    (stored, removed) = told.fates()
    assert stored == ("via", "sent", ("a",))
    assert removed == ("via", "dead-lettered", ("a",))


def test_a_duplicate_event_lists_no_more_messages_than_other_events(told: Told) -> None:
    for _ in range(2 * MAX_MESSAGES + 1):
        told.recorder.dropped("orders", message("a"))
    assert [len(each.message_ids) for each in told.hear()] == [MAX_MESSAGES, MAX_MESSAGES, 1]


def test_a_scheduled_message_is_recorded_once_and_so_is_its_cancellation(told: Told) -> None:
    orders = queue(told)
    later = NOON + MINUTE
    _, second = orders.enqueue_all([message(key, scheduled_for=later) for key in ("a", "b")], NOON)
    orders.cancel_scheduled([second], NOON)
    told.namespace.handle_timer(later)
    assert told.fates() == [("orders", "scheduled", ("a", "b")), ("orders", "cancelled", ("b",))]


def test_a_topic_records_passing_messages_and_its_subscriptions_stored_ones(told: Told) -> None:
    events = told.namespace.create_topic("events", TopicDescription(), NOON)
    for name in ("one", "two"):
        told.namespace.create_subscription("events", name, SubscriptionDescription(), NOON)
    events.enqueue(message("a"), NOON)
    assert told.fates() == [
        ("events", "sent", ("a",)),
        ("events/Subscriptions/one", "published", ("a",)),
        ("events/Subscriptions/two", "published", ("a",)),
        ("events", "published", ("a",)),
    ]


def test_a_forwarded_message_is_recorded_as_leaving_one_queue_and_entering_the_other(told: Told) -> None:
    told.namespace.create_queue("all", QueueDescription(), NOON)
    orders = queue(told, forward_to="all")
    orders.enqueue(message("a"), NOON)
    told.namespace.forward(NOON)
    assert told.fates() == [
        ("orders", "sent", ("a",)),
        ("all", "forwarded", ("a",)),
        ("orders", "forwarded", ("a",)),
    ]


@pytest.mark.parametrize("is_partitioned", [False, True], ids=["plain", "partitioned"])
def test_deleting_an_entity_records_the_end_of_its_messages(told: Told, is_partitioned: bool) -> None:
    orders = queue(told, enable_partitioning=is_partitioned, max_delivery_count=1)
    orders.enqueue(message("a"), NOON)
    orders.dead_letter(orders.receive(NOON).lock_token, NOON, {})
    orders.enqueue(message("b"), NOON)
    told.hear()
    told.namespace.delete_queue("orders", NOON)
    assert sorted(told.fates()) == [
        ("orders", "deleted", ("b",)),
        ("orders/$DeadLetterQueue", "deleted", ("a",)),
    ]


@pytest.mark.spec("G-2")
@pytest.mark.parametrize("seed", range(20))
def test_recorded_arrivals_minus_departures_equal_the_stored_messages(told: Told, seed: int) -> None:
    rng, now = random.Random(seed), NOON
    orders = queue(
        told, max_delivery_count=2, dead_lettering_on_message_expiration=seed % 2 == 0,
        requires_duplicate_detection=seed % 3 == 0, lock_duration=5000,
    )  # fmt: skip
    held: list[bytes] = []
    for step in range(300):
        now += rng.randrange(2000)
        told.namespace.handle_timer(now)
        match rng.randrange(8):
            case 0 | 1 | 2:
                span = rng.choice([None, None, 3000])
                due = rng.choice([None, None, now + 4000])
                key = f"m{rng.randrange(step + 1)}"
                orders.enqueue(message(key, time_to_live=span, scheduled_for=due), now)
            case 3 | 4 if (got := orders.receive(now)) is not None:
                held.append(got.lock_token)
            case 5:
                orders.receive_and_delete(now)
            case 6 if orders.dead_letter_queue is not None:
                orders.dead_letter_queue.receive_and_delete(now)
            case 7 if held:
                token = held.pop(rng.randrange(len(held)))
                how = rng.choice(["complete", "abandon", "defer", "dead"])
                with suppress(LockLostError):
                    if how == "dead":
                        orders.dead_letter(token, now, {"DeadLetterReason": "test"})
                    else:
                        getattr(orders, how)(token, now)
        told.hear()
    there, dead = balance(told.events)
    assert there == Counter(str(each.message_id) for each in orders.peek(1, 1000, now))
    assert dead == Counter(str(each.message_id) for each in orders.dead_letter_queue.peek(1, 1000, now))


def balance(events: list[Event]) -> tuple[Counter[str], Counter[str]]:
    """Return the messages that ``orders`` and its dead-letter queue hold according to the events."""
    there: Counter[str] = Counter()
    dead: Counter[str] = Counter()
    for event in events:
        place = dead if "$" in event.path else there
        if isinstance(event, MessagesStored):
            place.update(event.message_ids)
        elif isinstance(event, MessagesRemoved):
            place.subtract(event.message_ids)
            if event.how is Removal.DEAD_LETTERED:
                dead.update(event.message_ids)
    return +there, +dead
