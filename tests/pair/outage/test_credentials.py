"""A separate credential of every kind for each side, with both clients and the hosted syphon."""

from __future__ import annotations

import asyncio
import ssl
import threading
import time
from collections.abc import Callable
from datetime import timedelta
from typing import Any

import pytest
from azure.core.credentials import AccessToken, AzureNamedKeyCredential, AzureSasCredential
from azure.core.exceptions import ClientAuthenticationError, ServiceRequestError
from azure.servicebus import ServiceBusMessage
from azure.servicebus._pyamqp.constants import CbsAuthState
from azure.servicebus.exceptions import OperationTimeoutError, ServiceBusError

from sbpair import PairedServiceBusClient, PairedServiceBusSender, SendReceipt, StoredIn, aio
from sbpair.broker import NamespaceControl
from sbpair.broker.auth import make_token
from sbpair.broker.testing.pair import BearerCredential
from sbpair.syphon import NamespaceUnusableError, Syphon, SyphonOptions
from tests.pair.outage.conftest import AsyncPairing, Pairing, options_of
from tests.pair.outage.test_close_and_fault import policy_of
from tests.pair.runtimes import runtime_of
from tests.waiting import PATIENCE, until, wait_until


def named_key(namespace: NamespaceControl) -> AzureNamedKeyCredential:
    return AzureNamedKeyCredential(*policy_of(namespace))


def signature(namespace: NamespaceControl) -> AzureSasCredential:
    audience = f"sb://localhost:{namespace.port}/"
    return AzureSasCredential(make_token(audience, *policy_of(namespace), int(time.time()) + 600))


def bearer(namespace: NamespaceControl) -> BearerCredential:
    return BearerCredential(*policy_of(namespace))


class AsyncBearer:
    """The asynchronous counterpart, shaped like the credentials of azure.identity.aio."""

    def __init__(self, policy: str, key: str) -> None:
        self._blocking = BearerCredential(policy, key)

    async def get_token(self, *scopes: str, **other: Any) -> AccessToken:
        return self._blocking.get_token(*scopes, **other)

    async def close(self) -> None:
        """Do nothing; the protocol requires it."""


def async_bearer(namespace: NamespaceControl) -> AsyncBearer:
    return AsyncBearer(*policy_of(namespace))


KINDS = pytest.mark.parametrize("kind", [named_key, signature, bearer])
ASYNC_KINDS = pytest.mark.parametrize("kind", [named_key, signature, async_bearer])
Kind = Callable[[NamespaceControl], Any]


def arguments(pairing: Pairing | AsyncPairing, kind: Kind) -> dict[str, Any]:
    primary, secondary = f"localhost:{pairing.primary.port}", f"localhost:{pairing.secondary.port}"
    return {
        "primary_namespace": primary,
        "secondary_namespace": secondary,
        "credential": kind(pairing.primary),
        "secondary_credential": kind(pairing.secondary),
        "custom_endpoint_address": f"sb://{primary}",
        "secondary_custom_endpoint_address": f"sb://{secondary}",
        "connection_verify": str(pairing.broker.ca_file),
        "options": options_of(ping=60, enable_syphon=True, assume_backlogs_exist=True),
    }


def make_backlogs(pairing: Pairing | AsyncPairing) -> None:
    for index in range(2):
        pairing.secondary.create_queue(f"contoso/x-servicebus-transfer/{index}")


@KINDS
@pytest.mark.spec("P-1", "P-40")
def test_each_side_is_opened_with_its_own_credential(pairing: Pairing, kind: Kind) -> None:
    make_backlogs(pairing)
    client = pairing.watched(PairedServiceBusClient(**arguments(pairing, kind)))
    with client.get_queue_sender("orders") as sender:
        assert sender.send_messages(ServiceBusMessage("straight")).stored_in is StoredIn.PRIMARY
        client.hold("orders")
        assert sender.send_messages(ServiceBusMessage("parked")).stored_in is StoredIn.BACKLOG
        wait_until(lambda: pairing.primary.counts("orders").active == 2)


@pytest.mark.spec("P-1", "P-40")
def test_a_hosted_syphon_reaches_each_side_as_the_client_does(pairing: Pairing) -> None:
    """The primary over TLS with a context of the application, the secondary without TLS."""
    make_backlogs(pairing)
    given = arguments(pairing, named_key)
    context = ssl.create_default_context(cafile=given.pop("connection_verify"))
    client = pairing.watched(
        PairedServiceBusClient(
            **given, ssl_context=context, secondary_ssl_context=None, secondary_use_tls=False
        )
    )
    with client.get_queue_sender("orders") as sender:
        client.hold("orders")
        assert sender.send_messages(ServiceBusMessage("parked")).stored_in is StoredIn.BACKLOG
        wait_until(lambda: pairing.primary.counts("orders").active == 1)


@ASYNC_KINDS
@pytest.mark.spec("P-1", "P-40")
async def test_with_asyncio_each_side_is_opened_with_its_own_credential(
    aio_pairing: AsyncPairing, kind: Kind
) -> None:
    make_backlogs(aio_pairing)
    client = aio.PairedServiceBusClient(**arguments(aio_pairing, kind))
    async with client, client.get_queue_sender("orders") as sender:
        assert (await sender.send_messages(ServiceBusMessage("straight"))).stored_in is StoredIn.PRIMARY
        client.hold("orders")
        assert (await sender.send_messages(ServiceBusMessage("parked"))).stored_in is StoredIn.BACKLOG
        await asyncio.to_thread(wait_until, lambda: aio_pairing.primary.counts("orders").active == 2)


@pytest.mark.parametrize("kind", [PairedServiceBusClient, aio.PairedServiceBusClient])
def test_a_misspelt_keyword_is_refused_by_its_name(kind: type) -> None:
    with pytest.raises(TypeError, match="transport_typ'"):
        kind("a.example", "b.example", AzureNamedKeyCredential("n", "k"), transport_typ=1)
    with pytest.raises(TypeError, match="retry_totl"):
        kind.from_connection_strings("x", "y", retry_totl=3)  # type: ignore[attr-defined]


@pytest.mark.spec("P-40", "P-10")
async def test_tokens_for_entra_id_create_the_backlogs_and_bring_the_messages_home(
    aio_pairing: AsyncPairing,
) -> None:
    """This covers the administration API with a bearer token and a separate syphon."""
    given = arguments(aio_pairing, async_bearer) | {"options": options_of(ping=60)}
    async with aio.PairedServiceBusClient(**given) as client, client.get_queue_sender("orders") as sender:
        client.hold("orders")
        assert (await sender.send_messages(ServiceBusMessage("parked"))).stored_in is StoredIn.BACKLOG
    hosts = [f"localhost:{each.port}" for each in (aio_pairing.primary, aio_pairing.secondary)]
    syphon = Syphon(
        *hosts,
        bearer(aio_pairing.primary),
        secondary_credential=async_bearer(aio_pairing.secondary),
        options=SyphonOptions(backlog_queue_count=2, primary_namespace_name="contoso"),
        use_tls=False,
    )
    async with asyncio.timeout(PATIENCE):
        assert (await syphon.drain()).forwarded == 1
    assert aio_pairing.primary.counts("orders").active == 1


async def test_a_token_signed_by_another_key_is_refused(aio_pairing: AsyncPairing) -> None:
    host = f"localhost:{aio_pairing.primary.port}"
    wrong = BearerCredential(policy_of(aio_pairing.primary)[0], "d3Jvbmcga2V5")
    other = f"localhost:{aio_pairing.secondary.port}"
    options = SyphonOptions(primary_namespace_name="contoso", backlog_queue_count=1)
    syphon = Syphon(host, other, wrong, options=options, use_tls=False)
    with pytest.raises(NamespaceUnusableError):
        async with asyncio.timeout(PATIENCE):
            await syphon.drain()


class GatedBearer(AsyncBearer):
    """Returns tokens only while ``gate`` is set. With ``is_stubborn`` it ignores that it is cancelled."""

    def __init__(self, namespace: NamespaceControl, *, is_stubborn: bool = False) -> None:
        super().__init__(*policy_of(namespace))
        self.gate = asyncio.Event()
        self.gate.set()
        self.asked = 0
        self._is_stubborn = is_stubborn

    async def get_token(self, *scopes: str, **other: Any) -> AccessToken:
        self.asked += 1
        while not self.gate.is_set():
            try:
                await self.gate.wait()
            except asyncio.CancelledError:
                if not self._is_stubborn:
                    raise
        return await super().get_token(*scopes, **other)


def forget_token(client: PairedServiceBusClient | aio.PairedServiceBusClient) -> None:
    """The remembered token of the primary has expired."""
    [memory] = client._primary._cached._memories.values()
    memory._held = None


async def sender_with_token_due(
    pairing: AsyncPairing, gated: GatedBearer, policy: str = "redirect"
) -> aio.PairedServiceBusSender:
    """A sender whose open link has an hour-old token that is due, while the credential returns none."""
    options = options_of(
        interval=60,
        ping=60,
        assume_backlogs_exist=True,
        suspect_policy=policy,
        attempt_timeout=timedelta(seconds=0.5),
    )
    given = arguments(pairing, async_bearer) | {"credential": gated, "options": options, "retry_total": 0}
    client = aio.PairedServiceBusClient(**given)
    pairing.clients.append(client)
    sender = client.get_queue_sender("orders")
    await sender.send_messages(ServiceBusMessage("opens the link"))
    (pooled,) = pairing.pool("orders")._senders
    authenticator: Any = pooled.sender._handler._cbs_authenticator  # type: ignore[attr-defined]
    authenticator.auth_state = CbsAuthState.REFRESH_REQUIRED
    authenticator._token_put_time -= 3600
    forget_token(client)
    gated.gate.clear()
    return sender


@pytest.mark.spec("R-5")
@pytest.mark.parametrize("is_cancelled", [False, True])
async def test_sends_on_one_link_share_its_next_token_even_if_the_first_is_cancelled(
    aio_pairing: AsyncPairing, is_cancelled: bool
) -> None:
    gated = GatedBearer(aio_pairing.primary)
    sender = await sender_with_token_due(aio_pairing, gated)
    asked = gated.asked
    first, *others = (asyncio.create_task(sender.send_messages(ServiceBusMessage(name))) for name in "abcd")
    await until(lambda: gated.asked > asked)
    if is_cancelled:
        first.cancel()
    for _ in range(20):
        await asyncio.sleep(0)
    assert not any(each.done() for each in others)
    gated.gate.set()
    receipts = await asyncio.gather(*others)
    assert {(each.stored_in, each.ambiguous) for each in receipts} == {(StoredIn.PRIMARY, False)}
    assert gated.asked == asked + 1
    await asyncio.wait((first,))
    assert first.cancelled() is is_cancelled


@pytest.mark.spec("G-18")
@pytest.mark.parametrize(("policy", "timeout"), [("redirect", 10.0), ("raise", 0.5)])
async def test_a_credential_that_ignores_its_cancellation_holds_no_send(
    aio_pairing: AsyncPairing, policy: str, timeout: float
) -> None:
    make_backlogs(aio_pairing)
    gated = GatedBearer(aio_pairing.primary, is_stubborn=True)
    sender = await sender_with_token_due(aio_pairing, gated, policy)
    sending = asyncio.create_task(sender.send_messages(ServiceBusMessage("late"), timeout=timeout))
    await asyncio.wait((sending,), timeout=PATIENCE)
    is_held = not sending.done()
    gated.gate.set()
    if policy == "redirect":
        assert (await sending).stored_in is StoredIn.BACKLOG
    else:
        with pytest.raises(OperationTimeoutError):
            await sending
    assert not is_held
    await until(lambda: "sbpair-token" not in {task.get_name() for task in asyncio.all_tasks()})


class Refusing:
    """A token service that refuses connections."""

    def __init__(self) -> None:
        self.asked = 0

    def get_token(self, *scopes: str, **other: Any) -> AccessToken:
        self.asked += 1
        raise ServiceRequestError("the token service refuses connections")


class AsyncRefusing(Refusing):
    async def get_token(self, *scopes: str, **other: Any) -> AccessToken:  # type: ignore[override]
        return super().get_token(*scopes, **other)


def refused_by(pairing: Pairing | AsyncPairing, refusing: Refusing) -> dict[str, Any]:
    options = options_of(interval=60, ping=60, assume_backlogs_exist=True, suspect_policy="raise")
    return arguments(pairing, bearer) | {"credential": refusing, "options": options, "retry_total": 0}


@pytest.mark.slow
@pytest.mark.spec("H-23", "H-30")
def test_a_token_service_that_refuses_is_not_asked_for_each_message(pairing: Pairing) -> None:
    refusing = Refusing()
    with (
        pairing.watched(PairedServiceBusClient(**refused_by(pairing, refusing))) as client,
        client.get_queue_sender("orders") as sender,
    ):
        for _ in range(30):
            with pytest.raises(ServiceBusError, match="refuses connections"):
                sender.send_messages(ServiceBusMessage("x"))
    assert 1 <= refusing.asked <= 5


@pytest.mark.slow
@pytest.mark.spec("H-23", "H-30")
async def test_with_asyncio_a_refusing_token_service_is_not_asked_per_message(
    aio_pairing: AsyncPairing,
) -> None:
    refusing = AsyncRefusing()
    given = refused_by(aio_pairing, refusing) | {"secondary_credential": async_bearer(aio_pairing.secondary)}
    async with aio.PairedServiceBusClient(**given) as client, client.get_queue_sender("orders") as sender:
        for _ in range(30):
            with pytest.raises(ServiceBusError, match="refuses connections"):
                await sender.send_messages(ServiceBusMessage("x"))
    assert 1 <= refusing.asked <= 5


class GatedBlockingBearer:
    """The blocking counterpart of :class:`GatedBearer`; nothing can cancel it."""

    def __init__(self, namespace: NamespaceControl) -> None:
        self._given = bearer(namespace)
        self.gate = threading.Event()
        self.gate.set()
        self.error: Exception | None = None

    def get_token(self, *scopes: str, **other: Any) -> AccessToken:
        assert self.gate.wait(PATIENCE)
        if self.error is not None:
            raise self.error
        return self._given.get_token(*scopes, **other)


@pytest.fixture
def gated(pairing: Pairing, monkeypatch: pytest.MonkeyPatch) -> GatedBlockingBearer:
    """A credential whose tokens are checked before each send."""
    monkeypatch.setattr("sbpair.pair.pairing.shared.wire.TOKEN_CHECK", 0.0)
    return GatedBlockingBearer(pairing.primary)


def blocking_sender_with_token_due(
    pairing: Pairing, gated: GatedBlockingBearer, policy: str = "redirect"
) -> PairedServiceBusSender:
    """A sender whose open link has a token that is due."""
    options = options_of(
        interval=60,
        ping=60,
        assume_backlogs_exist=True,
        suspect_policy=policy,
        attempt_timeout=timedelta(seconds=0.5),
    )
    given = arguments(pairing, bearer) | {"credential": gated, "options": options, "retry_total": 0}
    client = pairing.watched(PairedServiceBusClient(**given))
    sender = client.get_queue_sender("orders")
    sender.send_messages(ServiceBusMessage("opens the link"))
    forget_token(client)
    (pooled,) = runtime_of(sender).primary_pool("orders")._idle
    pooled.sender._handler._cbs_authenticator.auth_state = CbsAuthState.REFRESH_REQUIRED  # type: ignore[attr-defined]
    return sender


@pytest.mark.spec("G-18")
@pytest.mark.parametrize(
    ("policy", "timeout", "ended"), [("redirect", 10.0, SendReceipt), ("raise", 0.5, OperationTimeoutError)]
)
def test_a_credential_that_hangs_holds_no_blocking_send(
    pairing: Pairing, gated: GatedBlockingBearer, policy: str, timeout: float, ended: type
) -> None:
    make_backlogs(pairing)
    sender = blocking_sender_with_token_due(pairing, gated, policy)
    gated.gate.clear()
    ends: list[object] = []

    def send() -> None:
        try:
            ends.append(sender.send_messages(ServiceBusMessage("late"), timeout=timeout))
        except Exception as error:
            ends.append(error)

    sending = threading.Thread(target=send)
    sending.start()
    sending.join(PATIENCE / 2)
    is_held = sending.is_alive()
    gated.gate.set()
    sending.join(PATIENCE)
    assert not is_held
    assert [type(each) for each in ends] == [ended]


@pytest.mark.spec("F-41")
def test_a_blocking_send_on_an_open_link_gets_the_next_token_or_the_credential_error(
    pairing: Pairing, gated: GatedBlockingBearer
) -> None:
    sender = blocking_sender_with_token_due(pairing, gated)
    assert sender.send_messages(ServiceBusMessage("x")).stored_in is StoredIn.PRIMARY
    sender = blocking_sender_with_token_due(pairing, gated)
    gated.error = ClientAuthenticationError("expired secret")
    with pytest.raises(ServiceBusError, match="expired secret"):
        sender.send_messages(ServiceBusMessage("x"))
