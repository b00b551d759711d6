"""A queue in virtual time: locks, deliveries, settlement, dead letters, quota and peeking."""

from __future__ import annotations

import pytest

from sbpair.broker.entities.stored_message import MessageState
from sbpair.broker.errors import (
    EntityDisabledError,
    LockLostError,
    NoSuchMessageError,
    NotAllowedError,
    QuotaExceededError,
)

NOON = 1_800_000_000_000
MINUTE = 60_000


def bodies(messages):
    return [message.bare for message in messages]


class TestReceiving:
    def test_messages_come_in_the_order_of_their_sequence_numbers(self, make_queue, message):
        queue = make_queue()
        numbers = [queue.enqueue(message(bare=b"%d" % i), NOON) for i in range(3)]

        assert numbers == [1, 2, 3]
        assert bodies(queue.receive(NOON) for _ in range(3)) == [b"0", b"1", b"2"]
        assert queue.receive(NOON) is None

    def test_a_locked_message_is_nobody_elses_until_the_lock_ends(self, make_queue, message):
        queue = make_queue(lock_duration=30_000)
        queue.enqueue(message(), NOON)
        locked = queue.receive(NOON)

        assert locked.locked_until == NOON + 30_000
        assert queue.receive(NOON + 29_999) is None
        assert queue.receive(NOON + 30_000) is locked

    def test_receive_and_delete_leaves_nothing_behind(self, make_queue, message):
        queue = make_queue()
        queue.enqueue(message(), NOON)

        assert queue.receive_and_delete(NOON) is not None
        assert queue.counts(NOON).total == 0
        assert queue.size_in_bytes == 0

    def test_an_abandoned_message_comes_back_before_those_behind_it(self, make_queue, message):
        queue = make_queue()
        for i in range(3):
            queue.enqueue(message(bare=b"%d" % i), NOON)
        first, second = queue.receive(NOON), queue.receive(NOON)
        queue.abandon(second.lock_token, NOON)
        queue.abandon(first.lock_token, NOON)

        assert bodies(queue.receive(NOON) for _ in range(3)) == [b"0", b"1", b"2"]

    def test_a_queue_that_is_disabled_for_receiving_gives_nothing(self, make_queue, message):
        queue = make_queue(status="ReceiveDisabled")
        queue.enqueue(message(), NOON)

        with pytest.raises(EntityDisabledError, match="ReceiveDisabled"):
            queue.receive(NOON)

    def test_a_queue_that_is_disabled_for_sending_takes_nothing(self, make_queue, message):
        with pytest.raises(EntityDisabledError, match="orders"):
            make_queue(status="SendDisabled").enqueue(message(), NOON)


class TestLocks:
    def test_a_lock_that_lapsed_costs_a_delivery(self, namespace, make_queue, message):
        queue = make_queue()
        queue.enqueue(message(), NOON)
        assert queue.receive(NOON).delivery_count == 0

        assert namespace.next_timer() == NOON + MINUTE
        namespace.handle_timer(NOON + MINUTE)

        assert queue.receive(NOON + MINUTE).delivery_count == 1

    def test_a_release_costs_none(self, make_queue, message):
        queue = make_queue()
        queue.enqueue(message(), NOON)
        queue.release(queue.receive(NOON).lock_token, NOON)

        assert queue.receive(NOON).delivery_count == 0

    def test_renewing_restarts_the_full_span(self, make_queue, message):
        queue = make_queue()
        queue.enqueue(message(), NOON)
        token = queue.receive(NOON).lock_token

        assert queue.renew(token, NOON + 59_000) == NOON + 59_000 + MINUTE
        queue.complete(token, NOON + 118_000)
        assert queue.counts(NOON).total == 0

    @pytest.mark.parametrize("verb", ["complete", "abandon", "release", "defer", "renew"])
    def test_settling_after_the_lock_ended_is_refused_even_if_no_timer_ran(self, make_queue, message, verb):
        queue = make_queue()
        queue.enqueue(message(), NOON)
        token = queue.receive(NOON).lock_token

        with pytest.raises(LockLostError):
            getattr(queue, verb)(token, NOON + MINUTE)
        assert queue.receive(NOON + MINUTE).delivery_count == 1

    def test_a_token_settles_once(self, make_queue, message):
        queue = make_queue()
        queue.enqueue(message(), NOON)
        token = queue.receive(NOON).lock_token
        queue.complete(token, NOON)

        with pytest.raises(LockLostError):
            queue.complete(token, NOON)


class TestDeadLetters:
    @pytest.mark.parametrize("end", ["abandon", "lapse"])
    def test_one_failed_delivery_too_many_buries_the_message(self, namespace, make_queue, message, end):
        queue = make_queue(max_delivery_count=2)
        queue.enqueue(message(), NOON)
        now = NOON
        for _ in range(2):
            token = queue.receive(now).lock_token
            if end == "abandon":
                queue.abandon(token, now)
            else:
                now += MINUTE
                namespace.handle_timer(now)

        assert queue.receive(now) is None
        buried = queue.dead_letter_queue.receive(now)
        assert buried.amended["DeadLetterReason"] == "MaxDeliveryCountExceeded"
        assert "after 2 delivery attempts" in buried.amended["DeadLetterErrorDescription"]
        assert buried.dead_letter_source is None  # only a forwarded dead letter names its source

    def test_dead_lettering_keeps_the_reason_and_what_else_was_said(self, make_queue, message):
        queue = make_queue()
        queue.enqueue(message(), NOON)
        queue.dead_letter(queue.receive(NOON).lock_token, NOON, {"DeadLetterReason": "poison", "retries": 3})

        assert queue.counts(NOON).dead_letter == 1
        assert queue.dead_letter_queue.receive(NOON).amended == {"DeadLetterReason": "poison", "retries": 3}

    def test_nothing_is_dead_lettered_out_of_a_dead_letter_queue(self, make_queue, message):
        queue = make_queue(max_delivery_count=1)
        queue.enqueue(message(), NOON)
        queue.abandon(queue.receive(NOON).lock_token, NOON)
        grave = queue.dead_letter_queue
        token = grave.receive(NOON).lock_token

        with pytest.raises(NotAllowedError):
            grave.dead_letter(token, NOON, {})
        for _ in range(20):
            grave.abandon(token, NOON)
            token = grave.receive(NOON).lock_token

    def test_nobody_sends_to_a_dead_letter_queue(self, make_queue, message):
        with pytest.raises(NotAllowedError, match="DeadLetterQueue"):
            make_queue().dead_letter_queue.enqueue(message(), NOON)


class TestQuota:
    BIG = bytes(64 * 1024 * 1024)

    def test_a_full_queue_refuses_and_says_so(self, make_queue, message):
        queue = make_queue(max_size_in_megabytes=1024)
        for _ in range(16):  # one object sixteen times: it counts each time but takes memory once
            queue.enqueue(message(bare=self.BIG), NOON)

        with pytest.raises(QuotaExceededError, match="orders") as refused:
            queue.enqueue(message(bare=b"x"), NOON)
        assert refused.value.condition == "amqp:resource-limit-exceeded"

    def test_the_dead_letter_queue_counts_to_the_quota(self, make_queue, message):
        queue = make_queue(max_size_in_megabytes=1024, max_delivery_count=1)
        for _ in range(16):
            queue.enqueue(message(bare=self.BIG), NOON)
            queue.abandon(queue.receive(NOON).lock_token, NOON)

        with pytest.raises(QuotaExceededError):
            queue.enqueue(message(bare=b"x"), NOON)

    def test_a_batch_enters_whole_or_not_at_all(self, make_queue, message):
        queue = make_queue(max_size_in_megabytes=1024)
        with pytest.raises(QuotaExceededError):
            queue.enqueue_all([message(bare=self.BIG) for _ in range(17)], NOON)

        assert queue.counts(NOON).total == 0


class TestDeferral:
    def test_a_deferred_message_is_received_by_its_number_only(self, make_queue, message):
        queue = make_queue()
        number = queue.enqueue(message(), NOON)
        queue.defer(queue.receive(NOON).lock_token, NOON)

        assert queue.receive(NOON) is None
        assert queue.counts(NOON).deferred == 1
        (again,) = queue.receive_deferred([number], NOON)
        assert queue.counts(NOON).deferred == 1  # locked and nevertheless deferred
        queue.complete(again.lock_token, NOON)
        assert queue.counts(NOON).total == queue.counts(NOON).deferred == 0

    def test_a_number_that_is_not_deferred_is_not_found(self, make_queue, message):
        queue = make_queue()
        number = queue.enqueue(message(), NOON)

        with pytest.raises(NoSuchMessageError, match="Missing sequence numbers: 1"):
            queue.receive_deferred([number], NOON)

    def test_a_deferred_message_can_be_taken_away_at_once(self, make_queue, message):
        queue = make_queue()
        number = queue.enqueue(message(), NOON)
        queue.defer(queue.receive(NOON).lock_token, NOON)

        assert len(queue.receive_deferred([number], NOON, delete=True)) == 1
        assert queue.counts(NOON).total == queue.counts(NOON).deferred == 0


class TestSchedule:
    def test_a_scheduled_message_appears_at_its_time_with_a_new_number(self, namespace, make_queue, message):
        queue = make_queue()
        number = queue.enqueue(message(scheduled_for=NOON + MINUTE), NOON)

        assert queue.receive(NOON + 59_999) is None
        assert queue.counts(NOON).scheduled == 1
        assert namespace.next_timer() == NOON + MINUTE
        late = queue.receive(NOON + MINUTE)
        assert late.sequence_number > number
        assert late.enqueued_at == NOON + MINUTE

    def test_a_time_that_has_passed_means_now(self, make_queue, message):
        queue = make_queue()
        queue.enqueue(message(scheduled_for=NOON - 1), NOON)

        assert queue.receive(NOON).enqueued_at == NOON

    def test_its_time_to_live_counts_from_then(self, namespace, make_queue, message):
        queue = make_queue()
        queue.enqueue(message(scheduled_for=NOON + 5 * MINUTE, time_to_live=10 * MINUTE), NOON)
        namespace.handle_timer(NOON + 5 * MINUTE)

        assert queue.peek(1, 1, NOON + 15 * MINUTE - 1)[0].expires_at == NOON + 15 * MINUTE
        assert queue.receive(NOON + 15 * MINUTE) is None


class TestPeeking:
    def test_peek_shows_every_state_and_changes_none(self, make_queue, message):
        queue = make_queue()
        for _ in range(3):
            queue.enqueue(message(), NOON)
        queue.defer(queue.receive(NOON).lock_token, NOON)
        queue.receive(NOON)
        queue.enqueue(message(scheduled_for=NOON + MINUTE), NOON)
        before = queue.counts(NOON)

        states = [message.state for message in queue.peek(1, 10, NOON)]
        assert states == [
            MessageState.DEFERRED,
            MessageState.LOCKED,
            MessageState.ACTIVE,
            MessageState.SCHEDULED,
        ]
        assert queue.counts(NOON) == before

    def test_peek_begins_at_a_number_and_ends_after_so_many(self, make_queue, message):
        queue = make_queue()
        for _ in range(5):
            queue.enqueue(message(), NOON)
        queue.receive_and_delete(NOON)

        assert [message.sequence_number for message in queue.peek(1, 2, NOON)] == [2, 3]
        assert [message.sequence_number for message in queue.peek(5, 9, NOON)] == [5]
        assert queue.peek(6, 9, NOON) == []
