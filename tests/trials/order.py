"""Ordered sessions on real processes: both sides flap, sender and syphon are killed, and the order must hold.

    sender (a process, blocking, with a spool) ---> primary <--- syphon (a process) <--- ordered backlogs
       killed and restarted: continues where its own log ends          killed and restarted

``python -m tests.trials.order --seconds 60`` runs it at length. The file is the sender's program too: it appends each
number to its log after the send returned, and after a restart repeats the number that was in flight.
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
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import replace
from datetime import timedelta
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Self

from azure.servicebus import ServiceBusMessage
from azure.servicebus.exceptions import ServiceBusError

from sbpair import PairedNamespaceOptions, PairedServiceBusClient
from sbpair.broker import Broker, NamespaceControl
from sbpair.pair.envelope.names import ordered_backlog_name
from sbpair.testing import Ledger
from tests.trials import spool_process
from tests.trials.spool_process import BACKLOGS, backlog

SESSIONS = 6
QUEUE = "sessions"
PATIENCE = 120.0  # seconds for everything to come home


def options(spool: Path) -> PairedNamespaceOptions:
    unordered = spool_process.options(spool)
    return replace(unordered, ordering="session", operation_timeout=timedelta(seconds=5))


def send_until_told(primary: str, secondary: str, folder: Path, seed: int) -> None:
    """The sender's program: one thread a session; ends when its standard input does, with an empty spool."""
    told = threading.Event()
    client = PairedServiceBusClient.from_connection_strings(
        primary, secondary, options=options(folder / "spool"), retry_total=0
    )
    with client, client.get_queue_sender(QUEUE) as sender:

        def send(session: int) -> None:
            log, rng = folder / f"{session}.log", random.Random(seed + session)
            number = len(log.read_text().splitlines())
            while not told.is_set():
                key = f"{session}.{number}"
                try:
                    sender.send_messages(ServiceBusMessage(key, message_id=key, session_id=f"s{session}"))
                except ServiceBusError:
                    told.wait(0.1)
                    continue  # the same number again: its place matters
                with log.open("a") as out:
                    out.write(f"{number}\n")
                number += 1
                told.wait(rng.uniform(0, 0.02))

        threads = [threading.Thread(target=send, args=(session,)) for session in range(SESSIONS)]
        for thread in threads:
            thread.start()
        sys.stdin.read()
        told.set()
        for thread in threads:
            thread.join()
        while client.count_spooled():
            time.sleep(0.05)


class Processes:
    """The sender and the syphon of one trial; none of them is left when the block ends."""

    def __init__(self, broker: Broker, folder: Path) -> None:
        self.primary, self.secondary = broker.namespace("contoso"), broker.namespace("contoso-dr")
        self._folder = folder
        self._environment = os.environ | {
            "SBPAIR_PRIMARY": self.primary.connection_string,
            "SBPAIR_SECONDARY": self.secondary.connection_string,
            "SBPAIR_CA_FILE": str(broker.ca_file),
        }
        self._starts = 0
        self._logs = [folder / f"{session}.log" for session in range(SESSIONS)]
        for log in self._logs:
            log.touch()
        self.sender, self.syphon = self.start_sender(), self.start_syphon()

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *of_error: object) -> None:
        for process in (self.sender, self.syphon):
            end(process)

    def start_sender(self) -> subprocess.Popen[bytes]:
        self._starts += 1
        self._logged_at_start = self._logged()
        command = [sys.executable, "-m", "tests.trials.order", "--send", str(self._folder), str(self._starts)]
        return subprocess.Popen(
            command, env=self._environment, stdin=subprocess.PIPE, stderr=subprocess.DEVNULL
        )

    def _logged(self) -> int:
        """Bytes in the sender's logs: they grow with each send that returned."""
        return sum(log.stat().st_size for log in self._logs)

    def start_syphon(self, *flags: str) -> subprocess.Popen[bytes]:
        settings = (
            "--primary-namespace-name",
            "contoso",
            "--backlogs",
            str(BACKLOGS),
            "--ordering",
            "session",
        )
        command = [sys.executable, "-m", "sbpair", "syphon", *settings, *flags]
        return subprocess.Popen(
            command, env=self._environment, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL
        )

    def wait_for_sends(self) -> None:
        """Wait until the sender has sent something since its start, however slow that is."""
        spool_process.settled(lambda: self._logged() > self._logged_at_start, PATIENCE)

    def kill(self, what: str) -> None:
        """Kill a process and start it again."""
        end(getattr(self, what))
        setattr(self, what, self.start_sender() if what == "sender" else self.start_syphon())

    def finish(self) -> None:
        """Let the sender finish, and have everything brought home."""
        assert self.sender.stdin is not None
        self.sender.stdin.close()
        self.sender.wait(PATIENCE)
        end(self.syphon)
        self.syphon = self.start_syphon("--drain")
        if self.syphon.wait(PATIENCE) != 0:
            raise RuntimeError(f"the drain ended with {self.syphon.returncode}")


def end(process: subprocess.Popen[bytes]) -> None:
    """Kill a process, unless it has ended, and close its standard input."""
    process.kill()
    process.wait()
    if process.stdin is not None:
        process.stdin.close()


def trial(seconds: float, seed: int = 0) -> dict[str, object]:
    """Play for so long; what came of it, with ``inversions`` and ``lost``."""
    rng, kills = random.Random(seed), {"sender": 0, "syphon": 0}
    with TemporaryDirectory() as name, Broker({"contoso": 0, "contoso-dr": 0}) as broker:
        folder = Path(name)
        broker.namespace("contoso").create_queue(QUEUE, requires_session=True)
        for index in range(BACKLOGS):
            dr = broker.namespace("contoso-dr")
            dr.create_queue(backlog(index))
            dr.create_queue(ordered_backlog_name("contoso", index), requires_session=True)
        with Processes(broker, folder) as processes:
            until = time.monotonic() + seconds
            with flapping(processes.primary, rng, 1.0, 3.0), flapping(processes.secondary, rng, 0.2, 4.0):
                while time.monotonic() < until:
                    processes.wait_for_sends()
                    time.sleep(rng.uniform(1.0, 3.0))
                    what = rng.choice(("sender", "syphon"))
                    kills[what] += 1
                    processes.kill(what)
            processes.finish()
        return judged(folder, broker.namespace("contoso").message_ids(QUEUE)) | {"kills": kills, "seed": seed}


@contextmanager
def flapping(namespace: NamespaceControl, rng: random.Random, away: float, there: float) -> Iterator[None]:
    """Take a namespace down now and then, until the block ends."""
    over, draws = threading.Event(), random.Random(rng.random())

    def flap() -> None:
        while not over.wait(draws.uniform(there / 2, there)):
            namespace.take_down(draws.choice(("refuse", "reset")))
            over.wait(draws.uniform(away / 2, away))
            namespace.bring_up()

    thread = threading.Thread(target=flap)
    thread.start()
    try:
        yield
    finally:
        over.set()
        thread.join()


def judged(folder: Path, arrived: list[str]) -> dict[str, object]:
    """Compare what arrived with what the sender's own log says."""
    ledger = Ledger()
    for session in range(SESSIONS):
        for number in (folder / f"{session}.log").read_text().splitlines():
            ledger.acknowledged(f"{session}.{number}", f"s{session}")
    ledger.received_all(arrived)
    report = ledger.check()
    return {
        "sent": report.acknowledged,
        "arrived": len(arrived),
        "copies": report.duplicates,
        "lost": len(report.lost),
        "inversions": [repr(each) for each in report.inversions],
    }


def main() -> int:
    parser = argparse.ArgumentParser(prog="python -m tests.trials.order", description=__doc__)
    parser.add_argument(
        "--seconds", type=float, default=60.0, help="how long sides flap and processes die (60)"
    )
    parser.add_argument("--seed", type=int, default=0)
    parser.add_argument("--send", nargs=2, metavar=("FOLDER", "SEED"), help=argparse.SUPPRESS)
    given = parser.parse_args()
    if given.send is not None:
        folder, seed = given.send
        send_until_told(os.environ["SBPAIR_PRIMARY"], os.environ["SBPAIR_SECONDARY"], Path(folder), int(seed))
        return 0
    found = trial(given.seconds, given.seed)
    print(json.dumps(found))
    return 1 if found["inversions"] or found["lost"] else 0


if __name__ == "__main__":
    sys.exit(main())
