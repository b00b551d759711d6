"""Both clients over a scripted SDK: pings and probes that fail or take long."""

from __future__ import annotations

import inspect
from collections.abc import AsyncIterator
from dataclasses import dataclass, field
from datetime import timedelta
from typing import Any, NoReturn

import pytest
from azure.servicebus import ServiceBusMessage
from azure.servicebus.exceptions import (
    OperationTimeoutError,
    ServiceBusConnectionError,
)

from sbpair import (
    EntityState,
    PairedNamespaceOptions,
    PairedServiceBusClient,
    SideState,
    aio,
)
from sbpair.events import PairingEvent, PingFailed
from sbpair.pair.ground.side import Side
from sbpair.pair.pairing.shared.address import SdkNamespace
from tests.pair.runtimes import runtime_of
from tests.waiting import until

pytestmark = pytest.mark.spec("R-66")

KEYS = "SharedAccessKeyName=Root;SharedAccessKey=c2VjcmV0;UseDevelopmentEmulator=true"
FAR, OPENING_ROUND_TRIPS = (
    1.0,
    10,
)  # seconds of a round trip; TCP, TLS, SASL, open, begin, token and attach take ten
PRIMARY, SECONDARY = "127.0.0.1:5001", "127.0.0.1:5002"  # addresses: no name is looked up
ORDERS = f"{PRIMARY}/orders"


@dataclass
class Service:
    """Both namespaces: the answers of each entity, named ``host/path``."""

    errors: dict[str, Exception] = field(default_factory=dict)
    """Raised by a send to the entity."""

    def take(self, entity: str) -> None:
        if error := self.errors.get(entity):
            raise error


class Sender:
    """A sender of the blocking SDK."""

    def __init__(self, service: Service, entity: str) -> None:
        self._service, self._entity = service, entity
        self._handler = None
        self._running = False

    def _create_handler(self, auth: object) -> None: ...

    def _open(self) -> None:
        self._running = True

    def __enter__(self) -> Sender:
        self._open()
        return self

    def close(self) -> Any:
        self._running = False

    def send_messages(self, message: object, *, timeout: float | None = None) -> Any:
        self._service.take(self._entity)


class AsyncSender(Sender):
    """A sender of the asyncio SDK."""

    async def _close_handler(self) -> None: ...

    async def __aenter__(self) -> AsyncSender:
        self._open()
        return self

    async def close(self) -> None:
        super().close()

    async def send_messages(self, message: object, *, timeout: float | None = None) -> None:
        super().send_messages(message, timeout=timeout)


class Client:
    """A client of the SDK, of either kind."""

    def __init__(self, service: Service, host: str, kind: type[Sender]) -> None:
        self._service, self._host, self._kind = service, host, kind

    def get_queue_sender(self, entity: str, **settings: object) -> Sender:
        return self._kind(self._service, f"{self._host}/{entity}")

    def close(self) -> Any:
        pass


class AsyncClient(Client):
    async def close(self) -> None:
        super().close()


async def done(answer: Any) -> Any:
    return await answer if inspect.isawaitable(answer) else answer


@dataclass
class Driven:
    service: Service
    kind: type[PairedServiceBusClient] | type[aio.PairedServiceBusClient]
    clients: list[Any] = field(default_factory=list)

    def client(self, **options: Any) -> Any:
        settings = {
            "assume_backlogs_exist": True,
            "backlog_queue_count": 1,
            "primary_namespace_name": "primary",
            "failover_interval": timedelta(0),
            "ping_primary_interval": timedelta(minutes=1),
            "headroom": "off",
        }
        client = self.kind.from_connection_strings(
            f"Endpoint=sb://{PRIMARY};{KEYS}",
            f"Endpoint=sb://{SECONDARY};{KEYS}",
            options=PairedNamespaceOptions(**{**settings, **options}),
            retry_total=0,
        )
        self.clients.append(client)
        return client

    def down(self) -> None:
        self.service.errors[ORDERS] = ServiceBusConnectionError(message="gone")


@pytest.fixture(params=["blocking", "asyncio"])
async def driven(request: pytest.FixtureRequest, monkeypatch: pytest.MonkeyPatch) -> AsyncIterator[Driven]:
    service = Service()
    host = "{0.info.endpoint}".format
    monkeypatch.setattr(SdkNamespace, "client", lambda side, **_: Client(service, host(side), Sender))
    monkeypatch.setattr(
        SdkNamespace, "asyncio_client", lambda side, **_: AsyncClient(service, host(side), AsyncSender)
    )
    kind = PairedServiceBusClient if request.param == "blocking" else aio.PairedServiceBusClient
    it = Driven(service, kind)
    yield it
    for client in it.clients:
        await done(client.close())


async def ping_due(driven: Driven) -> Any:
    """A client in failover whose entity is about to be pinged, after a first ping that failed."""
    client = driven.client()
    told: list[PairingEvent] = []
    client.on_event(told.append)
    driven.down()
    await done(client.get_queue_sender("orders").send_messages(ServiceBusMessage("x")))
    await until(lambda: any(isinstance(event, PingFailed) for event in told))
    driven.service.errors.clear()
    with runtime_of(client).exclusive():
        assert runtime_of(client).pair.handle_timer(runtime_of(client).pair.next_timer()) == ["orders"]
    return client


def failing(*_: object) -> NoReturn:
    raise RuntimeError("the log cannot be written")


@pytest.mark.slow
@pytest.mark.spec("P-32", "G-13")
async def test_an_entity_is_pinged_again_after_a_ping_that_raised(
    driven: Driven, monkeypatch: pytest.MonkeyPatch
) -> None:
    client = await ping_due(driven)
    runtime = runtime_of(client)
    with monkeypatch.context() as patched:
        patched.setattr(runtime, "_attempt", failing)
        with pytest.raises(RuntimeError, match="the log"):
            await done(runtime._ping("orders"))
    assert client.state_of("orders") is EntityState.FAILED_OVER
    with runtime.exclusive():
        assert runtime.pair.handle_timer(runtime.pair.next_timer()) == ["orders"]


@pytest.mark.slow
@pytest.mark.spec("P-32", "G-13")
async def test_an_accepted_ping_ends_the_outage_although_a_callback_raises(
    driven: Driven, monkeypatch: pytest.MonkeyPatch
) -> None:
    client = await ping_due(driven)
    with monkeypatch.context() as patched:
        patched.setattr(runtime_of(client), "_hear", failing)
        with pytest.raises(RuntimeError, match="the log"):
            await done(runtime_of(client)._ping("orders"))
    assert client.state_of("orders") is EntityState.HEALTHY


@pytest.mark.spec("P-50", "R-1")
async def test_the_probe_of_a_refused_side_has_time_for_a_distant_namespace(
    driven: Driven, monkeypatch: pytest.MonkeyPatch
) -> None:
    client = driven.client()
    runtime = runtime_of(client)

    def opened_within(role: Side, seconds: float) -> None:
        if seconds < FAR * OPENING_ROUND_TRIPS:
            raise OperationTimeoutError(message="The link was not opened in time.")

    async def opened_in_loop(role: Side, seconds: float) -> None:
        opened_within(role, seconds)

    is_blocking = driven.kind is PairedServiceBusClient
    monkeypatch.setattr(runtime, "reach", opened_within if is_blocking else opened_in_loop)
    runtime.sides.refused(Side.SECONDARY, "the key is wrong")
    assert client.secondary.state is SideState.REFUSED
    await done(runtime._look(Side.SECONDARY))
    assert client.secondary.state is SideState.OPEN
