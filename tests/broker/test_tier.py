"""The limits of a tier: kinds of entity, time to live, and sizes of messages and entities."""

from __future__ import annotations

from dataclasses import replace

import pytest

from sbpair.broker import Broker
from sbpair.broker.entities import Namespace, QueueDescription, StoredMessage, TopicDescription
from sbpair.broker.entities.partition import Layout
from sbpair.broker.entities.quotas import Tier
from sbpair.broker.errors import BrokerError, InvalidDescriptionError, QuotaExceededError

NOON = 1_800_000_000_000


@pytest.fixture
def basic():
    return Namespace("contoso", tier=Tier.BASIC)


@pytest.mark.parametrize(
    "field",
    ["requires_session", "requires_duplicate_detection", "forward_to", "forward_dead_lettered_messages_to"],
)
def test_a_feature_missing_on_basic_is_refused_by_name(basic, field):
    basic.create_queue("other", QueueDescription(), NOON)
    value = "other" if field.startswith("forward") else True
    with pytest.raises(InvalidDescriptionError, match=f"{field} is not allowed .* Basic"):
        basic.create_queue("orders", replace(QueueDescription(), **{field: value}), NOON)


LIMITS = {"max_message_size_in_kilobytes": (256, 102_400), "max_size_in_megabytes": (5120, 81_920)}


@pytest.mark.spec("S-7")
@pytest.mark.parametrize("field", LIMITS)
@pytest.mark.parametrize("tier", Tier, ids=lambda tier: tier.value)
def test_messages_and_entities_have_the_size_limits_of_their_tier(tier, field):
    namespace = Namespace("contoso", tier=tier)
    most = LIMITS[field][tier is Tier.PREMIUM]
    largest, larger = (replace(QueueDescription(), **{field: size}) for size in (most, most + 1))
    namespace.create_queue("orders", largest, NOON)
    for change in (namespace.create_queue, namespace.update_queue):
        path = "others" if change == namespace.create_queue else "orders"
        with pytest.raises(InvalidDescriptionError, match=rf"{field} is {most + 1}: .*{most}\b.*"):
            change(path, larger, NOON)
    if tier is not Tier.BASIC:
        with pytest.raises(InvalidDescriptionError, match=f"{field} is {most + 1}"):
            namespace.create_topic("news", replace(TopicDescription(), **{field: most + 1}), NOON)


@pytest.mark.spec("S-7")
@pytest.mark.parametrize(("tier", "usual"), [("Basic", 256), ("Standard", 256), ("Premium", 1024)])
def test_the_default_message_size_depends_on_the_tier(tier, usual):
    namespace = Namespace("contoso", tier=Tier(tier))
    queue = namespace.create_queue("orders", QueueDescription(), NOON)
    assert queue.description.max_message_size_in_kilobytes == usual
    namespace.create_queue("small", QueueDescription(max_message_size_in_kilobytes=256), NOON)
    assert namespace.queue("small").description.max_message_size == 256 * 1024
    if tier != "Basic":
        assert (
            namespace.create_topic("news", TopicDescription(), NOON).requested.max_message_size_in_kilobytes
            == usual
        )


@pytest.mark.spec("S-7")
def test_the_default_message_size_on_partitioned_premium_is_one_megabyte():
    namespace = Namespace("contoso", layout=Layout(premium=2))
    queue = namespace.create_queue("orders", QueueDescription(enable_partitioning=True), NOON)
    assert queue.description.max_message_size == 1024 * 1024


def test_a_test_queue_of_one_megabyte_is_full_at_one_megabyte():
    queue = Namespace("contoso").create_queue("orders", QueueDescription(max_size_in_megabytes=1), NOON)
    for _ in range(4):
        queue.enqueue(StoredMessage(bytes(256 * 1024)), NOON)
    with pytest.raises(QuotaExceededError, match="1048576 bytes are held and the quota is 1048576 bytes"):
        queue.enqueue(StoredMessage(b"x"), NOON)
    queue.complete(queue.receive(NOON).lock_token, NOON)
    queue.enqueue(StoredMessage(b"x"), NOON)


@pytest.mark.parametrize(("layout", "size"), [(Layout(), 16), (Layout(premium=4), 3)])
def test_a_partitioned_entity_has_a_minimum_size(layout, size):
    asked = QueueDescription(enable_partitioning=True, max_size_in_megabytes=size)
    with pytest.raises(InvalidDescriptionError, match=f"max_size_in_megabytes is {size}"):
        Namespace("contoso", layout=layout).create_queue("orders", asked, NOON)


def test_an_unknown_tier_is_refused_by_name():
    with pytest.raises(BrokerError, match="'Free': use one of Basic, Standard"):
        Broker({"contoso": 0}, tier="Free")
