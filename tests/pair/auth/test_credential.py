"""Every kind of credential works, its token is renewed in time, and its failures are classified."""

from __future__ import annotations

import asyncio
import gc
import threading
import time
from collections.abc import Callable
from datetime import timedelta
from typing import NamedTuple

import pytest
from azure.core.credentials import AzureNamedKeyCredential, AzureSasCredential
from azure.core.exceptions import ClientAuthenticationError, HttpResponseError, ServiceRequestError

from sbpair.broker import Broker, NamespaceControl
from sbpair.pair.amqp.performatives import Accepted
from sbpair.pair.auth.connection_string import at_host
from sbpair.pair.auth.credential import (
    Bearer,
    CredentialRefusedError,
    TokenUnavailableError,
    classify_credential_error,
    sign,
    token_source,
)
from sbpair.pair.client.claims import renewal_due
from sbpair.pair.client.connection import NamespaceConnection, connect
from sbpair.pair.syphon.events import SyphonDisconnected
from sbpair.syphon import NamespaceUnusableError, Syphon, SyphonOptions, SyphonState
from tests.lacking import THREAD, no_thread
from tests.pair.syphon.pair import BACKLOGS, Pair, parked
from tests.waiting import PATIENCE, until


class Given(NamedTuple):
    """What a TokenCredential gives: here a signature, which the broker can verify."""

    token: str
    expires_on: int


class Blocking:
    """A credential as azure-identity's: blocking; ``fails`` is raised as long as it is set."""

    def __init__(self, namespace: NamespaceControl, span: int = 3600) -> None:
        self._name, self._key = key_of(namespace)
        self._host, self.span = host_of(namespace), span
        self.fails: Exception | None = None
        self.scopes: list[str] = []
        self.threads: set[int] = set()

    def get_token(self, *scopes: str) -> Given:
        self.scopes += scopes
        self.threads.add(threading.get_ident())
        if self.fails is not None:
            raise self.fails
        expires = int(time.time()) + self.span
        return Given(sign(f"sb://{self._host}/", self._name, self._key, expires), expires)


class OfAsyncio(Blocking):
    """The same as azure.identity.aio has it."""

    async def get_token(self, *scopes: str) -> Given:  # type: ignore[override]
        await asyncio.sleep(0)
        return super().get_token(*scopes)


def key_of(namespace: NamespaceControl) -> tuple[str, str]:
    parts = dict(part.partition("=")[::2] for part in namespace.connection_string.split(";"))
    return parts["SharedAccessKeyName"], parts["SharedAccessKey"]


def host_of(namespace: NamespaceControl) -> str:
    return f"localhost:{namespace.port}"


def named_key(namespace: NamespaceControl) -> AzureNamedKeyCredential:
    return AzureNamedKeyCredential(*key_of(namespace))


def signature(namespace: NamespaceControl, span: int = 3600) -> str:
    return sign(f"sb://{host_of(namespace)}/", *key_of(namespace), int(time.time()) + span)


def sas(namespace: NamespaceControl) -> AzureSasCredential:
    return AzureSasCredential(signature(namespace))


def syphon_with(pair: Pair, primary: object, secondary: object) -> Syphon:
    syphon = Syphon(
        host_of(pair.primary),
        host_of(pair.secondary),
        primary,
        secondary_credential=secondary,
        use_tls=False,
        options=SyphonOptions(
            backlog_queue_count=BACKLOGS,
            primary_namespace_name="contoso",
            retry_backoff_max=timedelta(milliseconds=200),
        ),
    )
    syphon.on_event(pair.events.append)
    return syphon


@pytest.fixture
def renewed_soon(monkeypatch: pytest.MonkeyPatch) -> None:
    """Every token is renewed in a moment, however long it lives."""
    monkeypatch.setattr("sbpair.pair.client.claims.renewal_due", lambda expires, now: now + 0.01)
    monkeypatch.setattr("sbpair.pair.client.claims.MIN_RETRY_SECONDS", 0.01)
    monkeypatch.setattr("sbpair.pair.auth.credential.SAME_TIME", 0.0)
    monkeypatch.setattr("sbpair.pair.auth.token_memory.RENEWAL_SHARE", 0.0)
    monkeypatch.setattr("sbpair.pair.auth.token_memory.MIN_LIFE_SECONDS", 0.0)


def expiry(connection: NamespaceConnection) -> float:
    """Return when the only token of a connection expires."""
    [put] = connection._tokens._puts.values()
    return put.token.expires


@pytest.mark.spec("P-42")
@pytest.mark.parametrize("kind", [named_key, sas, Blocking, OfAsyncio])
async def test_every_kind_of_credential_brings_the_messages_home(
    pair: Pair, kind: Callable[[NamespaceControl], object]
) -> None:
    await pair.park([parked(number) for number in range(20)])

    async with asyncio.timeout(PATIENCE):
        counters = await syphon_with(pair, kind(pair.primary), kind(pair.secondary)).drain()

    assert (counters.completed, pair.primary.counts("orders").active) == (20, 20)


async def test_a_token_credential_is_asked_for_the_service_bus_and_not_on_the_loop(pair: Pair) -> None:
    credential = Blocking(pair.primary)
    token = await token_source(credential).token("sb://x/orders")

    assert token.kind == "jwt"
    assert credential.scopes == ["https://servicebus.azure.net//.default"]
    assert threading.get_ident() not in credential.threads
    assert token.text not in repr(token)


async def test_concurrent_callers_share_one_token_request(pair: Pair) -> None:
    credential = OfAsyncio(pair.primary)
    source = token_source(credential)

    await asyncio.gather(*(source.token(f"sb://x/{number}") for number in range(50)))

    assert len(credential.scopes) == 1


@pytest.mark.slow
@pytest.mark.spec("F-41")
@pytest.mark.parametrize("kind", [Blocking, OfAsyncio])
@pytest.mark.usefixtures("renewed_soon")
async def test_the_token_of_a_credential_is_renewed_and_its_link_survives(
    broker: Broker, pair: Pair, kind: type[Blocking]
) -> None:
    credential = kind(pair.primary, span=60)
    connection = await connect(at_host(host_of(pair.primary), token_source(credential), uses_tls=False))
    try:
        sender = await connection.open_sender("orders")
        credential.span = 3600
        await until(lambda: expiry(connection) > time.time() + 60)
        broker.advance_connections(timedelta(seconds=61))  # the first token has expired
        assert isinstance(await sender.send(parked(1)), Accepted)
        assert not sender.detached.done()
    finally:
        await connection.close()


@pytest.mark.spec("F-41")
@pytest.mark.usefixtures("renewed_soon")
async def test_a_failed_renewal_is_retried_while_the_token_is_valid(
    pair: Pair, caplog: pytest.LogCaptureFixture, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("sbpair.pair.client.claims.MAX_RETRY_SECONDS", 0.01)
    credential = Blocking(pair.primary)
    connection = await connect(at_host(host_of(pair.primary), token_source(credential), uses_tls=False))
    try:
        sender = await connection.open_sender("orders")
        credential.fails = ServiceRequestError("no route to the token service")
        await until(lambda: "not renewed" in caplog.text)
        credential.fails, credential.span = None, 7200
        await until(lambda: expiry(connection) > time.time() + 3600)
        assert isinstance(await sender.send(parked(1)), Accepted)
    finally:
        await connection.close()
    assert "no route" in caplog.text


@pytest.mark.spec("F-41")
async def test_a_key_that_was_rotated_and_updated_works_without_a_restart(pair: Pair) -> None:
    name, key = key_of(pair.secondary)
    credential = AzureNamedKeyCredential(name, "d3Jvbmcga2V5")
    syphon = syphon_with(pair, named_key(pair.primary), credential)
    await pair.park([parked(1)])
    shutdown = asyncio.Event()
    running = asyncio.create_task(syphon.run(shutdown))

    await until(lambda: bool(pair.said(SyphonDisconnected)))
    assert "unauthorized" in (syphon.status.reason or "")
    assert (pair.waiting(), pair.set_aside()) == (1, 0)
    credential.update(name, key)

    await until(lambda: syphon.counters.completed == 1)
    shutdown.set()
    async with asyncio.timeout(PATIENCE):
        await running


@pytest.mark.spec("F-41")
async def test_a_refused_credential_faults_a_drain_and_settles_nothing(pair: Pair) -> None:
    refused = Blocking(pair.secondary)
    refused.fails = ClientAuthenticationError("the client secret has expired")
    await pair.park([parked(1)])

    async with asyncio.timeout(PATIENCE):
        with pytest.raises(NamespaceUnusableError, match="client secret has expired"):
            await syphon_with(pair, named_key(pair.primary), refused).drain()

    assert (pair.waiting(), pair.set_aside()) == (1, 0)


@pytest.mark.spec("F-41")
async def test_an_unreachable_token_service_is_waited_for(pair: Pair) -> None:
    away = Blocking(pair.secondary)
    away.fails = ServiceRequestError("no route to the token service")
    await pair.park([parked(1)])
    draining = asyncio.create_task(syphon_with(pair, named_key(pair.primary), away).drain())

    await until(lambda: bool(pair.said(SyphonDisconnected)))
    assert "token service cannot be reached" in pair.said(SyphonDisconnected)[0].reason
    assert not draining.done()
    away.fails = None

    async with asyncio.timeout(PATIENCE):
        assert (await draining).completed == 1


@pytest.mark.spec("F-61", "F-41")
async def test_a_primary_without_a_token_holds_the_messages(pair: Pair) -> None:
    refused = Blocking(pair.primary)
    refused.fails = ClientAuthenticationError("no such application")
    await pair.park([parked(1)])
    shutdown = asyncio.Event()
    syphon = syphon_with(pair, refused, named_key(pair.secondary))
    running = asyncio.create_task(syphon.run(shutdown))

    await until(lambda: syphon.status.state is SyphonState.REFUSED)
    assert syphon.counters.received == 0
    refused.fails = None

    await until(lambda: syphon.counters.completed == 1)
    assert pair.set_aside() == 0
    shutdown.set()
    async with asyncio.timeout(PATIENCE):
        await running


def test_a_token_request_cancelled_with_its_loop_is_repeated() -> None:
    class Slow:
        """A credential that hangs on its first use."""

        asked = 0

        async def get_token(self, *scopes: str) -> Given:
            self.asked += 1
            if self.asked == 1:
                await asyncio.Event().wait()
            return Given("jwt", int(time.time()) + 60)

    slow = Slow()
    source = token_source(slow)

    async def give_up() -> None:
        asyncio.ensure_future(source.token("a"))  # noqa: RUF006 - its loop ends it
        while not slow.asked:
            await asyncio.sleep(0)

    asyncio.run(give_up())
    assert asyncio.run(source.token("a")).text == "jwt"  # and not the end of the first


@pytest.mark.spec("R-66")
async def test_a_token_failure_after_its_caller_was_cancelled_is_not_logged() -> None:
    unheard: list[dict[str, object]] = []
    asyncio.get_running_loop().set_exception_handler(lambda loop, context: unheard.append(context))
    asked, answer = asyncio.Event(), asyncio.Event()

    class Slow:
        async def get_token(self, *scopes: str) -> Given:
            asked.set()
            await answer.wait()
            raise ClientAuthenticationError("no")

    bearer = Bearer(Slow())
    asking = asyncio.ensure_future(bearer.token("sb://x/y"))
    await asked.wait()
    asking.cancel()
    await asyncio.wait([asking])
    failing = bearer._asking
    assert failing is not None
    answer.set()
    await asyncio.wait([failing])
    del asking, failing, bearer
    gc.collect()  # asyncio reports unretrieved exceptions here
    assert unheard == []


@pytest.mark.spec("R-9")
async def test_a_credential_that_raises_stop_iteration_fails_at_once() -> None:
    class Exhausted:
        def get_token(self, *scopes: str) -> Given:
            return next(iter(()))

    with pytest.raises(CredentialRefusedError, match="raised StopIteration"):
        await asyncio.wait_for(Bearer(Exhausted()).token("sb://x/y"), PATIENCE)


async def test_a_credential_that_never_answers_times_out(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("sbpair.pair.auth.credential.ASK_WITHIN", 0.05)
    never = threading.Event()

    class Stuck:
        def get_token(self, *scopes: str) -> Given:
            never.wait(PATIENCE)
            return Given("late", 0)

    try:
        with pytest.raises(TokenUnavailableError, match="no token within"):
            await Bearer(Stuck()).token("sb://x/y")
    finally:
        never.set()


@pytest.mark.spec("R-9", "F-41")
async def test_a_credential_without_a_free_thread_is_unavailable_and_not_refused(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    class Ready:
        def get_token(self, *scopes: str) -> Given:
            return Given("jwt", int(time.time()) + 60)

    with monkeypatch.context() as patched:
        patched.setattr(THREAD, no_thread)
        with pytest.raises(TokenUnavailableError, match="no thread to ask the credential: can't start"):
            await Bearer(Ready()).token("sb://x/y")
    assert (await Bearer(Ready()).token("sb://x/y")).text == "jwt"


def response(status: int) -> HttpResponseError:
    error = HttpResponseError("said the token service")
    error.status_code = status
    return error


def caused(error: Exception, by: Exception) -> Exception:
    error.__cause__ = by
    return error


@pytest.mark.parametrize(
    ("error", "kind"),
    [
        (ClientAuthenticationError("no"), CredentialRefusedError),
        (caused(ClientAuthenticationError("no"), ServiceRequestError("dns")), TokenUnavailableError),
        (caused(ClientAuthenticationError("no"), response(503)), TokenUnavailableError),
        (caused(ClientAuthenticationError("no"), response(401)), CredentialRefusedError),
        (response(429), TokenUnavailableError),
        (response(400), CredentialRefusedError),
        (ConnectionResetError("reset"), TokenUnavailableError),
        (FileNotFoundError("certificate.pem"), CredentialRefusedError),
        (ValueError("a tenant is needed"), CredentialRefusedError),
    ],
)
def test_a_token_failure_is_classified_as_refusal_or_outage(error: Exception, kind: type[Exception]) -> None:
    assert type(classify_credential_error(error)) is kind


@pytest.mark.parametrize("credential", [None, "key", 42])
def test_an_invalid_credential_is_refused_at_once(credential: object) -> None:
    with pytest.raises(TypeError, match="TokenCredential"):
        Syphon("a.example", "b.example", credential)


def test_a_connection_string_in_place_of_a_namespace_is_refused_without_its_key() -> None:
    text = "Endpoint=sb://a.example/;SharedAccessKeyName=Root;SharedAccessKey=S3cret"
    with pytest.raises(ValueError, match="named by its host") as raised:
        Syphon(text, "b.example", AzureSasCredential("x"))
    assert "S3cret" not in str(raised.value)


@pytest.mark.parametrize(("life", "after"), [(3600, 3240), (300, 225), (4, 3), (-5, 1)])
def test_a_token_is_renewed_six_minutes_before_expiry_and_a_short_one_at_three_quarters(
    life: float, after: float
) -> None:
    assert renewal_due(1000 + life, 1000) == 1000 + after


@pytest.mark.slow
@pytest.mark.usefixtures("renewed_soon")
async def test_an_updated_signature_is_put_and_an_unchanged_one_is_not_put_again(
    pair: Pair, monkeypatch: pytest.MonkeyPatch
) -> None:
    credential = AzureSasCredential(signature(pair.primary))
    connection = await connect(at_host(host_of(pair.primary), token_source(credential), uses_tls=False))
    shown: list[str] = []
    try:
        show = connection._tokens._show

        async def noting(audience: str, token: object) -> None:
            shown.append(audience)
            await show(audience, token)

        monkeypatch.setattr(connection._tokens, "_show", noting)
        sender = await connection.open_sender("orders")
        [first] = connection._tokens._puts.values()
        await until(lambda: list(connection._tokens._puts.values()) != [first])
        assert len(shown) == 1
        credential.update(signature(pair.primary, span=7200))
        await until(lambda: len(shown) == 2)
        assert isinstance(await sender.send(parked(1)), Accepted)
    finally:
        await connection.close()


@pytest.mark.spec("R-66")
@pytest.mark.parametrize("is_inside", [False, True])
@pytest.mark.parametrize(
    ("status", "kind"),
    [
        (399, TokenUnavailableError),
        (400, CredentialRefusedError),
        (401, CredentialRefusedError),
        (408, TokenUnavailableError),
        (409, CredentialRefusedError),
        (429, TokenUnavailableError),
        (499, CredentialRefusedError),
        (500, TokenUnavailableError),
    ],
)
def test_a_token_service_error_is_a_refusal_or_a_failure_by_its_status(
    status: int, kind: type[Exception], is_inside: bool
) -> None:
    answered = HttpResponseError(message="told by the test")
    answered.status_code = status
    error: Exception = answered
    if is_inside:
        error = RuntimeError("wrapped")
        error.__cause__ = answered
    found = classify_credential_error(error)
    assert type(found) is kind
    text = f"{type(error).__name__}: {error}"
    assert str(found) == (text if kind is CredentialRefusedError else f"the token service failed: {text}")
