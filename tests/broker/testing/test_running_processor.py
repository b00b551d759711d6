"""The processor that the pytest plugin runs for a test."""

from __future__ import annotations

from collections.abc import Iterator

import pytest
from azure.servicebus import ServiceBusMessage

from sbpair.broker import Broker
from sbpair.broker.testing.pair import NamespacePair
from sbpair.broker.testing.processor import RunningProcessor
from sbpair.processor import DeadLetter, ReceivedMessage


@pytest.fixture
def pair() -> Iterator[NamespacePair]:
    with (
        Broker({"contoso": 0, "contoso-dr": 0}) as broker,
        NamespacePair(broker, broker.namespace("contoso"), broker.namespace("contoso-dr")) as pair,
    ):
        pair.primary.create_queue("orders")
        yield pair


def send(pair: NamespacePair, *bodies: str) -> None:
    with pair.client().get_queue_sender("orders") as sender:
        sender.send_messages([ServiceBusMessage(body, message_id=body) for body in bodies])


def test_a_running_processor_handles_messages_until_the_context_ends(pair: NamespacePair) -> None:
    with RunningProcessor(pair, "orders") as processor:
        send(pair, "a", "b")
        handled = processor.wait_completed(2)
    assert [message.message_id for message in handled] == ["a", "b"]
    assert pair.primary.message_ids("orders") == []
    assert type(processor.events[0]).__name__ in ("ReceivingStarted", "EntityMissing")


def test_a_handler_may_be_a_coroutine_function(pair: NamespacePair) -> None:
    async def handle(message: ReceivedMessage) -> None:
        raise DeadLetter("Bad", str(message))

    with RunningProcessor(pair, "orders", handle) as processor:
        send(pair, "a")
        processor.wait_until(lambda: processor.counters.settled_otherwise == 1, "dead-lettered message")
    assert pair.primary.counts("orders").dead_letter == 1
    assert processor.messages == []


def test_a_timeout_names_what_did_not_happen(pair: NamespacePair) -> None:
    in_vain = pytest.raises(AssertionError, match="no 1 completed messages within 0 s")
    with RunningProcessor(pair, "orders") as processor, in_vain:
        processor.wait_completed(1, within=0)


def test_a_processor_that_cannot_be_created_fails_the_test(pair: NamespacePair) -> None:
    with pytest.raises(ValueError, match="queue_name"), RunningProcessor(pair, ""):
        pass
