"""Scheduled and deferred messages of a queue, in virtual time: numbers, times, what expiry does to them."""

from __future__ import annotations

import pytest

from sbpair.broker.entities.stored_message import MessageState
from sbpair.broker.errors import NoSuchMessageError

NOON = 1_800_000_000_000
MINUTE = 60_000


def defer_one(queue, message, **fields):
    number = queue.enqueue(message(**fields), NOON)
    queue.defer(queue.receive(NOON).lock_token, NOON)
    return number


class TestSchedule:
    @pytest.mark.spec("T-5", "T-1")
    def test_the_time_to_live_counts_from_the_scheduled_time(self, namespace, make_queue, message):
        queue = make_queue()
        queue.enqueue(message(scheduled_for=NOON + 5 * MINUTE, time_to_live=10 * MINUTE), NOON)
        namespace.handle_timer(NOON + 5 * MINUTE)

        (shown,) = queue.peek(1, 1, NOON + 5 * MINUTE)
        assert (shown.enqueued_at, shown.expires_at) == (NOON + 5 * MINUTE, NOON + 15 * MINUTE)
        first = queue.receive(NOON + 15 * MINUTE - 1)
        queue.release(first.lock_token, NOON + 15 * MINUTE - 1)
        assert queue.receive(NOON + 15 * MINUTE) is None

    @pytest.mark.spec("T-5")
    def test_an_entitys_time_to_live_counts_from_the_scheduled_time_too(self, make_queue, message):
        queue = make_queue(default_message_time_to_live=10 * MINUTE)
        queue.enqueue(message(scheduled_for=NOON + 5 * MINUTE), NOON)

        assert queue.receive(NOON + 15 * MINUTE - 1) is not None

    def test_a_cancelled_message_never_comes_and_cannot_be_cancelled_again(
        self, namespace, make_queue, message
    ):
        queue = make_queue()
        number = queue.enqueue(message(scheduled_for=NOON + MINUTE), NOON)
        queue.cancel_scheduled([number], NOON)

        assert queue.counts(NOON).total == queue.size_in_bytes == 0
        assert namespace.next_timer() is None
        with pytest.raises(NoSuchMessageError, match="Missing sequence numbers: 1"):
            queue.cancel_scheduled([number], NOON)

    def test_several_are_cancelled_or_none(self, make_queue, message):
        queue = make_queue()
        numbers = [queue.enqueue(message(scheduled_for=NOON + MINUTE), NOON) for _ in range(2)]
        with pytest.raises(NoSuchMessageError, match="Missing sequence numbers: 8, 9"):
            queue.cancel_scheduled([*numbers, 8, 9], NOON)

        assert queue.counts(NOON).scheduled == 2

    def test_an_active_message_is_not_cancelled_by_its_old_number_or_its_new(self, make_queue, message):
        queue = make_queue()
        number = queue.enqueue(message(scheduled_for=NOON + MINUTE), NOON)

        for tried in (number, number + 1):
            with pytest.raises(NoSuchMessageError):
                queue.cancel_scheduled([tried], NOON + MINUTE)
        active = queue.receive(NOON + MINUTE)
        assert (active.sequence_number, active.enqueued_sequence_number) == (2, 1)


class TestDeferral:
    def test_it_stays_deferred_through_abandon_and_lost_locks(self, namespace, make_queue, message):
        queue = make_queue()
        number = defer_one(queue, message)
        (held,) = queue.receive_deferred([number], NOON)
        queue.abandon(held.lock_token, NOON)
        queue.receive_deferred([number], NOON)
        namespace.handle_timer(NOON + MINUTE)

        assert queue.receive(NOON + MINUTE) is None
        (again,) = queue.receive_deferred([number], NOON + MINUTE)
        assert again.delivery_count == 3
        assert queue.counts(NOON + MINUTE).deferred == 1

    def test_a_locked_one_is_not_handed_out_twice(self, make_queue, message):
        queue = make_queue()
        number = defer_one(queue, message)
        queue.receive_deferred([number], NOON)

        with pytest.raises(NoSuchMessageError):
            queue.receive_deferred([number], NOON)

    def test_several_are_received_or_none(self, make_queue, message):
        queue = make_queue()
        number = defer_one(queue, message)
        with pytest.raises(NoSuchMessageError, match="Missing sequence numbers: 77"):
            queue.receive_deferred([number, 77], NOON)

        assert queue.peek(1, 1, NOON)[0].state is MessageState.DEFERRED

    def test_expiry_waits_until_it_is_touched(self, make_queue, message):
        queue = make_queue(dead_lettering_on_message_expiration=True)
        number = defer_one(queue, message, time_to_live=MINUTE)

        assert queue.receive(NOON + 2 * MINUTE) is None  # somebody listens, and still
        assert queue.counts(NOON + 2 * MINUTE).deferred == 1
        with pytest.raises(NoSuchMessageError):
            queue.receive_deferred([number], NOON + 2 * MINUTE)
        assert (queue.counts(NOON).deferred, queue.counts(NOON).dead_letter) == (0, 1)

    def test_one_delivery_too_many_is_a_dead_letter_that_is_received_as_any(self, make_queue, message):
        queue = make_queue(max_delivery_count=2)
        number = defer_one(queue, message)
        (held,) = queue.receive_deferred([number], NOON)
        queue.abandon(held.lock_token, NOON)

        assert queue.counts(NOON).deferred == 0
        assert queue.dead_letter_queue.receive(NOON).amended["DeadLetterReason"] == "MaxDeliveryCountExceeded"

    @pytest.mark.spec("X-1")
    def test_to_defer_is_a_delivery_and_at_the_maximum_dead_letters(self, make_queue, message):
        queue = make_queue(max_delivery_count=2)
        number = defer_one(queue, message)
        (held,) = queue.receive_deferred([number], NOON)
        assert held.delivery_count == 1

        queue.defer(held.lock_token, NOON)
        assert queue.counts(NOON).deferred == 0
        dead = queue.dead_letter_queue.receive(NOON)
        assert (dead.amended["DeadLetterReason"], dead.delivery_count) == ("MaxDeliveryCountExceeded", 2)

    @pytest.mark.spec("X-2")
    def test_in_a_dead_letter_queue_no_delivery_is_counted(self, namespace, make_queue, message):
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

    def test_the_dead_letter_queue_defers_too(self, make_queue, message):
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
