"""The asyncio runtime between event loop and threads, and the parts of the SDK it relies on."""

from __future__ import annotations

import asyncio
import inspect
import logging
import threading
import time
from contextlib import suppress
from types import SimpleNamespace
from typing import Any

import pytest
from azure.core.credentials import AccessToken, AzureNamedKeyCredential
from azure.servicebus.aio import ServiceBusClient, ServiceBusSender
from azure.servicebus.exceptions import OperationTimeoutError, ServiceBusError

from sbpair import PairedServiceBusClient, aio
from sbpair.pair.envelope import copies
from sbpair.pair.pairing.aio.runtime import AsyncRuntime
from sbpair.pair.pairing.aio.sender_pool import AsyncPooledSender, Tasks
from sbpair.pair.pairing.aio.threads import LoopCredential
from sbpair.pair.pairing.aio.wire import AsyncWire
from sbpair.pair.pairing.request.classify import Phase, classify
from sbpair.pair.pairing.shared.address import SdkNamespace, SdkSettings
from tests.served import served
from tests.waiting import PATIENCE

Peer = tuple[asyncio.StreamReader, asyncio.StreamWriter]


class Credential:
    """An asyncio credential, whose tokens come from the loop's thread."""

    def __init__(self) -> None:
        self.asked: list[tuple[tuple[str, ...], threading.Thread]] = []

    async def get_token(self, *scopes: str, **keywords: object) -> AccessToken:
        await asyncio.sleep(0)
        self.asked.append((scopes, threading.current_thread()))
        return AccessToken("token", 4_000_000_000)

    async def close(self) -> None: ...

    async def __aenter__(self) -> Credential:
        return self

    async def __aexit__(self, *given: object) -> None: ...


async def test_a_thread_gets_its_token_from_the_loop() -> None:
    credential = Credential()
    bridge = LoopCredential(credential, asyncio.get_running_loop())
    token = await asyncio.to_thread(bridge.get_token, "https://servicebus.azure.net/.default")
    assert token.token == "token"
    assert credential.asked == [(("https://servicebus.azure.net/.default",), threading.current_thread())]


async def test_the_administration_client_is_given_a_credential_that_a_thread_can_ask() -> None:
    bridged: list[object] = []

    def bridge(credential: object) -> LoopCredential:
        bridged.append(credential)
        return LoopCredential(credential, asyncio.get_running_loop())  # type: ignore[arg-type]

    credential = Credential()
    side = SdkNamespace(
        "secondary", "contoso-dr.servicebus.windows.net", SdkSettings(), credential=credential
    )
    with side.administration(bridge):
        assert bridged == [side._cached]


class BlockingCredential:
    def get_token(self, *scopes: str, **keywords: object) -> AccessToken:
        raise AssertionError("not asked here")


def test_a_credential_of_the_wrong_kind_is_reported_at_once() -> None:
    names = ("contoso.servicebus.windows.net", "contoso-dr.servicebus.windows.net")
    with pytest.raises(TypeError, match=r"primary credential is blocking.*azure\.identity\.aio"):
        aio.PairedServiceBusClient(*names, BlockingCredential())  # type: ignore[arg-type]
    with pytest.raises(TypeError, match="primary credential is for asyncio"):
        PairedServiceBusClient(*names, Credential())  # type: ignore[arg-type]
    with pytest.raises(TypeError, match="secondary credential"):
        aio.PairedServiceBusClient(*names, Credential(), secondary_credential=BlockingCredential())  # type: ignore[arg-type]
    for given in ("SECRET", None, object()):
        with pytest.raises(TypeError, match=r"primary credential must be a TokenCredential.*, not ") as told:
            PairedServiceBusClient(*names, given)  # type: ignore[arg-type]
        assert "SECRET" not in str(told.value)
    aio.PairedServiceBusClient(*names, Credential())
    aio.PairedServiceBusClient(*names, AzureNamedKeyCredential("name", "key"))


@pytest.fixture
async def silent() -> tuple[ServiceBusSender, asyncio.Queue[Peer]]:
    """A sender whose peer accepts connections and never answers."""
    accepted: asyncio.Queue[Peer] = asyncio.Queue()

    async def accept(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        await accepted.put((reader, writer))
        await asyncio.Event().wait()

    async with served(accept) as port:
        client = ServiceBusClient.from_connection_string(
            f"Endpoint=sb://127.0.0.1:{port};SharedAccessKeyName=R;SharedAccessKey=K;UseDevelopmentEmulator=true",
            retry_total=0,
        )
        yield client.get_queue_sender("orders"), accepted


async def ended_by_close(sender: ServiceBusSender, outcome: Exception | None) -> str:
    """Return the result of a call that ends like this while the client is being closed."""
    pooled, is_over = AsyncPooledSender(sender), asyncio.Event()

    async def call() -> str:
        await is_over.wait()
        if outcome is not None:
            raise outcome
        return "accepted"

    running = asyncio.create_task(pooled.run(call(), time.monotonic() + 60))
    while not any(
        inspect.getcoroutinestate(each.get_coro()) != inspect.CORO_CREATED for each in pooled._calls
    ):
        await asyncio.sleep(0)
    is_over.set()
    pooled.abort()
    return await running


async def test_a_call_that_was_answered_as_the_client_closed_has_its_answer(silent) -> None:
    assert await ended_by_close(silent[0], None) == "accepted"


async def test_a_send_that_the_closing_of_the_client_ended_may_have_arrived(silent) -> None:
    with pytest.raises(ServiceBusError, match="closed during a call") as ended:
        await ended_by_close(silent[0], ConnectionResetError())
    assert classify(ended.value, Phase.SENDING).is_ambiguous
    assert not classify(ended.value, Phase.OPENING).is_ambiguous


@pytest.mark.spec("S-20")
@pytest.mark.parametrize("name", ["_create_handler", "_handler", "_running"])
async def test_a_sender_of_asyncio_has_its_private_names(silent, name: str) -> None:
    assert hasattr(silent[0], name)


async def test_the_connection_of_an_opening_sender_is_found_and_closed(silent) -> None:
    sender, accepted = silent
    copies._missed.clear()
    wire = AsyncWire(sender)
    opening = asyncio.create_task(sender.__aenter__())
    reader, writer = await asyncio.wait_for(accepted.get(), PATIENCE)
    wire.abort()
    opening.cancel()
    await asyncio.wait((opening,), timeout=PATIENCE)
    assert opening.done()
    await wire.release()
    with suppress(ConnectionError):  # the end of the connection, in either form
        await asyncio.wait_for(reader.read(), PATIENCE)
    writer.close()


@pytest.mark.spec("S-20")
async def test_a_later_sdk_without_the_private_names_costs_one_log_line(caplog) -> None:
    class Emptied:
        pass

    copies._missed.clear()
    with caplog.at_level(logging.WARNING, logger="sbpair"):
        for _ in range(2):
            wire = AsyncWire(Emptied())  # type: ignore[arg-type]
            wire.abort()
            await wire.release()
            assert not wire.is_open()
    assert len(caplog.records) == 3
    assert "_create_handler" in caplog.records[0].getMessage()


async def test_a_call_that_is_late_raises_and_is_cancelled() -> None:
    pooled = AsyncPooledSender(ServiceBusClient("x.example", Credential()).get_queue_sender("q"))
    ended = asyncio.Event()

    async def stubborn() -> None:
        try:
            await asyncio.sleep(30)
        finally:
            ended.set()

    with pytest.raises(OperationTimeoutError):
        await pooled.run(stubborn(), 0.0)
    await pooled.discard()
    assert ended.is_set()


async def test_a_failed_background_task_is_logged_and_joined(caplog) -> None:
    async def failing() -> None:
        raise RuntimeError("beside")

    tasks = Tasks()
    with caplog.at_level(logging.WARNING, logger="sbpair"):
        tasks.start("sbpair-test", failing())
        await tasks.join(PATIENCE)
        await asyncio.sleep(0)
    assert "sbpair-test failed: RuntimeError: beside" in caplog.text


@pytest.mark.spec("R-93")
async def test_a_creation_that_close_cancels_raises_the_error_of_a_closed_client() -> None:
    runtime: Any = object.__new__(AsyncRuntime)
    never = asyncio.get_running_loop().create_future()

    async def create() -> None:
        await never

    runtime._must_exist = lambda backlog: None
    runtime.sides = SimpleNamespace(closed_error=lambda: ValueError("the paired client is closed"))
    creating = asyncio.create_task(create())
    runtime._creation = lambda backlog: creating
    sending = asyncio.create_task(runtime._ensure_backlog(0, time.monotonic() + 60))
    await asyncio.sleep(0)
    creating.cancel()
    with pytest.raises(ValueError, match="is closed"):
        await sending
