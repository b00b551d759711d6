"""Fixtures for outages: two namespaces on loopback, paired clients, and checks that nothing is left behind."""

from __future__ import annotations

import asyncio
import gc
import inspect
import sys
import threading
import time
import warnings
from collections.abc import AsyncIterator, Callable, Iterator
from datetime import timedelta
from functools import cache
from pathlib import Path
from typing import Any

import pytest

from sbpair import EntityState, PairedNamespaceOptions, PairedServiceBusClient, SendReceipt, aio
from sbpair.broker import Broker, NamespaceControl, ShiftedClock
from sbpair.broker.errors import EntityNotFoundError
from sbpair.events import PairingEvent
from sbpair.pair.pairing.aio.sender_pool import AsyncSenderPool
from sbpair.pair.pairing.decide.retry import NO_RETRIES, RetryPolicy
from sbpair.syphon import Syphon, SyphonOptions
from tests.pair.outage.emptying import emptied
from tests.pair.outage.tap import Tap
from tests.pair.runtimes import runtime_of
from tests.pair.syphon.pair import Pair, pair_of
from tests.waiting import PATIENCE, until


def options_of(
    interval: float = 0.0,
    ping: float = 1.0,
    timeout: float = 10.0,
    backlogs: int = 2,
    **other: object,
) -> PairedNamespaceOptions:
    return PairedNamespaceOptions(
        primary_namespace_name="contoso",
        failover_interval=timedelta(seconds=interval),
        ping_primary_interval=timedelta(seconds=ping),
        operation_timeout=timedelta(seconds=timeout),
        backlog_queue_count=backlogs,
        **other,  # type: ignore[arg-type]
    )


def retries(policy: RetryPolicy) -> dict[str, Any]:
    """Return the client keywords for a retry policy."""
    return {
        "retry_total": policy.total,
        "retry_backoff_factor": policy.backoff_factor,
        "retry_backoff_max": policy.backoff_max,
        "retry_mode": policy.mode,
    }


class Pairing:
    """A broker with two namespaces, and the blocking clients created for them."""

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
        options = options_of(interval, ping, timeout, backlogs, **other)
        return self.client_of(
            self.primary.connection_string, self.secondary.connection_string, options=options
        )

    def client_of(
        self, primary: str, secondary: str, *, options: PairedNamespaceOptions | None = None
    ) -> PairedServiceBusClient:
        """Create a client for the given connection strings; by default it does not retry."""
        return self.watched(
            PairedServiceBusClient.from_connection_strings(
                primary,
                secondary,
                options=options or options_of(),
                connection_verify=str(self.broker.ca_file),
                retry_total=0,
            )
        )

    def watched(self, client: PairedServiceBusClient) -> PairedServiceBusClient:
        """Record the events of ``client``, and close it at the end of the test."""
        client.on_event(self._note)
        self._clients.append(client)
        return client

    def wait_for(self, kind: type[PairingEvent], path: str | None = None) -> PairingEvent:
        """Wait for the first event of this kind and return it."""

        def found() -> PairingEvent | None:
            matching = (e for e in self.told if isinstance(e, kind) and path in (None, e.path))
            return next(matching, None)

        with self._told:
            assert self._told.wait_for(lambda: found() is not None, PATIENCE), (
                f"no {kind.__name__} was emitted"
            )
            event = found()
        assert event is not None
        return event

    def bodies(self, namespace: NamespaceControl, queue: str) -> list[bytes]:
        """Receive all messages of a queue and return their bodies."""
        return [b"".join(message.body) for message in emptied(namespace, queue)]

    def parked(self, backlogs: int = 2) -> list[int]:
        """Count the messages in each backlog queue."""
        return [self._waiting_in(f"contoso/x-servicebus-transfer/{index}") for index in range(backlogs)]

    def _waiting_in(self, backlog: str) -> int:
        try:
            return self.secondary.counts(backlog).active
        except EntityNotFoundError:  # still being created in the background
            return 0

    def close(self) -> None:
        for client in self._clients:
            client.close()

    def _note(self, event: PairingEvent) -> None:
        with self._told:
            self.told.append(event)
            self._told.notify_all()


@pytest.fixture(autouse=True)
def _forgotten_by_urllib3(request: pytest.FixtureRequest) -> None:
    """Ignore the socket that urllib3 leaves unclosed when an outage interrupts a TLS handshake."""
    request.node.add_marker(pytest.mark.filterwarnings("ignore:unclosed <ssl.SSLSocket:ResourceWarning"))


@pytest.fixture
def parks_early(monkeypatch: pytest.MonkeyPatch) -> None:
    """Give the primary a tenth of a send's timeout, and the backlogs the rest.

    A send that hangs is then parked early, and a pause of the test process does not use up the time for parking.
    A send that should not hang needs a ``timeout`` of which a tenth is enough on a busy machine.
    """
    monkeypatch.setattr("sbpair.pair.pairing.decide.steps.MAX_RESERVE_SECONDS", 60.0)
    monkeypatch.setattr("sbpair.pair.pairing.decide.steps.RESERVE_SHARE", 0.9)


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
    collect_forgotten("unclosed <ssl.SSLSocket")
    left = [thread.name for thread in settled(before) if not thread.daemon or "sbpair" in thread.name]
    assert not left, f"threads were left behind: {left}"


def collect_forgotten(warning: str) -> None:
    """Collect the sockets that dependencies leave unclosed after an outage, without their warnings.

    urllib3 leaves one when an administration call is interrupted, the blocking SDK when a connection is reset.
    """
    with warnings.catch_warnings():
        warnings.filterwarnings("ignore", warning, ResourceWarning)
        gc.collect()
    _exempt_modules(len(sys.modules))


@cache
def _exempt_modules(count: int) -> None:
    """After each import, exempt what modules hold from the next collections: it lives until the end."""
    gc.freeze()


def settled(before: set[threading.Thread]) -> list[threading.Thread]:
    """Return the threads that are new since ``before`` and do not end within a bound."""
    until = time.monotonic() + PATIENCE
    while (new := [t for t in threading.enumerate() if t not in before]) and time.monotonic() < until:
        new[0].join(0.1)
    return new


@pytest.fixture
def failed_over(pairing: Pairing) -> Callable[..., PairedServiceBusClient]:
    """Create a client whose entity "orders" has failed over and whose primary is down."""

    def make(**options: float) -> PairedServiceBusClient:
        client = pairing.client(**options)  # type: ignore[arg-type]
        pairing.primary.take_down("refuse")
        client.fail_over("orders")
        assert client.state_of("orders") is EntityState.FAILED_OVER
        return client

    return make


class AsyncPairing:
    """The same two namespaces with asyncio clients."""

    def __init__(self, broker: Broker) -> None:
        self.broker = broker
        self.primary = broker.namespace("contoso")
        self.secondary = broker.namespace("contoso-dr")
        self.told: list[PairingEvent] = []
        self.clients: list[aio.PairedServiceBusClient] = []
        self._told = asyncio.Event()

    def client(self, **options: object) -> aio.PairedServiceBusClient:
        return self.client_of(
            self.primary.connection_string,
            self.secondary.connection_string,
            options=options_of(**options),  # type: ignore[arg-type]
        )

    def client_of(
        self,
        primary: str,
        secondary: str,
        *,
        options: PairedNamespaceOptions | None = None,
        retry: RetryPolicy = NO_RETRIES,
    ) -> aio.PairedServiceBusClient:
        """Create a client for the given connection strings; by default it does not retry."""
        client = aio.PairedServiceBusClient.from_connection_strings(
            primary,
            secondary,
            options=options or options_of(),
            connection_verify=str(self.broker.ca_file),
            **retries(retry),
        )
        client.on_event(self._note)
        self.clients.append(client)
        return client

    def failed_over(self, **options: object) -> aio.PairedServiceBusClient:
        """Create a client whose entity "orders" has failed over and whose primary is down."""
        client = self.client(**options)
        self.primary.take_down("refuse")
        client.fail_over("orders")
        return client

    async def heard(self, kind: type[PairingEvent]) -> PairingEvent:
        """Wait for the first event of this kind and return it."""
        async with asyncio.timeout(PATIENCE):
            while not (found := [event for event in self.told if isinstance(event, kind)]):
                self._told.clear()
                await self._told.wait()
        return found[0]

    async def bodies(self, namespace: NamespaceControl, queue: str) -> list[bytes]:
        """Receive all messages of a queue and return their bodies."""
        return await asyncio.to_thread(Pairing.bodies, self, namespace, queue)  # type: ignore[arg-type]

    def parked(self, backlogs: int = 2) -> list[int]:
        return Pairing.parked(self, backlogs)  # type: ignore[arg-type]

    def _waiting_in(self, backlog: str) -> int:
        return Pairing._waiting_in(self, backlog)  # type: ignore[arg-type]

    def pool(self, path: str, client: int = -1) -> AsyncSenderPool:
        return runtime_of(self.clients[client]).primary_pool(path)

    def _note(self, event: PairingEvent) -> None:
        self.told.append(event)
        self._told.set()


@pytest.fixture
async def aio_pairing() -> AsyncIterator[AsyncPairing]:
    """Yield an AsyncPairing; afterwards check that no task, thread or socket is left."""
    threads, tasks, sockets = set(threading.enumerate()), asyncio.all_tasks(), open_sockets()
    with Broker({"contoso": 0, "contoso-dr": 0}) as broker:
        pairing = AsyncPairing(broker)
        pairing.primary.create_queue("orders")
        try:
            yield pairing
        finally:
            for client in pairing.clients:
                await client.close()
            new = asyncio.all_tasks() - tasks - {asyncio.current_task()}
            left = [str(task.get_coro()) for task in new if not task.done()]
    await (
        asyncio.get_running_loop().shutdown_default_executor()
    )  # its threads resolve names and run to_thread
    assert not left, f"tasks were left behind: {left}"
    started = [thread.name for thread in settled(threads)]
    assert not started, f"threads were left behind: {started}"
    collect_forgotten("unclosed <ssl.SSLSocket")  # of administration calls that created the backlogs
    until = time.monotonic() + PATIENCE
    while open_sockets() > sockets:  # TLS transports close in a later turn of the loop
        assert time.monotonic() < until, "sockets were left behind"
        await asyncio.sleep(0.01)


def open_sockets() -> int:
    """Count the descriptors of this process that are sockets."""
    found = 0
    for each in Path("/proc/self/fd").iterdir():
        try:
            found += each.readlink().name.startswith("socket:")
        except OSError:
            continue  # the descriptor of the listing itself
    return found


class Either:
    """One of the two clients, blocking or asyncio, for tests that must pass with both.

    Blocking calls run in the thread of the event loop.
    """

    def __init__(self, pairing: AsyncPairing, *, is_asyncio: bool) -> None:
        self.broker = pairing.broker
        self.primary, self.secondary = pairing.primary, pairing.secondary
        self.told = pairing.told
        self.is_asyncio = is_asyncio
        self.ways = pairing.primary.connection_string, pairing.secondary.connection_string
        """The connection strings of the clients; a test may route them through a tap."""
        self._pairing = pairing
        self._blocking: list[PairedServiceBusClient] = []

    def client(self, *, retry: RetryPolicy = NO_RETRIES, **options: object) -> PairedServiceBusClient:
        """Create a client of this kind; typed as the blocking one, whose names the asyncio one shares."""
        if self.is_asyncio:
            return self._pairing.client_of(*self.ways, options=options_of(**options), retry=retry)  # type: ignore[return-value,arg-type]
        client = PairedServiceBusClient.from_connection_strings(
            *self.ways,
            options=options_of(**options),  # type: ignore[arg-type]
            connection_verify=str(self._pairing.broker.ca_file),
            **retries(retry),
        )
        return self.watched(client)

    def watched(self, client: PairedServiceBusClient) -> PairedServiceBusClient:
        """Record the events of ``client``, and close it at the end of the test."""
        if self.is_asyncio:
            client.on_event(self._pairing._note)
            self._pairing.clients.append(client)  # type: ignore[arg-type]
        else:
            client.on_event(self.told.append)
            self._blocking.append(client)
        return client

    async def send(self, sender: object, message: object, **other: object) -> SendReceipt:
        receipt = await self.done(sender.send_messages(message, **other))  # type: ignore[attr-defined]
        assert isinstance(receipt, SendReceipt)
        return receipt

    async def done(self, answer: object) -> object:
        return await answer if inspect.isawaitable(answer) else answer

    async def heard(self, kind: type[PairingEvent]) -> PairingEvent:
        """Wait for the first event of this kind and return it."""
        await self.until(lambda: any(isinstance(event, kind) for event in self.told))
        return next(event for event in self.told if isinstance(event, kind))

    async def until(self, holds: Callable[[], bool]) -> None:
        """Wait for a condition."""
        await until(holds)

    async def message_ids(self, queue: str = "orders") -> list[str | None]:
        """Receive all messages of a queue of the primary and return their ids."""
        return [message.message_id for message in emptied(self.primary, queue)]

    async def bodies(self, queue: str = "orders") -> list[bytes]:
        """Receive all messages of a queue of the primary and return their bodies."""
        return Pairing.bodies(self, self.primary, queue)  # type: ignore[arg-type]

    def parked(self, backlogs: int = 2) -> list[int]:
        return self._pairing.parked(backlogs)

    def syphon(self) -> Syphon:
        """Create a syphon between the two namespaces, for two backlogs."""
        both = self.primary.connection_string, self.secondary.connection_string
        settings = SyphonOptions(backlog_queue_count=2, primary_namespace_name="contoso")
        return Syphon.from_connection_strings(*both, options=settings)

    def close(self) -> None:
        for client in self._blocking:
            client.close()


@pytest.fixture(params=["blocking", "asyncio"])
async def either(request: pytest.FixtureRequest, aio_pairing: AsyncPairing) -> AsyncIterator[Either]:
    skin = Either(aio_pairing, is_asyncio=request.param == "asyncio")
    try:
        yield skin
    finally:
        skin.close()
        if not skin.is_asyncio:
            collect_forgotten("unclosed")


@pytest.fixture
def tap(either: Either) -> Iterator[Tap]:
    """A tap in front of the primary, through which the clients of ``either`` connect."""
    with Tap(either.primary) as tap:
        either.ways = tap.connection_string, either.ways[1]
        yield tap


@pytest.fixture
def pair() -> Iterator[Pair]:
    """The two namespaces as the tests of the syphon use them."""
    with Broker({"contoso": 0, "contoso-dr": 0}) as broker:
        yield pair_of(broker)


@pytest.fixture
def shifted() -> Iterator[Broker]:
    with Broker({"contoso": 0, "contoso-dr": 0}, clock=ShiftedClock()) as broker:
        broker.namespace("contoso").create_queue("orders")
        yield broker
