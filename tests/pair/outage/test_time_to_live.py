"""The time to live of a parked message does not run in the backlog and starts again on the primary."""

from __future__ import annotations

import time
from collections.abc import Iterator
from contextlib import contextmanager
from datetime import timedelta
from types import SimpleNamespace
from unittest.mock import patch

import pytest
from azure.servicebus import ServiceBusClient, ServiceBusMessage

from sbpair import PairedNamespaceOptions, PairedServiceBusClient, StoredIn
from sbpair.broker import Broker, ShiftedClock
from sbpair.syphon import Syphon, SyphonOptions
from tests.pair.outage.shifted import done, drain, paired

TTL = timedelta(minutes=10)
MINUTE = timedelta(minutes=1)
DAY = 86_400_000  # milliseconds
UINT_MAX = 0xFFFF_FFFF  # milliseconds: the longest a header can say


@pytest.mark.spec("G-14", "G-16")
async def test_time_in_a_backlog_does_not_count_against_the_time_to_live() -> None:
    with Broker({"contoso": 0, "contoso-dr": 0}, clock=ShiftedClock()) as broker:
        primary, secondary = broker.namespace("contoso"), broker.namespace("contoso-dr")
        primary.create_queue("orders")
        both = (primary.connection_string, secondary.connection_string)
        options = PairedNamespaceOptions(primary_namespace_name="contoso", backlog_queue_count=1)
        with PairedServiceBusClient.from_connection_strings(
            *both, options=options, connection_verify=str(broker.ca_file)
        ) as client:
            client.hold("orders")
            receipt = client.get_queue_sender("orders").send_messages(
                ServiceBusMessage("an order", time_to_live=TTL)
            )
            assert receipt.stored_in is StoredIn.BACKLOG
        broker.advance(timedelta(hours=2))
        settings = SyphonOptions(backlog_queue_count=1, primary_namespace_name="contoso")
        counters = await Syphon.from_connection_strings(*both, options=settings).drain()
        assert (counters.forwarded, counters.dead_lettered) == (1, 0)
        with (
            ServiceBusClient.from_connection_string(primary.connection_string) as plain,
            plain.get_queue_receiver("orders") as receiver,
        ):
            (message,) = receiver.receive_messages(1, max_wait_time=30)
            assert message.time_to_live == TTL
            assert message.expires_at_utc == message.enqueued_time_utc + TTL
            receiver.complete_message(message)


@contextmanager
def driven(span: timedelta) -> Iterator[None]:
    """Shift the syphon's wall clock by ``span``."""
    clock = SimpleNamespace(time=lambda: time.time() + span.total_seconds())
    with patch("sbpair.pair.syphon.forward.pump.time", clock):
        yield


@pytest.mark.spec("G-15", "F-86")
@pytest.mark.parametrize("is_asyncio", [False, True])
async def test_with_a_deadline_a_message_keeps_its_remaining_time_and_a_late_one_is_dead_lettered(
    shifted: Broker, is_asyncio: bool
) -> None:
    client = paired(shifted, is_asyncio=is_asyncio, ttl_policy="deadline")
    client.hold("orders")
    sender = client.get_queue_sender("orders")
    began = time.monotonic()
    for body, span in (("late", timedelta(minutes=5)), ("in time", TTL), ("for ever", None)):
        receipt = await done(sender.send_messages(ServiceBusMessage(body, time_to_live=span)))
        assert receipt.stored_in is StoredIn.BACKLOG
    await done(client.close())
    shifted.advance(timedelta(minutes=6))
    # The syphon's clock must agree with the broker's, which was advanced.
    with driven(timedelta(minutes=6)):
        assert await drain(shifted) == (2, 1)
    passed = timedelta(seconds=time.monotonic() - began)
    primary, secondary = shifted.namespace("contoso"), shifted.namespace("contoso-dr")
    with (
        ServiceBusClient.from_connection_string(primary.connection_string) as plain,
        plain.get_queue_receiver("orders") as receiver,
        ServiceBusClient.from_connection_string(secondary.connection_string) as there,
        there.get_queue_receiver("contoso/x-servicebus-transfer/0", sub_queue="deadletter") as dead,
    ):
        lives: dict[str, timedelta | None] = {}
        while len(lives) < 2:
            lives |= {str(m): m.time_to_live for m in receiver.receive_messages(2, max_wait_time=30)}
        assert lives["for ever"] is None
        assert TTL - timedelta(minutes=6) - passed - timedelta(seconds=1) <= lives["in time"]
        assert lives["in time"] <= TTL - timedelta(minutes=6) + timedelta(seconds=1)
        (late,) = dead.receive_messages(1, max_wait_time=30)
        assert (str(late), late.dead_letter_reason) == ("late", "TTLExpiredException")


@pytest.mark.spec("G-15")
@pytest.mark.parametrize("minutes", [-5, 5])
async def test_differing_clocks_shift_the_deadline_and_lose_nothing(shifted: Broker, minutes: int) -> None:
    """The sender sets the deadline and the syphon checks it, so a difference of clocks shifts it, as documented."""
    with paired(shifted, is_asyncio=False, ttl_policy="deadline") as client:
        client.hold("orders")
        client.get_queue_sender("orders").send_messages(ServiceBusMessage("x", time_to_live=3 * MINUTE))
    with driven(minutes * MINUTE):
        assert await drain(shifted) == ((1, 0) if minutes < 0 else (0, 1))
    dead = shifted.namespace("contoso-dr").counts("contoso/x-servicebus-transfer/0").dead_letter
    assert dead + shifted.namespace("contoso").counts("orders").active == 1


@pytest.mark.spec("G-16", "P-21")
@pytest.mark.parametrize("is_asyncio", [False, True])
async def test_an_absolute_expiry_time_survives_the_stay_in_a_backlog(
    shifted: Broker, is_asyncio: bool
) -> None:
    expiry = int(time.time() * 1000) + 600_000
    client = paired(shifted, is_asyncio=is_asyncio)
    client.hold("orders")
    message = ServiceBusMessage("x")
    assert message.raw_amqp_message.properties is not None
    message.raw_amqp_message.properties.absolute_expiry_time = expiry
    await done(client.get_queue_sender("orders").send_messages(message))
    await done(client.close())
    assert await drain(shifted) == (1, 0)
    with (
        ServiceBusClient.from_connection_string(shifted.namespace("contoso").connection_string) as plain,
        plain.get_queue_receiver("orders") as receiver,
    ):
        (received,) = receiver.receive_messages(1, max_wait_time=30)
        properties = received.raw_amqp_message.properties
        assert properties is not None
        assert properties.absolute_expiry_time == expiry
        assert received.time_to_live is None
        assert not received.application_properties


@pytest.mark.spec("G-16")
@pytest.mark.parametrize(
    "milliseconds",
    [1, int(24.9 * DAY), 25 * DAY, int(49.7 * DAY), None],
    ids=["1 ms", "24.9 d", "25 d", "49.7 d", "none"],
)
async def test_every_time_span_survives_parking(shifted: Broker, milliseconds: int | None) -> None:
    message = ServiceBusMessage("x")
    assert message.raw_amqp_message.header is not None
    message.raw_amqp_message.header.time_to_live = milliseconds
    with paired(shifted, is_asyncio=False) as client:
        client.hold("orders")
        client.get_queue_sender("orders").send_messages(message)
    assert shifted.namespace("contoso-dr").counts("contoso/x-servicebus-transfer/0").active == 1
    assert await drain(shifted) == (1, 0)
    with (
        ServiceBusClient.from_connection_string(shifted.namespace("contoso").connection_string) as plain,
        plain.get_queue_receiver("orders") as receiver,
    ):
        (peeked,) = receiver.peek_messages(1)  # a peek also shows expired messages (T-2)
        header = peeked.raw_amqp_message.header
        span = None if header is None else header.time_to_live
    assert span == milliseconds
