"""Parked messages for the tests of commands."""

from __future__ import annotations

from datetime import timedelta
from typing import Any

from azure.servicebus import ServiceBusMessage

from sbpair import PairedNamespaceOptions, PairedServiceBusClient
from sbpair.broker import Broker

FLAGS = ("--backlogs", "2", "--primary-namespace-name", "contoso")
"""The flags with which a command finds what :func:`park` parked."""


def park(
    broker: Broker,
    count: int,
    path: str = "orders",
    properties: dict[str | bytes, Any] | None = None,
    session: str | None = None,
) -> None:
    """Send ``count`` messages to an entity of contoso during an outage, so that they are parked in contoso-dr.

    With a session, they are parked in its order.
    """
    primary, secondary = broker.namespace("contoso"), broker.namespace("contoso-dr")
    primary.take_down("refuse")
    with (
        PairedServiceBusClient.from_connection_strings(
            primary.connection_string,
            secondary.connection_string,
            options=PairedNamespaceOptions(
                backlog_queue_count=2,
                failover_interval=timedelta(0),
                primary_namespace_name="contoso",
                ordering="none" if session is None else "session",
            ),
            connection_verify=str(broker.ca_file),
        ) as client,
        client.get_queue_sender(path) as sender,
    ):
        sender.send_messages(
            [
                ServiceBusMessage(f"order {n}", application_properties=properties, session_id=session)
                for n in range(count)
            ]
        )
    primary.bring_up()
