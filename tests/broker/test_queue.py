"""A queue in virtual time: locks, deliveries, settlement, dead letters, quota and peeking."""

from __future__ import annotations

import pytest

from sbpair.broker.entities.stored_message import MessageState
from sbpair.broker.errors import (
    LockLostError,
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

    def test_a_locked_message_is_not_delivered_to_others_until_the_lock_ends(self, make_queue, message):
        queue = make_queue(lock_duration=30_000)
        queue.enqueue(message(), NOON)
        locked = queue.receive(NOON)

        assert locked.locked_until == NOON + 30_000
        assert queue.receive(NOON + 29_999) is None
        assert queue.receive(NOON + 30_000) is locked

    def test_an_abandoned_message_is_redelivered_before_later_ones(self, make_queue, message):
        queue = make_queue()
        for i in range(3):
            queue.enqueue(message(bare=b"%d" % i), NOON)
        first, second = queue.receive(NOON), queue.receive(NOON)
        queue.abandon(second.lock_token, NOON)
        queue.abandon(first.lock_token, NOON)

        assert bodies(queue.receive(NOON) for _ in range(3)) == [b"0", b"1", b"2"]


class TestLocks:
    def test_a_release_counts_no_delivery(self, make_queue, message):
        queue = make_queue()
        queue.enqueue(message(), NOON)
        queue.release(queue.receive(NOON).lock_token, NOON)

        assert queue.receive(NOON).delivery_count == 0

    @pytest.mark.parametrize("verb", ["complete", "abandon", "release", "defer", "renew"])
    def test_settling_after_the_lock_expired_is_refused_even_if_no_timer_ran(self, make_queue, message, verb):
        queue = make_queue()
        queue.enqueue(message(), NOON)
        token = queue.receive(NOON).lock_token

        with pytest.raises(LockLostError):
            getattr(queue, verb)(token, NOON + MINUTE)
        assert queue.receive(NOON + MINUTE).delivery_count == 1

    def test_a_lock_token_settles_only_once(self, make_queue, message):
        queue = make_queue()
        queue.enqueue(message(), NOON)
        token = queue.receive(NOON).lock_token
        queue.complete(token, NOON)

        with pytest.raises(LockLostError):
            queue.complete(token, NOON)


class TestDeadLetters:
    @pytest.mark.parametrize("end", ["abandon", "lapse"])
    def test_a_message_above_the_maximum_delivery_count_is_dead_lettered(
        self, namespace, make_queue, message, end
    ):
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

    def test_a_dead_letter_queue_dead_letters_nothing(self, make_queue, message):
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

    def test_sending_to_a_dead_letter_queue_is_refused(self, make_queue, message):
        with pytest.raises(NotAllowedError, match="DeadLetterQueue"):
            make_queue().dead_letter_queue.enqueue(message(), NOON)


class TestQuota:
    BIG = bytes(64 * 1024 * 1024)

    def test_the_dead_letter_queue_counts_towards_the_quota(self, make_queue, message):
        queue = make_queue(max_size_in_megabytes=1024, max_delivery_count=1)
        for _ in range(16):
            queue.enqueue(message(bare=self.BIG), NOON)
            queue.abandon(queue.receive(NOON).lock_token, NOON)

        with pytest.raises(QuotaExceededError):
            queue.enqueue(message(bare=b"x"), NOON)

    def test_a_batch_is_stored_whole_or_not_at_all(self, make_queue, message):
        queue = make_queue(max_size_in_megabytes=1024)
        with pytest.raises(QuotaExceededError):
            queue.enqueue_all([message(bare=self.BIG) for _ in range(17)], NOON)

        assert queue.counts(NOON).total == 0


class TestSchedule:
    def test_a_past_schedule_means_now(self, make_queue, message):
        queue = make_queue()
        queue.enqueue(message(scheduled_for=NOON - 1), NOON)

        assert queue.receive(NOON).enqueued_at == NOON


class TestPeeking:
    def test_peek_shows_messages_in_every_state_and_changes_none(self, make_queue, message):
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
