"""The entities of a namespace, their paths, and the next timer."""

from __future__ import annotations

import pytest

from sbpair.broker.entities import QueueDescription
from sbpair.broker.entities.descriptions import MAX_SPAN
from sbpair.broker.errors import EntityAlreadyExistsError, EntityNotFoundError

NOON = 1_800_000_000_000
MINUTE = 60_000
BACKLOG = "contoso/x-servicebus-transfer/0"


@pytest.mark.spec("P-10")
def test_a_path_may_contain_slashes_and_ignores_case(namespace):
    queue = namespace.create_queue(BACKLOG, QueueDescription(), NOON)

    assert namespace.queue("Contoso/X-ServiceBus-Transfer/0") is queue
    assert queue.path == BACKLOG


def test_a_dead_letter_queue_is_reached_through_its_queue(namespace):
    queue = namespace.create_queue(BACKLOG, QueueDescription(), NOON)

    assert namespace.queue(f"{BACKLOG}/$DEADLETTERQUEUE") is queue.dead_letter_queue
    with pytest.raises(EntityNotFoundError):
        namespace.queue("other/$DeadLetterQueue")


def test_a_second_queue_of_the_same_path_is_refused(namespace):
    namespace.create_queue("orders", QueueDescription(), NOON)

    with pytest.raises(EntityAlreadyExistsError, match="ORDERS"):
        namespace.create_queue("ORDERS", QueueDescription(), NOON)


@pytest.mark.spec("P-11", "T-8")
def test_the_largest_span_equals_no_limit(namespace):
    description = QueueDescription(
        max_size_in_megabytes=5120,
        max_delivery_count=2**31 - 1,
        default_message_time_to_live=MAX_SPAN,
        auto_delete_on_idle=MAX_SPAN,
        dead_lettering_on_message_expiration=True,
    )
    queue = namespace.create_queue(BACKLOG, description, NOON)

    assert queue.description.default_message_time_to_live is None
    assert queue.description.auto_delete_on_idle is None


def test_the_next_timer_is_the_earliest_of_all_queues(namespace, message):
    first = namespace.create_queue("first", QueueDescription(), NOON)
    second = namespace.create_queue("second", QueueDescription(lock_duration=5_000), NOON)
    assert namespace.next_timer() is None
    for queue in (first, second):
        queue.enqueue(message(), NOON)
        queue.receive(NOON)

    assert namespace.next_timer() == NOON + 5_000
    namespace.handle_timer(NOON + 5_000)
    assert namespace.next_timer() == NOON + MINUTE
    assert second in namespace.take_ready()


def test_a_deleted_queue_has_no_timers(namespace, message):
    queue = namespace.create_queue("orders", QueueDescription(), NOON)
    queue.enqueue(message(), NOON)
    queue.receive(NOON)
    assert namespace.next_timer() is not None
    namespace.delete_queue("Orders", NOON)

    assert namespace.next_timer() is None
    assert not namespace.holds(queue)
    with pytest.raises(EntityNotFoundError):
        namespace.queue("orders")
