"""Two namespaces of a broker as a test holds them: paired clients between them, the syphon, what arrived."""

from __future__ import annotations

import asyncio
from concurrent.futures import ThreadPoolExecutor
from dataclasses import replace
from datetime import timedelta
from types import TracebackType

from azure.servicebus import ServiceBusClient, ServiceBusReceiveMode

from sbpair.broker import Broker, NamespaceControl
from sbpair.pairing.aio_client import PairedServiceBusClient as AsyncPairedServiceBusClient
from sbpair.pairing.client import PairedServiceBusClient
from sbpair.pairing.options import PairedNamespaceOptions
from sbpair.syphon import Syphon, SyphonOptions

QUICK = PairedNamespaceOptions(
    backlog_queue_count=2,
    failover_interval=timedelta(0),
    ping_primary_interval=timedelta(seconds=1),
    operation_timeout=timedelta(seconds=16),
)
"""Options for tests: fail over at once, ping every second, two backlog queues."""


class NamespacePair:
    """A primary and a secondary namespace; leaving the ``with`` closes the clients it made."""

    def __init__(self, broker: Broker, primary: NamespaceControl, secondary: NamespaceControl) -> None:
        self.primary = primary
        self.secondary = secondary
        self.ca_file = str(broker.ca_file)
        self._backlogs = QUICK.backlog_queue_count
        self._clients: list[PairedServiceBusClient] = []

    def __enter__(self) -> NamespacePair:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        for client in self._clients:
            client.close()

    def client(self, options: PairedNamespaceOptions = QUICK) -> PairedServiceBusClient:
        """A paired client of these two, closed when the test ends."""
        client = PairedServiceBusClient.from_connection_strings(
            self.primary.connection_string,
            self.secondary.connection_string,
            options=replace(options, primary_namespace_name=self.primary.name),
            connection_verify=self.ca_file,
        )
        self._backlogs = options.backlog_queue_count
        self._clients.append(client)
        return client

    def async_client(self, options: PairedNamespaceOptions = QUICK) -> AsyncPairedServiceBusClient:
        """One for asyncio, which the test closes: ``async with servicebus_pair.async_client() as client``."""
        self._backlogs = options.backlog_queue_count
        return AsyncPairedServiceBusClient.from_connection_strings(
            self.primary.connection_string,
            self.secondary.connection_string,
            options=replace(options, primary_namespace_name=self.primary.name),
            connection_verify=self.ca_file,
        )

    def drain(self) -> int:
        """Run the syphon until the backlog queues are empty; how many messages it brought home.

        It may be called where a loop runs: the syphon has one of its own, in another thread.
        """
        options = SyphonOptions(backlog_queue_count=self._backlogs, primary_namespace_name=self.primary.name)
        syphon = Syphon.from_connection_strings(
            self.primary.connection_string, self.secondary.connection_string, options=options
        )
        with ThreadPoolExecutor(1) as aside:
            return aside.submit(lambda: asyncio.run(syphon.drain())).result().completed

    def receive_all(self, entity: str) -> list[str]:
        """Take everything that waits in an entity of the primary; the message ids, copies included."""
        received: list[str] = []
        with (
            ServiceBusClient.from_connection_string(self.primary.connection_string) as client,
            client.get_queue_receiver(
                entity, receive_mode=ServiceBusReceiveMode.RECEIVE_AND_DELETE
            ) as receiver,
        ):
            while self.primary.counts(entity).active:
                received += [
                    str(message.message_id) for message in receiver.receive_messages(500, max_wait_time=1)
                ]
        return received
