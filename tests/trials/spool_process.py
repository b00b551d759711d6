"""A program that sends with a spool, as a process that can be killed, and the ledger of its output.

This file is the program too: `python -m tests.trials.spool_process` writes "? id" before and "+ id ms stored_in"
after each send, one write per line, so that a kill falls between lines. When its standard input ends it stops
sending, waits until its spool is empty, and exits.
"""

from __future__ import annotations

import os
import signal
import subprocess
import sys
import threading
import time
from collections import Counter
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from datetime import timedelta
from pathlib import Path
from typing import Literal

from azure.servicebus import ServiceBusMessage

from sbpair import PairedNamespaceOptions, PairedServiceBusClient
from sbpair.broker import Broker, NamespaceControl
from sbpair.broker.testing.ledger import Ledger
from sbpair.pair.pairing.spool.units import MAX_UNIT_MESSAGES
from sbpair.pair.pairing.spool.writer import MAX_UNTIDY
from tests.pair.outage.emptying import emptied

SENDERS = ("orders 1", "orders 2", "invoices 3", "invoices 4")  # entity and number of a sender
ENTITIES = ("orders", "invoices")
BACKLOGS = 2
PATIENCE = 60.0
REPEATED = MAX_UNIT_MESSAGES + MAX_UNTIDY
"""Messages of one entity that a kill may repeat: on their way, or accepted and not deleted."""


def options(
    spool: str | Path, policy: Literal["last_resort", "always"] = "last_resort"
) -> PairedNamespaceOptions:
    return PairedNamespaceOptions(
        primary_namespace_name="contoso",
        failover_interval=timedelta(0),
        ping_primary_interval=timedelta(seconds=1),
        operation_timeout=timedelta(seconds=10),
        backlog_queue_count=BACKLOGS,
        assume_backlogs_exist=True,
        spool=spool,
        spool_policy=policy,
    )


@contextmanager
def two_namespaces() -> Iterator[Broker]:
    with Broker({"contoso": 0, "contoso-dr": 0}) as broker:
        for name in ENTITIES:
            broker.namespace("contoso").create_queue(name)
        for index in range(BACKLOGS):
            broker.namespace("contoso-dr").create_queue(backlog(index))
        yield broker


def backlog(index: int) -> str:
    return f"contoso/x-servicebus-transfer/{index}"


def settled(holds: Callable[[], bool], patience: float = PATIENCE) -> None:
    until, pause = time.monotonic() + patience, threading.Event()
    while not holds():
        assert time.monotonic() < until, "it did not come to hold in time"
        pause.wait(0.02)


def stored(namespace: NamespaceControl) -> int:
    """Messages in all queues of a namespace."""
    return sum(namespace.counts(name).active for name in namespace.queue_names())


def received(namespace: NamespaceControl) -> dict[str, list[str]]:
    """The ids in each queue of a namespace, in its order; they are gone afterwards."""
    return {
        name: [str(message.message_id) for message in emptied(namespace, name)]
        for name in namespace.queue_names()
    }


def out_of_order(arrived: list[str]) -> list[str]:
    """First copies that came after a younger message of the same sender."""
    newest: dict[str, str] = {}
    late = []
    for key in dict.fromkeys(arrived):
        sender = key.partition(":")[0]
        if key < newest.get(sender, ""):
            late.append(key)
        newest[sender] = max(key, newest.get(sender, ""))
    return late


class SendingProcess:
    """The program as a process. ``rate`` in sends a second over all senders; 0: as fast as it can."""

    def __init__(
        self,
        broker: Broker,
        spool: Path,
        ledger: Ledger,
        *,
        start: int,
        count: int,
        rate: float = 0,
        policy: Literal["last_resort", "always"] = "last_resort",
    ) -> None:
        keys = {
            "PRIMARY": broker.namespace("contoso").connection_string,
            "SECONDARY": broker.namespace("contoso-dr").connection_string,
        }
        self.acknowledged = 0
        self.stored_in: Counter[str] = Counter()
        self.slowest = 0.0  # milliseconds
        self._ledger = ledger
        self._heard = threading.Condition()
        self._process = subprocess.Popen(
            [sys.executable, "-m", __name__, str(spool), str(start), str(count), str(rate), policy],
            env=os.environ | keys,
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            text=True,
        )
        self._reader = threading.Thread(target=self._read, daemon=True)
        self._reader.start()

    def wait_for(self, acknowledged: int) -> None:
        with self._heard:
            assert self._heard.wait_for(lambda: self.acknowledged >= acknowledged, PATIENCE)

    def kill(self) -> None:
        self._process.send_signal(signal.SIGKILL)
        self._ended()

    def finish(self) -> int:
        """Let it stop sending and empty its spool; its exit code."""
        self._process.stdin.close()
        return self._ended()

    def _ended(self) -> int:
        code = self._process.wait(PATIENCE)
        self._reader.join(PATIENCE)
        self._process.stdout.close()
        if not self._process.stdin.closed:
            self._process.stdin.close()
        return code

    def _read(self) -> None:
        for line in self._process.stdout:
            if not line.endswith("\n"):
                return
            kind, key, *more = line.split()
            if kind == "?":
                self._ledger.attempted(key)
                continue
            self._ledger.acknowledged(key)
            took, stored_in = more
            with self._heard:
                self.acknowledged += 1
                self.stored_in[stored_in] += 1
                self.slowest = max(self.slowest, float(took))
                self._heard.notify_all()


def send(spool: str, start: int, count: int, rate: float, policy: Literal["last_resort", "always"]) -> None:
    """One thread for each sender."""
    client = PairedServiceBusClient.from_connection_strings(
        os.environ["PRIMARY"], os.environ["SECONDARY"], options=options(spool, policy)
    )
    is_over = threading.Event()
    began, pause = time.monotonic(), len(SENDERS) / rate if rate else 0.0

    def work(name: str) -> None:
        entity, _, number = name.partition(" ")
        with client.get_queue_sender(entity) as sender:
            for n in range(count):
                if is_over.wait(max(0.0, began + n * pause - time.monotonic())):
                    return
                key = f"{number}:{start + n:07}"
                os.write(1, f"? {key}\n".encode())
                since = time.monotonic()
                receipt = sender.send_messages(ServiceBusMessage(key, message_id=key))
                took = (time.monotonic() - since) * 1000
                os.write(1, f"+ {key} {took:.1f} {receipt.stored_in.value}\n".encode())

    threads = [threading.Thread(target=work, args=(name,)) for name in SENDERS]
    for thread in threads:
        thread.start()
    sys.stdin.read()
    is_over.set()
    for thread in threads:
        thread.join()
    settled(lambda: client.count_spooled() == 0)
    client.close()


if __name__ == "__main__":
    given = "always" if sys.argv[5] == "always" else "last_resort"
    send(sys.argv[1], int(sys.argv[2]), int(sys.argv[3]), float(sys.argv[4]), given)
