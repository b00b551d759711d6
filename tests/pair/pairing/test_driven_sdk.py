"""Both clients over a scripted SDK: what each entity is sent, and over which links."""

from __future__ import annotations

import inspect
from collections.abc import AsyncIterator, Callable
from dataclasses import dataclass, field
from datetime import UTC, datetime, timedelta
from typing import Any, NoReturn

import pytest
from azure.core.exceptions import ResourceNotFoundError, ServiceRequestError
from azure.servicebus import ServiceBusMessage, ServiceBusMessageBatch
from azure.servicebus.exceptions import (
    MessagingEntityDisabledError,
    MessagingEntityNotFoundError,
    OperationTimeoutError,
    ServiceBusConnectionError,
    ServiceBusError,
)

from sbpair import (
    BacklogUnavailableError,
    EntityState,
    PairedNamespaceOptions,
    PairedServiceBusClient,
    PairingEvent,
    PingFailed,
    SideState,
    StoredIn,
    aio,
)
from sbpair.pair.envelope.copies import raw
from sbpair.pair.ground.side import Side
from sbpair.pair.pairing.errors import ParkedMessageTooLargeError
from sbpair.pair.pairing.request.sdk import messages_of
from sbpair.pair.pairing.shared.address import SdkNamespace
from sbpair.pair.pairing.shared.base_sender import STANDARD_BATCH
from tests.waiting import until

pytestmark = pytest.mark.spec("R-66")

KEYS = "SharedAccessKeyName=Root;SharedAccessKey=c2VjcmV0;UseDevelopmentEmulator=true"
LINK_LIMIT = 10_000  # bytes
FAR, OPENING_ROUND_TRIPS = (
    1.0,
    10,
)  # seconds of a round trip; TCP, TLS, SASL, open, begin, token and attach take ten
LATER = datetime(2031, 1, 2, tzinfo=UTC)
PRIMARY, SECONDARY = "127.0.0.1:5001", "127.0.0.1:5002"  # addresses: no name is looked up
BACKLOG = f"{SECONDARY}/primary/x-servicebus-transfer/0"
ORDERS = f"{PRIMARY}/orders"


@dataclass
class Service:
    """Both namespaces: the messages and answers of each entity, named ``host/path``."""

    sent: dict[str, list[Any]] = field(default_factory=dict)
    errors: dict[str, Exception] = field(default_factory=dict)
    """Raised by a send to the entity."""
    unopened: dict[str, Exception] = field(default_factory=dict)
    """Raised as a link to the entity opens."""
    opened: list[str] = field(default_factory=list)
    closed: list[str] = field(default_factory=list)
    closed_clients: list[str] = field(default_factory=list)
    queues: list[str] = field(default_factory=list)
    administration_error: Exception | None = None
    timeouts: list[float] = field(default_factory=list)

    def bodies(self, entity: str) -> list[bytes]:
        return [b"".join(raw(each).body) for each in self.sent.get(entity, [])]  # type: ignore[arg-type]

    def take(self, entity: str, message: object, timeout: float | None) -> None:
        self.timeouts.append(timeout or 0.0)
        error = self.errors.get(entity)
        if error is not None:
            raise error
        if isinstance(message, ServiceBusMessageBatch):
            given: list[Any] = list(messages_of(message) or [])
        else:
            given = message if isinstance(message, list) else [message]
        self.sent.setdefault(entity, []).extend(given)


class Sender:
    """A sender of the blocking SDK."""

    def __init__(self, service: Service, entity: str) -> None:
        self._service, self._entity = service, entity
        self._handler = None
        self._running = False
        self._max_message_size_on_link = LINK_LIMIT

    def _create_handler(self, auth: object) -> None: ...

    def _open(self) -> None:
        self._service.opened.append(self._entity)
        if error := self._service.unopened.get(self._entity):
            raise error
        self._running = True

    def __enter__(self) -> Sender:
        self._open()
        return self

    def close(self) -> Any:
        self._service.closed.append(self._entity)
        self._running = False

    def create_message_batch(self, max_size_in_bytes: int | None = None) -> Any:
        return ServiceBusMessageBatch(max_size_in_bytes or LINK_LIMIT)

    def send_messages(self, message: object, *, timeout: float | None = None) -> Any:
        self._service.take(self._entity, message, timeout)

    def schedule_messages(self, messages: object, at: datetime, *, timeout: float | None = None) -> Any:
        self._service.take(self._entity, messages, timeout)
        assert at == LATER
        return list(range(70, 70 + len(messages)))  # type: ignore[arg-type]

    def cancel_scheduled_messages(self, numbers: list[int], *, timeout: float | None = None) -> Any:
        self._service.take(
            self._entity, [ServiceBusMessage(f"cancel {number}") for number in numbers], timeout
        )


class AsyncSender(Sender):
    """A sender of the asyncio SDK."""

    async def _close_handler(self) -> None: ...

    async def __aenter__(self) -> AsyncSender:
        self._open()
        return self

    async def close(self) -> None:
        super().close()

    async def create_message_batch(self, max_size_in_bytes: int | None = None) -> ServiceBusMessageBatch:
        return super().create_message_batch(max_size_in_bytes)

    async def send_messages(self, message: object, *, timeout: float | None = None) -> None:
        super().send_messages(message, timeout=timeout)

    async def schedule_messages(
        self, messages: object, at: datetime, *, timeout: float | None = None
    ) -> list[int]:
        return super().schedule_messages(messages, at, timeout=timeout)

    async def cancel_scheduled_messages(self, numbers: list[int], *, timeout: float | None = None) -> None:
        super().cancel_scheduled_messages(numbers, timeout=timeout)


class Client:
    """A client of the SDK, of either kind."""

    def __init__(self, service: Service, host: str, kind: type[Sender]) -> None:
        self._service, self._host, self._kind = service, host, kind

    def get_queue_sender(self, entity: str, **settings: object) -> Sender:
        return self._kind(self._service, f"{self._host}/{entity}")

    def close(self) -> Any:
        self._service.closed_clients.append(self._host)


class AsyncClient(Client):
    async def close(self) -> None:
        super().close()


class Administration:
    """The administration of the secondary."""

    def __init__(self, service: Service) -> None:
        self._service = service

    def __enter__(self) -> Administration:
        return self

    def __exit__(self, *_: object) -> None: ...

    def get_queue(self, name: str) -> object:
        if self._service.administration_error is not None:
            raise self._service.administration_error
        raise ResourceNotFoundError("no such queue")

    def create_queue(self, name: str, **settings: object) -> None:
        self._service.queues.append(name)
        self._service.errors.pop(f"{SECONDARY}/{name}", None)


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
    monkeypatch.setattr(SdkNamespace, "administration", lambda side, *_, **__: Administration(service))
    kind = PairedServiceBusClient if request.param == "blocking" else aio.PairedServiceBusClient
    it = Driven(service, kind)
    yield it
    for client in it.clients:
        await done(client.close())


async def test_a_healthy_entity_is_sent_to_over_one_link(driven: Driven) -> None:
    sender = driven.client().get_queue_sender("orders")
    for number in range(3):
        receipt = await done(sender.send_messages(ServiceBusMessage(f"{number}", message_id=f"{number}")))
        assert (receipt.stored_in, receipt.backlog, receipt.message_ids) == (
            StoredIn.PRIMARY,
            None,
            (f"{number}",),
        )
    receipt = await done(sender.send_messages([ServiceBusMessage("a"), ServiceBusMessage("b")]))
    assert len(receipt.message_ids) == 2
    assert driven.service.bodies(ORDERS) == [b"0", b"1", b"2", b"a", b"b"]
    assert driven.service.opened == [ORDERS]
    assert all(2.9 < seconds <= 3.0 for seconds in driven.service.timeouts)  # nothing is learned yet


async def test_a_call_takes_no_longer_than_it_is_given(driven: Driven) -> None:
    sender = driven.client().get_queue_sender("orders")
    for _ in range(2):
        await done(sender.send_messages(ServiceBusMessage("x"), timeout=7.0))
    assert all(0 < seconds <= 7.0 for seconds in driven.service.timeouts)


async def test_while_the_primary_is_out_of_reach_messages_are_parked(driven: Driven) -> None:
    client = driven.client()
    sender = client.get_queue_sender("orders")
    await done(sender.send_messages(ServiceBusMessage("before")))
    driven.down()
    receipt = await done(sender.send_messages(ServiceBusMessage("one", message_id="1")))
    assert (receipt.stored_in, receipt.backlog, receipt.message_ids) == (StoredIn.BACKLOG, 0, ("1",))
    assert client.state_of("orders") is EntityState.FAILED_OVER
    tried = len(driven.service.timeouts)
    receipt = await done(sender.send_messages([ServiceBusMessage(name) for name in ("two", "three")]))
    assert receipt.stored_in is StoredIn.BACKLOG
    assert len(driven.service.timeouts) == tried + 1  # one batch, and the primary is left alone
    assert driven.service.bodies(BACKLOG) == [b"one", b"two", b"three"]
    paths = {raw(each).application_properties["x-ms-path"] for each in driven.service.sent[BACKLOG]}
    assert paths == {"orders"}
    client.mark_path_healthy("orders")
    driven.service.errors.clear()
    assert (await done(sender.send_messages(ServiceBusMessage("after")))).stored_in is StoredIn.PRIMARY


async def test_a_message_that_may_be_too_large_to_park_is_compared_with_the_limit_of_the_backlogs(
    driven: Driven,
) -> None:
    client = driven.client(headroom="refuse")
    sender = client.get_queue_sender("orders")
    with pytest.raises(ParkedMessageTooLargeError, match="orders"):
        await done(sender.send_messages(ServiceBusMessage(b"x" * LINK_LIMIT)))
    assert driven.service.sent == {}
    assert client.state_of("orders") is EntityState.HEALTHY
    await done(sender.send_messages(ServiceBusMessage("x")))


async def test_a_link_that_failed_is_not_used_again(driven: Driven) -> None:
    sender = driven.client().get_queue_sender("orders")
    await done(sender.send_messages(ServiceBusMessage("before")))
    driven.down()
    await done(sender.send_messages(ServiceBusMessage("parked")))
    driven.clients[0].mark_path_healthy("orders")
    driven.service.errors.clear()
    await done(sender.send_messages(ServiceBusMessage("after")))
    assert driven.service.opened.count(ORDERS) >= 2
    assert driven.service.bodies(ORDERS) == [b"before", b"after"]


async def test_within_its_interval_a_failure_is_raised_and_the_entity_suspected(driven: Driven) -> None:
    client = driven.client(failover_interval=timedelta(hours=1), suspect_policy="raise")
    sender = client.get_queue_sender("orders")
    driven.down()
    with pytest.raises(ServiceBusConnectionError, match="gone") as raised:
        await done(sender.send_messages(ServiceBusMessage("x")))
    assert raised.value is driven.service.errors[ORDERS]
    assert client.state_of("orders") is EntityState.SUSPECT
    assert BACKLOG not in driven.service.sent
    driven.service.errors.clear()
    await done(sender.send_messages(ServiceBusMessage("y")))
    assert client.state_of("orders") is EntityState.HEALTHY


async def test_a_link_that_does_not_open_counts_as_a_failed_send(driven: Driven) -> None:
    driven.service.unopened[ORDERS] = ServiceBusConnectionError(message="gone")
    sender = driven.client().get_queue_sender("orders")
    assert (await done(sender.send_messages(ServiceBusMessage("x")))).stored_in is StoredIn.BACKLOG
    assert driven.service.bodies(BACKLOG) == [b"x"]


@pytest.mark.parametrize(
    "error",
    [MessagingEntityNotFoundError(message="no"), MessagingEntityDisabledError(message="off")],
    ids=repr,
)
async def test_what_no_outage_explains_is_raised_and_nothing_is_parked(
    driven: Driven, error: Exception
) -> None:
    client = driven.client()
    driven.service.errors[ORDERS] = error
    with pytest.raises(type(error)) as raised:
        await done(client.get_queue_sender("orders").send_messages(ServiceBusMessage("x")))
    assert raised.value is error
    assert client.state_of("orders") is EntityState.HEALTHY
    assert BACKLOG not in driven.service.sent


async def test_a_message_that_cannot_be_encoded_is_the_callers_fault(driven: Driven) -> None:
    client = driven.client()
    sender = client.get_queue_sender("orders")
    driven.service.errors[ORDERS] = TypeError("cannot encode")
    with pytest.raises(Exception, match=r"object|encode"):
        await done(sender.send_messages(ServiceBusMessage("x", application_properties={"a": object()})))
    assert client.state_of("orders") is EntityState.HEALTHY


async def test_when_nothing_takes_a_message_the_error_names_both(driven: Driven) -> None:
    driven.down()
    driven.service.errors[BACKLOG] = ServiceBusConnectionError(message="gone too")
    sender = driven.client().get_queue_sender("orders")
    with pytest.raises(BacklogUnavailableError) as raised:
        await done(sender.send_messages(ServiceBusMessage("x"), timeout=2.0))
    assert raised.value.__cause__ is not None
    assert "orders" in str(raised.value)


async def test_a_backlog_queue_that_is_missing_is_created_at_first_need(driven: Driven) -> None:
    driven.service.administration_error = ServiceRequestError("not now")
    client = driven.client(assume_backlogs_exist=False)
    sender = client.get_queue_sender("orders")
    driven.down()
    driven.service.errors[BACKLOG] = MessagingEntityNotFoundError(message="no such queue")
    driven.service.administration_error = None
    receipt = await done(sender.send_messages(ServiceBusMessage("x")))
    assert receipt.stored_in is StoredIn.BACKLOG
    assert driven.service.queues[0] == "primary/x-servicebus-transfer/0"
    assert driven.service.bodies(BACKLOG) == [b"x"]


async def test_a_backlog_queue_that_is_assumed_to_exist_is_not_created(driven: Driven) -> None:
    sender = driven.client().get_queue_sender("orders")
    driven.down()
    driven.service.errors[BACKLOG] = MessagingEntityNotFoundError(message="no such queue")
    with pytest.raises(BacklogUnavailableError):
        await done(sender.send_messages(ServiceBusMessage("x"), timeout=2.0))
    assert driven.service.queues == []


async def test_scheduled_messages_have_numbers_while_the_primary_takes_them(driven: Driven) -> None:
    sender = driven.client().get_queue_sender("orders")
    assert await done(sender.schedule_messages([ServiceBusMessage("a"), ServiceBusMessage("b")], LATER)) == [
        70,
        71,
    ]
    assert await done(sender.schedule_messages(ServiceBusMessage("c"), LATER, timeout=3.0)) == [70]
    await done(sender.cancel_scheduled_messages(70))
    await done(sender.cancel_scheduled_messages([71, 72], timeout=4.0))
    assert await done(sender.schedule_messages([], LATER)) == []
    await done(sender.cancel_scheduled_messages([]))
    assert driven.service.bodies(ORDERS) == [b"a", b"b", b"c", b"cancel 70", b"cancel 71", b"cancel 72"]
    limits = [3.0, 2.25, 60.0, 4.0]  # what could be parked is not waited for; a cancellation could not
    for seconds, limit in zip(driven.service.timeouts, limits, strict=True):
        assert limit - 0.5 < seconds <= limit
    driven.down()
    assert await done(sender.schedule_messages([ServiceBusMessage("d")], LATER)) == [-1]
    assert driven.service.bodies(BACKLOG) == [b"d"]
    driven.clients[0].mark_path_healthy("orders")
    with pytest.raises(ServiceBusConnectionError, match="gone"):
        await done(sender.cancel_scheduled_messages(70))


async def test_a_batch_is_as_large_as_the_link_takes_or_as_was_asked_for(driven: Driven) -> None:
    client = driven.client()
    sender = client.get_queue_sender("orders")
    assert (await done(sender.create_message_batch())).max_size_in_bytes == LINK_LIMIT
    assert (await done(sender.create_message_batch(500))).max_size_in_bytes == 500
    with pytest.raises(ValueError, match=f"must be at most {LINK_LIMIT}, not {LINK_LIMIT + 1}"):
        await done(sender.create_message_batch(LINK_LIMIT + 1))
    batch = await done(sender.create_message_batch())
    batch.add_message(ServiceBusMessage("a"))
    batch.add_message(ServiceBusMessage("b"))
    await done(sender.send_messages(batch))
    assert driven.service.bodies(ORDERS) == [b"a", b"b"]
    assert driven.service.opened == [ORDERS]
    driven.down()
    await done(sender.send_messages(ServiceBusMessage("c")))
    assert (
        await done(sender.create_message_batch())
    ).max_size_in_bytes == LINK_LIMIT  # the last that was known


async def test_a_batch_of_an_entity_without_a_link_has_the_standard_size(driven: Driven) -> None:
    driven.service.unopened[ORDERS] = ServiceBusConnectionError(message="gone")
    client = driven.client()
    sender = client.get_queue_sender("orders")
    assert (await done(sender.create_message_batch())).max_size_in_bytes == STANDARD_BATCH
    assert client.state_of("orders") is not EntityState.HEALTHY
    client.mark_path_healthy("orders")
    driven.service.unopened[ORDERS] = MessagingEntityNotFoundError(message="no")
    other = client.get_queue_sender("orders")
    with pytest.raises(MessagingEntityNotFoundError):
        await done(other.create_message_batch())


async def test_topics_are_sent_to_alike(driven: Driven) -> None:
    sender = driven.client().get_topic_sender("news")
    await done(sender.send_messages(ServiceBusMessage("x")))
    assert driven.service.bodies(f"{PRIMARY}/news") == [b"x"]


async def test_a_client_that_is_closed_closes_its_links_and_sends_no_more(driven: Driven) -> None:
    client = driven.client()
    sender = client.get_queue_sender("orders")
    await done(sender.send_messages(ServiceBusMessage("x")))
    driven.down()
    await done(sender.send_messages(ServiceBusMessage("y")))
    await done(client.close())
    assert driven.service.closed.count(BACKLOG) == 1
    assert sorted(driven.service.closed_clients) == [PRIMARY, SECONDARY]
    with pytest.raises(ValueError, match="closed"):
        await done(sender.send_messages(ServiceBusMessage("z")))


async def test_the_links_of_an_entity_go_with_its_last_sender(driven: Driven) -> None:
    client = driven.client()
    one, two = client.get_queue_sender("orders"), client.get_queue_sender("ORDERS")
    await done(one.send_messages(ServiceBusMessage("x")))
    await done(one.close())
    await done(two.send_messages(ServiceBusMessage("y")))
    assert len(driven.service.opened) == 1
    await done(two.close())
    with pytest.raises(ValueError, match="closed"):
        await done(two.send_messages(ServiceBusMessage("z")))
    third = client.get_queue_sender("orders")
    await done(third.send_messages(ServiceBusMessage("z")))
    assert len(driven.service.opened) == 2


async def test_a_sender_that_is_entered_opens_its_link(driven: Driven) -> None:
    client = driven.client()
    sender = client.get_queue_sender("orders")
    await done(sender.__enter__() if hasattr(sender, "__enter__") else sender.__aenter__())
    assert driven.service.opened == [ORDERS]
    driven.down()
    await done(sender.send_messages(ServiceBusMessage("x")))
    other = client.get_queue_sender("orders")
    opened = driven.service.opened.count(ORDERS)
    await done(other.__enter__() if hasattr(other, "__enter__") else other.__aenter__())
    assert driven.service.opened.count(ORDERS) == opened  # it is parked anyway


async def test_a_ping_ends_the_outage_when_it_is_accepted_and_not_before(driven: Driven) -> None:
    client = driven.client()
    sender = client.get_queue_sender("orders")
    driven.down()
    await done(sender.send_messages(ServiceBusMessage("x")))
    runtime = client._runtime
    with runtime.exclusive():
        runtime.pair.handle_timer(runtime.pair.next_timer())
    await done(runtime._ping("orders"))
    assert client.state_of("orders") is EntityState.FAILED_OVER
    driven.service.errors.clear()
    with runtime.exclusive():
        runtime.pair.handle_timer(runtime.pair.next_timer())
    await done(runtime._ping("orders"))
    assert client.state_of("orders") is EntityState.HEALTHY
    (ping,) = driven.service.sent[ORDERS]
    assert raw(ping).properties.content_type == "application/vnd.ms-servicebus-ping"


async def ping_due(driven: Driven) -> Any:
    """A client in failover whose entity is about to be pinged, after a first ping that failed."""
    client = driven.client()
    told: list[PairingEvent] = []
    client.on_event(told.append)
    driven.down()
    await done(client.get_queue_sender("orders").send_messages(ServiceBusMessage("x")))
    await until(lambda: any(isinstance(event, PingFailed) for event in told))
    driven.service.errors.clear()
    with client._runtime.exclusive():
        assert client._runtime.pair.handle_timer(client._runtime.pair.next_timer()) == ["orders"]
    return client


def failing(*_: object) -> NoReturn:
    raise RuntimeError("the log cannot be written")


@pytest.mark.slow
@pytest.mark.spec("P-32", "G-13")
async def test_an_entity_is_pinged_again_after_a_ping_that_raised(
    driven: Driven, monkeypatch: pytest.MonkeyPatch
) -> None:
    client = await ping_due(driven)
    runtime = client._runtime
    with monkeypatch.context() as patched:
        patched.setattr(runtime, "_attempt", failing)
        with pytest.raises(RuntimeError, match="the log"):
            await done(runtime._ping("orders"))
    assert client.state_of("orders") is EntityState.FAILED_OVER
    with runtime.exclusive():
        assert runtime.pair.handle_timer(runtime.pair.next_timer()) == ["orders"]


@pytest.mark.slow
@pytest.mark.spec("P-32", "G-13")
async def test_an_accepted_ping_ends_the_outage_although_its_report_raises(
    driven: Driven, monkeypatch: pytest.MonkeyPatch
) -> None:
    client = await ping_due(driven)
    with monkeypatch.context() as patched:
        patched.setattr(client._runtime, "_hear", failing)
        with pytest.raises(RuntimeError, match="the log"):
            await done(client._runtime._ping("orders"))
    assert client.state_of("orders") is EntityState.HEALTHY


@pytest.mark.spec("P-50", "R-1")
async def test_the_probe_of_a_refused_side_has_time_to_open_a_link_to_a_namespace_a_second_away(
    driven: Driven, monkeypatch: pytest.MonkeyPatch
) -> None:
    client = driven.client()
    runtime = client._runtime

    def opened_within(role: Side, seconds: float) -> None:
        if seconds < FAR * OPENING_ROUND_TRIPS:
            raise OperationTimeoutError(message="The link was not opened in time.")

    async def opened_in_loop(role: Side, seconds: float) -> None:
        opened_within(role, seconds)

    is_blocking = driven.kind is PairedServiceBusClient
    monkeypatch.setattr(runtime, "reach", opened_within if is_blocking else opened_in_loop)
    runtime.side_refused(Side.SECONDARY, "the key is wrong")
    assert client.secondary.state is SideState.REFUSED
    await done(runtime._look(Side.SECONDARY))
    assert client.secondary.state is SideState.OPEN


async def test_a_round_trip_is_made_over_the_primary_or_else_the_secondary(driven: Driven) -> None:
    client = driven.client()
    await done(client.get_queue_sender("orders").send_messages(ServiceBusMessage("x")))
    runtime = client._runtime
    is_blocking = driven.kind is PairedServiceBusClient
    round_trip: Callable[[float], Any] = runtime.round_trip if is_blocking else runtime.round_trip_in_loop
    await done(round_trip(30.0))
    assert driven.service.opened == [ORDERS, ORDERS]
    driven.service.unopened[ORDERS] = ServiceBusConnectionError(message="gone")
    await done(round_trip(30.0))
    assert driven.service.opened[-2:] == [ORDERS, BACKLOG]
    driven.service.unopened[BACKLOG] = ServiceBusConnectionError(message="gone too")
    with pytest.raises(ServiceBusError, match="gone too"):
        await done(round_trip(30.0))
    with pytest.raises(ServiceBusError, match="gone"):
        await done(runtime.reach(Side.PRIMARY, 30.0))
