"""The report of a drill: a table of the canaries, the result, and what to do about failures."""

from __future__ import annotations

import json
from collections import Counter
from dataclasses import asdict
from typing import TYPE_CHECKING

from rich.table import Table

from sbpair.pair.cli.output import plain

from .plan import ARRIVED, CONTENT_TYPE, Canary, Fate

if TYPE_CHECKING:
    from .run import Drill

NEXT_STEPS = {
    Fate.IN_DOUBT: f"interrupted while being sent: consumers may meet one and must skip {CONTENT_TYPE}",
    Fate.REFUSED: "no backlog queue accepted it: run `sbpair doctor` for the cause",
    Fate.PARKED: "perhaps no syphon runs: start `sbpair syphon`, or drill again --with-syphon",
    Fate.DEAD_LETTERED: "see `sbpair backlog peek --dead-letter`, fix the cause, then redrive",
    Fate.MISSING: "neither in its backlog nor on the primary: another client may have received or cancelled it",
}


def outcome(drill: Drill, interrupted: bool) -> str:
    """``passed``, ``failed`` or ``interrupted``."""
    if interrupted:
        return "interrupted"
    return "passed" if drill.is_passed else "failed"


def as_json_line(drill: Drill, said: str) -> str:
    """Return the report as one line of JSON."""
    report: dict[str, object] = {
        "drill": drill.id,
        "entity": drill.plan.entity,
        "outcome": said,
        "proof": drill.plan.proof,
        "recovered_by_ping": drill.has_recovered,
        "restored": not drill.is_held,
        "pings": drill.pings,
        "peeks": drill.peeks,
        "canaries": [asdict(each) for each in drill.canaries],
    }
    return json.dumps(report)


def table(drill: Drill) -> Table:
    """Return the canaries, one per row."""
    drawn = Table("canary", "backlog queue", "parked after", "home after", "state", "why")
    for each in drill.canaries:
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


def as_lines(drill: Drill, said: str) -> list[str]:
    """Return the result, and the next step for each kind of failure."""
    fates = Counter(each.fate for each in drill.canaries)
    home = sum(fates[fate] for fate in ARRIVED)
    ping = "a ping brought it home" if drill.has_recovered else "no ping was accepted; the drill restored it"
    lines = [
        f"drill {drill.id} of {drill.plan.entity} {said}: "
        f"{home} of {len(drill.canaries)} canaries came home; {ping}"
    ]
    if fates[Fate.TAKEN]:
        lines.append(
            f"{fates[Fate.TAKEN]} were received before they were seen: consumers must skip {CONTENT_TYPE}"
        )
    lines += [f"{fates[fate]} {fate.value}: {step}" for fate, step in NEXT_STEPS.items() if fates[fate]]
    return [*lines, f"pings: {drill.pings}, peeks: {drill.peeks}; --dry-run shows the other operations"]
