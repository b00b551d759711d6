"""Expiry in virtual time: when a message expires, what triggers it, and where the message goes."""

from __future__ import annotations

from dataclasses import replace

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from sbpair.broker.entities import Namespace, QueueDescription, StoredMessage
from sbpair.broker.errors import LockLostError
from tests.costs import calls_of

NOON = 1_800_000_000_000
SECOND = 1_000
MINUTE = 60_000


@pytest.mark.spec("T-3", "T-11")
@pytest.mark.parametrize("end", ["abandon", "release", "lapse"])
def test_a_locked_message_expires_as_soon_as_its_lock_ends(namespace, make_queue, message, end):
    queue = make_queue(dead_lettering_on_message_expiration=True, max_delivery_count=1)
    queue.enqueue(message(time_to_live=SECOND), NOON)
    token = queue.receive(NOON).lock_token
    if end == "lapse":
        namespace.handle_timer(NOON + MINUTE)
    else:
        getattr(queue, end)(token, NOON + 2 * SECOND)

    counts = queue.counts(NOON + MINUTE)
    assert (counts.active, counts.dead_letter) == (0, 1)
    assert queue.dead_letter_queue.receive(NOON + MINUTE).amended["DeadLetterReason"] == "TTLExpiredException"


@pytest.mark.spec("T-10")
def test_a_waiting_message_that_expires_is_dead_lettered_once(make_queue, message):
    queue = make_queue(dead_lettering_on_message_expiration=True)
    queue.enqueue(message(time_to_live=SECOND), NOON)

    assert queue.receive(NOON + MINUTE) is None
    assert queue.counts(NOON + MINUTE).total == 1
    assert queue.receive(NOON + MINUTE) is None  # it must not return from a queue of waiting messages
    assert queue.counts(NOON + MINUTE).dead_letter == 1


def test_messages_in_a_dead_letter_queue_do_not_expire(make_queue, message):
    queue = make_queue(dead_lettering_on_message_expiration=True, default_message_time_to_live=SECOND)
    queue.enqueue(message(time_to_live=SECOND), NOON)
    assert queue.receive(NOON + MINUTE) is None

    assert queue.dead_letter_queue.receive(NOON + 1000 * MINUTE) is not None


@pytest.mark.spec("T-5", "T-6", "T-7")
def test_the_expiry_of_a_scheduled_message_is_fixed_at_send(namespace, make_queue, message):
    queue = make_queue(default_message_time_to_live=10 * MINUTE)
    queue.enqueue(message(time_to_live=60 * MINUTE, scheduled_for=NOON + 5 * MINUTE), NOON)
    assert queue.peek(1, 1, NOON)[0].expires_at == NOON + 15 * MINUTE

    longer = replace(queue.description, default_message_time_to_live=60 * MINUTE)
    namespace.update_queue("orders", longer, NOON)
    namespace.handle_timer(NOON + 5 * MINUTE)
    assert queue.peek(1, 1, NOON + 5 * MINUTE)[0].expires_at == NOON + 15 * MINUTE


@pytest.mark.spec("T-6")
def test_changing_the_default_time_to_live_keeps_the_messages_own_expiry(namespace, make_queue, message):
    queue = make_queue()
    queue.enqueue(message(time_to_live=60 * MINUTE), NOON)
    queue.enqueue(message(), NOON)
    shorter = replace(queue.description, default_message_time_to_live=MINUTE)
    namespace.update_queue("orders", shorter, NOON)

    assert queue.receive(NOON + 2 * MINUTE).sequence_number == 1
    assert queue.receive(NOON + 2 * MINUTE) is None


@pytest.mark.spec("T-3", "T-6")
def test_a_locked_message_follows_a_changed_default_when_its_lock_ends(namespace, make_queue, message):
    queue = make_queue(dead_lettering_on_message_expiration=True)
    queue.enqueue(message(), NOON)
    token = queue.receive(NOON).lock_token
    shorter = replace(queue.description, default_message_time_to_live=SECOND)
    namespace.update_queue("orders", shorter, NOON)
    queue.abandon(token, NOON + 2 * SECOND)

    assert queue.counts(NOON).dead_letter == 1


class TestWhoListens:
    """Expiry with and without a listener (T-4): with sessions a message may wait while others are received."""

    @pytest.fixture
    def queue(self, make_queue, message):
        queue = make_queue(requires_session=True, dead_lettering_on_message_expiration=True)
        queue.enqueue(message(session_id="b", time_to_live=10 * SECOND), NOON)
        return queue

    @pytest.mark.spec("T-2", "T-4")
    def test_no_expiry_timer_runs_without_a_receiver(self, namespace, queue):
        assert namespace.next_timer() is None
        namespace.handle_timer(NOON + MINUTE)
        assert queue.counts(NOON + MINUTE).active == 1

    @pytest.mark.spec("T-2", "T-4", "T-10")
    def test_a_message_expires_on_time_while_a_receiver_listens(self, namespace, queue):
        queue.listen(NOON)
        assert namespace.next_timer() == NOON + 10 * SECOND
        namespace.handle_timer(NOON + 10 * SECOND - 1)
        assert queue.counts(NOON).active == 1
        namespace.handle_timer(NOON + 10 * SECOND)
        assert (queue.counts(NOON).active, queue.counts(NOON).dead_letter) == (0, 1)

    @pytest.mark.spec("T-4")
    def test_expiry_becomes_lazy_when_the_last_receiver_leaves(self, namespace, queue):
        queue.listen(NOON)
        queue.stop_listening(NOON)
        assert namespace.next_timer() is None

    @pytest.mark.spec("T-4")
    def test_a_message_that_arrives_while_a_receiver_listens_gets_an_expiry_timer(
        self, namespace, queue, message
    ):
        queue.listen(NOON)
        queue.enqueue(message(session_id="c", time_to_live=SECOND), NOON)
        assert namespace.next_timer() == NOON + SECOND


class TestTheCost:
    """Expiry costs in proportion to what expires, not to what waits; measured in function calls, not time."""

    def filled(self, make_queue, message, waiting):
        queue = make_queue(dead_lettering_on_message_expiration=True)
        queue.enqueue(message(), NOON)  # delivered by the receive; the others wait behind it
        for n in range(waiting):
            queue.enqueue(message(time_to_live=(SECOND if n < 50 else 60 * MINUTE)), NOON)
        return queue

    @pytest.mark.spec("T-2", "T-10")
    def test_waiting_messages_cost_no_timer_work(self, namespace, make_queue, message):
        costs = []
        for waiting in (500, 20_000):
            queue = self.filled(make_queue, message, waiting)
            costs.append(calls_of(lambda queue=queue: queue.receive(NOON + MINUTE)))
            assert queue.counts(NOON + MINUTE).dead_letter == 50
            namespace.delete_queue("orders", NOON)
        few, many = costs
        assert many <= few * 1.1

    @pytest.mark.spec("T-4")
    def test_a_timer_that_is_not_due_costs_nothing(self, namespace, make_queue, message):
        costs = []
        for waiting in (500, 20_000):
            self.filled(make_queue, message, waiting)
            namespace.handle_timer(NOON)
            costs.append(calls_of(lambda: namespace.handle_timer(NOON + MINUTE)))
            namespace.delete_queue("orders", NOON)
        assert costs[0] == costs[1]


@pytest.mark.spec("T-10", "T-11")
@settings(deadline=None)
@given(
    st.lists(
        st.sampled_from(["send", "send short", "receive", "complete", "abandon", "pass", "lapse"]),
        max_size=40,
    )
)
def test_a_message_is_in_exactly_one_of_the_two_queues(steps):
    namespace = Namespace("contoso")
    queue = namespace.create_queue(
        "orders", QueueDescription(dead_lettering_on_message_expiration=True), NOON
    )
    now, sent, completed, held = NOON, 0, 0, []
    for step in steps:
        match step:
            case "send" | "send short":
                queue.enqueue(StoredMessage(b"x", time_to_live=SECOND if step == "send short" else None), now)
                sent += 1
            case "receive":
                if (got := queue.receive(now)) is not None:
                    held.append(got.lock_token)
            case "complete" | "abandon" if held:
                try:
                    getattr(queue, step)(held.pop(), now)
                    completed += step == "complete"
                except LockLostError:
                    pass
            case "pass":
                now += SECOND
            case "lapse":
                now += MINUTE
        counts = queue.counts(now)
        assert counts.active + counts.dead_letter == counts.total == sent - completed
        both = [message.sequence_number for message in queue.dead_letter_queue.peek(1, 99, now)]
        assert len(both) == counts.dead_letter


@pytest.mark.spec("P-31", "P-34", "F-87", "G-13")
class TestPings:
    def test_a_ping_is_accepted_and_counted_but_never_delivered(self, namespace, make_queue, message):
        queue = make_queue(dead_lettering_on_message_expiration=True)
        queue.enqueue(message(is_ping=True, time_to_live=SECOND), NOON)

        assert queue.counts(NOON).active == 1
        assert (namespace.operations.pings, namespace.operations.sends) == (1, 0)
        assert namespace.operations.billed == 1
        assert queue.peek(1, 9, NOON) == []
        assert queue.receive(NOON) is None
        assert queue.receive_and_delete(NOON) is None

    def test_a_ping_is_never_dead_lettered(self, make_queue, message):
        queue = make_queue(dead_lettering_on_message_expiration=True)
        queue.enqueue(message(is_ping=True, time_to_live=SECOND), NOON)

        assert queue.receive(NOON + MINUTE) is None
        assert queue.counts(NOON + MINUTE).total == 0

    def test_pings_do_not_hide_the_messages_behind_them(self, make_queue, message):
        queue = make_queue()
        for _ in range(3):
            queue.enqueue(message(is_ping=True), NOON)
        queue.enqueue(message(bare=b"real"), NOON)

        assert queue.receive(NOON).bare == b"real"
