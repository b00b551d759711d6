"""Tampered journals: no audit is green by mistake, none fails, and each says what is wrong (R-141, R-142).

    python -m tests.trials.tampering [--seeds 2] [--engines local spark] [--into docs/evidence/tampering.json]
    python -m tests.tools.generate_docs

Every story, file and tampering of tests/data/audit/tampering.py, once for each seed, on each engine. Progress on
standard error; one line of JSON at the end. Exits with 1 when one case does not hold.
"""

from __future__ import annotations

import argparse
import json
import sys
import tempfile
import time
from collections import Counter
from collections.abc import Iterator, Sequence
from datetime import UTC, datetime
from pathlib import Path
from typing import Any
from unittest import mock

from sbpair.audit import Engine, Expected, LocalEngine, audit
from sbpair.data.audit import job
from tests.data.audit.tampering import STORIES, TAMPERINGS, Case, Told, cases, tampered, told, what_is_wrong
from tests.trials.grey.page import machine
from tests.trials.tampering.together import at_once

BATCH = 370  # audits at once on Spark


def _show(line: str) -> None:
    print(line, file=sys.stderr, flush=True)


def _audited(directory: Path, expected: Expected, engine: Engine) -> Any:
    return audit(directory / "journals", directory / "out", expected=expected, engine=engine)


def _judged(case: Case, original: Told, found: Any) -> str | None:
    return f"failed: {found!r}" if isinstance(found, Exception) else what_is_wrong(case, original, found)


def _in_batches(
    some: Sequence[Case], originals: dict[str, Told], directory: Path, engine: Engine, size: int
) -> Iterator[tuple[Case, str | None, bool]]:
    """Each case, what is wrong with its audit, and whether that is green."""
    for start in range(0, len(some), size):
        batch = some[start : start + size]
        place = directory / f"{start}"
        audits = []
        for number, case in enumerate(batch):
            here = place / f"{number}"
            here.mkdir(parents=True)
            expected = tampered(case, originals[case.story], here / "journals")
            audits.append(lambda engine, here=here, expected=expected: _audited(here, expected, engine))
        for case, found in zip(batch, at_once(engine, audits), strict=True):
            is_green = not isinstance(found, Exception) and found.is_conserved
            yield case, _judged(case, originals[case.story], found), is_green
        _show(f"{min(start + size, len(some))} of {len(some)} cases")


def _engine(name: str) -> tuple[Engine, int, Any]:
    """The engine, the audits at once, and what ends it."""
    if name == "local":
        return LocalEngine(1), 1, lambda: None
    from sbpair.data.spark.session import SHORT_JOB
    from sbpair.spark import build_session
    from sbpair.spark.audit import SparkEngine

    session = build_session("tampering", master="local[2,2]", settings=SHORT_JOB)
    return SparkEngine(session), BATCH, session.stop


def played(name: str, some: Sequence[Case]) -> dict[str, Any]:
    """All cases on one engine."""
    engine, size, end = _engine(name)
    began, wrong = time.monotonic(), []
    count: Counter[str] = Counter()
    green: Counter[str] = Counter()
    with tempfile.TemporaryDirectory() as directory, mock.patch.object(job, "page", return_value=""):
        originals = {story: told(story, Path(directory) / "told" / story) for story in STORIES}
        for case, problem, is_green in _in_batches(some, originals, Path(directory) / "cases", engine, size):
            count[case.tampering] += 1
            green[case.tampering] += is_green
            if problem is not None:
                wrong.append(f"{case}: {problem}")
                _show(wrong[-1])
    end()
    return {
        "engine": name, "cases": len(some), "seconds": round(time.monotonic() - began, 1), "wrong": wrong,
        "tamperings": {each: {"cases": count[each], "green": green[each]} for each in TAMPERINGS},
    }  # fmt: skip


def main() -> int:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--seeds", type=int, default=2, help="default %(default)s")
    parser.add_argument("--engines", nargs="+", choices=("local", "spark"), default=["local", "spark"])
    parser.add_argument("--limit", type=int, help="the first cases only")
    parser.add_argument("--into", type=Path, help="a stored result, of which the engines played are replaced")
    asked = parser.parse_args()
    some = list(cases(range(asked.seeds)))[: asked.limit]
    found: dict[str, Any] = {"runs": []}
    if asked.into is not None and asked.into.exists():
        found = json.loads(asked.into.read_text("utf-8"))
    new = [played(name, some) for name in asked.engines]
    kept = {each["engine"]: each for each in (*found["runs"], *new)}
    found = {"at": f"{datetime.now(UTC):%Y-%m-%d}", "machine": machine(), "seeds": asked.seeds,
             "runs": [kept[name] for name in ("local", "spark") if name in kept]}  # fmt: skip
    text = json.dumps(found, indent=1) + "\n"
    if asked.into is None:
        sys.stdout.write(json.dumps(found) + "\n")
    else:
        asked.into.write_text(text, "utf-8")
    return 1 if any(each["wrong"] for each in new) else 0


if __name__ == "__main__":
    sys.exit(main())
