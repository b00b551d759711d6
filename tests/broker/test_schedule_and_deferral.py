"""Scheduled and deferred messages of a queue, in virtual time: numbers, times, what expiry does to them."""

from __future__ import annotations

import pytest

from sbpair.broker.errors import NoSuchMessageError

NOON = 1_800_000_000_000
MINUTE = 60_000


def defer_one(queue, message, **fields):
    number = queue.enqueue(message(**fields), NOON)
    queue.defer(queue.receive(NOON).lock_token, NOON)
    return number


class TestSchedule:
    @pytest.mark.spec("T-5")
    def test_the_default_time_to_live_counts_from_the_scheduled_time(self, make_queue, message):
        queue = make_queue(default_message_time_to_live=10 * MINUTE)
        queue.enqueue(message(scheduled_for=NOON + 5 * MINUTE), NOON)

        assert queue.receive(NOON + 15 * MINUTE - 1) is not None

    def test_an_active_message_cannot_be_cancelled_by_either_number(self, make_queue, message):
        queue = make_queue()
        number = queue.enqueue(message(scheduled_for=NOON + MINUTE), NOON)

        for tried in (number, number + 1):
            with pytest.raises(NoSuchMessageError):
                queue.cancel_scheduled([tried], NOON + MINUTE)
        active = queue.receive(NOON + MINUTE)
        assert (active.sequence_number, active.enqueued_sequence_number) == (2, 1)


class TestDeferral:
    def test_a_locked_deferred_message_is_not_delivered_twice(self, make_queue, message):
        queue = make_queue()
        number = defer_one(queue, message)
        queue.receive_deferred([number], NOON)

        with pytest.raises(NoSuchMessageError):
            queue.receive_deferred([number], NOON)

    def test_a_deferred_message_above_the_maximum_delivery_count_is_dead_lettered(self, make_queue, message):
        queue = make_queue(max_delivery_count=2)
        number = defer_one(queue, message)
        (held,) = queue.receive_deferred([number], NOON)
        queue.abandon(held.lock_token, NOON)

        assert queue.counts(NOON).deferred == 0
        assert queue.dead_letter_queue.receive(NOON).amended["DeadLetterReason"] == "MaxDeliveryCountExceeded"

    @pytest.mark.spec("X-1")
    def test_deferring_counts_a_delivery_and_dead_letters_at_the_maximum(self, make_queue, message):
        queue = make_queue(max_delivery_count=2)
        number = defer_one(queue, message)
        (held,) = queue.receive_deferred([number], NOON)
        assert held.delivery_count == 1

        queue.defer(held.lock_token, NOON)
        assert queue.counts(NOON).deferred == 0
        dead = queue.dead_letter_queue.receive(NOON)
        assert (dead.amended["DeadLetterReason"], dead.delivery_count) == ("MaxDeliveryCountExceeded", 2)

    @pytest.mark.spec("X-2")
    def test_a_dead_letter_queue_counts_no_deliveries(self, namespace, make_queue, message):
        queue = make_queue(max_delivery_count=3)
        queue.enqueue(message(), NOON)
        queue.abandon(queue.receive(NOON).lock_token, NOON)
        queue.dead_letter(queue.receive(NOON).lock_token, NOON, {})
        graves, later = queue.dead_letter_queue, NOON + MINUTE
        for _ in range(4):
            graves.abandon(graves.receive(NOON).lock_token, NOON)
        held = graves.receive(NOON)
        namespace.handle_timer(later)
        assert held.lock_token is None  # its lock expired
        graves.defer(graves.receive(later).lock_token, later)
        (dead,) = graves.receive_deferred([held.sequence_number], later)
        assert dead.delivery_count == 1

    def test_a_dead_letter_can_be_deferred(self, make_queue, message):
        queue = make_queue()
        queue.enqueue(message(), NOON)
        queue.dead_letter(queue.receive(NOON).lock_token, NOON, {})
        graves = queue.dead_letter_queue
        graves.defer(graves.receive(NOON).lock_token, NOON)

        assert graves.receive(NOON) is None
        assert len(graves.receive_deferred([1], NOON, delete=True)) == 1


@pytest.mark.spec("P-31")
def test_a_peek_is_not_cut_short_by_pings(make_queue, message):
    queue = make_queue()
    for _ in range(3):
        queue.enqueue(message(is_ping=True), NOON)
    queue.enqueue(message(), NOON)

    assert len(queue.peek(1, 1, NOON)) == 1
