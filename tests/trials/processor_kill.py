"""Processors that are killed (-9) again and again: `python -m tests.trials.processor_kill [--sessions 12]`.

Every message is handled at least once: the messages in flight in a killed processor are delivered again when their
locks end. A message is handled again at most once for each kill during which it was in flight.

With sessions two processors run at a time, and the one that handled the latest message is killed: its sessions continue
with the other. In each session the messages are handled in order, except for repeated ones.
"""

from __future__ import annotations

import argparse
import asyncio
import json
import os
import subprocess
import sys
import tempfile
from collections import Counter, defaultdict
from collections.abc import Callable, Iterable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from datetime import timedelta
from pathlib import Path
from random import Random

from sbpair.aio import PairedServiceBusClient
from sbpair.broker import Broker, NamespaceControl
from sbpair.processor import ProcessorOptions, ReceivedMessage
from tests.pair.processor.pair import numbered, put

CALLS = 16
SIDES = ("contoso", "contoso-dr")
PATH = "orders"
PATIENCE = 120.0  # seconds for the rest after the last kill


@dataclass(frozen=True, slots=True)
class Handled:
    """A line of the log: a handler of this process returned."""

    process: int
    number: int
    session: str


async def consume(primary: str, secondary: str, log: Path, sessions: int) -> None:
    """Handle messages until killed; each is one line in ``log``, written in one call."""
    file = os.open(log, os.O_WRONLY | os.O_APPEND | os.O_CREAT, 0o600)

    async def handle(message: ReceivedMessage) -> None:
        await asyncio.sleep(0.01)
        number = str(message.message_id).removeprefix("m")
        os.write(file, f"{os.getpid()} {number} {message.session_id or '-'}\n".encode())

    options = ProcessorOptions(
        max_concurrent_calls=CALLS,
        max_concurrent_sessions=max(1, sessions * 2 // 3) if sessions else None,
        session_idle_timeout=timedelta(seconds=0.5),
        retry_backoff_max=timedelta(seconds=1),
    )
    async with PairedServiceBusClient.from_connection_strings(primary, secondary) as client:
        await client.get_queue_processor(PATH, handle, options=options).run()


class Consumers:
    """Processes that consume, and what they have written."""

    def __init__(self, sides: Iterable[NamespaceControl], log: Path, count: int, sessions: int) -> None:
        self._environment = os.environ | dict(
            zip("PS", (side.connection_string for side in sides), strict=True)
        )
        self._log, self._sessions = log, sessions
        self._processes = [self._started() for _ in range(count)]

    def _started(self) -> subprocess.Popen[bytes]:
        """A consumer in a process of its own; the keys are in its environment."""
        command = ["tests.trials.processor_kill", "--log", self._log, "--sessions", str(self._sessions)]
        return subprocess.Popen([sys.executable, "-m", *command], env=self._environment)

    def kill_latest(self) -> None:
        """Kill the process that handled the latest message, and start another in its place."""
        index = [process.pid for process in self._processes].index(self.handled()[-1].process)
        self._end(self._processes[index])
        self._processes[index] = self._started()

    def have_handled(self, count: int) -> bool:
        """Whether that many have been handled, the latest of them by a process that is alive."""
        handled = self.handled()
        return len(handled) >= count and handled[-1].process in {process.pid for process in self._processes}

    def close(self) -> None:
        for process in self._processes:
            self._end(process)

    def handled(self) -> list[Handled]:
        """What has been handled, in the order in which handlers returned."""
        lines = self._log.read_text().splitlines() if self._log.exists() else []
        words = (line.split() for line in lines)
        return [Handled(int(process), int(number), session) for process, number, session in words]

    @staticmethod
    def _end(process: subprocess.Popen[bytes]) -> None:
        process.kill()
        process.wait()


@contextmanager
def consuming(sides: Iterable[NamespaceControl], count: int, sessions: int) -> Iterator[Consumers]:
    """Consumers in several processes; all of them are dead afterwards."""
    with tempfile.TemporaryDirectory() as directory:
        consumers = Consumers(sides, Path(directory, "handled"), count, sessions)
        try:
            yield consumers
        finally:
            consumers.close()


async def trial(messages: int, kills: int, seed: int, sessions: int = 0) -> dict[str, int]:
    """Kill consumers ``kills`` times while they handle ``messages``; return what came of it."""
    rng = Random(seed)
    with Broker(dict.fromkeys(SIDES, 0)) as broker:
        sides = [broker.namespace(name) for name in SIDES]
        for side in sides:
            side.create_queue(
                PATH, lock_duration=5000, max_delivery_count=2**31 - 1, requires_session=bool(sessions)
            )
        part = messages // (kills + 1)
        with consuming(sides, 2 if sessions else 1, sessions) as consumers:
            for number in range(kills):
                await fill(sides, range(number * part, (number + 1) * part), sessions)
                enough = number * part + rng.randrange(1, part)
                await reaches(lambda enough=enough: consumers.have_handled(enough) or is_empty(sides))
                consumers.kill_latest()
            await fill(sides, range(kills * part, messages), sessions)
            await reaches(lambda: is_empty(sides))
            handled = consumers.handled()
    counts = Counter(each.number for each in handled)
    return {
        "messages": messages,
        "sessions": sessions,
        "kills": kills,
        "lost": messages - len(counts),
        "handled again": counts.total() - len(counts),
        "most again": max(counts.values()) - 1,
        "sessions that went on": moved(handled),
        "sessions out of order": out_of_order(handled),
    }


async def fill(sides: Sequence[NamespaceControl], numbers: Iterable[int], sessions: int) -> None:
    """Put messages on both sides. A session is on one of them: there is no order between two namespaces."""
    parts: list[list[bytes]] = [[] for _ in sides]
    for number in numbers:
        session = number % sessions if sessions else None
        name = None if session is None else f"s{session}"
        parts[(number if session is None else session) % len(sides)].append(numbered(number, session=name))
    for side, part in zip(sides, parts, strict=True):
        await put(side, PATH, part)


def moved(handled: Iterable[Handled]) -> int:
    """How many sessions more than one process handled messages of."""
    processes: dict[str, set[int]] = defaultdict(set)
    for each in handled:
        processes[each.session].add(each.process)
    return sum(session != "-" and len(some) > 1 for session, some in processes.items())


def out_of_order(handled: Iterable[Handled]) -> int:
    """How many sessions are not in order without what was handled before."""
    sessions: dict[str, dict[int, None]] = defaultdict(dict)
    for each in handled:
        sessions[each.session].setdefault(each.number)
    return sum(name != "-" and list(first) != sorted(first) for name, first in sessions.items())


def is_empty(sides: Iterable[NamespaceControl]) -> bool:
    return not any(side.counts(PATH).active for side in sides)


async def reaches(holds: Callable[[], bool]) -> None:
    async with asyncio.timeout(PATIENCE):
        while not holds():
            await asyncio.sleep(0.02)


def verdict(found: dict[str, int]) -> bool:
    """Whether nothing was lost or out of order, and no more came twice than the kills explain."""
    explained = found["kills"] * 4 * CALLS  # handled, and not yet settled when killed
    is_again = found["handled again"] <= explained and found["most again"] <= found["kills"]
    return not found["lost"] and not found["sessions out of order"] and is_again


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--log", type=Path, help="consume, and write what was handled here")
    parser.add_argument("--messages", type=int, default=20_000)
    parser.add_argument("--kills", type=int, default=20)
    parser.add_argument("--seed", type=int, default=1)
    parser.add_argument("--sessions", type=int, default=0, help="of the messages; 0: a queue without (0)")
    given = parser.parse_args()
    if given.log is not None:
        asyncio.run(consume(os.environ["P"], os.environ["S"], given.log, given.sessions))
        return 0
    found = asyncio.run(trial(given.messages, given.kills, given.seed, given.sessions))
    print(json.dumps(found))
    return 0 if verdict(found) else 1


if __name__ == "__main__":
    sys.exit(main())
