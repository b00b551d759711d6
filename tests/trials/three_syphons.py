"""Several syphons on the same backlogs, nothing else wrong: is anything lost, or delivered twice?

    python -m tests.trials.three_syphons [--syphons 3] [--backlogs 10] [--messages 50000]

Each syphon is a process, `sbpair syphon --drain`. Prints one line of JSON; exit code 1 when a message is
missing or comes twice, or when a syphon fails.
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
from tests.syphon.pair import Pair, message_id, parked, start_syphon, take

AT_ONCE = 2000  # messages parked, or taken, in one go


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
    drained_in: float  # seconds, the start of the processes included

    @property
    def is_right(self) -> bool:
        return not (
            self.lost or self.duplicated or self.dead_lettered or self.waiting or any(self.exit_codes)
        )


async def trial(syphons: int, backlogs: int, messages: int) -> Report:
    with Broker({"contoso": 0, "contoso-dr": 0}) as broker:
        pair = Pair(broker.namespace("contoso"), broker.namespace("contoso-dr"), backlogs=backlogs)
        pair.primary.create_queue("orders")
        for index in range(backlogs):
            pair.secondary.create_queue(pair.backlog(index), max_delivery_count=2**31 - 1)
            numbers = range(index, messages, backlogs)
            for first in range(0, len(numbers), AT_ONCE):
                await pair.park([parked(n) for n in numbers[first : first + AT_ONCE]], index)
        began = time.monotonic()
        processes = [await start_syphon(pair, "--drain") for _ in range(syphons)]
        said = [out for out, _ in await asyncio.gather(*(process.communicate() for process in processes))]
        drained_in = time.monotonic() - began
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
