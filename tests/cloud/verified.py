"""Recordings of `sbpair verify` against the service that people sent, as data: one file for each run.

A file of `verified` is a recording as the command writes it (`sbpair.contract.record`), kept by `tests.cloud.keep`: its
exchanges are in the form of `http.jsonl`, its frames as they were. What holds in it witnesses its entry.
"""

from __future__ import annotations

import json
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from tests.contract.replay import Recorded, read_recording

DATA = Path(__file__).parent / "verified"


@dataclass(frozen=True, slots=True)
class Verified:
    """One run."""

    name: str
    date: str
    tiers: dict[str, str]
    """By side."""

    lines: Sequence[dict[str, Any]]
    file: Path

    @property
    def tier(self) -> str:
        """The tier of both namespaces, as far as it is known."""
        known = {tier for tier in self.tiers.values() if tier != "unknown"}
        return known.pop() if len(known) == 1 else "Standard"

    @property
    def source(self) -> str:
        """How the run is named as a source."""
        return f"sbpair verify, {self.name}"

    def label(self, entry: str) -> str:
        """The name of what was recorded of an entry."""
        return f"{self.name}:{entry}"

    def with_verdict(self, verdict: str) -> list[str]:
        """The entries that have this verdict."""
        return [line["entry"] for line in self.lines if line["verdict"] == verdict]

    def frames(self) -> list[Recorded]:
        """What was recorded over AMQP, of the entries that frames alone repeat."""
        return [each for each in read_recording(self.file) if each.can_be_replayed]


def runs(directory: Path = DATA) -> list[Verified]:
    """Return all runs."""
    return [_read(file) for file in sorted(directory.glob("*.jsonl"))]


def _read(file: Path) -> Verified:
    head, *lines = (json.loads(line) for line in file.read_text("utf-8").splitlines())
    return Verified(file.stem, head["at"][:10], head["tiers"], lines, file)
