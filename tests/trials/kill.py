"""A broker on disk is killed (-9) again and again: no acknowledged message may be missing.

    python -m tests.trials.kill [--points N] [--seed N] [--data DIR]

Each point is a real process on the same directory, with a raw client that sends and completes without
pause, killed at a step of a commit (see killed_broker), inside one (strace: at the nth write or sync of the
disk), or by the clock. The next process must return every acknowledged message, and none whose completion it
confirmed. Progress on standard error; one line of JSON; exit code 1 when a message is lost, unexpected, or returns
after its completion.
"""

from __future__ import annotations

import argparse
import asyncio
import itertools
import json
import os
import random
import shutil
import signal
import sys
import tempfile
import time
from collections import Counter
from collections.abc import Callable
from contextlib import suppress
from dataclasses import dataclass, field
from pathlib import Path

from sbpair.broker.testing.ledger import Ledger, LedgerReport
from sbpair.pair.amqp.message import DataBody, Message, Properties
from sbpair.pair.amqp.performatives import Accepted
from sbpair.pair.auth.connection_string import parse
from sbpair.pair.client.connection import NamespaceConnection, connect
from sbpair.pair.client.errors import ClientError
from tests.trials.killed_broker import STEPS

WINDOW = 40
PATIENCE = 30.0  # seconds: for an answer, or in the drain for the next message
QUIET = 1.0  # seconds: nothing is on its way any more
MOST_WAITING = 5000  # messages: what there is to load at each start, and to drain in the end
CLOCK, WRITE, SYNC = "clock", "pwrite64", "fdatasync"
STRACE = shutil.which("strace")
KINDS = (*STEPS, CLOCK, *((WRITE, SYNC) if STRACE else ()))


@dataclass
class Trial:
    """What the client knows, over all processes."""

    data: Path
    ledger: Ledger = field(default_factory=Ledger)
    confirmed: set[str] = field(default_factory=set)  # completions that the broker has confirmed
    came_back: set[str] = field(default_factory=set)
    kills: Counter[str] = field(default_factory=Counter)
    numbers: itertools.count[int] = field(default_factory=itertools.count)
    slowest_start: float = 0.0
    accepted: int = 0

    @property
    def waiting(self) -> int:
        """About how many messages the broker has."""
        return self.accepted - len(self.confirmed)

    async def run(self, kind: str, nth: int) -> None:
        """One process, killed at a point."""
        began = time.monotonic()
        process = await _started(kind, nth, self.data)
        try:
            line = await asyncio.wait_for(process.stdout.readline(), PATIENCE)
            if line:
                if kind not in (WRITE, SYNC):  # strace is slow
                    self.slowest_start = max(self.slowest_start, time.monotonic() - began)
                await self._work(json.loads(line), None if kind != CLOCK else nth / 1000, process)
        finally:
            _kill(process)
            await process.wait()
        self.kills[kind] += 1

    async def _work(
        self, printed: dict[str, object], after: float | None, process: asyncio.subprocess.Process
    ) -> None:
        (namespace,) = printed["namespaces"]
        with suppress(ClientError, OSError):
            connection = await connect(parse(namespace["connection_string"]))
            tasks = [asyncio.create_task(work(connection)) for work in (self._send, self._complete)]
            if after is not None:
                asyncio.get_running_loop().call_later(after, _kill, process)
            async with asyncio.timeout(PATIENCE):
                await connection.closed
            for task in tasks:
                task.cancel()
            await asyncio.gather(*tasks, return_exceptions=True)

    async def _send(self, connection: NamespaceConnection) -> None:
        sender = await connection.open_sender("orders")

        async def one_after_another() -> None:
            while True:
                while self.waiting > MOST_WAITING:
                    await asyncio.sleep(0.01)
                key = str(next(self.numbers))
                self.ledger.attempted(key)
                message = Message(properties=Properties(message_id=key), body=DataBody((b"x" * 200,)))
                if isinstance(await sender.send(message.encode()), Accepted):
                    self.ledger.acknowledged(key)
                    self.accepted += 1

        await asyncio.gather(*(one_after_another() for _ in range(WINDOW)))

    async def _complete(self, connection: NamespaceConnection) -> None:
        await self._receive(connection, WINDOW)

    async def _receive(self, connection: NamespaceConnection, credit: int) -> None:
        arrived: asyncio.Queue[tuple[int, str]] = asyncio.Queue()

        in_hand = 0

        def on_message(event) -> None:
            nonlocal in_hand
            in_hand += 1
            arrived.put_nowait((event.delivery_id, str(Message.decode(event.payload).properties.message_id)))

        receiver = await connection.open_receiver("orders", on_message)
        receiver.flow(credit)

        async def settle() -> None:
            nonlocal in_hand
            while True:
                delivery, key = await arrived.get()
                self.ledger.received(key)
                if key in self.confirmed:
                    self.came_back.add(key)
                if isinstance(await receiver.settle_and_wait(delivery, Accepted()), Accepted):
                    self.confirmed.add(key)
                in_hand -= 1
                receiver.flow(credit - in_hand)

        await asyncio.gather(*(settle() for _ in range(credit)))

    async def drain(self) -> None:
        """A last process, which is not killed: what is left is received, and it ends by SIGTERM."""
        process = await _started(CLOCK, 0, self.data)
        try:
            (namespace,) = json.loads(await asyncio.wait_for(process.stdout.readline(), PATIENCE))[
                "namespaces"
            ]
            connection = await connect(parse(namespace["connection_string"]))
            task = asyncio.create_task(self._receive(connection, 500))
            await self._until_nothing_comes()
            task.cancel()
            await asyncio.gather(task, return_exceptions=True)
            await connection.close()
        finally:
            process.terminate()
            assert await asyncio.wait_for(process.wait(), PATIENCE) == 0

    async def _until_nothing_comes(self) -> None:
        """What was never acknowledged may come too; what has not come after a long silence is lost."""
        before, silent_since = -1, time.monotonic()
        while time.monotonic() < silent_since + (PATIENCE if self.ledger.outstanding else QUIET):
            if before != self.ledger.arrivals:
                before, silent_since = self.ledger.arrivals, time.monotonic()
            await asyncio.sleep(0.1)


async def _started(kind: str, nth: int, data: Path) -> asyncio.subprocess.Process:
    return await asyncio.create_subprocess_exec(
        *_command(kind, nth, data), stdout=asyncio.subprocess.PIPE, start_new_session=True
    )


def _kill(process: asyncio.subprocess.Process) -> None:
    with suppress(ProcessLookupError):  # strace and what it traces, which outlives it otherwise
        os.killpg(process.pid, signal.SIGKILL)


def _command(kind: str, nth: int, data: Path) -> list[str]:
    broker = [
        "broker",
        "--namespace",
        "contoso:0",
        "--queue",
        "contoso/orders",
        "--data",
        str(data),
        "--json",
    ]
    if kind in STEPS:
        return [sys.executable, "-m", "tests.trials.killed_broker", kind, str(nth), *broker]
    command = [sys.executable, "-m", "sbpair", *broker]
    if kind == CLOCK:
        return command
    assert STRACE is not None
    return [STRACE, "-f", "-qq", "-o", "/dev/null", "-e", f"trace={kind}",
            "-e", f"inject={kind}:signal=SIGKILL:when={nth}", *command]  # fmt: skip


async def trial(
    points: int, seed: int, data: Path, say: Callable[[str], None] = lambda _: None
) -> tuple[Trial, LedgerReport]:
    chance, found = random.Random(seed), Trial(data)
    for kind in itertools.islice(itertools.cycle(KINDS), points):
        say(f"{found.kills.total()} of {points} kills, {found.accepted} acknowledged, next: {kind}")
        most = {CLOCK: 400, WRITE: 600, SYNC: 200}.get(kind, 120)  # milliseconds, or how many of them
        await found.run(kind, chance.randrange(1, most))
    await found.drain()
    return found, found.ledger.check()


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--points", type=int, default=200)
    parser.add_argument("--seed", type=int, default=1)
    parser.add_argument("--data", type=Path, help="keep the broker's directory here, to look at")
    asked = parser.parse_args()
    with tempfile.TemporaryDirectory() as directory:
        data = asked.data or Path(directory) / "data"
        found, report = asyncio.run(
            trial(asked.points, asked.seed, data, lambda what: print(what, file=sys.stderr, flush=True))
        )
    told = {
        "kills": dict(found.kills),
        "sent": report.sent,
        "acknowledged": report.acknowledged,
        "lost": len(report.lost),
        "unexpected": len(report.unexpected),
        "recovered": len(report.recovered),
        "duplicates": report.duplicates,
        "most_duplicates": found.kills.total() * WINDOW,
        "came_back": len(found.came_back),
        "slowest_start_s": round(found.slowest_start, 2),
    }
    print(json.dumps(told))
    return 0 if is_kept(found, report) else 1


def is_kept(found: Trial, report: LedgerReport) -> bool:
    """Nothing lost, from nowhere or come back; a kill repeats at most what was in the receiver's hands."""
    return report.is_conserved and not found.came_back and report.duplicates <= found.kills.total() * WINDOW


if __name__ == "__main__":
    sys.exit(main())
