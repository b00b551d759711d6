"""A long backlog comes home through a syphon that is killed again and again: at a steady rate, in little memory.

    python -m tests.trials.long_backlog [--messages 500000] [--kills 3]

The messages wait in ten backlog queues. A process, `sbpair syphon`, forwards them; it is killed and started again. What
it had received is locked for a minute after that, in which nothing else may be left: those locks end with it here.
Prints a line of JSON; exit code 1 when a message is lost, when a kill repeats more than it may, when the last third
comes home at less than two thirds of the rate of the first, or when the syphon's memory is above 200 MiB.
"""

from __future__ import annotations

import argparse
import asyncio
import json
import sys
import time
from collections import Counter
from dataclasses import asdict, dataclass

from sbpair.broker import Broker
from sbpair.broker.server.namespace_server import NamespaceServer
from tests.pair.syphon.pair import Pair, message_id, start_syphon, take
from tests.trials.bench.process import resident_bytes
from tests.trials.three_syphons import AT_ONCE, LONGEST, park

BACKLOGS = 10
COPIES = 4096  # of a kill: what may be in flight or unconfirmed, in ten queues
MOST_MEMORY = 200 * 2**20  # bytes


@dataclass(frozen=True, slots=True)
class Report:
    """What came of the trial; rates in messages a second."""

    messages: int
    kills: int
    lost: int
    copies: int
    rate_first: float
    rate_last: float
    memory: int

    @property
    def is_right(self) -> bool:
        is_bounded = self.copies <= COPIES * self.kills and self.memory < MOST_MEMORY
        return self.lost == 0 and is_bounded and self.rate_last >= 2 / 3 * self.rate_first


async def trial(messages: int, kills: int) -> Report:
    with Broker({"contoso": 0, "contoso-dr": 0}) as broker:
        pair = Pair(broker.namespace("contoso"), broker.namespace("contoso-dr"), backlogs=BACKLOGS)
        pair.primary.create_queue("orders", max_size_in_megabytes=5120)
        for index in range(BACKLOGS):
            pair.secondary.create_queue(
                pair.backlog(index), max_delivery_count=2**31 - 1, max_size_in_megabytes=5120
            )
        await park(pair, range(messages))
        left = [
            (time.monotonic(), messages)
        ]  # what waits, as the time passes, without the starts of the syphon
        paused, memory = 0.0, 0
        kill_at = [messages * (kills - each) // (kills + 1) for each in range(kills)]
        process = await start_syphon(pair)
        async with asyncio.timeout(LONGEST):
            while (waiting := pair.waiting()) > 0:
                if waiting < left[-1][1]:
                    left.append((time.monotonic() - paused, waiting))
                    memory = max(memory, resident_bytes(process.pid))
                if kill_at and waiting <= kill_at[0]:
                    kill_at.pop(0)
                    process.kill()
                    await process.communicate()
                    end_locks(pair)
                    began, process = time.monotonic(), await start_syphon(pair)
                    while pair.waiting() >= waiting:
                        await asyncio.sleep(0.02)
                    paused += time.monotonic() - began
                await asyncio.sleep(0.05)
        process.terminate()
        await process.communicate()
        found: Counter[str] = Counter()
        while arrived := pair.primary.counts("orders").active:
            found.update(map(message_id, await take(pair.primary, "orders", min(arrived, AT_ONCE))))
    return Report(
        messages,
        kills,
        lost=len({f"m{number}" for number in range(messages)} - found.keys()),
        copies=found.total() - len(found),
        rate_first=round(_rate(left, 0.9 * messages, 0.6 * messages)),
        rate_last=round(_rate(left, 0.4 * messages, 0.1 * messages)),
        memory=memory,
    )


def end_locks(pair: Pair) -> None:
    """End the locks on the messages of all backlogs, as their duration would."""

    def end(server: NamespaceServer) -> None:
        for index in range(pair.backlogs):
            for partition in server.frontend.namespace.queue(pair.backlog(index)).partitions:
                partition.lose_locks(server.read_clocks().entity)

    pair.secondary.act(end)


def _rate(left: list[tuple[float, int]], above: float, below: float) -> float:
    """The messages a second while between so many waited."""
    within = [each for each in left if below <= each[1] <= above]
    (began, first), (ended, last) = within[0], within[-1]
    return (first - last) / max(ended - began, 0.001)


def main() -> int:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--messages", type=int, default=500_000)
    parser.add_argument("--kills", type=int, default=3)
    asked = parser.parse_args()
    report = asyncio.run(trial(asked.messages, asked.kills))
    print(json.dumps(asdict(report)))
    return 0 if report.is_right else 1


if __name__ == "__main__":
    sys.exit(main())
