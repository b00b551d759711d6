"""A pair of broker namespaces for tests, and a credential for them."""

from __future__ import annotations

import asyncio
import time
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass, field, replace
from datetime import timedelta
from types import TracebackType

from azure.core.credentials import AccessToken
from azure.servicebus import ServiceBusClient, ServiceBusReceiveMode

from sbpair.broker import Broker, NamespaceControl
from sbpair.broker.bearer import make_bearer
from sbpair.pair.paired_client.aio import PairedServiceBusClient as AsyncPairedServiceBusClient
from sbpair.pair.paired_client.blocking import PairedServiceBusClient
from sbpair.pair.pairing.options import PairedNamespaceOptions
from sbpair.pair.syphon.daemon import Syphon
from sbpair.pair.syphon.options import SyphonOptions

LIFE_S = 3600


@dataclass(frozen=True, slots=True)
class BearerCredential:
    """A ``TokenCredential`` whose tokens the in-repo broker accepts; needs no Entra ID."""

    policy_name: str
    key: str = field(repr=False)

    def get_token(self, *scopes: str, claims: str | None = None, tenant_id: str | None = None) -> AccessToken:
        """A token valid for one hour. Raises ValueError unless every scope ends in ``/.default``."""
        if not scopes or not all(scope.endswith("/.default") for scope in scopes):
            raise ValueError(f"every scope must end in /.default, not {scopes!r}")
        expires = int(time.time()) + LIFE_S
        audience = scopes[0].removesuffix("/.default").rstrip("/")
        return AccessToken(make_bearer(self.policy_name, self.key, expires, audience), expires)

    def close(self) -> None:
        """Do nothing; part of the protocol."""


QUICK = PairedNamespaceOptions(
    backlog_queue_count=2,
    failover_interval=timedelta(0),
    ping_primary_interval=timedelta(seconds=1),
    operation_timeout=timedelta(seconds=16),
)
"""Options for tests: immediate failover, a ping every second, two backlog queues."""


class NamespacePair:
    """A primary and a secondary namespace. A context manager: leaving it closes the clients it created."""

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

    @property
    def environment(self) -> dict[str, str]:
        """SBPAIR_PRIMARY, SBPAIR_SECONDARY and SBPAIR_CA_FILE, for an application that creates its own client."""
        return {
            "SBPAIR_PRIMARY": self.primary.connection_string,
            "SBPAIR_SECONDARY": self.secondary.connection_string,
            "SBPAIR_CA_FILE": self.ca_file,
        }

    def client(self, options: PairedNamespaceOptions = QUICK) -> PairedServiceBusClient:
        """A paired client, closed when the test ends."""
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
        """An asyncio client, which the test closes: ``async with servicebus_pair.async_client() as client``."""
        self._backlogs = options.backlog_queue_count
        return AsyncPairedServiceBusClient.from_connection_strings(
            self.primary.connection_string,
            self.secondary.connection_string,
            options=replace(options, primary_namespace_name=self.primary.name),
            connection_verify=self.ca_file,
        )

    def drain(self, options: SyphonOptions | None = None) -> int:
        """Run a syphon until the backlog queues are empty; returns the number of messages it forwarded.

        Without ``options`` it reads the queues of the clients made here. Safe to call where an event loop runs:
        the syphon runs on its own loop in another thread.
        """
        own = SyphonOptions(backlog_queue_count=self._backlogs, primary_namespace_name=self.primary.name)
        syphon = Syphon.from_connection_strings(
            self.primary.connection_string, self.secondary.connection_string, options=options or own
        )
        with ThreadPoolExecutor(1) as executor:
            return executor.submit(lambda: asyncio.run(syphon.drain())).result().completed

    def receive_all(self, entity: str) -> list[str]:
        """Receive and delete the active messages of a primary entity; returns their ids, duplicates included."""
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
