"""The daily audit over many days: what a day costs, and runs that are killed (R-146).

    python -m tests.trials.daily [--days 30] [--messages 5000] [--kills 20] [--seed 1] [--into docs/evidence/daily.json]
    python -m tests.trials.daily --runs 4    # in place of made-up messages, simulated outages, so many a day
    python -m tests.tools.generate_docs

Journals of a month are written day by day. After each day a run in a process of its own audits what is new, and its
tables are compared with those of one audit of everything; after the
last one, that run is repeated from the state before it, killed at a random moment, and repeated. Progress on standard
error, one line of JSON at the end; exit code 1 when a day of the last week costs more than half as much again as one
of the second week, in time of the processor, when a day has other tables than one audit of everything, or when a killed
run does not repeat to the same tables.
"""

from __future__ import annotations

import argparse
import json
import random
import resource
import shutil
import statistics
import subprocess
import sys
import tempfile
import time
from dataclasses import asdict, dataclass
from datetime import UTC, datetime
from functools import partial
from pathlib import Path

import pyarrow.dataset as ds

from sbpair.audit import audit
from tests.data.audit.month import month
from tests.trials.grey.page import machine
from tests.trials.simulated_month import simulated_month

RUN = "import sys; from sbpair.data.audit.daily import audit_daily; audit_daily(*sys.argv[1:])"
GROWTH = 1.5
WEEK = 7


@dataclass(frozen=True)
class Report:
    """The processor seconds of each day's run, and the days with other tables than one audit of everything; the runs to
    be killed, and how many of them ended before.
    """

    days: int
    messages: int
    seconds: list[float]
    unequal: int
    kills: int
    ended_before: int
    differing: int

    @property
    def growth(self) -> float:
        """The last week's median by that of the second week, by when each day has open and late messages."""
        return statistics.median(self.seconds[-WEEK:]) / statistics.median(self.seconds[WEEK : 2 * WEEK])

    @property
    def holds(self) -> bool:
        return not self.unequal and not self.differing and (self.days < 3 * WEEK or self.growth <= GROWTH)


def _started(journals: Path, state: Path) -> subprocess.Popen[bytes]:
    return subprocess.Popen([sys.executable, "-c", RUN, str(journals), str(state)])


def tables(state: Path) -> dict[str, bytes]:
    """The content of all tables."""
    whole = state / "current"
    found = (
        path
        for table in ("messages", "days", "order", "writers")
        for path in (whole / table).rglob("*.parquet")
    )
    return {path.relative_to(whole).as_posix(): path.read_bytes() for path in found}


def measured(
    directory: Path, *, days: int, messages: int = 0, runs: int = 0, kills: int, seed: int
) -> Report:
    """Run the trial in ``directory``, with ``messages`` a day that are made up, or with simulated ``runs``."""
    journals, state, before = directory / "journals", directory / "state", directory / "before"
    seconds: list[float] = []
    unequal = 0
    made_up = partial(month, journals, days=days, messages=messages, seed=seed)
    for day in simulated_month(journals, days=days, runs=runs, seed=seed) if runs else made_up():
        if day == days - 1 and state.exists():
            shutil.copytree(state, before, symlinks=True)
        began = time.monotonic()
        seconds.append(_cost(journals, state))
        took = time.monotonic() - began
        found = is_equal(journals, state, directory / "out")
        unequal += not found
        said = "equal" if found else "OTHER TABLES"
        print(f"day {day}: {seconds[-1]:.2f} s, {said}", file=sys.stderr, flush=True)
        if day == days - 1:
            ended, differing = _killed(directory, kills, took, random.Random(seed))
    return Report(days, messages or _messages(state), seconds, unequal, kills, kills - ended, differing)


def is_equal(journals: Path, state: Path, out: Path) -> bool:
    """Whether the rows of the tables are those of one audit of everything."""
    audit(journals, out)
    return all(
        rows(state / "current" / table) == rows(out / table) for table in ("messages", "order", "writers")
    )


def rows(table: Path) -> list[str]:
    if not table.exists():
        return []  # of a daily audit before the first session
    return sorted(map(repr, ds.dataset(table, format="parquet").to_table().to_pylist()))


def _messages(state: Path) -> int:
    """The median of the messages of a day."""
    days = ds.dataset(state / "current" / "days").to_table().column("messages").to_pylist()
    return round(statistics.median(days))


def _cost(journals: Path, state: Path) -> float:
    """The processor seconds of a run, the start of its interpreter included."""
    before = _processor_seconds()
    if _started(journals, state).wait():
        raise RuntimeError("a run failed")
    return round(_processor_seconds() - before, 3)


def _processor_seconds() -> float:
    """Of all processes that this one started and that have ended."""
    usage = resource.getrusage(resource.RUSAGE_CHILDREN)
    return usage.ru_utime + usage.ru_stime


def _killed(directory: Path, kills: int, seconds: float, luck: random.Random) -> tuple[int, int]:
    """Kill the last day's run and repeat it: how many were killed in time, and how many repeat to other tables."""
    whole, ended, differing = tables(directory / "state"), 0, 0
    for number in range(kills):
        state = shutil.copytree(directory / "before", directory / f"killed-{number}", symlinks=True)
        run = _started(directory / "journals", state)
        time.sleep(luck.uniform(0.3, 1.0) * seconds)  # the moment of the kill
        run.kill()
        ended += run.wait() != 0
        if _started(directory / "journals", state).wait():
            raise RuntimeError("the run after a kill failed")
        differing += tables(state) != whole
        shutil.rmtree(state)
        print(f"kill {number + 1} of {kills}: {differing} differ", file=sys.stderr, flush=True)
    return ended, differing


def main() -> int:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--days", type=int, default=30, help="default %(default)s")
    parser.add_argument("--messages", type=int, default=5000, help="of a day, default %(default)s")
    parser.add_argument("--runs", type=int, default=0, help="simulated runs of a day, in place of messages")
    parser.add_argument("--kills", type=int, default=20, help="default %(default)s")
    parser.add_argument("--seed", type=int, default=1, help="default %(default)s")
    parser.add_argument("--into", type=Path, help="where to store the result")
    asked = parser.parse_args()
    with tempfile.TemporaryDirectory() as directory:
        messages = 0 if asked.runs else asked.messages
        report = measured(
            Path(directory),
            days=asked.days,
            messages=messages,
            runs=asked.runs,
            kills=asked.kills,
            seed=asked.seed,
        )
    growth = round(report.growth, 2) if report.days >= 3 * WEEK else None
    found = asdict(report) | {"growth": growth, "holds": report.holds}
    found |= {"at": f"{datetime.now(UTC):%Y-%m-%d}", "machine": machine()}
    print(json.dumps(found))
    if asked.into is not None:
        asked.into.write_text(json.dumps(found, indent=1) + "\n", "utf-8")
    return 0 if report.holds else 1


if __name__ == "__main__":
    sys.exit(main())
