"""The command that shows or recovers a message, by its verdict and its records in the journals.

A command runs as it is printed: paths are absolute, and namespaces are read from SBPAIR_PRIMARY and SBPAIR_SECONDARY.
"""

from __future__ import annotations

import json
from collections.abc import Mapping
from enum import Enum
from pathlib import Path
from shlex import quote
from typing import Any

from ..judge.verdict import Verdict
from ..read.object_storage import is_uri


class Remedy(Enum):
    """A remedy for a message; the values are the commands."""

    REPLAY = "sbpair spark replay --audit {results} --dry-run"
    DRAIN = "sbpair syphon --drain"
    REDRIVE = "sbpair backlog redrive --index {backlog}"
    PEEK_BACKLOG = "sbpair backlog peek --index {backlog} --count 100000 --json | grep -F {id}"
    PEEK_PRIMARY = "sbpair peek {primary} --count 1000000 --json | grep -F {id}"
    PEEK_SECONDARY = "sbpair peek {secondary} --count 1000000 --json | grep -F {id}"
    PEEK_DEAD_LETTERS = "sbpair peek {primary} --dead-letter --count 1000000 --json | grep -F {id}"
    TRACE = "grep -rhF {id} {journals}"

    @property
    def tool(self) -> str:
        """The command without its arguments."""
        return self.value.partition(" {")[0].partition(" --")[0]

    @property
    def meaning(self) -> str:
        """The action of the command, as the beginning of a sentence."""
        return MEANING[self]


MEANING = {
    Remedy.REPLAY: "counts what is lost; with --archive PATH, the Parquet files of what you sent, it finds them, and "
    "without --dry-run sends them again",
    Remedy.DRAIN: "forwards what waits in the backlog queues, beside a syphon that runs too",
    Remedy.REDRIVE: "puts back what a syphon dead-lettered, once the reason is gone",
    Remedy.PEEK_BACKLOG: "says whether it is still in its backlog queue",
    Remedy.PEEK_PRIMARY: "says whether it is still there, also deferred, scheduled or locked",
    Remedy.PEEK_SECONDARY: "says whether it is still where it landed",
    Remedy.PEEK_DEAD_LETTERS: "shows it among the dead letters",
    Remedy.TRACE: "prints all records that name it; zgrep does where journals are compressed",
}


def remedy_of(row: Mapping[str, Any]) -> Remedy:
    """Return the remedy for a message by its row of ``messages``."""
    has_left = row["backlogged"] > 0 and row["held_in_backlog"] <= 0  # by the journal of a broker
    is_parked_only = row["parked"] > 0 and not row["forwarded"] + row["accepted_by_primary"] + has_left
    match Verdict(row["verdict"]):
        case Verdict.LOST:
            return Remedy.REPLAY
        case Verdict.DEAD_LETTERED:
            return (
                Remedy.REDRIVE
                if row["set_aside"] and row["backlog"] is not None
                else Remedy.PEEK_DEAD_LETTERS
            )
        case Verdict.WAITING if row["landed"]:
            return Remedy.PEEK_SECONDARY
        case Verdict.WAITING if "the spool" in (row["place"] or ""):
            return Remedy.TRACE  # its path is known on its machine only
        case Verdict.WAITING if "backlog queue" in (row["place"] or ""):
            return Remedy.DRAIN
        case Verdict.WAITING:
            return Remedy.PEEK_PRIMARY
        case Verdict.UNPROVEN if is_parked_only:
            return Remedy.TRACE if row["backlog"] is None else Remedy.PEEK_BACKLOG
        case Verdict.UNPROVEN if row["accepted_by_primary"] + row["forwarded"] + has_left:
            return Remedy.PEEK_PRIMARY
        case _:
            return Remedy.TRACE


def command(
    remedy: Remedy, path: str, message_id: str, backlog: int | None, journals: str, results: str
) -> str:
    """Return the command; "" if none can run as printed."""
    if remedy is Remedy.TRACE and is_uri(journals):
        return ""
    return remedy.value.format(
        id=quote(json.dumps(message_id)),
        primary=quote(f"primary/{path}"),
        secondary=quote(f"secondary/{path}"),
        backlog=backlog,
        journals=_absolute(journals),
        results=_absolute(results),
    )


def _absolute(place: str) -> str:
    return quote(place if is_uri(place) else str(Path(place).absolute()))
