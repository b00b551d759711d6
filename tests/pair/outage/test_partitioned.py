"""A pair with partitioned entities: one partition down, a partitioned backlog, and forwarding."""

from __future__ import annotations

import asyncio
import threading
from collections.abc import Iterator

import pytest
from azure.servicebus import ServiceBusClient, ServiceBusMessage

from sbpair import EntityState, PairedServiceBusClient, StoredIn
from sbpair.broker import Broker
from sbpair.broker.entities.partition import index_of
from sbpair.events import EntityFailedOver, EntityRecovered, PairingEvent
from sbpair.syphon import Syphon, SyphonOptions
from tests.waiting import PATIENCE

from .conftest import options_of

BACKLOG = "contoso/x-servicebus-transfer/0"


def key_of(index: int) -> str:
    return next(key for n in range(10_000) if index_of(key := f"key-{n}", 16) == index)


@pytest.fixture
def broker() -> Iterator[Broker]:
    with Broker({"contoso": 0, "contoso-dr": 0}) as broker:
        broker.namespace("contoso").create_queue("orders", enable_partitioning=True)
        broker.namespace("contoso-dr").create_queue(BACKLOG, enable_partitioning=True)
        yield broker


@pytest.mark.spec("F-50", "P-5", "P-20", "P-42")
def test_a_key_of_an_unavailable_partition_is_parked_and_comes_home_with_its_key(broker: Broker) -> None:
    primary, secondary = broker.namespace("contoso"), broker.namespace("contoso-dr")
    both = (primary.connection_string, secondary.connection_string)
    with (
        PairedServiceBusClient.from_connection_strings(
            *both, options=options_of(backlogs=1, ping=600), connection_verify=str(broker.ca_file)
        ) as client,
        client.get_queue_sender("orders") as sender,
    ):
        assert (
            sender.send_messages(ServiceBusMessage("0", partition_key=key_of(5))).stored_in
            is StoredIn.PRIMARY
        )
        with primary.partition("orders", 5).take_down():
            parked = sender.send_messages(ServiceBusMessage("1", partition_key=key_of(5)))
            assert parked.stored_in is StoredIn.BACKLOG
            for n in range(2, 18):  # the entity has failed over: later messages are parked and lose their pin
                sender.send_messages(ServiceBusMessage(str(n), partition_key=key_of(5)))
    with (
        ServiceBusClient.from_connection_string(secondary.connection_string) as foreign,
        foreign.get_queue_receiver(BACKLOG) as receiver,
    ):
        first = receiver.peek_messages(1)[0]
        assert first.partition_key is None
        assert first.application_properties[b"x-sbpair-partitionkey"] == key_of(5).encode()
    assert secondary.counts(BACKLOG).active == 17

    counters = asyncio.run(
        Syphon.from_connection_strings(*both, options=SyphonOptions(primary_namespace_name="contoso")).drain()
    )
    assert counters.forwarded == 17
    with ServiceBusClient.from_connection_string(primary.connection_string) as foreign:
        receiver = foreign.get_queue_receiver("orders")
        found = []
        while len(found) < 18:
            found += receiver.receive_messages(18, max_wait_time=10)
        assert {message.partition_key for message in found} == {key_of(5)}
        assert {message.sequence_number >> 48 for message in found} == {5}
        assert sorted(int(str(message)) for message in found) == list(range(18))


@pytest.mark.spec("F-51", "G-1", "P-33")
def test_pings_that_succeed_elsewhere_do_not_make_an_entity_come_and_go_without_end(broker: Broker) -> None:
    primary, secondary = broker.namespace("contoso"), broker.namespace("contoso-dr")
    told: list[PairingEvent] = []
    with (
        PairedServiceBusClient.from_connection_strings(
            primary.connection_string,
            secondary.connection_string,
            options=options_of(backlogs=1, ping=600),
            connection_verify=str(broker.ca_file),
        ) as client,
        client.get_queue_sender("orders") as sender,
        primary.partition("orders", 5).take_down(),
    ):
        home = threading.Event()
        client.on_event(lambda event: (told.append(event), isinstance(event, EntityRecovered) and home.set()))
        sender.send_messages(ServiceBusMessage("first", partition_key=key_of(5)))
        client.mark_path_healthy("orders")  # in case the first ping hit that very partition
        assert home.wait(PATIENCE)
        for _ in range(50):
            receipt = sender.send_messages(ServiceBusMessage("x", partition_key=key_of(5)))
            assert receipt.stored_in is StoredIn.BACKLOG
        assert client.state_of("orders") is EntityState.FAILED_OVER
    assert secondary.counts(BACKLOG).active == 51
    gone = sum(isinstance(event, EntityFailedOver) for event in told)
    back = sum(isinstance(event, EntityRecovered) for event in told)
    assert (gone <= 3, gone - back) == (True, 1)
