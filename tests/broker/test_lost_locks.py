"""Updates of an entity end its locks, as the service may do, only when the fault is set."""

from __future__ import annotations

from dataclasses import replace

import pytest

from sbpair.broker.entities import SubscriptionDescription, TopicDescription
from sbpair.broker.errors import LockLostError, SessionLostError
from tests.broker.conftest import NOON


def update(namespace, queue, **fields):
    namespace.update_queue(queue.path, replace(queue.description, **fields), NOON + 1)


def test_an_update_keeps_locks_by_default(namespace, make_queue, message):
    queue = make_queue()
    queue.enqueue(message(), NOON)
    held = queue.receive(NOON)
    update(namespace, queue, max_delivery_count=5)
    queue.complete(held.lock_token, NOON + 1)
    assert queue.counts(NOON + 1).total == 0


def test_an_update_without_changes_drops_no_lock(namespace, make_queue, message):
    namespace.updates_take_locks = True
    queue = make_queue()
    queue.enqueue(message(), NOON)
    token = queue.receive(NOON).lock_token
    update(namespace, queue)
    queue.complete(token, NOON + 1)


def test_an_update_drops_the_locks_of_dead_letters(namespace, make_queue, message):
    namespace.updates_take_locks = True
    queue = make_queue()
    queue.enqueue(message(), NOON)
    queue.dead_letter(queue.receive(NOON).lock_token, NOON, {})
    token = queue.dead_letter_queue.receive(NOON).lock_token
    update(namespace, queue, user_metadata="new")
    with pytest.raises(LockLostError):
        queue.dead_letter_queue.complete(token, NOON + 1)


def test_an_update_drops_session_locks_and_the_sessions_can_be_accepted_again(namespace, make_queue, message):
    namespace.updates_take_locks = True
    queue = make_queue(requires_session=True)
    queue.enqueue(message(session_id="a"), NOON)
    lock = queue.sessions.accept("a", NOON)
    queue.receive(NOON, lock)
    update(namespace, queue, max_delivery_count=5)
    with pytest.raises(SessionLostError):
        queue.sessions.renew(lock, NOON + 1)
    again = queue.sessions.accept(None, NOON + 1)
    assert queue.receive(NOON + 1, again).delivery_count == 1


def test_an_update_of_a_subscription_drops_its_locks(namespace, is_partitioned, message):
    namespace.updates_take_locks = True
    topic = namespace.create_topic("news", TopicDescription(enable_partitioning=is_partitioned), NOON)
    made = namespace.create_subscription("news", "all", SubscriptionDescription(), NOON)
    topic.enqueue(message(), NOON)
    token = made.receive(NOON).lock_token
    namespace.update_subscription("news", "all", replace(made.requested, max_delivery_count=5), NOON + 1)
    with pytest.raises(LockLostError):
        made.complete(token, NOON + 1)


def test_a_last_delivery_lost_to_an_update_is_dead_lettered(namespace, make_queue, message):
    namespace.updates_take_locks = True
    queue = make_queue(max_delivery_count=1)
    queue.enqueue(message(), NOON)
    queue.receive(NOON)
    update(namespace, queue, user_metadata="new")
    assert queue.counts(NOON + 1).dead_letter == 1
