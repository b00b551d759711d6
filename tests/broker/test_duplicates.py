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


def test_a_duplicate_is_detected_even_after_the_first_was_removed(queue, message):
    queue.enqueue(message(message_id="m"), NOON)
    queue.receive_and_delete(NOON)
    queue.enqueue(message(message_id="m"), NOON + 1)

    assert queue.counts(NOON).total == 0


def test_the_duplicate_window_starts_at_the_first_message_and_is_not_extended(queue, message):
    for at in (0, WINDOW - 1, WINDOW):
        queue.enqueue(message(message_id="m"), NOON + at)

    assert queue.counts(NOON).total == 2


def test_the_duplicate_window_of_a_scheduled_message_starts_when_it_is_accepted(queue, message):
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
def test_a_ping_is_never_a_duplicate(queue, message, namespace):
    for _ in range(3):
        queue.enqueue(message(message_id="m", is_ping=True), NOON)
    queue.enqueue(message(message_id="m"), NOON)

    assert queue.counts(NOON).total == 4
    assert namespace.operations.pings == 3


def test_a_refused_message_does_not_count_for_duplicate_detection(queue, message):
    full = getattr(queue, "partitions", [queue])[0]
    full.size = queue.description.quota_in_bytes  # instead of filling a gigabyte
    with pytest.raises(Exception, match="maximum entity size"):
        queue.enqueue(message(message_id="m"), NOON)
    full.size = 0
    queue.enqueue(message(message_id="m"), NOON)

    assert queue.counts(NOON).total == 1


def test_the_duplicate_history_is_bounded_by_the_window(make_queue, message):
    queue = make_queue(requires_duplicate_detection=True, duplicate_detection_history_time_window=20_000)
    for i in range(1000):
        queue.enqueue(message(message_id=str(i)), NOON + 1000 * i)

    assert len(getattr(queue, "partitions", [queue])[0]._duplicates) == 20


def test_a_shorter_duplicate_window_applies_at_once_and_the_flag_is_permanent(queue, message, namespace):
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
def test_the_duplicate_window_is_between_20_seconds_and_7_days(make_queue, window):
    with pytest.raises(InvalidDescriptionError, match="20 s to 7 days"):
        make_queue(requires_duplicate_detection=True, duplicate_detection_history_time_window=window)


def test_duplicates_are_kept_where_detection_is_off(make_queue, message):
    queue = make_queue()
    for _ in range(2):
        queue.enqueue(message(message_id="m"), NOON)

    assert queue.counts(NOON).total == 2
