"""Message sessions of a queue in virtual time: acceptance, order, and the cost of a lost lock."""

from __future__ import annotations

import pytest

from sbpair.broker.entities.stored_message import MessageState
from sbpair.broker.errors import (
    LockLostError,
    NoSuchMessageError,
    NotAllowedError,
    OutOfRangeError,
    QuotaExceededError,
    SessionLostError,
    SessionRequiredError,
)
from tests.costs import steps_of

NOON = 1_800_000_000_000
MINUTE = 60_000


@pytest.fixture
def queue(make_queue):
    """A queue that requires sessions."""
    return make_queue(requires_session=True)


@pytest.fixture
def fill(queue, message):
    """Return a function that sends one message to each named session, at noon."""

    def send(*session_ids, **fields):
        return [
            queue.enqueue(message(bare=b"%d" % i, session_id=session_id, **fields), NOON)
            for i, session_id in enumerate(session_ids)
        ]

    return send


def bodies(messages):
    return [message.bare for message in messages]


def all_of(queue, lock, now=NOON):
    found = []
    while (message := queue.receive(now, lock)) is not None:
        found.append(message)
    return found


PLAIN = pytest.mark.parametrize("is_partitioned", [False], ids=["plain"])  # sessions of all partitions mix


class TestAccepting:
    @PLAIN
    def test_the_next_available_session_is_the_one_available_longest(self, queue, fill):
        fill("b", "a", "b")

        taken = [queue.sessions.accept(None, NOON) for _ in range(3)]
        assert [lock and lock.session_id for lock in taken] == ["b", "a", None]

    def test_a_released_session_goes_to_the_end_of_the_line(self, queue, fill):
        fill("a", "b")
        queue.sessions.release(queue.sessions.accept(None, NOON), NOON)

        assert queue.sessions.accept(None, NOON).session_id == "b"

    def test_a_session_with_only_expired_messages_is_not_available(self, queue, fill):
        fill("a", time_to_live=1000)
        fill("b")

        assert queue.sessions.accept(None, NOON + 1000).session_id == "b"
        assert queue.sessions.accept(None, NOON + 1000) is None
        assert queue.counts(NOON + 1000).total == 1

    def test_a_session_whose_messages_expired_by_the_default_time_to_live_is_not_available(
        self, make_queue, message
    ):
        queue = make_queue(requires_session=True, default_message_time_to_live=1000)
        queue.enqueue(message(session_id="a"), NOON)

        assert queue.sessions.accept(None, NOON + 1000) is None
        assert queue.counts(NOON + 1000).total == len(queue.sessions) == 0

    @pytest.mark.spec("P-31")
    def test_a_ping_is_not_delivered_to_a_session_with_its_name(self, queue, fill):
        fill("s", is_ping=True)
        fill("s")

        lock = queue.sessions.accept(None, NOON)
        assert len(all_of(queue, lock)) == 1

    @PLAIN
    def test_accepting_the_next_session_costs_the_same_however_many_there_are(
        self, namespace, make_queue, message
    ):
        took = []
        for count in (200, 4_000):
            queue = make_queue(requires_session=True)
            for i in range(count):
                queue.enqueue(message(session_id=str(i)), NOON)
            locks = []

            def take_turns(queue=queue, locks=locks):
                locks += [queue.sessions.accept(None, NOON) for _ in range(100)]
                for lock in locks:
                    queue.complete(queue.receive(NOON, lock).lock_token, NOON)
                    queue.sessions.release(lock, NOON)

            took.append(steps_of(take_turns))
            assert [lock.session_id for lock in locks] == [str(i) for i in range(100)]
            assert len(queue.sessions) == count - 100  # empty sessions are not kept
            namespace.delete_queue("orders", NOON)
        few, many = took
        assert many <= few * 1.1


class TestReceiving:
    def test_an_abandoned_message_is_redelivered_first(self, queue, fill):
        fill("a", "a")
        lock = queue.sessions.accept("a", NOON)
        queue.abandon(queue.receive(NOON, lock).lock_token, NOON)

        again = all_of(queue, lock)
        assert bodies(again) == [b"0", b"1"]
        assert [message.delivery_count for message in again] == [1, 0]

    def test_the_session_lock_covers_its_messages(self, queue, fill):
        fill("a")
        lock = queue.sessions.accept("a", NOON)
        message = queue.receive(NOON + 30_000, lock)
        assert message.locked_until == lock.locked_until == NOON + MINUTE

        queue.sessions.renew(lock, NOON + 50_000)
        assert message.locked_until == NOON + 110_000
        queue.complete(message.lock_token, NOON + 100_000)
        assert queue.counts(NOON).total == 0

    def test_a_message_lock_in_a_session_cannot_be_renewed(self, queue, fill):
        fill("a")
        token = queue.receive(NOON, queue.sessions.accept("a", NOON)).lock_token

        with pytest.raises(NotAllowedError, match="renew the session lock"):
            queue.renew(token, NOON)

    def test_a_session_queue_refuses_sends_and_receives_without_a_session(self, queue, message):
        with pytest.raises(
            SessionRequiredError, match="The SessionId was not set on a message, and it cannot be sent"
        ):
            queue.enqueue_all([message(session_id="a"), message(partition_key="a")], NOON)
        assert queue.counts(NOON).total == 0
        with pytest.raises(NotAllowedError):
            queue.receive(NOON)

    def test_a_scheduled_message_joins_its_session_when_due(self, namespace, queue, message, fill):
        queue.enqueue(message(session_id="a", scheduled_for=NOON + MINUTE), NOON)
        assert queue.sessions.accept(None, NOON) is None
        assert queue.sessions.ids(0, 10) == []

        namespace.handle_timer(NOON + MINUTE)
        lock = queue.sessions.accept(None, NOON + MINUTE)
        assert (lock.session_id, queue.receive(NOON + MINUTE, lock).sequence_number % 2**48) == ("a", 2)


class TestLosing:
    def test_a_session_timeout_counts_a_delivery_for_its_locked_messages(self, queue, fill, namespace):
        fill("a", "a")
        lock = queue.sessions.accept("a", NOON)
        held = queue.receive(NOON, lock)
        assert namespace.next_timer() == NOON + MINUTE
        namespace.take_ready()
        namespace.handle_timer(NOON + MINUTE)

        assert lock.is_lost
        assert lock in namespace.take_ready()  # the former holder is notified
        with pytest.raises(LockLostError):
            queue.complete(b"nothing", NOON + MINUTE)
        again = queue.sessions.accept("a", NOON + MINUTE)
        assert [message.delivery_count for message in all_of(queue, again, NOON + MINUTE)] == [1, 0]
        assert held.delivery_count == 1

    def test_a_message_of_a_lost_session_cannot_be_settled(self, queue, fill):
        fill("a")
        lock = queue.sessions.accept("a", NOON)
        token = queue.receive(NOON, lock).lock_token

        with pytest.raises(SessionLostError):
            queue.complete(token, NOON + MINUTE)
        for late in (
            lambda: queue.sessions.renew(lock, NOON + MINUTE),
            lambda: queue.sessions.state(lock, NOON + MINUTE),
            lambda: queue.receive(NOON + MINUTE, lock),
        ):
            with pytest.raises(SessionLostError):
                late()
        assert queue.counts(NOON + MINUTE).active == 1

    def test_releasing_a_lost_session_does_nothing(self, namespace, queue, fill):
        fill("a")
        lock = queue.sessions.accept("a", NOON)
        namespace.handle_timer(NOON + MINUTE)
        mine = queue.sessions.accept("a", NOON + MINUTE)
        queue.sessions.release(lock, NOON + MINUTE)

        assert not mine.is_lost

    def test_a_session_timeout_at_the_maximum_dead_letters_the_message(self, namespace, make_queue, message):
        queue = make_queue(requires_session=True, max_delivery_count=1)
        queue.enqueue(message(session_id="a"), NOON)
        queue.receive(NOON, queue.sessions.accept(None, NOON))
        namespace.handle_timer(NOON + MINUTE)

        assert queue.counts(NOON + MINUTE).dead_letter == 1
        assert len(queue.sessions) == 0

    @pytest.mark.spec("T-3")
    def test_a_message_that_expired_while_locked_is_removed_when_the_session_is_released(self, queue, fill):
        fill("a", time_to_live=1000)
        lock = queue.sessions.accept("a", NOON)
        queue.receive(NOON, lock)
        queue.sessions.release(lock, NOON + 2000)

        assert queue.counts(NOON + 2000).total == len(queue.sessions) == 0


class TestState:
    def test_a_session_state_outlives_the_messages_until_null_clears_it(self, queue, fill):
        fill("a")
        lock = queue.sessions.accept("a", NOON)
        assert queue.sessions.state(lock, NOON) is None
        queue.sessions.set_state(lock, b"step 2", NOON)
        queue.complete(queue.receive(NOON, lock).lock_token, NOON)
        queue.sessions.release(lock, NOON)

        assert queue.sessions.ids(0, 10) == ["a"]
        assert queue.sessions.accept(None, NOON) is None  # nothing to deliver
        lock = queue.sessions.accept("a", NOON)
        assert queue.sessions.state(lock, NOON) == b"step 2"
        queue.sessions.set_state(lock, None, NOON)
        queue.sessions.release(lock, NOON)
        assert len(queue.sessions) == queue.size_in_bytes == 0

    def test_a_session_state_counts_towards_the_quota_and_is_limited_like_a_message(
        self, make_queue, message
    ):
        queue = make_queue(requires_session=True, max_message_size_in_kilobytes=256)
        lock = queue.sessions.accept("a", NOON)
        queue.sessions.set_state(lock, b"four", NOON)
        assert queue.counts(NOON).size_in_bytes == 4

        with pytest.raises(OutOfRangeError, match="at most 262144"):
            queue.sessions.set_state(lock, bytes(262_145), NOON)
        lock.queue.size = queue.description.quota_in_bytes - 1  # instead of filling a gigabyte
        with pytest.raises(QuotaExceededError):
            queue.sessions.set_state(lock, b"seven b", NOON)
        assert queue.sessions.state(lock, NOON) == b"four"


class TestLooking:
    def test_sessions_with_messages_or_state_are_listed_page_by_page(self, queue, fill):
        fill(*(str(i) for i in range(5)))
        queue.sessions.accept("held", NOON)  # neither messages nor state
        queue.sessions.set_state(queue.sessions.accept("noted", NOON), b"x", NOON)
        queue.receive(NOON, queue.sessions.accept("3", NOON))  # a locked message is still active

        pages = [queue.sessions.ids(skip, 4) for skip in (0, 4, 8)]
        assert [len(page) for page in pages] == [4, 2, 0]
        assert sorted(pages[0] + pages[1]) == ["0", "1", "2", "3", "4", "noted"]

    def test_a_session_can_be_peeked_in_any_state(self, queue, message, fill):
        fill("a", "b", "a", "a")
        lock = queue.sessions.accept("a", NOON)
        queue.defer(queue.receive(NOON, lock).lock_token, NOON)
        queue.receive(NOON, lock)
        queue.enqueue(message(session_id="a", scheduled_for=NOON + 1), NOON)

        shown = queue.peek(1, 10, NOON, "a")
        assert [message.state for message in shown] == [
            MessageState.DEFERRED,
            MessageState.LOCKED,
            MessageState.ACTIVE,
            MessageState.SCHEDULED,
        ]
        assert queue.peek(shown[1].sequence_number, 2, NOON, "a") == shown[1:3]
        assert queue.peek(1, 10, NOON, "nobody") == []

    def test_a_long_used_session_keeps_no_memory_of_past_messages(self, queue, message):
        lock = queue.sessions.accept("a", NOON)
        for _ in range(1000):
            queue.enqueue(message(session_id="a"), NOON)
            queue.complete(queue.receive(NOON, lock).lock_token, NOON)
        queue.enqueue(message(session_id="a"), NOON)

        assert len(list(lock.queue.sessions.numbers("a", 1))) < 100
        assert [message.sequence_number % 2**48 for message in queue.peek(1, 10, NOON, "a")] == [1001]


class TestDeferral:
    def test_a_deferred_message_is_received_only_under_its_session_lock(self, queue, fill):
        fill("a", "b")
        lock, other = queue.sessions.accept("a", NOON), queue.sessions.accept("b", NOON)
        deferred = queue.receive(NOON, lock)
        queue.defer(deferred.lock_token, NOON)

        with pytest.raises(NoSuchMessageError):
            queue.receive_deferred([deferred.sequence_number], NOON, other)
        with pytest.raises(SessionRequiredError):
            queue.receive_deferred([deferred.sequence_number], NOON)
        (message,) = queue.receive_deferred([deferred.sequence_number], NOON, lock)
        assert message.locked_until == lock.locked_until
        queue.sessions.release(lock, NOON)
        assert message.state is MessageState.DEFERRED
