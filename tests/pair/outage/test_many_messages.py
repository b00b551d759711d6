"""Threads, tasks and descriptors do not grow with thousands of messages, sent, parked and forwarded."""

from __future__ import annotations

import asyncio
import threading
from pathlib import Path

import pytest
from azure.servicebus import ServiceBusMessage

from tests.pair.outage.conftest import Either

BATCH = 100


def in_use() -> tuple[int, int, int]:
    """Count the threads outside the loop's executor, the tasks of this loop and the descriptors."""
    threads = [thread for thread in threading.enumerate() if not thread.name.startswith("asyncio_")]
    return len(threads), len(asyncio.all_tasks()), len(list(Path("/proc/self/fd").iterdir()))


@pytest.mark.slow
@pytest.mark.spec("F-71", "G-2")
@pytest.mark.parametrize("messages", [2_000, pytest.param(10_000, marks=pytest.mark.trial)])
async def test_threads_tasks_and_descriptors_do_not_grow_with_thousands_of_messages(
    either: Either, messages: int
) -> None:
    parked = messages // 5
    client = either.client(interval=0, ping=600)
    sender = client.get_queue_sender("orders")

    async def send(count: int) -> None:
        for _ in range(count // BATCH):
            await either.send(sender, ServiceBusMessage("alone"))
            await either.send(sender, [ServiceBusMessage("x") for _ in range(BATCH - 1)])

    await send(BATCH)
    client.hold("orders")
    await send(BATCH)  # every connection is open now
    before = in_use()
    await send(parked)
    client.mark_path_healthy("orders")
    await send(messages - parked)
    await asyncio.sleep(0)
    assert all(now <= then + 2 for now, then in zip(in_use(), before, strict=True)), (in_use(), before)
    counters = await either.syphon().drain()
    assert counters.forwarded == parked + BATCH
    assert either.primary.counts("orders").active == messages + 2 * BATCH
    assert all(now <= then + 2 for now, then in zip(in_use(), before, strict=True)), (in_use(), before)
