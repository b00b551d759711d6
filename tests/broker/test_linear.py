"""Listing page by page and adding one by one take linear time (R-49)."""

from __future__ import annotations

import pytest

from sbpair.broker.entities import Namespace, QueueDescription, StoredMessage
from sbpair.broker.entities.descriptions import SubscriptionDescription, TopicDescription
from sbpair.broker.entities.rule_operations import add_rule, remove_rule
from sbpair.broker.entities.rules import CorrelationFilter, Rule, SqlFilter
from sbpair.broker.entities.topic import Subscription
from tests.costs import calls_of

NOON = 1_800_000_000_000
PAGE = 100
pytestmark = pytest.mark.spec("R-49")


def listed(namespace: Namespace, path: str) -> list[str]:
    sessions = namespace.queue(path).sessions
    assert sessions is not None
    found: list[str] = []
    while page := sessions.ids(len(found), PAGE):
        found += page
    return found


@pytest.mark.parametrize("is_partitioned", [False, True])
def test_listing_sessions_takes_linear_time(namespace: Namespace, is_partitioned: bool) -> None:
    description = QueueDescription(requires_session=True, enable_partitioning=is_partitioned)
    took = []
    for count in (1_000, 4_000):
        queue = namespace.create_queue(f"q{count}", description, NOON)
        for number in range(count):
            queue.enqueue(StoredMessage(bare=b"x", session_id=f"s{number}"), NOON)
        took.append(calls_of(lambda path=queue.path: listed(namespace, path)))
        assert sorted(listed(namespace, queue.path)) == sorted(f"s{number}" for number in range(count))
    assert took[1] < 6 * took[0]


def test_a_new_listing_shows_the_current_entities(namespace: Namespace) -> None:
    queue = namespace.create_queue("orders", QueueDescription(requires_session=True), NOON)
    for number in range(3 * PAGE):
        queue.enqueue(StoredMessage(bare=b"x", session_id=f"s{number}"), NOON)
    assert queue.sessions is not None
    first = queue.sessions.ids(0, PAGE)
    queue.enqueue(StoredMessage(bare=b"x", session_id="later"), NOON)
    rest = [each for skip in (PAGE, 2 * PAGE) for each in queue.sessions.ids(skip, PAGE)]
    assert len({*first, *rest}) == 3 * PAGE  # the complete list as of its beginning
    assert "later" in listed(namespace, "orders")


def subscribed(namespace: Namespace, count: int, is_partitioned: bool) -> list[Subscription]:
    topic = f"t{count}"
    namespace.create_topic(topic, TopicDescription(enable_partitioning=is_partitioned), NOON)
    return [
        namespace.create_subscription(topic, f"s{number}", SubscriptionDescription(), NOON)
        for number in range(count)
    ]


@pytest.mark.slow
@pytest.mark.parametrize("is_partitioned", [False, True])
def test_the_cost_of_adding_a_rule_does_not_depend_on_the_number_of_subscriptions(
    namespace: Namespace, is_partitioned: bool
) -> None:
    took = []
    for count in (4, 200):
        last = subscribed(namespace, count, is_partitioned)[-1]
        took.append(
            calls_of(lambda here=last: add_rule(here, Rule("mail", CorrelationFilter(to="you")), NOON))
        )
    assert took[1] <= took[0] + 5


def test_the_filter_count_of_a_topic_follows_its_subscriptions(
    namespace: Namespace,
) -> None:
    first, second = subscribed(namespace, 2, False)
    add_rule(first, Rule("sql", SqlFilter("a = 1")), NOON)
    add_rule(second, Rule("sql", SqlFilter("a = 1")), NOON)
    add_rule(second, Rule("mail", CorrelationFilter(to="you")), NOON)
    counts = first.topic.filters
    assert (counts.sql, counts.correlation) == (2, 1)
    remove_rule(first, "sql")
    namespace.delete_subscription("t2", "s1")
    remove_rule(second, "sql")  # over a link that existed before
    assert (counts.sql, counts.correlation) == (0, 0)
