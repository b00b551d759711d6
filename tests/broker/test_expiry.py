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


@pytest.mark.spec("T-1", "T-2")
def test_an_expired_message_is_never_received(make_queue, message):
    queue = make_queue()
    queue.enqueue(message(time_to_live=10 * SECOND), NOON)

    assert queue.peek(1, 1, NOON)[0].expires_at == NOON + 10 * SECOND
    assert queue.receive(NOON + 10 * SECOND) is None
    assert queue.counts(NOON + 10 * SECOND).total == 0


@pytest.mark.spec("T-2", "T-4")
def test_while_nobody_listens_it_is_still_counted_and_peeked(namespace, make_queue, message):
    queue = make_queue(dead_lettering_on_message_expiration=True)
    queue.enqueue(message(time_to_live=SECOND), NOON)
    later = NOON + 60 * MINUTE
    namespace.handle_timer(later)

    counts = queue.counts(later)
    assert (counts.active, counts.dead_letter) == (1, 0)
    assert len(queue.peek(1, 9, later)) == 1


@pytest.mark.spec("T-3", "T-11")
def test_a_locked_message_is_settled_as_usual_after_its_time(make_queue, message):
    queue = make_queue(dead_lettering_on_message_expiration=True)
    queue.enqueue(message(time_to_live=SECOND), NOON)
    token = queue.receive(NOON).lock_token
    queue.complete(token, NOON + 30 * SECOND)

    assert queue.counts(NOON + 30 * SECOND).total == 0


@pytest.mark.spec("T-3", "T-11")
@pytest.mark.parametrize("end", ["abandon", "release", "lapse"])
def test_it_expires_at_once_when_the_lock_ends_though_nobody_listens(namespace, make_queue, message, end):
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
def test_expiry_moves_to_the_dead_letter_queue_where_the_entity_says_so(make_queue, message):
    queue = make_queue(dead_lettering_on_message_expiration=True)
    queue.enqueue(message(time_to_live=SECOND), NOON)
    queue.enqueue(message(), NOON)

    assert queue.receive(NOON + MINUTE).sequence_number == 2
    buried = queue.dead_letter_queue.receive(NOON + MINUTE)
    assert buried.amended == {
        "DeadLetterReason": "TTLExpiredException",
        "DeadLetterErrorDescription": "The message expired and was dead lettered.",
    }


@pytest.mark.spec("T-10")
def test_what_expires_while_it_waits_is_dead_lettered_once(make_queue, message):
    queue = make_queue(dead_lettering_on_message_expiration=True)
    queue.enqueue(message(time_to_live=SECOND), NOON)

    assert queue.receive(NOON + MINUTE) is None
    assert queue.counts(NOON + MINUTE).total == 1
    assert queue.receive(NOON + MINUTE) is None  # it must not return from a queue of waiting messages
    assert queue.counts(NOON + MINUTE).dead_letter == 1


@pytest.mark.spec("T-10")
def test_without_the_flag_an_expired_message_is_dropped(make_queue, message):
    queue = make_queue()
    queue.enqueue(message(time_to_live=SECOND), NOON)

    assert queue.receive(NOON + MINUTE) is None
    assert queue.counts(NOON + MINUTE).total == 0


def test_a_dead_letter_queue_observes_no_time_to_live(make_queue, message):
    queue = make_queue(dead_lettering_on_message_expiration=True, default_message_time_to_live=SECOND)
    queue.enqueue(message(time_to_live=SECOND), NOON)
    assert queue.receive(NOON + MINUTE) is None

    assert queue.dead_letter_queue.receive(NOON + 1000 * MINUTE) is not None


@pytest.mark.spec("T-6")
def test_the_entitys_time_to_live_is_the_default(make_queue, message):
    queue = make_queue(default_message_time_to_live=10 * SECOND)
    queue.enqueue(message(), NOON)

    assert queue.receive(NOON + 10 * SECOND) is None


@pytest.mark.spec("T-6")
def test_the_entitys_time_to_live_is_a_ceiling(make_queue, message):
    queue = make_queue(default_message_time_to_live=10 * SECOND)
    queue.enqueue(message(time_to_live=MINUTE), NOON)

    assert queue.peek(1, 1, NOON)[0].expires_at == NOON + 10 * SECOND
    assert queue.receive(NOON + 10 * SECOND) is None


@pytest.mark.spec("T-6")
def test_messages_without_a_time_to_live_follow_a_change(namespace, make_queue, message):
    queue = make_queue(default_message_time_to_live=10 * SECOND)
    queue.enqueue(message(), NOON)
    queue.enqueue(message(time_to_live=5 * SECOND), NOON)
    namespace.update_queue("orders", replace(queue.description, default_message_time_to_live=MINUTE), NOON)

    assert queue.receive(NOON + 30 * SECOND).sequence_number == 1
    assert queue.receive(NOON + 30 * SECOND) is None


@pytest.mark.spec("T-7")
def test_only_a_message_with_a_time_to_live_carries_its_instant_from_the_send_on(make_queue, message):
    queue = make_queue(default_message_time_to_live=10 * SECOND)
    queue.enqueue(message(), NOON)
    queue.enqueue(message(time_to_live=5 * SECOND), NOON)

    assert [peeked.expires_at for peeked in queue.peek(1, 2, NOON)] == [None, NOON + 5 * SECOND]


@pytest.mark.spec("T-8")
def test_the_default_is_never(make_queue, message):
    queue = make_queue()
    queue.enqueue(message(), NOON)

    assert queue.description.default_message_time_to_live is None
    assert queue.receive(NOON + 100 * 365 * 24 * 60 * MINUTE) is not None


@pytest.mark.spec("T-5", "T-6", "T-7")
def test_a_scheduled_messages_instant_is_fixed_when_it_is_sent_too(namespace, make_queue, message):
    queue = make_queue(default_message_time_to_live=10 * MINUTE)
    queue.enqueue(message(time_to_live=60 * MINUTE, scheduled_for=NOON + 5 * MINUTE), NOON)
    assert queue.peek(1, 1, NOON)[0].expires_at == NOON + 15 * MINUTE

    longer = replace(queue.description, default_message_time_to_live=60 * MINUTE)
    namespace.update_queue("orders", longer, NOON)
    namespace.handle_timer(NOON + 5 * MINUTE)
    assert queue.peek(1, 1, NOON + 5 * MINUTE)[0].expires_at == NOON + 15 * MINUTE


@pytest.mark.spec("T-6")
def test_a_change_of_the_entitys_time_to_live_leaves_a_messages_own_as_it_was_sent(
    namespace, make_queue, message
):
    queue = make_queue()
    queue.enqueue(message(time_to_live=60 * MINUTE), NOON)
    queue.enqueue(message(), NOON)
    shorter = replace(queue.description, default_message_time_to_live=MINUTE)
    namespace.update_queue("orders", shorter, NOON)

    assert queue.receive(NOON + 2 * MINUTE).sequence_number == 1
    assert queue.receive(NOON + 2 * MINUTE) is None


@pytest.mark.spec("T-3", "T-6")
def test_what_is_locked_follows_the_change_when_its_lock_ends(namespace, make_queue, message):
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
    def test_while_nobody_does_there_is_no_timer_for_expiry(self, namespace, queue):
        assert namespace.next_timer() is None
        namespace.handle_timer(NOON + MINUTE)
        assert queue.counts(NOON + MINUTE).active == 1

    @pytest.mark.spec("T-2", "T-4", "T-10")
    def test_while_somebody_does_a_message_expires_in_its_time(self, namespace, queue):
        queue.listen(NOON)
        assert namespace.next_timer() == NOON + 10 * SECOND
        namespace.handle_timer(NOON + 10 * SECOND - 1)
        assert queue.counts(NOON).active == 1
        namespace.handle_timer(NOON + 10 * SECOND)
        assert (queue.counts(NOON).active, queue.counts(NOON).dead_letter) == (0, 1)

    @pytest.mark.spec("T-4")
    def test_when_the_last_one_leaves_it_is_lazy_again(self, namespace, queue):
        queue.listen(NOON)
        queue.stop_listening(NOON)
        assert namespace.next_timer() is None

    @pytest.mark.spec("T-4")
    def test_one_that_comes_while_somebody_listens_gets_its_timer(self, namespace, queue, message):
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
    def test_what_waits_costs_nothing(self, namespace, make_queue, message):
        costs = []
        for waiting in (500, 20_000):
            queue = self.filled(make_queue, message, waiting)
            costs.append(calls_of(lambda queue=queue: queue.receive(NOON + MINUTE)))
            assert queue.counts(NOON + MINUTE).dead_letter == 50
            namespace.delete_queue("orders", NOON)
        few, many = costs
        assert many <= few * 1.1

    @pytest.mark.spec("T-4")
    def test_a_timer_that_is_not_due_costs_nothing_either(self, namespace, make_queue, message):
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
def test_a_message_is_in_one_of_the_two_queues_at_any_time(steps):
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
    def test_a_ping_is_accepted_and_counted_but_handed_to_nobody(self, namespace, make_queue, message):
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

    def test_pings_do_not_hide_what_stands_behind_them(self, make_queue, message):
        queue = make_queue()
        for _ in range(3):
            queue.enqueue(message(is_ping=True), NOON)
        queue.enqueue(message(bare=b"real"), NOON)

        assert queue.receive(NOON).bare == b"real"
