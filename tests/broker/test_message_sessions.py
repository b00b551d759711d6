"""Message sessions of a queue in virtual time: acceptance, order, and the cost of a lost lock."""

from __future__ import annotations

import pytest

from sbpair.broker.entities.stored_message import MessageState
from sbpair.broker.errors import (
    InvalidDescriptionError,
    LockLostError,
    NoSuchMessageError,
    NotAllowedError,
    OutOfRangeError,
    QuotaExceededError,
    SessionLockedError,
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
    def test_the_next_available_session_is_the_one_that_became_so_first(self, queue, fill):
        fill("b", "a", "b")

        taken = [queue.sessions.accept(None, NOON) for _ in range(3)]
        assert [lock and lock.session_id for lock in taken] == ["b", "a", None]

    def test_a_session_can_be_accepted_by_name_before_anything_is_in_it(self, queue, fill):
        lock = queue.sessions.accept("new", NOON)

        assert (lock.session_id, lock.locked_until) == ("new", NOON + MINUTE)
        assert queue.receive(NOON, lock) is None
        fill("new")
        assert queue.receive(NOON, lock) is not None

    @pytest.mark.parametrize("name", ["a", ""])
    def test_a_session_has_one_holder(self, queue, fill, name):
        fill(name)
        queue.sessions.accept(name, NOON)

        with pytest.raises(SessionLockedError, match=f"'{name}' cannot be accepted. It may be locked by"):
            queue.sessions.accept(name, NOON)
        assert queue.sessions.accept(None, NOON) is None

    def test_a_session_that_was_handed_back_goes_to_the_end_of_the_line(self, queue, fill):
        fill("a", "b")
        queue.sessions.release(queue.sessions.accept(None, NOON), NOON)

        assert queue.sessions.accept(None, NOON).session_id == "b"

    def test_a_session_whose_messages_all_expired_is_not_available(self, queue, fill):
        fill("a", time_to_live=1000)
        fill("b")

        assert queue.sessions.accept(None, NOON + 1000).session_id == "b"
        assert queue.sessions.accept(None, NOON + 1000) is None
        assert queue.counts(NOON + 1000).total == 1

    def test_a_session_whose_messages_expired_by_the_entitys_span_is_not_available(self, make_queue, message):
        queue = make_queue(requires_session=True, default_message_time_to_live=1000)
        queue.enqueue(message(session_id="a"), NOON)

        assert queue.sessions.accept(None, NOON + 1000) is None
        assert queue.counts(NOON + 1000).total == len(queue.sessions) == 0

    @pytest.mark.spec("P-31")
    def test_a_pings_session_is_neither_offered_nor_listed(self, queue, fill):
        fill("ping", is_ping=True, time_to_live=1000)

        assert queue.counts(NOON).total == 1
        assert queue.sessions.ids(0, 100) == []
        assert queue.sessions.accept(None, NOON) is None
        assert queue.counts(NOON).total == 0
        assert queue.counts(NOON).dead_letter == 0

    @pytest.mark.spec("P-31")
    def test_a_ping_is_not_delivered_in_a_session_that_has_its_name(self, queue, fill):
        fill("s", is_ping=True)
        fill("s")

        lock = queue.sessions.accept(None, NOON)
        assert len(all_of(queue, lock)) == 1

    @PLAIN
    def test_the_next_of_many_sessions_costs_no_more_than_of_few(self, namespace, make_queue, message):
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
    def test_a_session_is_in_order_whatever_is_in_between(self, queue, fill):
        fill("a", "b", "a", "b", "a")

        assert bodies(all_of(queue, queue.sessions.accept("a", NOON))) == [b"0", b"2", b"4"]
        assert bodies(all_of(queue, queue.sessions.accept("b", NOON))) == [b"1", b"3"]

    def test_an_abandoned_message_comes_first_again(self, queue, fill):
        fill("a", "a")
        lock = queue.sessions.accept("a", NOON)
        queue.abandon(queue.receive(NOON, lock).lock_token, NOON)

        again = all_of(queue, lock)
        assert bodies(again) == [b"0", b"1"]
        assert [message.delivery_count for message in again] == [1, 0]

    def test_the_sessions_lock_is_the_messages_lock(self, queue, fill):
        fill("a")
        lock = queue.sessions.accept("a", NOON)
        message = queue.receive(NOON + 30_000, lock)
        assert message.locked_until == lock.locked_until == NOON + MINUTE

        queue.sessions.renew(lock, NOON + 50_000)
        assert message.locked_until == NOON + 110_000
        queue.complete(message.lock_token, NOON + 100_000)
        assert queue.counts(NOON).total == 0

    def test_a_messages_own_lock_cannot_be_renewed(self, queue, fill):
        fill("a")
        token = queue.receive(NOON, queue.sessions.accept("a", NOON)).lock_token

        with pytest.raises(NotAllowedError, match="renew the session lock"):
            queue.renew(token, NOON)

    def test_receive_and_delete_works_in_a_session(self, queue, fill):
        fill("a", "a")
        lock = queue.sessions.accept("a", NOON)

        assert queue.receive_and_delete(NOON, lock).bare == b"0"
        assert queue.counts(NOON).total == 1

    def test_nothing_is_sent_or_received_outside_of_a_session(self, queue, message):
        with pytest.raises(
            SessionRequiredError, match="The SessionId was not set on a message, and it cannot be sent"
        ):
            queue.enqueue_all([message(session_id="a"), message(partition_key="a")], NOON)
        assert queue.counts(NOON).total == 0
        with pytest.raises(NotAllowedError):
            queue.receive(NOON)

    def test_a_dead_letter_queue_requires_no_sessions(self, queue, fill):
        fill("a")
        queue.dead_letter(queue.receive(NOON, queue.sessions.accept("a", NOON)).lock_token, NOON, {})

        assert queue.dead_letter_queue.sessions is None
        assert queue.dead_letter_queue.receive(NOON).session_id == "a"

    def test_a_scheduled_message_joins_its_session_at_its_time(self, namespace, queue, message, fill):
        queue.enqueue(message(session_id="a", scheduled_for=NOON + MINUTE), NOON)
        assert queue.sessions.accept(None, NOON) is None
        assert queue.sessions.ids(0, 10) == []

        namespace.handle_timer(NOON + MINUTE)
        lock = queue.sessions.accept(None, NOON + MINUTE)
        assert (lock.session_id, queue.receive(NOON + MINUTE, lock).sequence_number % 2**48) == ("a", 2)


class TestLosing:
    def test_a_session_that_times_out_costs_its_messages_a_delivery(self, queue, fill, namespace):
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

    def test_a_session_that_is_handed_back_costs_none(self, queue, fill):
        fill("a", "a")
        lock = queue.sessions.accept("a", NOON)
        all_of(queue, lock)
        queue.sessions.release(lock, NOON)

        assert lock.is_lost
        again = all_of(queue, queue.sessions.accept(None, NOON))
        assert bodies(again) == [b"0", b"1"]
        assert [message.delivery_count for message in again] == [0, 0]

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

    def test_handing_back_what_is_lost_does_nothing(self, namespace, queue, fill):
        fill("a")
        lock = queue.sessions.accept("a", NOON)
        namespace.handle_timer(NOON + MINUTE)
        mine = queue.sessions.accept("a", NOON + MINUTE)
        queue.sessions.release(lock, NOON + MINUTE)

        assert not mine.is_lost

    def test_one_time_out_too_many_is_a_dead_letter(self, namespace, make_queue, message):
        queue = make_queue(requires_session=True, max_delivery_count=1)
        queue.enqueue(message(session_id="a"), NOON)
        queue.receive(NOON, queue.sessions.accept(None, NOON))
        namespace.handle_timer(NOON + MINUTE)

        assert queue.counts(NOON + MINUTE).dead_letter == 1
        assert len(queue.sessions) == 0

    @pytest.mark.spec("T-3")
    def test_what_expired_under_the_lock_goes_as_the_session_is_handed_back(self, queue, fill):
        fill("a", time_to_live=1000)
        lock = queue.sessions.accept("a", NOON)
        queue.receive(NOON, lock)
        queue.sessions.release(lock, NOON + 2000)

        assert queue.counts(NOON + 2000).total == len(queue.sessions) == 0


class TestState:
    def test_a_state_outlives_the_messages_until_null_clears_it(self, queue, fill):
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

    def test_a_state_counts_to_the_quota_and_has_the_size_of_a_message(self, make_queue, message):
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
    def test_the_list_has_sessions_with_messages_or_state_page_by_page(self, queue, fill):
        fill(*(str(i) for i in range(5)))
        queue.sessions.accept("held", NOON)  # neither messages nor state
        queue.sessions.set_state(queue.sessions.accept("noted", NOON), b"x", NOON)
        queue.receive(NOON, queue.sessions.accept("3", NOON))  # a locked message is still active

        pages = [queue.sessions.ids(skip, 4) for skip in (0, 4, 8)]
        assert [len(page) for page in pages] == [4, 2, 0]
        assert sorted(pages[0] + pages[1]) == ["0", "1", "2", "3", "4", "noted"]

    def test_the_list_can_be_of_those_whose_state_was_set_after_a_time(self, queue, fill):
        fill("a")
        for i, name in enumerate(("early", "late")):
            queue.sessions.set_state(queue.sessions.accept(name, NOON), b"x", NOON + i)

        assert queue.sessions.ids(0, 10, NOON) == ["late"]

    def test_peek_can_be_of_one_session_in_every_state(self, queue, message, fill):
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

    def test_a_session_that_was_long_remembers_no_more_than_it_holds(self, queue, message):
        lock = queue.sessions.accept("a", NOON)
        for _ in range(1000):
            queue.enqueue(message(session_id="a"), NOON)
            queue.complete(queue.receive(NOON, lock).lock_token, NOON)
        queue.enqueue(message(session_id="a"), NOON)

        assert len(list(lock.queue.sessions.numbers("a", 1))) < 100
        assert [message.sequence_number % 2**48 for message in queue.peek(1, 10, NOON, "a")] == [1001]


class TestDeferral:
    def test_a_deferred_message_is_received_under_its_sessions_lock_only(self, queue, fill):
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


def test_whether_a_queue_has_sessions_is_for_ever(namespace, make_queue, queue):
    with pytest.raises(
        InvalidDescriptionError,
        match="The value for the RequiresSession property of an existing Queue cannot be changed",
    ):
        namespace.update_queue("orders", type(queue.description)(), NOON)
    assert queue.description.requires_session


@pytest.mark.spec("X-9")
def test_an_empty_state_clears_it_and_the_session_is_not_listed(queue):
    lock = queue.sessions.accept("a", NOON)
    queue.sessions.set_state(lock, b"something", NOON)
    queue.sessions.set_state(lock, b"", NOON)
    assert (queue.sessions.state(lock, NOON), queue.sessions.ids(0, 9), queue.size_in_bytes) == (None, [], 0)
