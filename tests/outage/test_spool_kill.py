"""Kill -9 a client that spools and replays, again and again: what is lost, repeated or out of order?

This file is the client too: `python -m tests.outage.test_spool_kill` sends until it is killed, and writes
"? id" before and "+ id" after each send.
"""

from __future__ import annotations

import os
import signal
import subprocess
import sys
import threading
from collections.abc import Callable, Iterator
from datetime import timedelta
from pathlib import Path

import pytest
from azure.servicebus import ServiceBusClient, ServiceBusMessage

from sbpair import PairedNamespaceOptions, PairedServiceBusClient, SpoolReplayed
from sbpair.broker import Broker
from sbpair.pairing.spooling import MOST_IN_UNIT
from sbpair.testing.ledger import Ledger

SENDERS = ("orders 1", "orders 2", "invoices 3")  # entity and number of a sender
BACKLOGS = 2
PATIENCE = 60.0


def options(spool: str) -> PairedNamespaceOptions:
    return PairedNamespaceOptions(
        primary_namespace_name="contoso",
        failover_interval=timedelta(0),
        ping_primary_interval=timedelta(seconds=1),
        operation_timeout=timedelta(seconds=10),
        backlog_queue_count=BACKLOGS,
        assume_backlogs_exist=True,
        spool=spool,
    )


def send_until_killed(spool: str, start: int, count: int) -> None:
    """One thread for each sender; every line is one write, so a kill cuts between lines."""
    client = PairedServiceBusClient.from_connection_strings(
        os.environ["PRIMARY"], os.environ["SECONDARY"], options=options(spool)
    )

    def work(name: str) -> None:
        entity, _, number = name.partition(" ")
        with client.get_queue_sender(entity) as sender:
            for n in range(start, start + count):
                key = f"{number}:{n:06}"
                os.write(1, f"? {key}\n".encode())
                sender.send_messages(ServiceBusMessage(key, message_id=key))
                os.write(1, f"+ {key}\n".encode())

    threads = [threading.Thread(target=work, args=(name,)) for name in SENDERS]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    signal.pause()


class Client:
    """The client as a process, and the ledger of what it said."""

    def __init__(self, broker: Broker, spool: Path, ledger: Ledger, start: int, count: int) -> None:
        keys = {
            "PRIMARY": broker.namespace("contoso").connection_string,
            "SECONDARY": broker.namespace("contoso-dr").connection_string,
        }
        self._ledger = ledger
        self.acknowledged = 0
        self._heard = threading.Condition()
        self.process = subprocess.Popen(
            [sys.executable, "-m", "tests.outage.test_spool_kill", str(spool), str(start), str(count)],
            env=os.environ | keys,
            stdout=subprocess.PIPE,
            text=True,
        )
        self._reader = threading.Thread(target=self._read, daemon=True)
        self._reader.start()

    def wait_for(self, acknowledged: int) -> None:
        with self._heard:
            assert self._heard.wait_for(lambda: self.acknowledged >= acknowledged, PATIENCE)

    def kill(self) -> None:
        self.process.send_signal(signal.SIGKILL)
        self.process.wait(PATIENCE)
        self._reader.join(PATIENCE)
        self.process.stdout.close()

    def _read(self) -> None:
        for line in self.process.stdout:
            if not line.endswith("\n"):
                return
            kind, key = line.split()
            if kind == "?":
                self._ledger.attempted(key)
                continue
            self._ledger.acknowledged(key)
            with self._heard:
                self.acknowledged += 1
                self._heard.notify_all()


@pytest.fixture
def broker() -> Iterator[Broker]:
    with Broker({"contoso": 0, "contoso-dr": 0}) as broker:
        for name in ("orders", "invoices"):
            broker.namespace("contoso").create_queue(name)
        for index in range(BACKLOGS):
            broker.namespace("contoso-dr").create_queue(f"contoso/x-servicebus-transfer/{index}")
        yield broker


def stored(broker: Broker) -> int:
    return sum(broker.namespace("contoso").counts(name).active for name in ("orders", "invoices"))


def settled(holds: Callable[[], bool]) -> None:
    waiting = threading.Event()
    for _ in range(int(PATIENCE / 0.02)):
        if holds():
            return
        waiting.wait(0.02)
    raise AssertionError("it did not come to hold in time")


def received(broker: Broker) -> list[str]:
    """The ids on the primary, in the order of each queue."""
    got = []
    with ServiceBusClient.from_connection_string(broker.namespace("contoso").connection_string) as client:
        for name in ("orders", "invoices"):
            with client.get_queue_receiver(name, receive_mode="receiveanddelete") as receiver:
                while batch := receiver.receive_messages(500, max_wait_time=1):
                    got += [message.message_id for message in batch]
    return got


@pytest.mark.spec("G-1", "G-3", "G-4", "G-5", "F-35")
def test_kills_during_an_outage_of_both_and_during_the_replay_lose_nothing_and_keep_the_order(
    broker: Broker, tmp_path: Path
) -> None:
    spool, ledger = tmp_path / "spool", Ledger()
    primary, secondary = broker.namespace("contoso"), broker.namespace("contoso-dr")
    primary.take_down("refuse")
    secondary.take_down("refuse")
    for run in range(3):  # while messages are being spooled
        client = Client(broker, spool, ledger, start=run * 10_000, count=10_000)
        client.wait_for(150)
        client.kill()
    kills = 3
    for run in range(3, 5):  # while they are being replayed, and more are sent behind them
        client = Client(broker, spool, ledger, start=run * 10_000, count=60)
        client.wait_for(1)
        before = stored(broker)
        primary.bring_up()
        settled(lambda before=before: stored(broker) > before)
        client.kill()
        kills += 1
        primary.take_down("refuse")
    primary.bring_up()

    emptied = threading.Event()
    last = PairedServiceBusClient.from_connection_strings(
        primary.connection_string, secondary.connection_string, options=options(str(spool))
    )
    with last:
        last.on_event(lambda event: emptied.set() if isinstance(event, SpoolReplayed) else None)
        settled(lambda: last.spooled() == 0)

    arrived = received(broker)
    ledger.received_all(arrived)
    report = ledger.check()
    assert report.is_conserved, report
    assert report.acknowledged >= 450
    assert report.duplicates <= kills * len(SENDERS) * MOST_IN_UNIT
    for name in SENDERS:
        number = name.partition(" ")[2]
        firsts = list(dict.fromkeys(key for key in arrived if key.startswith(f"{number}:")))
        assert firsts == sorted(firsts)


if __name__ == "__main__":
    send_until_killed(sys.argv[1], int(sys.argv[2]), int(sys.argv[3]))
