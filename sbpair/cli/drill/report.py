"""What does a drill say when it is over?"""

from __future__ import annotations

import json
from collections import Counter
from dataclasses import asdict
from typing import TYPE_CHECKING

from rich.table import Table

from sbpair.cli.screen import plain

from .canary import ARRIVED, CONTENT_TYPE, Canary, Fate

if TYPE_CHECKING:
    from .course import Course

NEXT_STEPS = {
    Fate.REFUSED: "no backlog queue took it: `sbpair doctor` says why",
    Fate.PARKED: "is a syphon running? `sbpair syphon`, or drill again --with-syphon",
    Fate.DEAD_LETTERED: "`sbpair backlog peek --dead-letter`, cure the cause, then redrive",
    Fate.MISSING: "neither in its backlog nor on the primary: did somebody else receive or cancel it?",
}


def outcome(course: Course, interrupted: bool) -> str:
    """``passed``, ``failed`` or ``interrupted``."""
    if interrupted:
        return "interrupted"
    return "passed" if course.is_passed else "failed"


def as_json_line(course: Course, said: str) -> str:
    """The report for machines."""
    report: dict[str, object] = {
        "drill": course.drill,
        "entity": course.plan.entity,
        "outcome": said,
        "proof": course.plan.proof,
        "recovered_by_ping": course.has_recovered,
        "restored": not course.is_held,
        "pings": course.pings,
        "peeks": course.peeks,
        "canaries": [asdict(each) for each in course.canaries],
    }
    return json.dumps(report)


def table(course: Course) -> Table:
    """The canaries, one a row."""
    drawn = Table("canary", "backlog queue", "parked after", "home after", "state", "why")
    for each in course.canaries:
        drawn.add_row(*map(plain, _cells(each)))
    return drawn


def _cells(each: Canary) -> tuple[str, ...]:
    backlog = "-" if each.backlog is None else str(each.backlog)
    return (
        str(each.number),
        backlog,
        _span(each.parked_after),
        _span(each.home_after),
        each.fate,
        each.why or "-",
    )


def _span(seconds: float | None) -> str:
    return "-" if seconds is None else f"{seconds:.2f} s"


def as_lines(course: Course, said: str) -> list[str]:
    """What it means, and what to do about it."""
    fates = Counter(each.fate for each in course.canaries)
    home = sum(fates[fate] for fate in ARRIVED)
    ping = "a ping brought it home" if course.has_recovered else "no ping was accepted; restored by hand"
    lines = [
        f"drill {course.drill} of {course.plan.entity} {said}: "
        f"{home} of {len(course.canaries)} canaries came home; {ping}"
    ]
    if fates[Fate.TAKEN]:
        lines.append(
            f"{fates[Fate.TAKEN]} were taken before they could be seen: consumers must skip {CONTENT_TYPE}"
        )
    lines += [f"{fates[fate]} {fate.value}: {step}" for fate, step in NEXT_STEPS.items() if fates[fate]]
    return [*lines, f"pings: {course.pings}, peeks: {course.peeks}; the other operations are in --dry-run"]
