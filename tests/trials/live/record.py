"""Stores the results of a whole run for the docs: `python -m tests.trials.live.record plain RUN [AGAIN ...]`.

RUN and AGAIN are files that `--keep` wrote. For a test that failed and was repeated alone, the repetition counts;
the number of such tests is stored too. A run with unexpected results is not stored.
"""

from __future__ import annotations

import argparse
import json
import platform
from collections.abc import Iterator, Sequence
from datetime import UTC, datetime
from importlib.metadata import version
from pathlib import Path
from typing import TypedDict

from .report import Note, Verdict, classify
from .sdist import PACKAGE

RESULTS = Path(__file__).parent / "results.json"
KINDS = ("plain", "paired")
OUTCOMES = ("passed", "listed", "skipped")


class Run(TypedDict):
    """One whole run; `files` has the number of tests of each outcome, `again` those that ran twice."""

    date: str
    sdk: str
    python: str
    again: int
    files: dict[str, dict[str, int]]


def main(arguments: Sequence[str] | None = None) -> int:
    """Read, classify, and write results.json; 1, and nothing is written, when something is wrong."""
    parser = argparse.ArgumentParser(prog="python -m tests.trials.live.record")
    parser.add_argument("kind", choices=KINDS)
    parser.add_argument("run", type=Path)
    parser.add_argument("again", type=Path, nargs="*")
    asked = parser.parse_args(arguments)
    verdict, again = merged([asked.run, *asked.again], is_paired=asked.kind == "paired")
    for line in verdict.complaints():
        print(line)
    if verdict.complaints():
        return 1
    today = datetime.now(UTC).date().isoformat()
    files = {file: {kind: counted[kind] for kind in OUTCOMES} for file, counted in verdict.counts().items()}
    run = Run(
        date=today, sdk=version(PACKAGE), python=platform.python_version(), again=again, files=dict(files)
    )
    RESULTS.write_text(json.dumps({**read(), asked.kind: run}, indent=1, sort_keys=True) + "\n", "utf-8")
    return 0


def merged(paths: Sequence[Path], *, is_paired: bool) -> tuple[Verdict, int]:
    """The verdict on a run whose failures ran again, and how many did. Raises ValueError for others."""
    first, *later = [_notes(path, is_paired=is_paired) for path in paths]
    again = {name: note for notes in later for name, note in notes.items()}
    strange = [name for name in again if name not in first or first[name].outcome == "passed"]
    if strange:
        raise ValueError(f"ran again, but had passed: {strange[0]}")
    return classify([*(first | again).values()], is_paired=is_paired, is_whole=True), len(again)


def read() -> dict[str, Run]:
    """The runs that are kept, by kind."""
    kept: dict[str, Run] = json.loads(RESULTS.read_text("utf-8")) if RESULTS.exists() else {}
    return kept


def rows() -> Iterator[tuple[str, ...]]:
    """A line for each file of tests, then the sums of messages and of administration: plain, then paired."""
    runs = [read()[kind] for kind in KINDS]
    sums = ("messages", "administration")
    for name in (*(file for file in runs[0]["files"] if file not in sums), *sums):
        counted = [run["files"].get(name, {}) for run in runs]
        yield (name, *(str(each.get(outcome, 0)) for each in counted for outcome in OUTCOMES))


def _notes(path: Path, *, is_paired: bool) -> dict[str, Note]:
    lines = path.read_text("utf-8").splitlines()
    found = classify([Note.of(json.loads(line)) for line in lines], is_paired=is_paired, is_whole=False).notes
    return {note.test: note for note in found}


if __name__ == "__main__":
    raise SystemExit(main())
