"""Several syphons on the same backlogs, without faults: no message may be lost or delivered twice.

    python -m tests.trials.three_syphons [--syphons 3] [--backlogs 10] [--messages 50000]

Each syphon is a process, `sbpair syphon`. Half of the messages are parked before they start, the others once
all of them wait at every backlog, so that they share the work however fast the first one is. Prints one line of
JSON; exit code 1 when a message is missing or delivered twice, or when a syphon fails or has forwarded nothing.
"""

from __future__ import annotations

import argparse
import asyncio
import json
import signal
import sys
import time
from collections import Counter
from collections.abc import Callable
from dataclasses import asdict, dataclass

from sbpair.broker import Broker
from sbpair.broker.server.namespace_server import NamespaceServer
from tests.pair.syphon.pair import Pair, message_id, parked, start_syphon, take

AT_ONCE = 2000  # messages parked, or taken, in one go
LONGEST = 600.0  # seconds, a bound: of the start of the processes, and of the way home


@dataclass(frozen=True, slots=True)
class Report:
    """What came of the trial."""

    syphons: int
    backlogs: int
    messages: int
    lost: int
    duplicated: int
    dead_lettered: int
    waiting: int
    forwarded: tuple[int, ...]  # by each syphon; together as many as there are messages
    exit_codes: tuple[int | None, ...]
    drained_in: float  # seconds for the second half, its parking included

    @property
    def is_right(self) -> bool:
        return all(self.forwarded) and not (
            self.lost or self.duplicated or self.dead_lettered or self.waiting or any(self.exit_codes)
        )


async def park(pair: Pair, numbers: range) -> None:
    """Park these messages, by turns in every backlog."""
    for index in range(pair.backlogs):
        own = numbers[index :: pair.backlogs]
        for first in range(0, len(own), AT_ONCE):
            await pair.park([parked(n) for n in own[first : first + AT_ONCE]], index)


def fewest_receivers(pair: Pair) -> int:
    """How many receivers wait at the backlog that has the fewest; the broker serves them by turns."""

    def fewest(server: NamespaceServer) -> int:
        lines = server.frontend._lines
        namespace = server.frontend.namespace
        queues = (namespace.queue(pair.backlog(index)) for index in range(pair.backlogs))
        return min(len(lines.get(queue, ())) for queue in queues)

    return pair.secondary.inspect(fewest)


async def until(holds: Callable[[], bool], ends: list[asyncio.Task[tuple[bytes, bytes]]]) -> None:
    """Wait for a condition; an error when a syphon ends before it holds."""
    async with asyncio.timeout(LONGEST):
        while not holds():
            for end in ends:
                if end.done():
                    raise RuntimeError(f"a syphon has ended: {end.result()[1].decode()}")
            await asyncio.sleep(0.02)


async def trial(syphons: int, backlogs: int, messages: int) -> Report:
    with Broker({"contoso": 0, "contoso-dr": 0}) as broker:
        pair = Pair(broker.namespace("contoso"), broker.namespace("contoso-dr"), backlogs=backlogs)
        pair.primary.create_queue("orders")
        for index in range(backlogs):
            pair.secondary.create_queue(pair.backlog(index), max_delivery_count=2**31 - 1)
        await park(pair, range(messages // 2))
        processes = [await start_syphon(pair) for _ in range(syphons)]
        ends = [asyncio.create_task(process.communicate()) for process in processes]
        try:
            await until(lambda: pair.waiting() == 0 and fewest_receivers(pair) == syphons, ends)
            began = time.monotonic()
            await park(pair, range(messages // 2, messages))
            await until(lambda: pair.waiting() == 0, ends)
            drained_in = time.monotonic() - began
            for process in processes:
                process.send_signal(signal.SIGTERM)
            said = [out for out, _ in await asyncio.gather(*ends)]
        finally:
            for process in processes:
                if process.returncode is None:
                    process.kill()
            await asyncio.gather(*ends, return_exceptions=True)
        found: Counter[str] = Counter()
        while left := pair.primary.counts("orders").active:
            found.update(map(message_id, await take(pair.primary, "orders", min(left, AT_ONCE))))
        return Report(
            syphons,
            backlogs,
            messages,
            lost=len({f"m{n}" for n in range(messages)} - found.keys()),
            duplicated=found.total() - len(found),
            dead_lettered=pair.set_aside(),
            waiting=pair.waiting(),
            forwarded=tuple(json.loads(each)["forwarded"] if each else 0 for each in said),
            exit_codes=tuple(process.returncode for process in processes),
            drained_in=round(drained_in, 1),
        )


def main() -> int:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--syphons", type=int, default=3, help="default %(default)s")
    parser.add_argument("--backlogs", type=int, default=10, help="default %(default)s")
    parser.add_argument("--messages", type=int, default=50_000, help="default %(default)s")
    asked = parser.parse_args()
    report = asyncio.run(trial(asked.syphons, asked.backlogs, asked.messages))
    print(json.dumps(asdict(report)))
    return 0 if report.is_right else 1


if __name__ == "__main__":
    sys.exit(main())
