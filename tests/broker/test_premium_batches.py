"""The size limits of batches, and invalid names of queues."""

from __future__ import annotations

import pytest

from sbpair.broker.entities import Namespace, QueueDescription, TopicDescription
from sbpair.broker.entities.quotas import Tier
from sbpair.broker.errors import InvalidDescriptionError
from sbpair.broker.frontends.received_message import BATCH, MAX_IN_BATCH
from sbpair.pair.amqp.encoding import encode
from sbpair.pair.amqp.message import DataBody, Message
from sbpair.pair.amqp.types import Described, Symbol, ULong

pytestmark = pytest.mark.spec("R-47")

NOON = 1_800_000_000_000


@pytest.fixture
def namespace() -> Namespace:
    return Namespace("contoso", tier=Tier.PREMIUM)


def batch(count: int, size: int) -> bytes:
    message = Message(body=DataBody((b"x" * size,))).encode()
    return encode(Described(ULong(0x75), message)) * count


def test_a_premium_queue_of_large_messages_accepts_batches_of_one_megabyte(lab):
    queue = lab.queue(max_message_size_in_kilobytes=20_480)
    client = lab.client()
    link = client.sender("orders")
    assert link.remote_attach.max_message_size == 20_480 * 1024
    assert link.remote_attach.properties[Symbol("com.microsoft:max-message-batch-size")] == 2**20

    one = Message(body=DataBody((b"x" * 3 * 2**20,))).encode()
    assert type(client.send(link, one)).__name__ == "Accepted"
    assert type(client.send(link, batch(9, 100_000), message_format=BATCH)).__name__ == "Accepted"
    refused = client.send(link, batch(11, 100_000), message_format=BATCH)
    assert refused.error.symbol == "amqp:link:message-size-exceeded"
    assert queue.counts(NOON).active == 10


def test_a_batch_of_a_standard_queue_is_as_large_as_its_messages(lab):
    lab.queue(max_message_size_in_kilobytes=256)
    link = lab.client().sender("orders")
    assert link.remote_attach.properties[Symbol("com.microsoft:max-message-batch-size")] == 262_144


def test_a_batch_has_at_most_4500_messages(lab):
    queue = lab.queue(max_message_size_in_kilobytes=1024)
    client = lab.client()
    link = client.sender("orders")

    assert type(client.send(link, batch(MAX_IN_BATCH, 1), message_format=BATCH)).__name__ == "Accepted"
    refused = client.send(link, batch(MAX_IN_BATCH + 1, 1), message_format=BATCH)
    assert refused.error.symbol == "com.microsoft:argument-error"
    assert str(MAX_IN_BATCH) in refused.error.description
    assert queue.counts(NOON).active == MAX_IN_BATCH


@pytest.mark.parametrize(
    "path", ["t/subscriptions/x", "T/Subscriptions/X", "t/subscriptions", "a/b/SUBSCRIPTIONS/c/d"]
)
@pytest.mark.parametrize("kind", ["queue", "topic"])
def test_an_entity_cannot_be_named_like_a_subscription(namespace, path, kind):
    create, description = {
        "queue": (namespace.create_queue, QueueDescription()),
        "topic": (namespace.create_topic, TopicDescription()),
    }[kind]
    with pytest.raises(InvalidDescriptionError, match="Subscriptions"):
        create(path, description, NOON)


@pytest.mark.parametrize("path", ["subscriptions", "subscriptions/x", "t/mysubscriptions/x"])
def test_a_name_that_only_resembles_a_subscription_is_allowed(namespace, path):
    assert namespace.create_queue(path, QueueDescription(), NOON).path == path
