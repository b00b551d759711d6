"""The report on the SDK's tests: a table, and the unexpected results."""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Self

KNOWN = Path(__file__).parent / "known.txt"
LEAST = 0.95  # of those that apply


@dataclass(frozen=True, slots=True)
class Note:
    """One test: its name, what became of it, how long it took, and why it failed or was left out."""

    test: str
    outcome: str
    seconds: float
    why: str

    @classmethod
    def of(cls, line: Mapping[str, object]) -> Self:
        """From a line of the results."""
        seconds = line["seconds"]
        assert isinstance(seconds, float | int)
        return cls(str(line["test"]), str(line["outcome"]), float(seconds), str(line["why"]))

    @property
    def file(self) -> str:
        """Where it stands, under `tests`."""
        return self.test.partition("::")[0]


@dataclass(frozen=True, slots=True)
class Verdict:
    """All of them, beside those that are known to fail."""

    notes: tuple[Note, ...]
    known: Mapping[str, str]
    is_whole: bool

    def table(self) -> str:
        """A line a file, and the sums of tests of messages and of administration."""
        files = self.counts()
        wide = max(len(name) for name in files)
        rows = [f"{'':{wide}}  passed  failed  listed  left out"]
        for name, counted in sorted(
            files.items(), key=lambda item: ("/" not in item[0] and ".py" not in item[0], item)
        ):
            cells = (counted[kind] for kind in ("passed", "failed", "listed", "skipped"))
            rows.append(f"{name:{wide}}" + "".join(f"{cell:8}" for cell in cells))
        reasons = Counter(note.why for note in self.notes if note.outcome == "skipped")
        rows += [f"left out, {times}: {why}" for why, times in reasons.items()]
        return "\n".join(rows)

    def counts(self) -> dict[str, Counter[str]]:
        """How many tests of each outcome, by file, and in all those of messages and of administration."""
        files: dict[str, Counter[str]] = {}
        for note in self.notes:
            for row in (note.file, "administration" if "mgmt" in note.file else "messages"):
                files.setdefault(row, Counter())[self._row(note)] += 1
        return files

    def complaints(self) -> list[str]:
        """What is not as it should be; empty when all is well."""
        failed = [note for note in self.notes if note.outcome == "failed"]
        lines = [f"FAILED {note.test}: {note.why}" for note in failed if note.test not in self.known]
        lines += [
            f"PASSED, but known.txt lists it: {note.test}"
            for note in self.notes
            if note.outcome == "passed" and note.test in self.known
        ]
        for kind in (True, False):
            ran = [note for note in self.notes if ("mgmt" in note.file) is kind and note.outcome != "skipped"]
            passed = sum(note.outcome == "passed" for note in ran)
            if ran and passed < LEAST * len(ran):
                what = "administration" if kind else "messages"
                lines.append(f"only {passed} of {len(ran)} tests of {what} pass: {LEAST:.0%} should")
        if self.is_whole:
            there = {note.test for note in self.notes}
            lines += [f"known.txt lists what is no test: {name}" for name in self.known if name not in there]
        return lines

    def _row(self, note: Note) -> str:
        return "listed" if note.outcome == "failed" and note.test in self.known else note.outcome


def classify(notes: Sequence[Note], *, is_paired: bool, is_whole: bool) -> Verdict:
    """The verdict on a run; one note a test, the worst of its phases."""
    worst: dict[str, Note] = {}
    for note in notes:
        if note.test not in worst or note.outcome == "failed":
            worst[note.test] = note
    return Verdict(tuple(worst.values()), known_failures(is_paired), is_whole)


def known_failures(is_paired: bool) -> dict[str, str]:
    """`test: reason` a line; those that begin with `paired ` are about the paired senders alone."""
    found = {}
    for line in KNOWN.read_text().splitlines() if KNOWN.exists() else ():
        if not line.strip() or line.startswith("#"):
            continue
        test, _, reason = line.removeprefix("paired ").partition(": ")
        if is_paired or not line.startswith("paired "):
            found[test] = reason
    return found
