"""A finding of the doctor: what is wrong, why it matters, and the next step."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass
from enum import StrEnum

from .facts import PairFacts


class Severity(StrEnum):
    """How bad a finding is, the worst first."""

    ERROR = "error"  # loses or strands messages, or keeps the pairing from working
    WARNING = "warning"  # may do so
    NOTE = "note"  # could not be checked, or is good to know


@dataclass(frozen=True, slots=True)
class Finding:
    """A problem, why it matters, and the next step."""

    severity: Severity
    about: str
    what: str
    why: str
    next_step: str


def alike(findings: Iterable[Finding]) -> list[tuple[Finding, list[str]]]:
    """Group findings that differ only in ``about``; return one finding of each group, with the ``about`` of all."""
    groups: dict[tuple[str, ...], tuple[Finding, list[str]]] = {}
    for each in findings:
        _, abouts = groups.setdefault((each.severity, each.what, each.why, each.next_step), (each, []))
        abouts.append(each.about)
    return list(groups.values())


Rule = Callable[[PairFacts], Iterator[Finding]]
ERROR, WARNING, NOTE = Severity
