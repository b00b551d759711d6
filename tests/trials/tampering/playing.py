"""Cases of journals, audited by the hundred on one engine."""

from __future__ import annotations

import sys
import tempfile
import time
from collections import Counter
from collections.abc import Callable, Iterator, Sequence
from pathlib import Path
from typing import Any, Protocol
from unittest import mock

from sbpair.audit import Engine, Expected, LocalEngine, Summary, audit
from sbpair.data.audit import job
from tests.trials.tampering.together import at_once

BATCH = 370  # audits at once on Spark


class Case(Protocol):
    """Journals to audit: ``kind`` is the row of the page that counts them."""

    @property
    def kind(self) -> str: ...

    def write(self, place: Path) -> Expected | None:
        """Write the journals below ``place``; returns what their audit is told to expect."""

    def what_is_wrong(self, found: Summary) -> str | None:
        """Why the audit does not hold; None if it does."""


def show(line: str) -> None:
    print(line, file=sys.stderr, flush=True)


def played(name: str, some: Sequence[Case]) -> dict[str, Any]:
    """All cases on the engine of this name: what is wrong, and how many of each kind were green."""
    engine, size, end = _engine(name)
    began, wrong = time.monotonic(), []
    count: Counter[str] = Counter()
    green: Counter[str] = Counter()
    with tempfile.TemporaryDirectory() as directory, mock.patch.object(job, "page", return_value=""):
        for case, problem, is_green in _in_batches(some, Path(directory), engine, size):
            count[case.kind] += 1
            green[case.kind] += is_green
            if problem is not None:
                wrong.append(f"{case}: {problem}")
                show(wrong[-1])
    end()
    return {
        "engine": name, "cases": len(some), "seconds": round(time.monotonic() - began, 1), "wrong": wrong,
        "kinds": {each: {"cases": count[each], "green": green[each]} for each in count},
    }  # fmt: skip


def _in_batches(
    some: Sequence[Case], directory: Path, engine: Engine, size: int
) -> Iterator[tuple[Case, str | None, bool]]:
    """Each case, what is wrong with its audit, and whether that is green."""
    for start in range(0, len(some), size):
        batch = some[start : start + size]
        audits = [_prepared(case, directory / f"{start}-{number}") for number, case in enumerate(batch)]
        for case, found in zip(batch, at_once(engine, audits), strict=True):
            failed = isinstance(found, Exception)
            problem = f"failed: {found!r}" if failed else case.what_is_wrong(found)
            yield case, problem, not failed and found.is_conserved
        show(f"{min(start + size, len(some))} of {len(some)} cases")


def _prepared(case: Case, here: Path) -> Callable[[Engine], Any]:
    here.mkdir(parents=True)
    expected = case.write(here / "journals")
    return lambda engine: audit(here / "journals", here / "out", expected=expected, engine=engine)


def _engine(name: str) -> tuple[Engine, int, Callable[[], None]]:
    """The engine, the audits at once, and what ends it."""
    if name == "local":
        return LocalEngine(1), 1, lambda: None
    from sbpair.data.spark.session import SHORT_JOB
    from sbpair.spark import build_session
    from sbpair.spark.audit import SparkEngine

    session = build_session("tampering", master="local[2,2]", settings=SHORT_JOB)
    return SparkEngine(session), BATCH, session.stop
