"""Tampered journals and incidents: no audit is green by mistake, none fails, and each says what is wrong.

    python -m tests.trials.tampering [--seeds 2] [--engines local spark] [--into docs/evidence/tampering.json]
    python -m tests.trials.tampering --incidents [--seeds 9] [--into docs/evidence/incidents.json]
    python -m tests.tools.generate_docs

Every story, file and tampering of tests/data/audit/tampering.py, once for each seed, with a manifest; or every
incident of tests/data/audit/incidents.py in each shape, with and without one. On each engine. Progress on standard
error; one line of JSON at the end. Exits with 1 when one case does not hold.
"""

from __future__ import annotations

import argparse
import json
import sys
import tempfile
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

from sbpair.audit import Expected, Summary
from tests.data.audit.incidents import Drawn, drawn
from tests.data.audit.tampering import STORIES, Case, Told, cases, tampered, told, what_is_wrong
from tests.trials.grey.page import machine
from tests.trials.tampering.playing import played


@dataclass(frozen=True)
class TamperedStory:
    """A story one of whose files was tampered with, and a manifest made before."""

    case: Case
    original: Told

    @property
    def kind(self) -> str:
        return self.case.tampering

    def __str__(self) -> str:
        return str(self.case)

    def write(self, place: Path) -> Expected:
        return tampered(self.case, self.original, place)

    def what_is_wrong(self, found: Summary) -> str | None:
        return what_is_wrong(self.case, self.original, found)


@dataclass(frozen=True)
class PlayedIncident:
    """An incident, audited with a manifest or without one."""

    drawn: Drawn
    has_manifest: bool

    @property
    def kind(self) -> str:
        return self.drawn.incident.name

    def __str__(self) -> str:
        return f"{self.drawn} {'with' if self.has_manifest else 'without'} a manifest"

    def write(self, place: Path) -> Expected | None:
        expected = self.drawn.happens(place)
        return expected if self.has_manifest else None

    def what_is_wrong(self, found: Summary) -> str | None:
        return self.drawn.what_is_wrong(found, has_manifest=self.has_manifest)


def tampered_stories(seeds: Sequence[int], directory: Path) -> Iterator[TamperedStory]:
    originals = {story: told(story, directory / story) for story in STORIES}
    yield from (TamperedStory(case, originals[case.story]) for case in cases(seeds))


def played_incidents(seeds: Sequence[int]) -> Iterator[PlayedIncident]:
    for each in drawn(seeds):
        yield from (PlayedIncident(each, has_manifest) for has_manifest in (False, True))


def main() -> int:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--incidents", action="store_true", help="incidents in place of tampered stories")
    parser.add_argument("--seeds", type=int, default=2, help="default %(default)s")
    parser.add_argument("--engines", nargs="+", choices=("local", "spark"), default=["local", "spark"])
    parser.add_argument("--limit", type=int, help="the first cases only")
    parser.add_argument("--into", type=Path, help="a stored result, of which the engines played are replaced")
    asked = parser.parse_args()
    seeds = range(asked.seeds)
    found: dict[str, Any] = {"runs": []}
    if asked.into is not None and asked.into.exists():
        found = json.loads(asked.into.read_text("utf-8"))
    with tempfile.TemporaryDirectory() as directory:
        every = played_incidents(seeds) if asked.incidents else tampered_stories(seeds, Path(directory))
        some = list(every)[: asked.limit]
        new = [played(name, some) for name in asked.engines]
    kept = {each["engine"]: each for each in (*found["runs"], *new)}
    found = {"at": f"{datetime.now(UTC):%Y-%m-%d}", "machine": machine(), "seeds": asked.seeds,
             "runs": [kept[name] for name in ("local", "spark") if name in kept]}  # fmt: skip
    if asked.into is None:
        sys.stdout.write(json.dumps(found) + "\n")
    else:
        asked.into.write_text(json.dumps(found, indent=1) + "\n", "utf-8")
    return 1 if any(each["wrong"] for each in new) else 0


if __name__ == "__main__":
    sys.exit(main())
