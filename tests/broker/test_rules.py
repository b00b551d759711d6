"""The rules of subscriptions: which subscription gets which copies, and the effect of actions."""

from __future__ import annotations

import itertools
import uuid
from datetime import UTC, datetime, timedelta

import pytest

from sbpair.broker.entities import (
    Namespace,
    StoredMessage,
    SubscriptionDescription,
    TopicDescription,
)
from sbpair.broker.entities.message_store import DESCRIPTION, REASON
from sbpair.broker.entities.rule_operations import (
    MAX_SQL_FILTERS,
    add_rule,
    find_rule,
    remove_rule,
    update_rule,
)
from sbpair.broker.entities.rules import (
    CorrelationFilter,
    FalseFilter,
    Rule,
    SqlAction,
    SqlFilter,
    TrueFilter,
)
from sbpair.broker.entities.stored_message import LockToken
from sbpair.broker.errors import (
    TooManyEntitiesError,
)
from sbpair.broker.frontends.delivered_message import encode_delivered
from sbpair.broker.frontends.received_message import stored_messages
from sbpair.broker.frontends.rule_form import AmqpPropertyCodec
from sbpair.pair.amqp.message import DataBody, Message, Properties
from sbpair.pair.amqp.types import Described, Int, Symbol, Timestamp, UInt

NOON = 1_800_000_000_000  # ms
TICKS = 621_355_968_000_000_000


@pytest.fixture
def namespace() -> Namespace:
    tokens = itertools.count(1)
    return Namespace(
        "contoso", new_token=lambda: LockToken(next(tokens).to_bytes(16, "big")), codec=AmqpPropertyCodec()
    )


@pytest.fixture
def topic(namespace, is_partitioned):
    return namespace.create_topic("news", TopicDescription(enable_partitioning=is_partitioned), NOON)


def message(_properties: Properties | None = None, **user: object) -> StoredMessage:
    """Create a message with these application properties, as it arrives."""
    encoded = Message(
        properties=_properties or Properties(message_id="1"),
        application_properties=user,
        body=DataBody((b"body",)),
    ).encode()
    (stored,) = stored_messages(encoded, 0)
    return stored


@pytest.fixture
def subscribe(namespace, topic):
    def make(*rules: Rule, name: str = "all", **fields: object):
        first, *others = rules or (Rule(),)
        made = namespace.create_subscription("news", name, SubscriptionDescription(**fields), NOON, first)
        for rule in others:
            add_rule(made, rule, NOON)
        return made

    return make


def sql(expression: str, action: str | None = None, name: str = "r", **parameters: object) -> Rule:
    named = {f"@{key}": value for key, value in parameters.items()}
    return Rule(name, SqlFilter(expression, named), None if action is None else SqlAction(action))


def copies(subscription) -> list[Message]:
    """Receive and decode the messages of a subscription."""
    found = []
    while (each := subscription.receive(NOON)) is not None:
        found.append(Message.decode(encode_delivered(each, subscription)))
        subscription.complete(each.lock_token, NOON)
    return found


def properties(subscription) -> list[dict[object, object]]:
    return [each.application_properties for each in copies(subscription)]


class TestWhoGetsWhat:
    def test_a_filter_accepts_matching_messages(self, topic, subscribe):
        dear = subscribe(sql("price > 10"))
        for price in (9, 10, 11):
            topic.enqueue(message(price=price), NOON)
        assert properties(dear) == [{"price": 11}]

    def test_several_rules_without_an_action_make_one_copy(self, topic, subscribe):
        both = subscribe(sql("a = 1", name="x"), sql("b = 1", name="y"), Rule("z", TrueFilter()))
        topic.enqueue(message(a=1, b=1), NOON)
        assert properties(both) == [{"a": 1, "b": 1}]

    def test_each_rule_with_an_action_makes_a_separate_copy_with_its_name(self, topic, subscribe):
        three = subscribe(
            sql("a = 1", name="plain"),
            sql("a = 1", "SET b = 2", name="x"),
            sql("a = 1", "REMOVE a", name="y"),
        )
        topic.enqueue(message(a=1), NOON)
        assert properties(three) == [{"a": 1}, {"a": 1, "b": 2, "RuleName": "x"}, {"RuleName": "y"}]

    def test_a_false_filter_or_no_rule_at_all_accepts_nothing(self, topic, subscribe):
        nobody, bare = subscribe(Rule("no", FalseFilter())), subscribe(name="bare")
        remove_rule(bare, "$default")
        topic.enqueue(message(), NOON)
        assert (copies(nobody), copies(bare)) == ([], [])

    def test_an_added_rule_applies_from_then_on(self, topic, subscribe):
        subscription = subscribe(sql("a = 1"))
        topic.enqueue(message(a=2), NOON)
        update_rule(subscription, sql("a = 2"), NOON)
        topic.enqueue(message(a=2), NOON)
        assert len(copies(subscription)) == 1

    def test_rules_apply_to_a_scheduled_message_when_it_is_due(self, namespace, topic, subscribe):
        subscription = subscribe(sql("a = 1"))
        later = message(a=2)
        later.scheduled_for = NOON + 1000
        topic.enqueue(later, NOON)
        update_rule(subscription, sql("a = 2"), NOON)
        namespace.handle_timer(NOON + 1000)
        assert subscription.counts(NOON + 1000).active == 1

    def test_duplicate_detection_precedes_rules_and_ignores_their_copies(self, namespace):
        asked = TopicDescription(requires_duplicate_detection=True)
        topic = namespace.create_topic("once", asked, NOON)
        rules = (sql("1=1", "SET a = 1", name="x"), sql("1=1", "SET sys.MessageId = '1'", name="y"))
        subscription = namespace.create_subscription("once", "s", SubscriptionDescription(), NOON, rules[0])
        add_rule(subscription, rules[1], NOON)
        topic.enqueue_all([message(), message()], NOON)
        assert subscription.counts(NOON).active == 2

    def test_a_correlation_filter_compares_all_its_values_case_sensitively(self, topic, subscribe):
        wanted = CorrelationFilter(label="red", to="there", properties={"n": 1, "s": "x"})
        subscription = subscribe(Rule("c", wanted))
        right = Properties(message_id="1", subject="red", to="there")
        topic.enqueue(message(right, n=1, s="x"), NOON)
        for properties_, user in (
            (right, {"n": 1}),
            (right, {"n": 1, "s": "X"}),
            (right, {"n": 2, "s": "x"}),
            (right, {"n": True, "s": "x"}),
            (Properties(message_id="1", subject="Red", to="there"), {"n": 1, "s": "x"}),
            (Properties(message_id="1", subject="red"), {"n": 1, "s": "x"}),
        ):
            topic.enqueue(message(properties_, **user), NOON)
        assert subscription.counts(NOON).active == 1

    def test_a_filter_can_test_the_messages_own_properties(self, topic, subscribe):
        given = Properties(
            message_id=uuid.UUID(int=5), subject="s", to="t", reply_to="r", correlation_id="c",
            content_type="text/plain", group_id="g", reply_to_group_id="rg",
        )  # fmt: skip
        everything = (
            f"sys.MessageId = '{uuid.UUID(int=5)}' AND sys.Label = 's' AND sys.To = 't' "
            "AND sys.ReplyTo = 'r' "
            "AND sys.CorrelationId = 'c' AND sys.ContentType = 'text/plain' AND sys.SessionId = 'g' "
            "AND sys.ReplyToSessionId = 'rg' AND sys.EnqueuedTimeUtc = @at AND sys.SequenceNumber > 0 "
            "AND sys.DeliveryCount = 0 AND sys.Size > 4 AND sys.TimeToLive IS NULL"
        )
        subscription = subscribe(sql(everything, at=datetime.fromtimestamp(NOON / 1000, UTC)))
        sent = message(given)
        sent.enqueued_at = NOON
        topic.enqueue(sent, NOON)
        assert subscription.counts(NOON).active == 1

    def test_values_compare_by_meaning_whatever_their_amqp_type(self, topic, subscribe):
        subscription = subscribe(
            sql("i = 5 AND u = 5 AND at = @at AND off = @at AND span = @span AND sym = 'x'",
                at=datetime.fromtimestamp(NOON / 1000, UTC), span=timedelta(minutes=1))
        )  # fmt: skip
        topic.enqueue(
            message(
                i=Int(5), u=UInt(5), at=Timestamp(NOON), sym=Symbol("x"),
                off=Described(Symbol("com.microsoft:datetime-offset"), TICKS + NOON * 10_000),
                span=Described(Symbol("com.microsoft:timespan"), 600_000_000),
            ),
            NOON,
        )  # fmt: skip
        assert subscription.counts(NOON).active == 1


class TestActions:
    def test_an_action_keeps_untouched_properties_bit_for_bit(self, topic, subscribe):
        subscription = subscribe(sql("1=1", "SET added = newid(); SET sys.Label = 'new'"))
        topic.enqueue(message(Properties(message_id="1", to="there"), i=Int(5), f=1.5, raw=b"x"), NOON)
        (copy,) = copies(subscription)
        user = copy.application_properties
        assert (type(user["i"]), user["f"], user["raw"]) == (Int, 1.5, b"x")
        assert isinstance(user["added"], uuid.UUID)
        assert (copy.properties.subject, copy.properties.to) == ("new", "there")
        assert copy.body == DataBody((b"body",))

    def test_timestamps_and_spans_are_written_in_the_form_of_the_sdks(self, topic, subscribe):
        at, span = datetime.fromtimestamp(NOON / 1000, UTC), timedelta(minutes=1)
        rule = Rule("r", TrueFilter(), SqlAction("SET at = @a; SET span = @s", {"@a": at, "@s": span}))
        subscription = subscribe(rule)
        topic.enqueue(message(), NOON)
        (user,) = properties(subscription)
        assert user["at"] == Timestamp(NOON)
        assert user["span"] == Described(Symbol("com.microsoft:timespan"), 600_000_000)

    def test_a_time_to_live_set_by_an_action_applies_to_the_copy(self, topic, subscribe):
        rule = Rule("r", TrueFilter(), SqlAction("SET sys.TimeToLive = @s", {"@s": timedelta(seconds=1)}))
        subscription = subscribe(rule)
        topic.enqueue(message(), NOON)
        assert subscription.receive(NOON + 2000) is None

    def test_a_scheduled_time_set_by_an_action_is_ignored(self, topic, subscribe):
        subscription = subscribe(sql("1=1", "SET sys.ScheduledEnqueueTimeUtc = '2099-01-01'"))
        topic.enqueue(message(), NOON)
        assert subscription.counts(NOON).active == 1

    def test_an_action_does_not_affect_other_copies_or_the_topic_message(self, topic, subscribe):
        subscribe(sql("1=1", "SET a = 2"))
        other = subscribe(name="other")
        topic.enqueue(message(a=1), NOON)
        assert properties(other) == [{"a": 1}]

    def test_a_session_set_by_an_action_applies_to_the_copy(self, namespace):
        topic = namespace.create_topic("plain", TopicDescription(), NOON)
        asked = SubscriptionDescription(requires_session=True)
        rule = sql("1=1", "SET sys.SessionId = kind")
        subscription = namespace.create_subscription("plain", "s", asked, NOON, rule)
        topic.enqueue(message(kind="b"), NOON)
        assert subscription.sessions.accept("b", NOON) is not None

    def test_on_a_partitioned_topic_an_action_keeps_the_copy_in_its_partition(self, namespace):
        topic = namespace.create_topic("spread", TopicDescription(enable_partitioning=True), NOON)
        rule = sql("1=1", "SET sys.SessionId = sys.SessionId + 'x'")
        subscription = namespace.create_subscription("spread", "s", SubscriptionDescription(), NOON, rule)
        for number in range(20):
            topic.enqueue(message(Properties(message_id="1", group_id=str(number))), NOON)
        for index, partition in enumerate(subscription.partitions):
            while (copy := partition.receive(NOON)) is not None:
                assert copy.session_id.endswith("x")
                assert topic.partition_of(copy.session_id[:-1]) is topic.partitions[index]


class TestFailures:
    @pytest.mark.spec("X-26")
    def test_a_message_on_which_a_filter_fails_is_dead_lettered_with_the_reason(self, topic, subscribe):
        subscription = subscribe(sql("a / b > 1"))
        topic.enqueue(message(a=1, b=0), NOON)
        (dead,) = copies(subscription.dead_letter_queue)
        assert dead.application_properties[REASON] == "FilterEvaluationException"
        assert "The rule 'r' failed: integer division by zero." in dead.application_properties[DESCRIPTION]
        assert dead.application_properties["b"] == 0
        assert copies(subscription) == []

    def test_a_filter_failure_drops_the_message_where_dead_lettering_is_off(self, topic, subscribe):
        subscription = subscribe(sql("a / b > 1"), dead_lettering_on_filter_evaluation_exceptions=False)
        topic.enqueue(message(a=1, b=0), NOON)
        assert subscription.counts(NOON).total == 0

    def test_the_other_rules_still_accept_a_message_on_which_one_failed(self, topic, subscribe):
        subscription = subscribe(sql("a / b > 1", name="x"), sql("a = 1", name="y"))
        topic.enqueue(message(a=1, b=0), NOON)
        counts = subscription.counts(NOON)
        assert (counts.active, counts.dead_letter) == (1, 1)

    @pytest.mark.parametrize(
        "action", ["SET a = a / 0", "SET sys.SessionId = @long", "SET sys.MessageId = @long", "SET b = @vast"]
    )
    def test_a_message_on_which_an_action_fails_is_dead_lettered_unchanged(self, topic, subscribe, action):
        subscription = subscribe(
            Rule("r", TrueFilter(), SqlAction(action, {"@long": "x" * 129, "@vast": "x" * 70_000}))
        )
        topic.enqueue(message(a=1), NOON)
        (dead,) = copies(subscription.dead_letter_queue)
        assert dead.application_properties["a"] == 1
        assert copies(subscription) == []

    def test_undecodable_properties_are_a_filter_failure(self, topic, subscribe):
        subscription, all_of_it = subscribe(sql("a = 1")), subscribe(name="everything")
        broken = message(a=1)
        broken.bare = broken.bare.replace(b"\xa1\x01a", b"\xa1\xffa")
        topic.enqueue(broken, NOON)
        assert subscription.dead_letter_queue.receive(NOON) is not None
        assert all_of_it.counts(NOON).active == 1


class TestOperations:
    def test_rules_are_found_in_any_case_and_listed_by_name(self, subscribe):
        subscription = subscribe(Rule("b"), Rule("A"), Rule("c"))
        assert [rule.name for rule in subscription.rules] == ["A", "b", "c"]
        assert find_rule(subscription, "B").name == "b"

    def test_the_number_of_sql_filters_of_a_topic_is_limited(self, subscribe):
        first, second = subscribe(), subscribe(name="second")
        for number in range(MAX_SQL_FILTERS):
            add_rule(first, sql("a = 1", name=f"r{number}"), NOON)
        with pytest.raises(TooManyEntitiesError, match="SqlFilters"):
            add_rule(second, sql("a = 1"), NOON)
        add_rule(second, Rule("c", CorrelationFilter(label="x")), NOON)
        update_rule(first, sql("a = 2", name="r1"), NOON)
        remove_rule(first, "r0")
        add_rule(second, sql("a = 1"), NOON)
