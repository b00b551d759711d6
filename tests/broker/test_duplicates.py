"""Duplicate detection in virtual time: what counts as a duplicate, for how long, and the cost."""

from __future__ import annotations

from dataclasses import replace

import pytest

from sbpair.broker.errors import InvalidDescriptionError

NOON = 1_800_000_000_000
MINUTE = 60_000
WINDOW = 10 * MINUTE


@pytest.fixture
def queue(make_queue):
    """A queue that detects duplicates within ten minutes."""
    return make_queue(requires_duplicate_detection=True)


def test_a_second_message_of_an_id_is_taken_and_dropped(queue, message):
    first = queue.enqueue(message(message_id="m"), NOON)

    assert queue.enqueue(message(message_id="m", bare=b"other"), NOON + 1) == first
    assert queue.counts(NOON).total == 1
    assert queue.receive(NOON).bare == b"body"


def test_a_duplicate_is_one_even_when_the_first_is_gone(queue, message):
    queue.enqueue(message(message_id="m"), NOON)
    queue.receive_and_delete(NOON)
    queue.enqueue(message(message_id="m"), NOON + 1)

    assert queue.counts(NOON).total == 0


def test_the_window_counts_from_the_first_and_a_duplicate_does_not_extend_it(queue, message):
    for at in (0, WINDOW - 1, WINDOW):
        queue.enqueue(message(message_id="m"), NOON + at)

    assert queue.counts(NOON).total == 2


def test_duplicates_inside_one_batch_are_dropped_too(queue, message):
    numbers = queue.enqueue_all([message(message_id=name) for name in "aab"], NOON)

    assert numbers == [1, 1, 2]
    assert queue.counts(NOON).total == 2


def test_a_scheduled_message_counts_from_when_it_was_taken(queue, message):
    number = queue.enqueue(message(message_id="m", scheduled_for=NOON + 2 * WINDOW), NOON)

    assert queue.enqueue(message(message_id="m"), NOON + 1) == number
    assert queue.counts(NOON).active == 0
    queue.enqueue(message(message_id="m"), NOON + WINDOW)
    assert queue.counts(NOON + WINDOW).active == 1


def test_a_scheduled_duplicate_is_dropped(queue, message):
    queue.enqueue(message(message_id="m"), NOON)
    queue.enqueue(message(message_id="m", scheduled_for=NOON + MINUTE), NOON)

    assert queue.counts(NOON).scheduled == 0


@pytest.mark.spec("P-34")
def test_a_ping_is_no_duplicate_of_anything(queue, message, namespace):
    for _ in range(3):
        queue.enqueue(message(message_id="m", is_ping=True), NOON)
    queue.enqueue(message(message_id="m"), NOON)

    assert queue.counts(NOON).total == 4
    assert namespace.operations.pings == 3


def test_what_was_refused_is_not_remembered(queue, message):
    full = getattr(queue, "partitions", [queue])[0]
    full.size = queue.description.quota_in_bytes  # instead of filling a gigabyte
    with pytest.raises(Exception, match="maximum entity size"):
        queue.enqueue(message(message_id="m"), NOON)
    full.size = 0
    queue.enqueue(message(message_id="m"), NOON)

    assert queue.counts(NOON).total == 1


def test_what_is_remembered_is_bounded_by_the_window(make_queue, message):
    queue = make_queue(requires_duplicate_detection=True, duplicate_detection_history_time_window=20_000)
    for i in range(1000):
        queue.enqueue(message(message_id=str(i)), NOON + 1000 * i)

    assert len(getattr(queue, "partitions", [queue])[0]._duplicates) == 20


def test_a_shorter_window_holds_at_once_and_the_flag_is_for_ever(queue, message, namespace):
    queue.enqueue(message(message_id="m"), NOON)
    shorter = replace(queue.description, duplicate_detection_history_time_window=20_000)
    namespace.update_queue("orders", shorter, NOON)
    queue.enqueue(message(message_id="m"), NOON + 20_000)
    assert queue.counts(NOON).total == 2

    with pytest.raises(
        InvalidDescriptionError,
        match="value for the RequiresDuplicateDetection property of an existing Queue",
    ):
        namespace.update_queue("orders", replace(shorter, requires_duplicate_detection=False), NOON)


@pytest.mark.parametrize("window", [19_999, 7 * 24 * 60 * MINUTE + 1])
def test_the_window_is_from_20_seconds_to_7_days(make_queue, window):
    with pytest.raises(InvalidDescriptionError, match="20 s to 7 days"):
        make_queue(requires_duplicate_detection=True, duplicate_detection_history_time_window=window)


def test_without_the_flag_nothing_is_a_duplicate(make_queue, message):
    queue = make_queue()
    for _ in range(2):
        queue.enqueue(message(message_id="m"), NOON)

    assert queue.counts(NOON).total == 2
