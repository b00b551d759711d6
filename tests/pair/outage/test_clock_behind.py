"""A machine whose clock is hours behind signs tokens that are expired: the clock is told as the cause, not the key."""

from __future__ import annotations

from datetime import timedelta

import pytest
from azure.servicebus import ServiceBusMessage
from azure.servicebus.exceptions import ServiceBusError

from sbpair import PairedNamespaceOptions, PairedServiceBusClient
from sbpair.broker import Broker


def test_the_error_of_a_send_names_the_clock_and_not_the_key() -> None:
    with Broker({"contoso": 0, "contoso-dr": 0}) as broker:
        sides = [broker.namespace(name) for name in ("contoso", "contoso-dr")]
        sides[0].create_queue("orders")
        sides[1].create_queue("contoso/x-servicebus-transfer/0")
        broker.advance_connections(timedelta(hours=3))
        options = PairedNamespaceOptions(
            backlog_queue_count=1, primary_namespace_name="contoso", assume_backlogs_exist=True
        )
        strings = [each.connection_string for each in sides]
        with (
            PairedServiceBusClient.from_connection_strings(*strings, options=options) as client,
            pytest.raises(ServiceBusError) as raised,
        ):
            client.get_queue_sender("orders").send_messages(ServiceBusMessage("x"), timeout=20)
    assert "this machine's clock is behind" in str(raised.value)
    assert "regenerated" not in str(raised.value)
