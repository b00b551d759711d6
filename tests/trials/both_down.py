"""Both namespaces refuse while a program keeps sending: every message reported as stored must arrive, in order.

    python -m tests.trials.both_down [--seconds 30] [--rate 200] [--kill] [--back primary|both]

The program is a separate process, with an interval of 0 and a spool; --kill ends it with kill -9 in the
middle of the outage, and again in the middle of the replay, and restarts it each time. Prints one line of
JSON; exit code 1 when a message is lost, unexpected, out of order, or delivered twice without a kill.

With --back primary (the default) the secondary returns only when the spool is empty, so every message takes the same
route and the order of each sender is that of the queue. With --back both some may pass through a
backlog queue: the order is then that of each queue.
"""

from __future__ import annotations

import argparse
import json
import sys
import tempfile
import threading
from collections.abc import Iterable
from dataclasses import dataclass
from itertools import chain
from pathlib import Path

from sbpair.broker.testing.ledger import Ledger, LedgerReport
from tests.trials.spool_process import (
    ENTITIES,
    REPEATED,
    SendingProcess,
    out_of_order,
    received,
    settled,
    stored,
    two_namespaces,
)

BEFORE = 1.0  # seconds of sends that go straight, before the outage
FOREVER = 1_000_000  # sends


@dataclass(frozen=True, slots=True)
class Report:
    """What came of the trial; ``slowest`` in milliseconds."""

    ledger: LedgerReport
    kills: int
    stored_in: dict[str, int]
    slowest: float
    late: tuple[str, ...]
    exit_code: int

    @property
    def is_right(self) -> bool:
        repeated = REPEATED * len(ENTITIES) if self.kills else 0  # by the one kill in the replay
        return (
            self.ledger.is_conserved
            and not self.late
            and self.ledger.duplicates <= repeated
            and self.exit_code == 0
        )

    def as_json(self) -> str:
        found = self.ledger
        return json.dumps(
            {
                "sent": found.sent,
                "acknowledged": found.acknowledged,
                "lost": len(found.lost),
                "unexpected": len(found.unexpected),
                "duplicates": found.duplicates,
                "recovered": len(found.recovered),
                "out_of_order": len(self.late),
                "kills": self.kills,
                "stored_in": self.stored_in,
                "slowest_ms": round(self.slowest, 1),
                "exit_code": self.exit_code,
                "is_right": self.is_right,
            }
        )


def trial(spool: Path, seconds: float, rate: float, *, kill: bool, back: str = "primary") -> Report:
    """Run it once, in about ``seconds`` and a few more."""
    ledger, pause = Ledger(), threading.Event()
    runs: list[SendingProcess] = []
    with two_namespaces() as broker:
        primary, secondary = broker.namespace("contoso"), broker.namespace("contoso-dr")

        def start() -> SendingProcess:
            run = SendingProcess(broker, spool, ledger, start=len(runs) * FOREVER, count=FOREVER, rate=rate)
            runs.append(run)
            run.wait_for(1)
            return run

        sending = start()
        sending.wait_for(int(rate * BEFORE))
        primary.take_down("refuse")
        secondary.take_down("refuse")
        pause.wait(seconds / 2)
        if kill:
            sending.kill()
            sending = start()
        pause.wait(seconds / 2)
        before = stored(primary)
        primary.bring_up()
        if back == "both":
            secondary.bring_up()
        if kill:
            settled(lambda: stored(primary) + (stored(secondary) if back == "both" else 0) > before)
            sending.kill()
            sending = start()
        sending.wait_for(sending.acknowledged + int(rate))  # a second more of sends: they go behind
        exit_code = sending.finish()
        secondary.bring_up()
        queues = [*received(primary).values(), *received(secondary).values()]
    ledger.received_all(chain.from_iterable(queues))
    stored_in = {name: sum(run.stored_in[name] for run in runs) for name in sorted(_names(runs))}
    late = tuple(chain.from_iterable(map(out_of_order, queues)))
    slowest = max(run.slowest for run in runs)
    return Report(ledger.check(), len(runs) - 1, stored_in, slowest, late, exit_code)


def _names(runs: Iterable[SendingProcess]) -> set[str]:
    return set().union(*(run.stored_in for run in runs))


def main() -> int:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--seconds", type=float, default=30.0, help="of the outage (default %(default)s)")
    parser.add_argument("--rate", type=float, default=200.0, help="sends a second (default %(default)s)")
    parser.add_argument("--kill", action="store_true", help="kill -9 the sender twice")
    parser.add_argument("--back", choices=("primary", "both"), default="primary")
    asked = parser.parse_args()
    with tempfile.TemporaryDirectory() as folder:
        report = trial(Path(folder) / "spool", asked.seconds, asked.rate, kill=asked.kill, back=asked.back)
    print(report.as_json())
    return 0 if report.is_right else 1


if __name__ == "__main__":
    sys.exit(main())
