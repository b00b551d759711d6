"""The limits of a tier: kinds of entity, time to live, and sizes of messages and entities."""

from __future__ import annotations

from dataclasses import replace

import pytest

from sbpair.broker import Broker
from sbpair.broker.entities import Namespace, QueueDescription, StoredMessage, TopicDescription
from sbpair.broker.entities.descriptions import DAY, MAX_SPAN
from sbpair.broker.entities.partition import Layout
from sbpair.broker.entities.quotas import Tier
from sbpair.broker.errors import BrokerError, InvalidDescriptionError, QuotaExceededError

NOON = 1_800_000_000_000


@pytest.fixture
def basic():
    return Namespace("contoso", tier=Tier.BASIC)


@pytest.mark.spec("T-8")
@pytest.mark.parametrize("asked", [None, MAX_SPAN])
def test_on_basic_messages_live_fourteen_days_where_nothing_is_asked(basic, asked):
    queue = basic.create_queue("orders", QueueDescription(default_message_time_to_live=asked), NOON)
    assert queue.description.default_message_time_to_live == 14 * DAY

    queue.enqueue(StoredMessage(b"x"), NOON)
    queue.enqueue(StoredMessage(b"x", time_to_live=60 * DAY), NOON)
    assert len(queue.peek(1, 9, NOON + 14 * DAY)) == 2
    assert queue.receive(NOON + 14 * DAY) is None


@pytest.mark.spec("T-8")
def test_on_basic_fourteen_days_are_the_most(basic):
    basic.create_queue("shorter", QueueDescription(default_message_time_to_live=DAY), NOON)
    longer = QueueDescription(default_message_time_to_live=14 * DAY + 1)
    with pytest.raises(InvalidDescriptionError, match=r"default_message_time_to_live .* at most 14 days"):
        basic.create_queue("longer", longer, NOON)
    with pytest.raises(InvalidDescriptionError, match="at most 14 days"):
        basic.update_queue("shorter", longer, NOON)


@pytest.mark.parametrize(
    "field",
    ["requires_session", "requires_duplicate_detection", "forward_to", "forward_dead_lettered_messages_to"],
)
def test_what_basic_has_not_is_refused_by_name(basic, field):
    basic.create_queue("other", QueueDescription(), NOON)
    value = "other" if field.startswith("forward") else True
    with pytest.raises(InvalidDescriptionError, match=f"{field} is not allowed .* Basic"):
        basic.create_queue("orders", replace(QueueDescription(), **{field: value}), NOON)


def test_basic_has_no_topics(basic):
    with pytest.raises(InvalidDescriptionError, match="Topics"):
        basic.create_topic("news", TopicDescription(), NOON)


LIMITS = {"max_message_size_in_kilobytes": (256, 102_400), "max_size_in_megabytes": (5120, 81_920)}


@pytest.mark.spec("S-7")
@pytest.mark.parametrize("field", LIMITS)
@pytest.mark.parametrize("tier", Tier, ids=lambda tier: tier.value)
def test_a_message_and_an_entity_are_as_large_as_the_tier_has_them(tier, field):
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
def test_what_asks_for_no_size_of_messages_has_the_usual_of_its_tier(tier, usual):
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
def test_what_asks_for_no_size_on_a_partitioned_premium_namespace_has_a_megabyte():
    namespace = Namespace("contoso", layout=Layout(premium=2))
    queue = namespace.create_queue("orders", QueueDescription(enable_partitioning=True), NOON)
    assert queue.description.max_message_size == 1024 * 1024


def test_a_test_may_have_a_queue_of_one_megabyte_and_it_is_full_with_that():
    queue = Namespace("contoso").create_queue("orders", QueueDescription(max_size_in_megabytes=1), NOON)
    for _ in range(4):
        queue.enqueue(StoredMessage(bytes(256 * 1024)), NOON)
    with pytest.raises(QuotaExceededError, match="1048576 bytes are held and the quota is 1048576 bytes"):
        queue.enqueue(StoredMessage(b"x"), NOON)
    queue.complete(queue.receive(NOON).lock_token, NOON)
    queue.enqueue(StoredMessage(b"x"), NOON)


@pytest.mark.parametrize(("layout", "size"), [(Layout(), 16), (Layout(premium=4), 3)])
def test_a_partitioned_entity_has_no_smaller_size_than_can_be_shared(layout, size):
    asked = QueueDescription(enable_partitioning=True, max_size_in_megabytes=size)
    with pytest.raises(InvalidDescriptionError, match=f"max_size_in_megabytes is {size}"):
        Namespace("contoso", layout=layout).create_queue("orders", asked, NOON)


def test_a_tier_that_is_none_is_refused_by_name():
    with pytest.raises(BrokerError, match="'Free': use one of Basic, Standard"):
        Broker({"contoso": 0}, tier="Free")
