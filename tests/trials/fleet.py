"""A fleet of sender processes through an outage: connects at the primary are spread, and nothing is lost or twice.

    python -m tests.trials.fleet [--processes 50] [--outage 60] [--rate 1]

Each process is a paired client that sends at the same rate. All reach the primary through one door, which counts
connects by the second and resets them while it is shut. Prints a line of JSON; exit code 1 when a message is lost, or
twice without an ambiguous send, or when more than twice the mean connect in any second of the outage.
"""

from __future__ import annotations

import argparse
import asyncio
import json
import select
import socket
import struct
import subprocess
import sys
import threading
import time
from collections import Counter
from collections.abc import Iterable
from contextlib import suppress
from dataclasses import dataclass, field
from types import TracebackType
from typing import Self

from azure.servicebus import ServiceBusMessage
from azure.servicebus.exceptions import ServiceBusError

from sbpair import PairedNamespaceOptions, PairedServiceBusClient
from sbpair.broker import Broker
from sbpair.pair.auth.connection_string import parse
from sbpair.pair.envelope.names import backlog_queue_name
from sbpair.syphon import Syphon, SyphonOptions
from sbpair.testing import Ledger
from tests.trials.bench.delay_line import by_way_of

BACKLOGS = 4
BEFORE, AFTER = (
    10.0,
    90.0,
)  # seconds of the workload around the outage; pings find the primary within a minute
RESET = struct.pack("ii", 1, 0)  # SO_LINGER: close with a reset
STARTING, ENDING = 180.0, 60.0  # seconds for all processes to send, and to end


@dataclass
class Door:
    """Passes connections on to a port; counts them, and resets them while it is shut."""

    target: int
    port: int = 0
    is_shut: bool = False
    connects: Counter[int] = field(default_factory=Counter)  # by second
    _pairs: set[tuple[socket.socket, socket.socket]] = field(default_factory=set)

    def __enter__(self) -> Self:
        self._listening = socket.create_server(("127.0.0.1", 0), backlog=1024)
        self.port = self._listening.getsockname()[1]
        threading.Thread(target=self._accept, daemon=True).start()
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self._listening.close()
        self.shut()

    def shut(self) -> None:
        """Reset all connections, and those that come."""
        self.is_shut = True
        for each in list(self._pairs):
            for end in each:
                _reset(end)

    def _accept(self) -> None:
        with suppress(OSError):  # closed
            while True:
                client, _ = self._listening.accept()
                self.connects[int(time.monotonic())] += 1
                if self.is_shut:
                    _reset(client)
                else:
                    threading.Thread(target=self._pass, args=(client,), daemon=True).start()

    def _pass(self, client: socket.socket) -> None:
        server = socket.create_connection(("127.0.0.1", self.target))
        pair = (client, server)
        self._pairs.add(pair)
        with suppress(OSError, ValueError), client, server:
            while all(_passes(each, server if each is client else client) for each in _readable(pair)):
                pass
        self._pairs.discard(pair)


def _readable(ends: tuple[socket.socket, socket.socket]) -> list[socket.socket]:
    return select.select(ends, [], [])[0]


def _passes(source: socket.socket, target: socket.socket) -> bool:
    """Pass on what there is; return whether it was anything but the end."""
    data = source.recv(65_536)
    target.sendall(data)
    return bool(data)


def _reset(end: socket.socket) -> None:
    with suppress(OSError):
        end.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, RESET)
        end.shutdown(socket.SHUT_RDWR)
    with suppress(OSError):
        end.close()


def send_until_told(primary: str, secondary: str, name: str, rate: float) -> None:
    """The program of a process: prints a line for each send, until its standard input ends."""
    told = threading.Event()
    threading.Thread(target=lambda: (sys.stdin.read(), told.set()), daemon=True).start()
    options = PairedNamespaceOptions(
        backlog_queue_count=BACKLOGS, assume_backlogs_exist=True, primary_namespace_name="contoso"
    )
    with (
        PairedServiceBusClient.from_connection_strings(primary, secondary, options=options) as client,
        client.get_queue_sender("orders") as sender,
    ):
        began, number = time.monotonic(), 0
        while not told.wait(max(0.0, began + number / rate - time.monotonic())):
            message_id = f"{name}.{number}"
            number += 1
            try:
                receipt = sender.send_messages(ServiceBusMessage(b"x", message_id=message_id))
            except ServiceBusError:
                print("raised", message_id, 1, flush=True)
            else:
                print("stored", message_id, int(receipt.ambiguous), flush=True)


def trial(processes: int, outage: float, rate: float, after: float = AFTER) -> dict[str, object]:
    """What came of the outage."""
    with Broker({"contoso": 0, "contoso-dr": 0}) as broker:
        primary, secondary = broker.namespace("contoso"), broker.namespace("contoso-dr")
        primary.create_queue("orders", max_size_in_megabytes=5120)
        for index in range(BACKLOGS):
            secondary.create_queue(backlog_queue_name("contoso", index), max_delivery_count=2**31 - 1)
        with Door(parse(primary.connection_string).port) as door:
            ends = by_way_of(primary.connection_string, door.port), secondary.connection_string
            fleet = [_started(ends, f"p{number}", rate) for number in range(processes)]
            told = [_Told(each) for each in fleet]
            try:
                down, up = _played(told, door, outage, after)
            finally:
                _ended(fleet)
        asyncio.run(_bring_home(primary.connection_string, secondary.connection_string))
        ledger = _ledger_of(line for each in told for line in each.lines)
        ledger.received_all(primary.message_ids("orders"))
    report = ledger.check()
    seconds = [door.connects[each] for each in range(down + 1, up)]
    return {
        "processes": processes,
        "sent": report.sent,
        "lost": len(report.lost),
        "unexplained": len(report.unexplained),
        "connects_mean": round(sum(seconds) / len(seconds), 1),
        "connects_peak": max(seconds),
        "connects_after_peak": max(door.connects[each] for each in range(up, up + int(after))),
    }


def _played(told: list[_Told], door: Door, outage: float, after: float) -> tuple[int, int]:
    """Shut the door once all processes send, and open it again; return when, in whole seconds."""
    began = time.monotonic()
    while not all(each.lines for each in told):
        if time.monotonic() > began + STARTING:
            raise RuntimeError("not all processes send")
        time.sleep(0.1)
    time.sleep(BEFORE)
    down = int(time.monotonic()) + 1
    time.sleep(down - time.monotonic())
    door.shut()
    time.sleep(outage)
    door.is_shut = False
    up = int(time.monotonic())
    time.sleep(after)
    return down, up


def _ended(fleet: list[subprocess.Popen[str]]) -> None:
    """Have all processes end, and wait for them."""
    for process in fleet:
        assert process.stdin is not None
        process.stdin.close()
    until = time.monotonic() + ENDING
    for process in fleet:
        try:
            process.wait(max(0.0, until - time.monotonic()))
        except subprocess.TimeoutExpired:
            process.kill()
            process.wait()


def _ledger_of(lines: Iterable[str]) -> Ledger:
    """What the processes said about their sends."""
    ledger = Ledger()
    for line in lines:
        word, message_id, is_ambiguous = line.split()
        ledger.attempted(message_id)
        if word == "stored":
            ledger.acknowledged(message_id)
        if int(is_ambiguous):
            ledger.ambiguous(message_id)
    return ledger


class _Told:
    """The lines of a process, read as they come."""

    def __init__(self, process: subprocess.Popen[str]) -> None:
        self.lines: list[str] = []
        self._out = process.stdout
        self._thread = threading.Thread(target=self._read, daemon=True)
        process.stdout = None  # read here
        self._thread.start()

    def _read(self) -> None:
        assert self._out is not None
        with self._out:
            self.lines.extend(line.strip() for line in self._out)


def _started(ends: tuple[str, str], name: str, rate: float) -> subprocess.Popen[str]:
    command = [sys.executable, "-m", __spec__.name, "--child", *ends, name, str(rate)]
    return subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True)


async def _bring_home(primary: str, secondary: str) -> None:
    options = SyphonOptions(backlog_queue_count=BACKLOGS, primary_namespace_name="contoso")
    await Syphon.from_connection_strings(primary, secondary, options=options).drain()


def is_right(report: dict[str, object]) -> bool:
    """Whether nothing is lost or twice, and no second of the outage had more than twice the mean of connects."""
    peak, mean = float(str(report["connects_peak"])), float(str(report["connects_mean"]))
    return not (report["lost"] or report["unexplained"]) and peak <= 2 * mean


def main() -> int:
    if sys.argv[1:2] == ["--child"]:
        primary, secondary, name, rate = sys.argv[2:]
        send_until_told(primary, secondary, name, float(rate))
        return 0
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--processes", type=int, default=50)
    parser.add_argument("--outage", type=float, default=60.0, help="seconds")
    parser.add_argument("--rate", type=float, default=1.0, help="sends a second and process")
    asked = parser.parse_args()
    report = trial(asked.processes, asked.outage, asked.rate)
    print(json.dumps(report))
    return 0 if is_right(report) else 1


if __name__ == "__main__":
    sys.exit(main())
