"""Processes for tests to kill: a sender of one message, a syphon and a broker.

A fork server that has imported everything starts them, so each takes milliseconds.
"""

from __future__ import annotations

import asyncio
import multiprocessing
import os
import resource
import signal
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from datetime import timedelta
from multiprocessing.connection import Connection
from pathlib import Path
from typing import Any

from azure.servicebus import ServiceBusMessage

from sbpair import PairedNamespaceOptions, PairedServiceBusClient, aio
from sbpair.broker import Broker
from sbpair.syphon import Syphon, SyphonOptions
from tests.children import suspend
from tests.waiting import PATIENCE

BACKLOGS = 2
PROCESSES = multiprocessing.get_context("forkserver")
PROCESSES.set_forkserver_preload([__name__])


def send_one(primary: str, secondary: str, said: Connection, *, is_asyncio: bool) -> None:
    """Send a message "m-1" to "orders" and report when the call has returned."""
    options = PairedNamespaceOptions(
        primary_namespace_name="contoso",
        failover_interval=timedelta(0),
        ping_primary_interval=timedelta(minutes=1),
        backlog_queue_count=BACKLOGS,
        assume_backlogs_exist=True,
    )
    kind: Any = aio.PairedServiceBusClient if is_asyncio else PairedServiceBusClient
    client = kind.from_connection_strings(primary, secondary, options=options)
    sending = client.get_queue_sender("orders").send_messages
    if is_asyncio:
        asyncio.run(_wait(sending))
    else:
        sending(ServiceBusMessage(b"x", message_id="m-1"))
    said.send("acknowledged")


async def _wait(sending: Any) -> None:
    await sending(ServiceBusMessage(b"x", message_id="m-1"))


def bring_home(primary: str, secondary: str) -> None:
    """Run a syphon until the backlogs are empty."""
    options = SyphonOptions(backlog_queue_count=BACKLOGS, primary_namespace_name="contoso")
    asyncio.run(Syphon.from_connection_strings(primary, secondary, options=options).drain())


def serve(says: Connection, until: Connection) -> None:
    """Run a broker with a queue "orders"; send its connection string and, on request, the message count."""
    with Broker({"contoso": 0}) as broker:
        contoso = broker.namespace("contoso")
        contoso.create_queue("orders")
        says.send(contoso.connection_string)
        while until.recv():
            says.send(contoso.counts("orders").active)


def run_dry(primary: str, secondary: str, spare: int) -> None:
    """Drain with an address space limited to ``spare`` bytes more than at the start."""
    pages = int(Path("/proc/self/statm").read_text().split()[0])
    limit = pages * resource.getpagesize() + spare
    resource.setrlimit(resource.RLIMIT_AS, (limit, limit))
    bring_home(primary, secondary)


class Victim:
    """A process that the rule of a tap may kill."""

    def __init__(self, process: Any) -> None:
        self._process = process
        self._is_known = threading.Event()  # a rule may run before start() knows the process id

    def start(self) -> None:
        self._process.start()
        self._is_known.set()

    def kill(self) -> None:
        self._signal(signal.SIGKILL)

    def suspend(self) -> None:
        assert self._is_known.wait(PATIENCE)
        suspend(self._process.pid)

    def wake(self) -> None:
        self._signal(signal.SIGCONT)

    def ended(self) -> int | None:
        """Wait for the process and return its exit code, negative for a signal."""
        self._process.join(PATIENCE)
        code: int | None = self._process.exitcode
        return code

    def clean(self) -> None:
        if self._process.is_alive():
            self._process.kill()
        self._process.join(PATIENCE)
        self._process.close()

    def _signal(self, number: int) -> None:
        assert self._is_known.wait(PATIENCE)
        os.kill(self._process.pid, number)


@contextmanager
def victim(program: Any, *arguments: object, **settings: object) -> Iterator[Victim]:
    process = PROCESSES.Process(target=program, args=arguments, kwargs=settings)
    made = Victim(process)
    try:
        yield made
    finally:
        made.clean()
