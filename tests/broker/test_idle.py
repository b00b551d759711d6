"""Automatic deletion of idle entities and what counts as use, in virtual time and then over AMQP.

The span is five minutes, the shortest allowed. Each line of T-21 has a test: a use after three minutes keeps the
entity until the eighth minute and no longer.
"""

from __future__ import annotations

import itertools
from dataclasses import replace

import pytest

from sbpair.broker.entities import QueueDescription, SubscriptionDescription, TopicDescription
from sbpair.broker.entities.descriptions import MAX_SPAN
from sbpair.broker.entities.rule_operations import add_rule, remove_rule
from sbpair.broker.entities.rules import DEFAULT_RULE, Rule
from sbpair.broker.errors import InvalidDescriptionError
from sbpair.pair.amqp.events import LinkDetached
from sbpair.pair.amqp.message import DataBody, Message

NOON = 1_800_000_000_000
MINUTE = 60_000
FIVE = 5 * MINUTE
THEN = NOON + 3 * MINUTE
HELLO = Message(body=DataBody((b"hello",))).encode()


@pytest.fixture
def queue(namespace):
    return namespace.create_queue("orders", QueueDescription(auto_delete_on_idle=FIVE), NOON)


@pytest.fixture
def topic(namespace):
    return namespace.create_topic("news", TopicDescription(auto_delete_on_idle=FIVE), NOON)


@pytest.fixture
def subscription(namespace, lasting_topic):
    asked = SubscriptionDescription(auto_delete_on_idle=FIVE)
    return namespace.create_subscription("lasting", "all", asked, NOON)


@pytest.fixture
def lasting_topic(namespace):
    return namespace.create_topic("lasting", TopicDescription(), NOON)


@pytest.fixture
def is_there(namespace):
    """Advance to that time in steps of half a minute; return whether the entity still exists."""
    steps = itertools.count(NOON, MINUTE // 2)
    state = {"now": NOON}

    def is_there(entity, at):
        while state["now"] < at:
            state["now"] = min(next(steps), at)
            namespace.handle_timer(state["now"])
        return namespace.holds(entity)

    return is_there


@pytest.fixture
def stays_from_then(is_there):
    """Check that the entity lasts exactly its span from THEN, its last use."""

    def stays(entity):
        return is_there(entity, THEN + FIVE - 1) and not is_there(entity, THEN + FIVE)

    return stays


@pytest.mark.spec("T-20")
class TestTheSpan:
    def test_an_unused_entity_is_deleted_after_its_idle_span(self, namespace, queue):
        assert namespace.next_timer() == NOON + FIVE
        namespace.handle_timer(NOON + FIVE - 1)
        assert namespace.queues() == [queue]
        namespace.handle_timer(NOON + FIVE)
        assert namespace.queues() == []

    def test_an_idle_entity_is_deleted_with_its_messages_and_dead_letters(self, namespace, queue, message):
        queue.enqueue(message(), NOON)
        queue.enqueue(message(), NOON)
        queue.dead_letter(queue.receive(NOON).lock_token, NOON, {})
        assert queue.counts(NOON).total == 2
        namespace.handle_timer(NOON + FIVE)

        assert namespace.queues() == []
        again = namespace.create_queue("orders", QueueDescription(), NOON + FIVE)
        assert again.counts(NOON + FIVE).total == 0

    def test_a_subscription_with_less_than_five_minutes_is_refused(self, namespace, lasting_topic):
        asked = SubscriptionDescription(auto_delete_on_idle=FIVE - 1)
        with pytest.raises(InvalidDescriptionError, match=r"auto_delete_on_idle .* at least 5 minutes"):
            namespace.create_subscription("lasting", "all", asked, NOON)

    def test_the_largest_idle_span_means_never(self, namespace):
        asked = QueueDescription(auto_delete_on_idle=MAX_SPAN)
        queue = namespace.create_queue("orders", asked, NOON)

        assert namespace.next_timer() is None
        namespace.handle_timer(NOON + MAX_SPAN)
        assert namespace.queues() == [queue]

    def test_an_idle_span_set_later_counts_from_then(self, namespace, is_there):
        queue = namespace.create_queue("orders", QueueDescription(), NOON)
        namespace.update_queue("orders", QueueDescription(auto_delete_on_idle=FIVE), THEN)

        assert is_there(queue, THEN + FIVE - 1)
        assert not is_there(queue, THEN + FIVE)

    def test_removing_the_idle_span_keeps_the_entity(self, namespace, queue, is_there):
        namespace.update_queue("orders", QueueDescription(), THEN)

        assert is_there(queue, THEN + 100 * FIVE)


@pytest.mark.spec("T-20", "T-21")
class TestUseOfAQueue:
    def test_a_send_keeps_an_idle_entity(self, queue, message, stays_from_then):
        queue.enqueue(message(), THEN)
        assert stays_from_then(queue)

    def test_a_receive_keeps_an_idle_entity(self, queue, stays_from_then):
        assert queue.receive(THEN) is None
        assert stays_from_then(queue)

    def test_an_update_keeps_an_idle_entity(self, namespace, queue, stays_from_then):
        namespace.update_queue("orders", replace(queue.description, max_delivery_count=3), THEN)
        assert stays_from_then(queue)

    def test_a_scheduled_message_keeps_its_entity_until_it_is_due_and_one_span_longer(
        self, queue, message, is_there
    ):
        queue.enqueue(message(scheduled_for=NOON + 60 * MINUTE), NOON)
        assert is_there(queue, NOON + 60 * MINUTE + FIVE - 1)
        assert not is_there(queue, NOON + 60 * MINUTE + FIVE)

    def test_a_scheduled_message_keeps_its_queue_even_if_all_time_passes_at_once(
        self, namespace, queue, message
    ):
        queue.enqueue(message(scheduled_for=NOON + 60 * MINUTE), NOON)
        namespace.handle_timer(NOON + 60 * MINUTE)
        assert namespace.holds(queue)
        assert queue.receive(NOON + 60 * MINUTE) is not None

    def test_a_peek_keeps_an_idle_entity(self, queue, stays_from_then):
        assert queue.peek(1, 1, THEN) == []
        assert stays_from_then(queue)

    def test_a_settlement_and_a_renewal_keep_an_idle_queue(self, queue, message, is_there):
        queue.enqueue(message(), NOON)
        token = queue.receive(NOON).lock_token
        queue.renew(token, NOON + MINUTE // 2)
        queue.complete(token, NOON + MINUTE)
        assert is_there(queue, NOON + MINUTE + FIVE - 1)
        assert not is_there(queue, NOON + MINUTE + FIVE)

    def test_cancelling_a_scheduled_message_keeps_its_entity(self, queue, message, stays_from_then):
        number = queue.enqueue(message(scheduled_for=NOON + 60 * MINUTE), NOON)
        queue.cancel_scheduled([number], THEN)
        assert stays_from_then(queue)

    def test_work_on_dead_letters_keeps_their_queue(self, queue, is_there):
        queue.dead_letter_queue.listen(NOON)
        assert is_there(queue, NOON + 60 * MINUTE)
        queue.dead_letter_queue.stop_listening(NOON + 60 * MINUTE)
        queue.dead_letter_queue.peek(1, 1, NOON + 61 * MINUTE)
        assert is_there(queue, NOON + 61 * MINUTE + FIVE - 1)
        assert not is_there(queue, NOON + 61 * MINUTE + FIVE)


@pytest.mark.spec("T-20", "T-21")
class TestNoUseOfAQueue:
    def test_a_waiting_message_does_not_keep_its_entity(self, queue, message, is_there):
        queue.enqueue(message(), NOON)
        assert not is_there(queue, NOON + FIVE)

    def test_an_expiring_lock_does_not_keep_its_entity(self, queue, message, is_there):
        queue.enqueue(message(), NOON)
        queue.receive(NOON)
        assert not is_there(queue, NOON + FIVE)

    def test_reading_the_counts_does_not_keep_an_entity(self, queue, is_there):
        queue.counts(THEN)
        assert not is_there(queue, NOON + FIVE)

    def test_forwarding_of_dead_letters_does_not_keep_an_entity(self, namespace, is_there):
        namespace.create_queue("failures", QueueDescription(), NOON)
        asked = QueueDescription(auto_delete_on_idle=FIVE, forward_dead_lettered_messages_to="failures")
        assert not is_there(namespace.create_queue("orders", asked, NOON), NOON + FIVE)


@pytest.mark.spec("T-20", "T-21")
class TestUseOfATopic:
    def subscribe(self, namespace, now=NOON, **fields):
        return namespace.create_subscription("news", "all", SubscriptionDescription(**fields), now)

    def test_a_send_keeps_an_idle_entity(self, topic, message, stays_from_then):
        topic.enqueue(message(), THEN)
        assert stays_from_then(topic)

    def test_an_update_keeps_an_idle_entity(self, namespace, topic, stays_from_then):
        namespace.update_topic("news", replace(topic.requested, max_size_in_megabytes=2048), THEN)
        assert stays_from_then(topic)

    def test_a_scheduled_message_keeps_its_entity_until_it_is_due_and_one_span_longer(
        self, topic, message, is_there
    ):
        topic.enqueue(message(scheduled_for=NOON + 60 * MINUTE), NOON)
        assert is_there(topic, NOON + 60 * MINUTE + FIVE - 1)
        assert not is_there(topic, NOON + 60 * MINUTE + FIVE)

    def test_any_use_of_a_subscription_keeps_its_topic(self, namespace, topic, stays_from_then):
        self.subscribe(namespace).peek(1, 1, THEN)
        assert stays_from_then(topic)

    def test_a_new_subscription_keeps_its_topic(self, namespace, topic, stays_from_then):
        self.subscribe(namespace, THEN)
        assert stays_from_then(topic)

    def test_a_receiver_waiting_on_a_subscription_keeps_its_topic(self, namespace, topic, is_there):
        subscription = self.subscribe(namespace)
        subscription.listen(NOON)
        assert is_there(topic, NOON + 60 * MINUTE)
        subscription.stop_listening(NOON + 60 * MINUTE)
        assert is_there(topic, NOON + 60 * MINUTE + FIVE - 1)
        assert not is_there(topic, NOON + 60 * MINUTE + FIVE)

    def test_the_deletion_of_a_subscription_keeps_its_earlier_use_of_the_topic(
        self, namespace, topic, stays_from_then
    ):
        self.subscribe(namespace).receive(THEN)
        namespace.delete_subscription("news", "all")
        assert stays_from_then(topic)

    def test_an_idle_topic_is_deleted_with_its_subscriptions(self, namespace, topic, is_there):
        subscription = self.subscribe(namespace, auto_delete_on_idle=FIVE)
        assert not is_there(topic, NOON + FIVE)
        assert not namespace.holds(subscription)
        assert namespace.next_timer() is None


@pytest.mark.spec("T-20", "T-21")
class TestUseOfASubscription:
    def test_a_receive_keeps_an_idle_entity(self, subscription, stays_from_then):
        assert subscription.receive(THEN) is None
        assert stays_from_then(subscription)

    def test_an_update_keeps_an_idle_entity(self, namespace, subscription, stays_from_then):
        asked = replace(subscription.requested, max_delivery_count=3)
        namespace.update_subscription("lasting", "all", asked, THEN)
        assert stays_from_then(subscription)

    def test_a_peek_keeps_an_idle_entity(self, subscription, stays_from_then):
        assert subscription.peek(1, 1, THEN) == []
        assert stays_from_then(subscription)

    def test_an_added_rule_keeps_its_subscription(self, subscription, stays_from_then):
        add_rule(subscription, Rule("another"), THEN)
        assert stays_from_then(subscription)

    def test_a_removed_rule_does_not_keep_its_subscription(self, subscription, is_there):
        remove_rule(subscription, DEFAULT_RULE)
        assert not is_there(subscription, NOON + FIVE)

    def test_publishing_does_not_keep_a_subscription(self, subscription, lasting_topic, message, is_there):
        lasting_topic.enqueue(message(), THEN)
        assert subscription.counts(THEN).active == 1
        assert not is_there(subscription, NOON + FIVE)

    def test_a_change_of_the_topic_does_not_keep_a_subscription(
        self, namespace, subscription, lasting_topic, is_there
    ):
        asked = replace(lasting_topic.requested, default_message_time_to_live=MINUTE)
        namespace.update_topic("lasting", asked, THEN)
        assert not is_there(subscription, NOON + FIVE)

    def test_a_topic_outlives_its_idle_subscription(self, namespace, subscription, lasting_topic, is_there):
        assert not is_there(subscription, NOON + FIVE)
        assert namespace.topics() == [lasting_topic]
        assert namespace.subscriptions("lasting") == []


@pytest.mark.spec("T-20", "T-21")
class TestOverAmqp:
    def test_a_receiver_whose_credit_is_used_up_does_not_keep_the_queue(self, lab):
        queue = lab.queue(auto_delete_on_idle=FIVE)
        client = lab.client()
        client.receiver("orders", credit=1)
        client.send(client.sender("orders"), HELLO)
        lab.advance(entity=FIVE)

        assert not lab.namespace.holds(queue)

    def test_links_of_a_dead_letter_queue_end_with_their_entity(self, lab):
        lab.queue(auto_delete_on_idle=FIVE)
        client = lab.client()
        client.receiver("orders/$DeadLetterQueue")
        lab.advance(entity=FIVE)

        assert [each.condition.symbol for each in client.take(LinkDetached)] == ["amqp:resource-deleted"]
