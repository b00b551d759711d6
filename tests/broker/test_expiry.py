"""When does a message expire, who notices, and where does it go? In virtual time."""

from __future__ import annotations

from dataclasses import replace

import pytest

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
def test_while_nobody_listens_it_is_still_counted_and_peeked(make_queue, message):
    queue = make_queue(dead_lettering_on_message_expiration=True)
    queue.enqueue(message(time_to_live=SECOND), NOON)
    later = NOON + 60 * MINUTE
    queue.handle_timer(later)

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
def test_it_expires_at_once_when_the_lock_ends_though_nobody_listens(make_queue, message, end):
    queue = make_queue(dead_lettering_on_message_expiration=True, max_delivery_count=1)
    queue.enqueue(message(time_to_live=SECOND), NOON)
    token = queue.receive(NOON).lock_token
    if end == "lapse":
        queue.handle_timer(NOON + MINUTE)
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
