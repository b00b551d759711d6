"""Topics and subscriptions, without I/O and in virtual time."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace

import pytest

from sbpair.broker.entities import (
    Namespace,
    QueueDescription,
    StoredMessage,
    Subscription,
    SubscriptionDescription,
    Topic,
    TopicDescription,
)
from sbpair.broker.errors import (
    EntityAlreadyExistsError,
    EntityNotFoundError,
    InvalidDescriptionError,
    NotAllowedError,
    NotSupportedError,
    QuotaExceededError,
    TooManyEntitiesError,
)

NOON = 1_800_000_000_000  # ms
SECOND, MINUTE = 1_000, 60_000
Make = Callable[..., StoredMessage]


@pytest.fixture
def topic(namespace: Namespace) -> Topic:
    return namespace.create_topic("news", TopicDescription(), NOON)


def subscribe(namespace: Namespace, name: str = "all", **fields: object) -> Subscription:
    asked = replace(SubscriptionDescription(), **fields)
    return namespace.create_subscription("news", name, asked, NOON)


def retopic(namespace: Namespace, **fields: object) -> Topic:
    return namespace.update_topic("news", replace(namespace.topic("news").requested, **fields), NOON)


def received(subscription: Subscription, now: int = NOON) -> StoredMessage:
    message = subscription.receive(now)
    assert message is not None
    return message


# -- publishing


def test_a_topic_without_subscriptions_accepts_and_stores_nothing(topic: Topic, message: Make) -> None:
    assert topic.enqueue(message(), NOON) == 1
    assert (topic.counts(NOON).total, topic.size_in_bytes) == (0, 0)


def test_a_subscription_gets_no_message_sent_before_it_was_created(
    namespace: Namespace, topic: Topic, message: Make
) -> None:
    topic.enqueue(message(), NOON)
    assert subscribe(namespace).receive(NOON) is None


def test_receiving_from_a_topic_and_sending_to_a_subscription_are_refused(
    namespace: Namespace, topic: Topic, message: Make
) -> None:
    subscription = subscribe(namespace)
    with pytest.raises(NotAllowedError, match="receive from its subscriptions"):
        topic.receive(NOON)
    with pytest.raises(NotAllowedError, match="receive from its subscriptions"):
        topic.receive_and_delete(NOON)
    with pytest.raises(NotAllowedError, match="send it to 'news'"):
        subscription.enqueue(message(), NOON)


# -- schedule and duplicates


def test_a_topic_drops_duplicates_for_all_its_subscriptions(namespace: Namespace, message: Make) -> None:
    topic = namespace.create_topic("news", TopicDescription(requires_duplicate_detection=True), NOON)
    subscription = subscribe(namespace)
    assert topic.enqueue(message(message_id="a"), NOON) == topic.enqueue(message(message_id="a"), NOON)
    assert subscription.counts(NOON).active == 1


# -- time to live


@pytest.mark.spec("T-9")
@pytest.mark.parametrize(
    ("of_topic", "of_subscription", "effective"),
    [
        (10 * SECOND, 20 * SECOND, 10 * SECOND),
        (20 * SECOND, 10 * SECOND, 10 * SECOND),
        (None, 10 * SECOND, 10 * SECOND),
        (10 * SECOND, None, 10 * SECOND),
        (None, None, None),
    ],
)
def test_the_smaller_time_to_live_of_topic_and_subscription_applies(
    namespace: Namespace,
    message: Make,
    of_topic: int | None,
    of_subscription: int | None,
    effective: int | None,
) -> None:
    topic = namespace.create_topic("news", TopicDescription(default_message_time_to_live=of_topic), NOON)
    subscription = subscribe(namespace, default_message_time_to_live=of_subscription)
    topic.enqueue_all([message(), message(time_to_live=MINUTE)], NOON)
    by_entity, by_itself = received(subscription), received(subscription)
    assert subscription.expires_at(by_entity) == (None if effective is None else NOON + effective)
    assert subscription.expires_at(by_itself) == NOON + (effective or MINUTE)
    assert subscription.requested.default_message_time_to_live == of_subscription


@pytest.mark.spec("T-9")
def test_lowering_the_time_to_live_of_a_topic_lowers_that_of_waiting_messages(
    namespace: Namespace, topic: Topic, message: Make
) -> None:
    subscription = subscribe(namespace, dead_lettering_on_message_expiration=True)
    topic.enqueue(message(), NOON)
    retopic(namespace, default_message_time_to_live=10 * SECOND)
    assert subscription.receive(NOON + 10 * SECOND) is None
    assert subscription.counts(NOON + 10 * SECOND).dead_letter == 1


# -- size and status


def test_the_quota_of_a_topic_counts_every_copy(namespace: Namespace, topic: Topic, message: Make) -> None:
    subscribe(namespace, "first"), subscribe(namespace, "second")
    body = bytes(topic.description.quota_in_bytes // 2)
    topic.enqueue(message(bare=body), NOON)
    assert topic.size_in_bytes == 2 * len(body)
    with pytest.raises(QuotaExceededError, match="'news'"):
        topic.enqueue(message(), NOON)
    second = namespace.subscription("news", "second")
    assert second.receive_and_delete(NOON) is not None
    topic.enqueue(message(), NOON)


def test_the_quota_of_a_topic_is_checked_once_per_message(
    namespace: Namespace, topic: Topic, message: Make
) -> None:
    for number in range(3):
        subscribe(namespace, str(number))
    body = bytes(topic.description.quota_in_bytes // 2)
    topic.enqueue(message(bare=body), NOON)  # fits once but is stored three times
    assert topic.size_in_bytes > topic.description.quota_in_bytes
    with pytest.raises(QuotaExceededError, match="'news'"):
        topic.enqueue(message(), NOON)


def test_a_topic_has_at_most_two_thousand_subscriptions(namespace: Namespace, topic: Topic) -> None:
    for number in range(2_000):
        subscribe(namespace, str(number))
    with pytest.raises(TooManyEntitiesError, match="2000 subscriptions of 'news'"):
        subscribe(namespace, "one-more")
    namespace.delete_subscription("news", "7")
    subscribe(namespace, "one-more")
    namespace.create_topic("other", TopicDescription(), NOON)
    namespace.create_subscription("other", "first", SubscriptionDescription(), NOON)


# -- names and descriptions


@pytest.mark.parametrize(
    "path",
    [
        "news/Subscriptions/all",
        "NEWS/subscriptions/ALL",
        "news/Subscriptions/all/$DeadLetterQueue",
        "news/subscriptions/all/$deadletterqueue",
    ],
)
def test_a_subscription_is_found_by_its_path_whatever_the_case(
    namespace: Namespace, topic: Topic, path: str
) -> None:
    subscription = subscribe(namespace)
    assert namespace.queue(path) in (subscription, subscription.dead_letter_queue)


def test_a_topic_has_no_dead_letter_queue(namespace: Namespace, topic: Topic) -> None:
    with pytest.raises(EntityNotFoundError):
        namespace.queue("news/$DeadLetterQueue")


def test_queues_and_topics_share_their_paths(namespace: Namespace, topic: Topic) -> None:
    namespace.create_queue("orders", QueueDescription(), NOON)
    with pytest.raises(EntityAlreadyExistsError):
        namespace.create_queue("News", QueueDescription(), NOON)
    with pytest.raises(EntityAlreadyExistsError):
        namespace.create_topic("Orders", TopicDescription(), NOON)
    subscribe(namespace)
    with pytest.raises(EntityAlreadyExistsError):
        subscribe(namespace, "ALL")
    assert [queue.path for queue in namespace.queues()] == ["orders"]
    assert [each.path for each in namespace.topics()] == ["news"]


def test_each_kind_of_entity_is_updated_as_its_own_kind(namespace: Namespace, topic: Topic) -> None:
    subscribe(namespace)
    namespace.create_queue("orders", QueueDescription(), NOON)
    for path in ("news", "news/Subscriptions/all"):
        with pytest.raises(EntityNotFoundError):
            namespace.delete_queue(path, NOON)
        with pytest.raises(EntityNotFoundError):
            namespace.update_queue(path, QueueDescription(), NOON)
    with pytest.raises(EntityNotFoundError):
        namespace.delete_topic("orders")
    with pytest.raises(EntityNotFoundError, match="orders"):
        namespace.create_subscription("orders", "all", SubscriptionDescription(), NOON)


@pytest.mark.parametrize("name", ["", "a/b", "$Default", "a b", "-a", "a-", "a" * 51, "ä"])
def test_an_invalid_subscription_name_is_refused(namespace: Namespace, topic: Topic, name: str) -> None:
    with pytest.raises(InvalidDescriptionError, match="subscription name"):
        subscribe(namespace, name)


@pytest.mark.parametrize(
    ("fields", "named"),
    [
        ({"default_message_time_to_live": 999}, "default_message_time_to_live"),
        ({"max_size_in_megabytes": 0}, "max_size_in_megabytes"),
        ({"auto_delete_on_idle": MINUTE}, "auto_delete_on_idle"),
        ({"support_ordering": "yes"}, "support_ordering"),
        ({"status": "Sleeping"}, "status"),
    ],
)
def test_a_topic_out_of_range_is_refused_by_field(
    namespace: Namespace, fields: dict[str, object], named: str
) -> None:
    with pytest.raises(InvalidDescriptionError, match=named):
        namespace.create_topic("news", replace(TopicDescription(), **fields), NOON)
    assert namespace.topics() == []


@pytest.mark.parametrize(
    ("fields", "named"),
    [
        ({"lock_duration": 1}, "lock_duration"),
        ({"max_delivery_count": 0}, "max_delivery_count"),
        ({"dead_lettering_on_filter_evaluation_exceptions": 1}, "filter_evaluation"),
    ],
)
def test_a_subscription_out_of_range_is_refused_by_field(
    namespace: Namespace, topic: Topic, fields: dict[str, object], named: str
) -> None:
    with pytest.raises(InvalidDescriptionError, match=named):
        subscribe(namespace, **fields)
    assert namespace.subscriptions("news") == []


def test_an_unsupported_topic_feature_is_refused_by_name(namespace: Namespace) -> None:
    feature = "filtering_messages_before_publishing"
    with pytest.raises(NotSupportedError, match=feature) as refused:
        namespace.create_topic("news", replace(TopicDescription(), **{feature: True}), NOON)
    assert (refused.value.status, refused.value.condition) == (400, "amqp:not-implemented")


def test_permanent_flags_cannot_be_changed(namespace: Namespace, topic: Topic) -> None:
    subscription = subscribe(namespace)
    with pytest.raises(
        InvalidDescriptionError, match="RequiresDuplicateDetection property of an existing Topic"
    ):
        retopic(namespace, requires_duplicate_detection=True)
    asked = replace(subscription.requested, requires_session=True)
    with pytest.raises(InvalidDescriptionError, match="RequiresSession property of an existing Subscription"):
        namespace.update_subscription("news", "all", asked, NOON)
    assert not topic.requested.requires_duplicate_detection
    assert not subscription.requested.requires_session
