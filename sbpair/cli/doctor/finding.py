"""One thing that is not as it should be, and how bad it is. Pure."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import dataclass
from enum import StrEnum

from .facts import Facts


class Severity(StrEnum):
    """How bad a finding is, the worst first."""

    ERROR = "error"  # loses or strands messages, or keeps the pairing from working
    WARNING = "warning"  # may do so
    NOTE = "note"  # could not be looked at, or is good to know


@dataclass(frozen=True, slots=True)
class Finding:
    """What was found, why it matters, and what to do about it."""

    severity: Severity
    about: str
    what: str
    why: str
    next_step: str


Rule = Callable[[Facts], Iterator[Finding]]
ERROR, WARNING, NOTE = Severity
