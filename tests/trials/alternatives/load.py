"""Who sends: four threads with five sends a second each, or twenty tasks with one; and the ledger of it."""

from __future__ import annotations

import asyncio
import logging
import os
import threading
import time
from collections.abc import Iterator
from dataclasses import dataclass
from multiprocessing.connection import Connection
from typing import Any

from azure.servicebus import ServiceBusMessage

from sbpair.aio import PairedServiceBusClient

from .ends import Ends
from .scenarios import Scenario, module_of

RATE = 20  # sends a second, of all workers
THREADS, TASKS = 4, 20
LARGE = 300_000  # bytes: more than the Standard tier takes
PATIENCE = 70.0  # seconds for the last sends to end


@dataclass(slots=True)
class Send:
    """One send: when it began, how long it took, None while it lasts, and the error that it raised."""

    began: float
    took: float | None = None
    error: str | None = None


Ledger = dict[str, Send]


def run_load(
    pipe: Connection, contestant: str, scenario: Scenario, ends: Ends, folder: str, is_asyncio: bool
) -> None:  # the target of a process
    """Make the sender, say so, wait for the word, send, and tell the ledger."""
    logging.disable(logging.CRITICAL)
    ledger: Ledger = {}
    kind: Any = module_of(contestant).Sender
    if is_asyncio:
        asyncio.run(_in_tasks(pipe, kind, scenario, ends, folder, ledger))
    else:
        _in_threads(pipe, kind(ends, folder), scenario, ledger)
    pipe.send(ledger)
    pipe.recv()  # an outbox goes on until everything is home
    os._exit(0)  # whatever hangs


def _in_threads(pipe: Connection, sender: Any, scenario: Scenario, ledger: Ledger) -> None:
    began = _told_to_begin(pipe)

    def work(worker: int) -> None:
        for at, name, message in _messages(scenario, worker, THREADS, began):
            time.sleep(max(at - time.time(), 0.0))
            entry = ledger[name] = Send(time.time())
            try:
                sender.send(message)
            except Exception as error:
                entry.error = type(error).__name__
            entry.took = time.time() - entry.began

    threads = [threading.Thread(target=work, args=(worker,), daemon=True) for worker in range(THREADS)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join(max(began + scenario.seconds + PATIENCE - time.time(), 0.0))


async def _in_tasks(
    pipe: Connection,
    kind: Any,
    scenario: Scenario,
    ends: Ends,
    folder: str,
    ledger: Ledger,
) -> None:
    options = kind.options(None, folder)
    client = PairedServiceBusClient.from_connection_strings(ends.primary, ends.secondary, options=options)
    async with client, client.get_queue_sender(ends.queue) as sender:
        began = _told_to_begin(pipe)

        async def work(worker: int) -> None:
            for at, name, message in _messages(scenario, worker, TASKS, began):
                await asyncio.sleep(max(at - time.time(), 0.0))
                entry = ledger[name] = Send(time.time())
                try:
                    await sender.send_messages(message)
                except Exception as error:
                    entry.error = type(error).__name__
                entry.took = time.time() - entry.began

        workers = [asyncio.ensure_future(work(worker)) for worker in range(TASKS)]
        await asyncio.wait(workers, timeout=scenario.seconds + PATIENCE)
        pipe.send(ledger)
        await asyncio.to_thread(pipe.recv)
        os._exit(0)


def _told_to_begin(pipe: Connection) -> float:
    pipe.send("ready")
    return float(pipe.recv())


def _messages(
    scenario: Scenario, worker: int, workers: int, began: float
) -> Iterator[tuple[float, str, ServiceBusMessage]]:
    """When a worker sends, the id, and the message; one that is late causes no burst after it."""
    every = workers / RATE
    at, number = began + worker / RATE, 0
    while at < began + scenario.seconds:
        name, number = f"{worker}-{number}", number + 1
        is_large = scenario.too_large and number % scenario.too_large == 0
        body = b"x" * LARGE if is_large else name.encode() * 20
        yield at, name, ServiceBusMessage(body, message_id=name, application_properties={"n": number})
        at = max(at + every, time.time())
