"""A time to live that was parked: it does not run on the backlog, and starts again on the primary."""

from __future__ import annotations

from datetime import timedelta

import pytest
from azure.servicebus import ServiceBusClient, ServiceBusMessage

from sbpair import PairedNamespaceOptions, PairedServiceBusClient, Rest
from sbpair.broker import Broker, ShiftedClock
from sbpair.syphon import Syphon, SyphonOptions

TTL = timedelta(minutes=10)


@pytest.mark.spec("G-14", "G-16")
async def test_a_dwell_longer_than_the_time_to_live_expires_nothing_and_the_whole_span_starts_again() -> None:
    with Broker({"contoso": 0, "contoso-dr": 0}, clock=ShiftedClock()) as broker:
        primary, secondary = broker.namespace("contoso"), broker.namespace("contoso-dr")
        primary.create_queue("orders")
        both = (primary.connection_string, secondary.connection_string)
        options = PairedNamespaceOptions(primary_namespace_name="contoso", backlog_queue_count=1)
        with PairedServiceBusClient.from_connection_strings(
            *both, options=options, connection_verify=str(broker.ca_file)
        ) as client:
            client.fail_over("orders")
            receipt = client.get_queue_sender("orders").send_messages(
                ServiceBusMessage("an order", time_to_live=TTL)
            )
            assert receipt.rests is Rest.BACKLOG
        broker.advance(timedelta(hours=2))
        settings = SyphonOptions(backlog_queue_count=1, primary_namespace_name="contoso")
        counters = await Syphon.from_connection_strings(*both, options=settings).drain()
        assert (counters.forwarded, counters.dead_lettered) == (1, 0)
        with (
            ServiceBusClient.from_connection_string(primary.connection_string) as plain,
            plain.get_queue_receiver("orders") as receiver,
        ):
            (message,) = receiver.receive_messages(1, max_wait_time=5)
            assert message.time_to_live == TTL
            assert message.expires_at_utc == message.enqueued_time_utc + TTL
            receiver.complete_message(message)
