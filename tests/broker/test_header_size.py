"""The size limits of a message's properties."""

from __future__ import annotations

import itertools
import re

import pytest

from sbpair.broker.access import OpenAccess
from sbpair.broker.entities import Namespace, SubscriptionDescription, TopicDescription
from sbpair.broker.entities.message_store import DESCRIPTION, REASON
from sbpair.broker.entities.quotas import Tier
from sbpair.broker.entities.rules import Rule, SqlAction, TrueFilter
from sbpair.broker.entities.stored_message import LockToken
from sbpair.broker.frontends.received_message import MAX_HEADER_BYTES, MAX_PROPERTY_BYTES
from sbpair.broker.frontends.rule_form import AmqpPropertyCodec
from sbpair.pair.amqp.events import LinkDetached, MessageReceived
from sbpair.pair.amqp.message import DataBody, Message, Properties
from sbpair.pair.amqp.performatives import Accepted, Coordinator, Modified
from sbpair.pair.amqp.types import Symbol
from tests.broker.conftest import Client, Lab

TEXT_HEAD = 5  # bytes that precede a long string


def encoded(**user: object) -> bytes:
    return Message(
        properties=Properties(message_id="1"), application_properties=user, body=DataBody((b"x" * 70_000,))
    ).encode()


@pytest.mark.spec("S-7")
@pytest.mark.parametrize(
    ("user", "words"),
    [
        ({"a": "x" * (MAX_PROPERTY_BYTES - TEXT_HEAD)}, None),
        (
            {"a": "x" * (MAX_PROPERTY_BYTES - TEXT_HEAD + 1)},
            "The service was unable to process the request; please retry the operation",
        ),
        ({"a": "x" * 32_000, "b": "x" * 32_000}, None),
        (dict.fromkeys("abc", "x" * 30000), f"its header has .* at most {MAX_HEADER_BYTES}"),
    ],
    ids=["one at the limit", "one over it", "two", "three"],
)
def test_each_property_and_their_total_have_a_size_limit(lab, user, words):
    queue = lab.queue()
    client = lab.client()
    answer = client.send(client.sender("orders"), encoded(**user))
    if words is None:
        assert isinstance(answer, Accepted)
        return
    is_one = len(user) == 1
    assert answer.error.symbol == ("amqp:internal-error" if is_one else "amqp:link:message-size-exceeded")
    assert re.search(words, answer.error.description)
    assert queue.counts(lab.now.entity).total == 0


@pytest.fixture
def deep() -> Lab:
    """A lab whose namespace edits properties in the encoded message, as a broker does."""
    tokens = itertools.count(1)
    namespace = Namespace(
        "contoso", new_token=lambda: LockToken(next(tokens).to_bytes(16, "big")), codec=AmqpPropertyCodec()
    )
    return Lab(namespace, OpenAccess())


def dead_letter_of(client: Client, path: str) -> Message:
    client.receiver(f"{path}/$DeadLetterQueue", credit=1)
    (delivery,) = client.take(MessageReceived)
    return Message.decode(delivery.payload)


WAITS = {"an abandon": Modified(True, False), "a defer": Modified(True, True)}


@pytest.mark.spec("S-7")
@pytest.mark.parametrize("kind", WAITS)
def test_a_settlement_that_makes_the_header_too_large_dead_letters_the_message_unchanged(deep, kind):
    queue = deep.queue(max_delivery_count=100)
    client = deep.client()
    client.send(client.sender("orders"), encoded(a="x" * 30_000, b="x" * 30_000))
    for tries, growth in enumerate(("x" * 5000, "x" * 6000)):
        client.receiver("orders", credit=1)
        (delivery,) = client.take(MessageReceived)
        changes = {Symbol("c"): growth}
        state = Modified(True, WAITS[kind].undeliverable_here if tries else False, changes)
        assert client.settle(delivery, state) == state
    dead = dead_letter_of(client, "orders")
    assert dead.application_properties[REASON] == "HeaderSizeExceeded"
    assert dead.application_properties[DESCRIPTION] == "The size quota for this stream has been exceeded."
    assert dead.application_properties["c"] == "x" * 5000
    assert queue.counts(deep.now.entity).total == 1


@pytest.mark.spec("S-7")
def test_a_dead_letter_keeps_its_properties_if_the_change_is_too_large(deep):
    queue = deep.queue()
    client = deep.client()
    client.send(client.sender("orders"), encoded(a="x" * 30_000, b="x" * 30_000))
    queue.dead_letter(queue.receive(deep.now.entity).lock_token, deep.now.entity, {REASON: "poison"})
    client.receiver("orders/$DeadLetterQueue", credit=1)
    (delivery,) = client.take(MessageReceived)
    client.settle(delivery, Modified(True, False, {Symbol("c"): "x" * 6000}))
    again = dead_letter_of(client, "orders")
    assert again.application_properties[REASON] == "poison"
    assert "c" not in again.application_properties


@pytest.mark.spec("S-7")
@pytest.mark.parametrize("also_what_filters_fail_on", [True, False])
def test_a_message_that_an_action_makes_too_large_is_dead_lettered_unchanged(deep, also_what_filters_fail_on):
    namespace, now = deep.namespace, deep.now.entity
    topic = namespace.create_topic("news", TopicDescription(), now)
    rule = Rule("r", TrueFilter(), SqlAction("SET c = @c", {"@c": "x" * 6000}))
    asked = SubscriptionDescription(dead_lettering_on_filter_evaluation_exceptions=also_what_filters_fail_on)
    namespace.create_subscription("news", "all", asked, now, rule)
    client = deep.client()
    client.send(client.sender("news"), encoded(a="x" * 30_000, b="x" * 30_000))
    dead = dead_letter_of(client, "news/Subscriptions/all")
    assert dead.application_properties[REASON] == "HeaderSizeExceeded"
    assert "c" not in dead.application_properties
    assert topic.subscriptions["all"].counts(now).total == 1


def test_the_basic_tier_has_no_transactions():
    tokens = itertools.count(1)
    namespace = Namespace(
        "contoso", tier=Tier.BASIC, new_token=lambda: LockToken(next(tokens).to_bytes(16, "big"))
    )
    lab = Lab(namespace, OpenAccess())
    client = Client(lab)
    client.session.attach_sender("txn", target=Coordinator())
    lab.run()
    (ended,) = client.take(LinkDetached)
    assert ended.condition.symbol == "amqp:not-allowed"
    assert "Basic" in ended.condition.description
