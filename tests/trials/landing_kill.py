"""A syphon that lands messages and is killed (-9) at random steps, while its twins fill and are emptied.

    python -m tests.trials.landing_kill [--messages 4000] [--kills 12] [--seed N]

The primary is down. `sbpair syphon --land either` lands messages in two small entities of the secondary, and is killed
after a random number of them; the twins are emptied now and then, so that some transactions meet full ones. At
the end the primary returns, the untransferred messages are redriven, and the rest is forwarded. Prints one line of
JSON; exit code 1 unless each message arrived exactly once: a landing and its completion are one transaction.
"""

from __future__ import annotations

import argparse
import asyncio
import json
import sys
from collections import Counter
from dataclasses import asdict, dataclass, field
from random import Random

from sbpair.broker import Broker
from sbpair.pair.auth.connection_string import parse
from sbpair.pair.client.connection import connect
from sbpair.pair.syphon.watch.deadletters import RedriveCounts, redrive
from tests.pair.syphon.pair import Pair, message_id, parked, start_syphon, take
from tests.waiting import until

TWINS = ("orders", "invoices")
BODY = b"x" * 8000  # a twin of 1 MB holds about 130 of them
LANDED_AT_ONCE = 400  # the most that a syphon lands before it is killed
LOCK = 5000  # milliseconds: what a killed syphon had in hand comes again soon
FLAGS = ("--land", "either", "--land-after", "0s")
AT_ONCE = 500  # messages parked in one go


@dataclass
class Report:
    """What came of the trial."""

    messages: int
    kills: int = 0
    landed: int = 0  # received from the twins
    home: int = 0  # received from the primary
    redriven: int = 0  # had been refused after their commit
    lost: int = 0
    duplicates: int = 0
    seen: Counter[str] = field(default_factory=Counter)

    @property
    def is_right(self) -> bool:
        return not self.lost and not self.duplicates

    def as_json(self) -> str:
        return json.dumps({name: value for name, value in asdict(self).items() if name != "seen"})


class Trial:
    """The pair, and what was received so far."""

    def __init__(self, broker: Broker, messages: int, seed: int) -> None:
        self.report = Report(messages)
        self._chance = Random(seed)
        self._pair = Pair(broker.namespace("contoso"), broker.namespace("contoso-dr"))
        for path in TWINS:
            self._pair.primary.create_queue(path)
            self._pair.secondary.create_queue(path, max_size_in_megabytes=1)
        for index in range(self._pair.backlogs):
            self._pair.secondary.create_queue(
                self._pair.backlog(index), max_delivery_count=2**31 - 1, lock_duration=LOCK
            )

    async def run(self, kills: int) -> Report:
        pair, report = self._pair, self.report
        pair.primary.take_down("refuse")
        for first in range(0, report.messages, AT_ONCE):
            numbers = range(first, min(first + AT_ONCE, report.messages))
            payloads = [parked(number, TWINS[number % len(TWINS)], BODY) for number in numbers]
            await pair.park(payloads, first // AT_ONCE % pair.backlogs)
        while report.kills < kills and pair.waiting():
            await self._killed()
        pair.primary.bring_up()
        await self._bring_home()
        report.lost = len({f"m{number}" for number in range(report.messages)} - report.seen.keys())
        report.duplicates = report.seen.total() - len(report.seen)
        return report

    async def _killed(self) -> None:
        """Run one syphon until it has landed the given number, or has met a full twin for a while."""
        pair, chance = self._pair, self._chance
        aim = max(0, pair.waiting() - chance.randrange(1, LANDED_AT_ONCE))
        process = await start_syphon(pair, *FLAGS)
        try:
            while pair.waiting() > aim:
                assert process.returncode is None, "the syphon has ended"
                await asyncio.sleep(0.002)
                full = [path for path in TWINS if self._is_full(path)]
                if full and chance.random() < 0.02:
                    if chance.random() < 0.3:
                        break
                    await self._receive(full[0])
        finally:
            if process.returncode is None:
                process.kill()
            await process.communicate()
        self.report.kills += 1

    def _is_full(self, path: str) -> bool:
        """Whether a twin takes no other message of this size."""
        return self._pair.secondary.counts(path).size_in_bytes > 2**20 - 2 * len(BODY)

    async def _receive(self, path: str) -> None:
        found = await take(self._pair.secondary, path, self._pair.secondary.counts(path).active)
        self.report.seen.update(map(message_id, found))
        self.report.landed += len(found)

    async def _bring_home(self) -> None:
        """Redrive what could not be transferred, and let the rest go home."""
        pair, counts = self._pair, RedriveCounts()
        for index in range(pair.backlogs):
            connection = await connect(parse(pair.secondary.connection_string))
            try:
                await redrive(
                    connection, pair.backlog(index), counts, untransferred=True, stop=asyncio.Event()
                )
            finally:
                await connection.close()
        self.report.redriven = counts.redriven
        await pair.syphon().drain()
        await until(lambda: pair.waiting() == 0)
        for path in TWINS:
            await self._receive(path)
            found = await take(pair.primary, path, pair.primary.counts(path).active)
            self.report.seen.update(map(message_id, found))
            self.report.home += len(found)


async def trial(messages: int, kills: int, seed: int) -> Report:
    """Kill a landing syphon ``kills`` times, or until all has landed."""
    with Broker({"contoso": 0, "contoso-dr": 0}) as broker:
        return await Trial(broker, messages, seed).run(kills)


def main() -> int:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--messages", type=int, default=4000, help="default %(default)s")
    parser.add_argument("--kills", type=int, default=12, help="default %(default)s")
    parser.add_argument("--seed", type=int, default=1, help="default %(default)s")
    asked = parser.parse_args()
    report = asyncio.run(trial(asked.messages, asked.kills, asked.seed))
    print(report.as_json())
    return 0 if report.is_right else 1


if __name__ == "__main__":
    sys.exit(main())
