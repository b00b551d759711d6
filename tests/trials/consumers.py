"""An outage with consumers: every accepted message is handled, although syphon and processor are killed at random.

    python -m tests.trials.consumers [--outage 60] [--rate 50] [--kills 5] [--seed N]

A broker with two namespaces, a paired sender, `sbpair syphon --land either` and a processor; the latter two are
processes that are killed (-9) at random moments and restarted at once. The primary goes down for ``--outage``
seconds. Prints one line of JSON; exit code 1 when a message is lost or unexpected, is handled more often than
ambiguous steps explain, or when the consumers paused for longer than LAND_AFTER and 10 seconds; a syphon that is
restarted counts LAND_AFTER from its start.

A second copy is explained by a send that raised or was ambiguous, by a killed processor or a broken link between the
two (its completion may not have arrived), or by a syphon that was killed before the second (it may have forwarded, but
not completed).
"""

from __future__ import annotations

import argparse
import json
import os
import random
import subprocess
import sys
import threading
import time
from collections import defaultdict
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field
from datetime import timedelta
from itertools import pairwise

from azure.servicebus import ServiceBusMessage
from azure.servicebus.exceptions import ServiceBusError

from sbpair import PairedNamespaceOptions, PairedServiceBusClient, StoredIn
from sbpair.broker import Broker
from sbpair.broker.testing.ledger import Ledger, LedgerReport

LAND_AFTER = 2.0  # seconds
LONGEST_PAUSE = LAND_AFTER + 10.0
LOCK = 5000  # milliseconds: what a killed process had in hand comes again soon
BACKLOGS = 2
BEFORE = AFTER = 3.0  # seconds of sends around the outage
STARTED_WITHIN = PATIENCE = 120.0  # seconds
PROCESSOR = (sys.executable, "-m", "tests.trials.consumer_process")
SYPHON = (
    sys.executable, "-m", "sbpair", "syphon", "--land", "either", "--land-after", f"{LAND_AFTER:g}s",
    "--backlogs", str(BACKLOGS), "--primary-namespace-name", "contoso",
)  # fmt: skip


@dataclass(frozen=True, slots=True)
class Report:
    """What came of the trial; spans in seconds."""

    ledger: LedgerReport
    kills: dict[str, int]
    parked: int
    handled_from: dict[str, int]
    longest_pause: float
    """Since the last message or the start of the latest syphon, which counts LAND_AFTER from its start."""
    longest_without: float
    """Since the last message."""

    @property
    def is_right(self) -> bool:
        return self.ledger.is_conserved and self.ledger.is_bounded and self.longest_pause <= LONGEST_PAUSE

    def as_json(self) -> str:
        found = self.ledger
        return json.dumps(
            {
                "sent": found.sent,
                "acknowledged": found.acknowledged,
                "delivered": found.delivered,
                "lost": len(found.lost),
                "unexpected": len(found.unexpected),
                "duplicates": found.duplicates,
                "unexplained": sorted(found.unexplained)[:5],
                "parked": self.parked,
                "handled_from": self.handled_from,
                "kills": self.kills,
                "longest_pause": round(self.longest_pause, 2),
                "longest_without": round(self.longest_without, 2),
                "is_right": self.is_right,
            }
        )


@dataclass
class Handled:
    """The messages that processors handled, and when."""

    ledger: Ledger
    at: dict[str, list[float]] = field(default_factory=lambda: defaultdict(list))
    sides: dict[str, int] = field(default_factory=lambda: defaultdict(int))
    moments: list[float] = field(default_factory=list)

    def note(self, line: str) -> None:
        message_id, side = line.split()
        now = time.monotonic()
        self.ledger.received(message_id)
        self.at[message_id].append(now)
        self.moments.append(now)
        self.sides[side] += 1

    def longest_pause(self, begin: float, end: float, restarts: Sequence[float] = ()) -> float:
        """The longest time without a message between two moments; ``restarts`` begin it again."""
        moments = sorted([begin, *(each for each in (*self.moments, *restarts) if begin < each < end), end])
        return max(later - sooner for sooner, later in pairwise(moments))


class Mortal:
    """A process that is killed at times, and started again at once; ``on_line`` gets what it prints."""

    def __init__(self, command: tuple[str, ...], environment: dict[str, str], on_line: Callable[[str], None]):
        self._command, self._environment, self._on_line = command, environment, on_line
        self.deaths: list[float] = []
        self._process = self._start()

    def kill(self) -> None:
        """Kill the process, read what it had printed, and start another."""
        self._end()
        self.deaths.append(time.monotonic())
        self._process = self._start()

    def end(self) -> None:
        """Kill the process for the last time."""
        self._end()

    def _end(self) -> None:
        self._process.kill()
        self._process.wait()
        self._reader.join()
        assert self._process.stdout is not None
        self._process.stdout.close()

    def _start(self) -> subprocess.Popen[str]:
        process = subprocess.Popen(
            self._command,
            env=os.environ | self._environment,
            stdout=subprocess.PIPE,
            stderr=subprocess.DEVNULL,
            text=True,
        )
        self._reader = threading.Thread(target=self._read, args=(process,), daemon=True)
        self._reader.start()
        return process

    def _read(self, process: subprocess.Popen[str]) -> None:
        assert process.stdout is not None
        for line in process.stdout:
            if line.endswith("\n"):  # a killed process may leave half of one
                self._on_line(line.strip())


class Sender(threading.Thread):
    """Sends messages at a rate until it is stopped; one that raises is sent again, with the same id."""

    def __init__(self, client: PairedServiceBusClient, ledger: Ledger, rate: float) -> None:
        super().__init__(name="sender", daemon=True)
        self._client, self._ledger, self._rate = client, ledger, rate
        self._is_over = threading.Event()
        self.parked = 0

    def stop(self) -> None:
        self._is_over.set()
        self.join()

    def run(self) -> None:
        number = 0
        with self._client.get_queue_sender("orders") as sender:
            while not self._is_over.wait(1 / self._rate):
                number += 1
                self._send(sender, ServiceBusMessage("x", message_id=f"m{number}"))

    def _send(self, sender, message: ServiceBusMessage) -> None:
        name = str(message.message_id)
        self._ledger.attempted(name)
        while True:
            try:
                receipt = sender.send_messages(message)
            except ServiceBusError:
                self._ledger.ambiguous(name)
                self._is_over.wait(0.05)
                continue
            self._ledger.acknowledged(name)
            self._ledger.ambiguous(name, receipt.ambiguous)
            self.parked += receipt.stored_in is StoredIn.BACKLOG
            return


@contextmanager
def killing(victims: list[Mortal], span: float, kills: int, rng: random.Random) -> Iterator[None]:
    """Kill each victim ``kills`` times, at random moments of the span."""
    is_over = threading.Event()
    plan = sorted((rng.uniform(0, span), rng.randrange(len(victims))) for _ in range(kills * len(victims)))

    def work() -> None:
        began = time.monotonic()
        for due, index in plan:
            if is_over.wait(max(0.0, began + due - time.monotonic())):
                return
            victims[index].kill()

    killer = threading.Thread(target=work, name="killer")
    killer.start()
    try:
        yield
    finally:
        is_over.set()
        killer.join()


def trial(outage: float, rate: float, kills: int, seed: int) -> Report:
    """Run it once, in about ``outage`` and some more seconds."""
    ledger, pause = Ledger(), threading.Event()
    handled = Handled(ledger)
    with Broker({"contoso": 0, "contoso-dr": 0}) as broker:
        primary, secondary = broker.namespaces
        for namespace in broker.namespaces:
            namespace.create_queue("orders", lock_duration=LOCK, max_delivery_count=2**31 - 1)
        environment = {
            "SBPAIR_PRIMARY": primary.connection_string,
            "SBPAIR_SECONDARY": secondary.connection_string,
        }
        client = PairedServiceBusClient.from_connection_strings(
            primary.connection_string,
            secondary.connection_string,
            options=PairedNamespaceOptions(
                backlog_queue_count=BACKLOGS,
                failover_interval=timedelta(0),
                ping_primary_interval=timedelta(seconds=1),
                primary_namespace_name="contoso",
            ),
            connection_verify=str(broker.ca_file),
        )
        mortals: list[Mortal] = []
        with client:
            sender = Sender(client, ledger, rate)
            try:
                mortals.append(Mortal(PROCESSOR, environment, handled.note))
                mortals.append(Mortal(SYPHON, environment, lambda line: None))
                sender.start()
                _until(lambda: bool(handled.moments), STARTED_WITHIN, "a first message to be handled")
                began = time.monotonic()
                pause.wait(BEFORE)
                with killing(mortals, outage + AFTER, kills, random.Random(seed)):
                    down = time.monotonic()
                    primary.take_down("reset")
                    pause.wait(outage)
                    primary.bring_up()
                    up = time.monotonic()
                    pause.wait(AFTER)
                sender.stop()
                ended = time.monotonic()
                _until(lambda: not ledger.outstanding, PATIENCE, "every message to be handled")
                _until(
                    lambda: not any(side.message_ids("orders") for side in broker.namespaces),
                    PATIENCE,
                    "the queues to be empty",
                )
            finally:
                for mortal in mortals:
                    mortal.end()
    processor, syphon = mortals
    for name, moments in handled.at.items():
        ledger.ambiguous(name, _explained(sorted(moments), [*processor.deaths, down, up], syphon.deaths))
    kill_counts = {"processor": len(processor.deaths), "syphon": len(syphon.deaths)}
    return Report(
        ledger.check(),
        kill_counts,
        sender.parked,
        dict(handled.sides),
        handled.longest_pause(began, ended, syphon.deaths),
        handled.longest_pause(began, ended),
    )


def _explained(moments: list[float], between: list[float], before: list[float]) -> int:
    """How many of the repetitions at these moments an event explains."""
    explained = 0
    for sooner, later in pairwise(moments):
        explained += any(sooner <= each <= later for each in between) or any(each <= later for each in before)
    return explained


def _until(holds: Callable[[], bool], within: float, what: str) -> None:
    deadline, pause = time.monotonic() + within, threading.Event()
    while not holds():
        if time.monotonic() > deadline:
            raise TimeoutError(f"waited {within:g} s for {what}")
        pause.wait(0.05)


def main() -> int:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--outage", type=float, default=60.0, help="seconds; default %(default)s")
    parser.add_argument("--rate", type=float, default=50.0, help="messages a second; default %(default)s")
    parser.add_argument("--kills", type=int, default=5, help="of each process; default %(default)s")
    parser.add_argument("--seed", type=int, default=1)
    asked = parser.parse_args()
    report = trial(asked.outage, asked.rate, asked.kills, asked.seed)
    print(report.as_json())
    return 0 if report.is_right else 1


if __name__ == "__main__":
    sys.exit(main())
