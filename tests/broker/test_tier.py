"""What a namespace of the Basic tier has not, and how long its messages live."""

from __future__ import annotations

from dataclasses import replace

import pytest

from sbpair.broker import Broker
from sbpair.broker.entities import Namespace, QueueDescription, StoredMessage, TopicDescription
from sbpair.broker.entities.description import DAY, LARGEST_SPAN
from sbpair.broker.entities.tier import Tier
from sbpair.broker.errors import BrokerError, InvalidDescription

NOON = 1_800_000_000_000


@pytest.fixture
def basic():
    return Namespace("contoso", tier=Tier.BASIC)


@pytest.mark.spec("T-8")
@pytest.mark.parametrize("asked", [None, LARGEST_SPAN])
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
    with pytest.raises(InvalidDescription, match=r"default_message_time_to_live .* at most 14 days"):
        basic.create_queue("longer", longer, NOON)
    with pytest.raises(InvalidDescription, match="at most 14 days"):
        basic.update_queue("shorter", longer, NOON)


@pytest.mark.parametrize(
    "field",
    ["requires_session", "requires_duplicate_detection", "forward_to", "forward_dead_lettered_messages_to"],
)
def test_what_basic_has_not_is_refused_by_name(basic, field):
    basic.create_queue("other", QueueDescription(), NOON)
    value = "other" if field.startswith("forward") else True
    with pytest.raises(InvalidDescription, match=f"{field} is not allowed .* Basic"):
        basic.create_queue("orders", replace(QueueDescription(), **{field: value}), NOON)


def test_basic_has_no_topics(basic):
    with pytest.raises(InvalidDescription, match="Topics"):
        basic.create_topic("news", TopicDescription(), NOON)


def test_a_tier_that_is_none_is_refused_by_name():
    with pytest.raises(BrokerError, match="'Free': one of Basic, Standard"):
        Broker({"contoso": 0}, tier="Free")
