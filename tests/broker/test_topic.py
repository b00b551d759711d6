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
from sbpair.broker.entities.message_store import REASON
from sbpair.broker.errors import (
    EntityAlreadyExistsError,
    EntityDisabledError,
    EntityNotFoundError,
    InvalidDescriptionError,
    NoSuchMessageError,
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


def test_each_subscription_gets_a_copy_of_the_same_bytes(
    namespace: Namespace, topic: Topic, message: Make
) -> None:
    first, second = subscribe(namespace, "first"), subscribe(namespace, "second")
    sent = message(bare=b"a body" * 100)
    topic.enqueue(sent, NOON)
    one, other = received(first), received(second)
    assert one is not other
    assert one.bare is other.bare is sent.bare
    assert topic.counts(NOON).total == 0


def test_numbers_are_the_subscriptions_own_and_tell_the_topics(
    namespace: Namespace, topic: Topic, message: Make
) -> None:
    old = subscribe(namespace, "old")
    topic.enqueue_all([message(), message()], NOON)
    late = subscribe(namespace, "late")
    number = topic.enqueue(message(), NOON)
    assert number == 3
    copies = [received(old), received(old), received(old), received(late)]
    assert [copy.sequence_number for copy in copies] == [1, 2, 3, 1]
    assert [copy.enqueued_sequence_number for copy in copies] == [1, 2, 3, 3]


def test_settling_one_copy_leaves_the_others(namespace: Namespace, topic: Topic, message: Make) -> None:
    first, second = subscribe(namespace, "first"), subscribe(namespace, "second", max_delivery_count=1)
    topic.enqueue(message(), NOON)
    token = received(first).lock_token
    assert token is not None
    first.complete(token, NOON)
    token = received(second).lock_token
    assert token is not None
    second.abandon(token, NOON)
    assert first.counts(NOON).total == 0
    assert (second.counts(NOON).active, second.counts(NOON).dead_letter) == (0, 1)


def test_a_topic_without_subscriptions_accepts_and_keeps_nothing(topic: Topic, message: Make) -> None:
    assert topic.enqueue(message(), NOON) == 1
    assert (topic.counts(NOON).total, topic.size_in_bytes) == (0, 0)


def test_what_was_sent_before_the_subscription_was_made_never_comes(
    namespace: Namespace, topic: Topic, message: Make
) -> None:
    topic.enqueue(message(), NOON)
    assert subscribe(namespace).receive(NOON) is None


@pytest.mark.spec("P-31")
def test_a_ping_to_a_topic_is_billed_and_reaches_no_subscription(
    namespace: Namespace, topic: Topic, message: Make
) -> None:
    subscription = subscribe(namespace)
    topic.enqueue(message(is_ping=True), NOON)
    assert subscription.counts(NOON).total == 0
    assert namespace.operations.pings == 1
    assert topic.size_in_bytes == 0


def test_a_topic_is_not_received_from_and_a_subscription_not_sent_to(
    namespace: Namespace, topic: Topic, message: Make
) -> None:
    subscription = subscribe(namespace)
    with pytest.raises(NotAllowedError, match="receive from its subscriptions"):
        topic.receive(NOON)
    with pytest.raises(NotAllowedError, match="receive from its subscriptions"):
        topic.receive_and_delete(NOON)
    with pytest.raises(NotAllowedError, match="send it to 'news'"):
        subscription.enqueue(message(), NOON)


def test_a_message_without_a_session_is_dead_lettered_where_sessions_are_required(
    namespace: Namespace, topic: Topic, message: Make
) -> None:
    plain, strict = subscribe(namespace, "plain"), subscribe(namespace, "strict", requires_session=True)
    topic.enqueue_all([message(), message(session_id="a")], NOON)
    assert plain.counts(NOON).active == 2
    assert (strict.counts(NOON).active, strict.counts(NOON).dead_letter) == (1, 1)
    assert strict.dead_letter_queue is not None
    buried = strict.dead_letter_queue.receive(NOON)
    assert buried is not None
    assert buried.amended is not None
    assert buried.amended[REASON] == "Session ID is null"
    assert buried.dead_letter_source is None


# -- schedule and duplicates


def test_a_scheduled_message_waits_in_the_topic_and_is_published_when_it_is_due(
    namespace: Namespace, topic: Topic, message: Make
) -> None:
    topic.enqueue(message(scheduled_for=NOON + MINUTE), NOON)
    late = subscribe(namespace, "made-meanwhile")
    assert (topic.counts(NOON).scheduled, late.counts(NOON).total) == (1, 0)
    assert namespace.next_timer() == NOON + MINUTE
    namespace.handle_timer(NOON + MINUTE)
    assert (topic.counts(NOON + MINUTE).scheduled, topic.size_in_bytes) == (0, late.size_in_bytes)
    copy = received(late, NOON + MINUTE)
    assert (copy.enqueued_at, copy.enqueued_sequence_number) == (NOON + MINUTE, 1)


def test_a_cancelled_message_reaches_nobody(namespace: Namespace, topic: Topic, message: Make) -> None:
    subscription = subscribe(namespace)
    number = topic.enqueue(message(scheduled_for=NOON + MINUTE), NOON)
    topic.cancel_scheduled([number], NOON)
    with pytest.raises(NoSuchMessageError):
        topic.cancel_scheduled([number], NOON)
    namespace.handle_timer(NOON + MINUTE)
    assert subscription.receive(NOON + MINUTE) is None


def test_a_topic_drops_duplicates_for_all_of_its_subscriptions(namespace: Namespace, message: Make) -> None:
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
def test_a_topic_whose_time_to_live_is_lowered_lowers_that_of_what_waits(
    namespace: Namespace, topic: Topic, message: Make
) -> None:
    subscription = subscribe(namespace, dead_lettering_on_message_expiration=True)
    topic.enqueue(message(), NOON)
    retopic(namespace, default_message_time_to_live=10 * SECOND)
    assert subscription.receive(NOON + 10 * SECOND) is None
    assert subscription.counts(NOON + 10 * SECOND).dead_letter == 1


# -- size and status


def test_the_topics_quota_counts_every_copy(namespace: Namespace, topic: Topic, message: Make) -> None:
    subscribe(namespace, "first"), subscribe(namespace, "second")
    body = bytes(topic.description.quota_in_bytes // 2)
    topic.enqueue(message(bare=body), NOON)
    assert topic.size_in_bytes == 2 * len(body)
    with pytest.raises(QuotaExceededError, match="'news'"):
        topic.enqueue(message(), NOON)
    second = namespace.subscription("news", "second")
    assert second.receive_and_delete(NOON) is not None
    topic.enqueue(message(), NOON)


def test_the_topics_quota_is_asked_for_the_message_and_not_for_its_copies(
    namespace: Namespace, topic: Topic, message: Make
) -> None:
    for number in range(3):
        subscribe(namespace, str(number))
    body = bytes(topic.description.quota_in_bytes // 2)
    topic.enqueue(message(bare=body), NOON)  # fits once but is stored three times
    assert topic.size_in_bytes > topic.description.quota_in_bytes
    with pytest.raises(QuotaExceededError, match="'news'"):
        topic.enqueue(message(), NOON)


def test_a_topic_has_two_thousand_subscriptions_at_most(namespace: Namespace, topic: Topic) -> None:
    for number in range(2_000):
        subscribe(namespace, str(number))
    with pytest.raises(TooManyEntitiesError, match="2000 subscriptions of 'news'"):
        subscribe(namespace, "one-more")
    namespace.delete_subscription("news", "7")
    subscribe(namespace, "one-more")
    namespace.create_topic("other", TopicDescription(), NOON)
    namespace.create_subscription("other", "first", SubscriptionDescription(), NOON)


@pytest.mark.parametrize(
    ("status", "takes"), [("Active", True), ("ReceiveDisabled", True), ("Disabled", False)]
)
def test_a_topic_takes_messages_as_its_status_says(
    namespace: Namespace, topic: Topic, message: Make, status: str, takes: bool
) -> None:
    retopic(namespace, status=status)
    if takes:
        topic.enqueue(message(), NOON)
    else:
        with pytest.raises(EntityDisabledError):
            topic.enqueue(message(), NOON)


def test_a_disabled_subscription_fills_and_hands_out_nothing(
    namespace: Namespace, topic: Topic, message: Make
) -> None:
    subscription = subscribe(namespace, status="Disabled")
    topic.enqueue(message(), NOON)
    with pytest.raises(EntityDisabledError):
        subscription.receive(NOON)
    namespace.update_subscription("news", "all", replace(subscription.requested, status="Active"), NOON)
    assert subscription.receive(NOON) is not None


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


def test_each_kind_is_changed_as_what_it_is(namespace: Namespace, topic: Topic) -> None:
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
def test_a_name_no_subscription_may_have_is_refused(namespace: Namespace, topic: Topic, name: str) -> None:
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


def test_what_topics_cannot_do_yet_is_refused_by_name(namespace: Namespace) -> None:
    feature = "filtering_messages_before_publishing"
    with pytest.raises(NotSupportedError, match=feature) as refused:
        namespace.create_topic("news", replace(TopicDescription(), **{feature: True}), NOON)
    assert (refused.value.status, refused.value.condition) == (400, "amqp:not-implemented")


def test_flags_that_are_for_ever_stay(namespace: Namespace, topic: Topic) -> None:
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
