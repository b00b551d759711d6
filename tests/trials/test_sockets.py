"""After many outages under load no socket of an SDK sender is left open, and none is dropped without being closed.

The broker is a process of its own and two others keep the processors busy, so that openings are given up in the middle
and links are replaced late.
"""

from __future__ import annotations

import asyncio
import gc
import inspect
import multiprocessing
import os
import sys
import warnings
from collections.abc import Iterator
from contextlib import contextmanager
from datetime import timedelta
from typing import Any

import pytest
from azure.servicebus import ServiceBusMessage
from azure.servicebus.exceptions import ServiceBusError

from sbpair import PairedNamespaceOptions, PairedServiceBusClient, aio
from sbpair.broker import Broker
from tests.pair.outage.conftest import open_sockets
from tests.waiting import PATIENCE

pytestmark = pytest.mark.spec("R-177")

OUTAGES = int(os.environ.get("SBPAIR_TRIAL_OUTAGES", "40"))  # 200 by hand
WAYS = ("refuse", "reset", "silent", "half-open")
OPTIONS = PairedNamespaceOptions(
    primary_namespace_name="contoso",
    backlog_queue_count=2,
    failover_interval=timedelta(0),
    ping_primary_interval=timedelta(seconds=1),
    operation_timeout=timedelta(seconds=2),
    attempt_timeout=timedelta(seconds=1),
)


def _busy() -> None:
    while True:
        pass


@contextmanager
def load() -> Iterator[None]:
    """Two processes that only compute."""
    processes = [multiprocessing.get_context("spawn").Process(target=_busy, daemon=True) for _ in range(2)]
    for process in processes:
        process.start()
    try:
        yield
    finally:
        for process in processes:
            process.kill()
            process.join()


@contextmanager
def dropped(monkeypatch: pytest.MonkeyPatch) -> Iterator[list[str]]:
    """The sockets that are collected while they are open."""
    found: list[str] = []
    monkeypatch.setattr(sys, "unraisablehook", lambda what: found.append(str(what.exc_value)))
    with warnings.catch_warnings():
        warnings.simplefilter("error", ResourceWarning)
        yield found
        gc.collect()


async def _done(what: Any) -> Any:
    return await what if inspect.isawaitable(what) else what


async def up(sender: Any) -> None:
    """Send until a namespace takes it: the one before may just be coming back."""
    async with asyncio.timeout(PATIENCE):
        while True:
            try:
                return await _done(sender.send_messages(ServiceBusMessage("up"), timeout=1))
            except ServiceBusError:
                await asyncio.sleep(0.05)


@pytest.mark.parametrize(
    "kind", [PairedServiceBusClient, aio.PairedServiceBusClient], ids=["blocking", "asyncio"]
)
async def test_no_socket_is_left_after_many_outages_under_load(
    broker: Broker, kind: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    primary, secondary = broker.namespace("contoso"), broker.namespace("contoso-dr")
    strings = primary.connection_string, secondary.connection_string
    raised = 0
    with load(), dropped(monkeypatch) as found:
        gc.collect()
        before = open_sockets()
        client = kind.from_connection_strings(
            *strings, options=OPTIONS, connection_verify=str(broker.ca_file)
        )
        sender = client.get_queue_sender("orders")
        for outage in range(OUTAGES):
            way = WAYS[outage % len(WAYS)]
            await up(sender)
            primary.take_down(way)
            if outage % 3 == 0:
                secondary.take_down(way)
            try:
                await _done(sender.send_messages(ServiceBusMessage("down"), timeout=0.5))
            except ServiceBusError:
                raised += 1
            primary.bring_up()
            secondary.bring_up()
        await _done(sender.close())
        await _done(client.close())
        del sender, client
        gc.collect()
        async with asyncio.timeout(PATIENCE):
            while open_sockets() > before:  # the broker's ends close when it has noticed
                await asyncio.sleep(0.05)
    assert raised
    assert found == []
