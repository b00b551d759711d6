"""Two namespaces on loopback, a paired client between them, and a watch on what it leaves behind."""

from __future__ import annotations

import threading
import time
from collections.abc import Callable, Iterator
from datetime import timedelta

import pytest
from azure.servicebus import ServiceBusClient

from sbpair import EntityState, PairedNamespaceOptions, PairedServiceBusClient, PairingEvent
from sbpair.broker import Broker

PATIENCE = 20.0  # seconds: the bound of every wait on a condition


class Pairing:
    """A broker with two namespaces, and clients made for them."""

    def __init__(self, broker: Broker) -> None:
        self.broker = broker
        self.primary = broker.namespace("contoso")
        self.secondary = broker.namespace("contoso-dr")
        self.told: list[PairingEvent] = []
        self._told = threading.Condition()
        self._clients: list[PairedServiceBusClient] = []

    def client(
        self,
        *,
        interval: float = 0.0,
        ping: float = 1.0,
        timeout: float = 10.0,
        backlogs: int = 2,
        **other: object,
    ) -> PairedServiceBusClient:
        client = PairedServiceBusClient.from_connection_strings(
            self.primary.connection_string,
            self.secondary.connection_string,
            options=PairedNamespaceOptions(
                primary_namespace_name="contoso",
                failover_interval=timedelta(seconds=interval),
                ping_primary_interval=timedelta(seconds=ping),
                operation_timeout=timedelta(seconds=timeout),
                backlog_queue_count=backlogs,
                **other,
            ),
            connection_verify=str(self.broker.ca_file),
        )
        client.on_event(self._note)
        self._clients.append(client)
        return client

    def wait_for(self, kind: type[PairingEvent], path: str | None = None) -> PairingEvent:
        """The first event of this kind, within a bound."""

        def found() -> PairingEvent | None:
            matching = (e for e in self.told if isinstance(e, kind) and path in (None, e.path))
            return next(matching, None)

        with self._told:
            assert self._told.wait_for(lambda: found() is not None, PATIENCE), f"no {kind.__name__} was told"
            event = found()
        assert event is not None
        return event

    def bodies(self, namespace: object, queue: str) -> list[bytes]:
        """Receive everything that is in a queue."""
        with (
            ServiceBusClient.from_connection_string(namespace.connection_string) as client,  # type: ignore[attr-defined]
            client.get_queue_receiver(queue, receive_mode="receiveanddelete") as receiver,
        ):
            got = []
            while batch := receiver.receive_messages(100, max_wait_time=1):
                got += [b"".join(message.body) for message in batch]
            return got

    def parked(self, backlogs: int = 2) -> list[int]:
        """How many messages wait in each backlog queue."""
        return [
            self.secondary.counts(f"contoso/x-servicebus-transfer/{index}").active
            for index in range(backlogs)
        ]

    def close(self) -> None:
        for client in self._clients:
            client.close()

    def _note(self, event: PairingEvent) -> None:
        with self._told:
            self.told.append(event)
            self._told.notify_all()


@pytest.fixture
def pairing() -> Iterator[Pairing]:
    before = set(threading.enumerate())
    with Broker({"contoso": 0, "contoso-dr": 0}) as broker:
        pairing = Pairing(broker)
        pairing.primary.create_queue("orders")
        try:
            yield pairing
        finally:
            pairing.close()
    left = [thread.name for thread in settled(before) if not thread.daemon or "sbpair" in thread.name]
    assert not left, f"threads were left behind: {left}"


def settled(before: set[threading.Thread]) -> list[threading.Thread]:
    """The threads that are new since ``before``, once they had time to end."""
    until = time.monotonic() + 5.0
    while (new := [t for t in threading.enumerate() if t not in before]) and time.monotonic() < until:
        new[0].join(0.1)
    return new


@pytest.fixture
def failed_over(pairing: Pairing) -> Callable[..., PairedServiceBusClient]:
    """A client whose entity "orders" has failed over, and whose primary is away."""

    def make(**options: float) -> PairedServiceBusClient:
        client = pairing.client(**options)  # type: ignore[arg-type]
        pairing.primary.take_down("refuse")
        client.fail_over("orders")
        assert client.state_of("orders") is EntityState.FAILED_OVER
        return client

    return make
