"""The SDK's receivers that a paired client lends notice a connection that has gone silent, and no other."""

from __future__ import annotations

import asyncio
import inspect
import time
from collections.abc import Iterator
from contextlib import suppress
from typing import Any

import pytest
from azure.servicebus import ServiceBusClient, ServiceBusMessage
from azure.servicebus.exceptions import ServiceBusError

from sbpair import PairedNamespaceOptions, PairedServiceBusClient, aio
from sbpair.pair.pairing.shared import hearing
from sbpair.testing import ChaosProxy
from tests.waiting import PATIENCE

pytestmark = [pytest.mark.slow, pytest.mark.spec("R-152")]

SILENCE = 1.0  # seconds
OPTIONS = PairedNamespaceOptions(
    primary_namespace_name="contoso", backlog_queue_count=1, assume_backlogs_exist=True
)


@pytest.fixture(autouse=True)
def soon(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(hearing, "SILENCE", SILENCE)


@pytest.fixture
def proxy(pairing) -> Iterator[ChaosProxy]:
    with ChaosProxy("127.0.0.1", pairing.primary.port) as proxy:
        yield proxy


async def done(found: Any) -> Any:
    return await found if inspect.isawaitable(found) else found


def client_through(proxy: ChaosProxy, pairing: Any, kind: Any) -> Any:
    strings = proxy.connection_string(pairing.primary.connection_string), pairing.secondary.connection_string
    return kind.from_connection_strings(
        *strings, options=OPTIONS, connection_verify=str(pairing.broker.ca_file), retry_total=0
    )


def send(pairing: Any, body: str) -> None:
    with (
        ServiceBusClient.from_connection_string(
            pairing.primary.connection_string, connection_verify=str(pairing.broker.ca_file)
        ) as client,
        client.get_queue_sender("orders") as sender,
    ):
        sender.send_messages(ServiceBusMessage(body))


KINDS = pytest.mark.parametrize("kind", [PairedServiceBusClient, aio.PairedServiceBusClient])


@KINDS
async def test_a_receiver_on_a_silent_connection_recovers_within_the_announced_time(
    pairing, proxy: ChaosProxy, kind: Any
) -> None:
    client = client_through(proxy, pairing, kind)
    receiver = client.get_queue_receiver("orders")
    assert await done(receiver.receive_messages(1, max_wait_time=SILENCE)) == []
    silent = proxy.on("transfer", direction="out", address="orders", nth=1, action="hold")
    began = time.monotonic()
    await asyncio.to_thread(send, pairing, "x")  # it stays locked, for the receiver that does not get it
    await asyncio.to_thread(send, pairing, "y")
    got: list[Any] = []
    while not got and time.monotonic() < began + PATIENCE:
        with suppress(ServiceBusError):  # that the connection is lost; the receiver opens another
            got = await done(receiver.receive_messages(1, max_wait_time=SILENCE))
    assert silent.hits == 1
    assert SILENCE / 2 < time.monotonic() - began < 5 * SILENCE
    (message,) = got
    await done(receiver.complete_message(message))
    await done(receiver.close())
    await done(client.close())


@KINDS
async def test_a_slow_handler_or_an_idle_entity_costs_no_connection(
    pairing, proxy: ChaosProxy, kind: Any
) -> None:
    client = client_through(proxy, pairing, kind)
    receiver = client.get_queue_receiver("orders")
    await asyncio.to_thread(send, pairing, "x")
    (message,) = await done(receiver.receive_messages(1, max_wait_time=PATIENCE))
    connections = proxy.connection_count
    # what nobody listens to for so long: a driven clock would need the SDK's own waits
    await asyncio.get_running_loop().run_in_executor(None, time.sleep, 2 * SILENCE)
    await done(receiver.complete_message(message))
    assert await done(receiver.receive_messages(1, max_wait_time=2 * SILENCE)) == []
    assert proxy.connection_count == connections
    assert pairing.primary.counts("orders").total == 0
    await done(receiver.close())
    await done(client.close())
