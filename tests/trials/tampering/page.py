"""The blocks of docs/evidence/audit.md, from the stored runs of the trial."""

from __future__ import annotations

import json
import statistics
from collections.abc import Callable, Mapping
from functools import cache
from pathlib import Path
from typing import Any

from tests.tools.source import table

EVIDENCE = Path(__file__).resolve().parents[3] / "docs" / "evidence"
ENGINES = {"local": "threads on one machine", "spark": "Spark"}


@cache
def stored(name: str) -> Mapping[str, Any]:
    """The result ``name`` that the page shows."""
    found: Mapping[str, Any] = json.loads((EVIDENCE / f"{name}.json").read_text("utf-8"))
    return found


def run() -> str:
    """When and where the runs were made, and what they found."""
    return _run("tampering", "green by mistake, failed or not named")


def incidents_run() -> str:
    return _run("incidents", "green or red by mistake, or failed")


def _run(name: str, wrong: str) -> str:
    rows = _where(stored(name))
    rows += [
        (ENGINES[each["engine"]], f"{each['cases']} cases: {len(each['wrong'])} {wrong}")
        for each in stored(name)["runs"]
    ]
    return table(("", ""), rows)


def incidents() -> str:
    """A row for each incident, what is owed to it, and how many audits were green on each engine."""
    from tests.data.audit.incidents import INCIDENTS  # needs the packages of an audit

    runs = stored("incidents")["runs"]
    rows = [
        (name, each.owed.value, ", ".join(each.shapes), *(_green(run, name) for run in runs))
        for name, each in INCIDENTS.items()
    ]
    return table(
        ("incident", "owed", "who keeps journals", *(f"green, {ENGINES[run['engine']]}" for run in runs)),
        rows,
    )


def _green(run: Mapping[str, Any], name: str) -> str:
    found = run["kinds"].get(name, {"green": 0, "cases": 0})
    return f"{found['green']} of {found['cases']}"


def tamperings() -> str:
    """A row for each tampering, and how many audits were green on each engine."""
    from tests.data.audit.tampering import TAMPERINGS  # needs the packages of an audit

    runs = stored("tampering")["runs"]
    rows = [
        (
            name,
            "yes" if tampering.hides else "",
            *(_green(each, name) for each in runs),
        )
        for name, tampering in TAMPERINGS.items()
    ]
    return table(
        ("the file is", "must be seen", *(f"green, {ENGINES[each['engine']]}" for each in runs)), rows
    )


def stories() -> str:
    """The stories and files, in a sentence."""
    from tests.data.audit.tampering import FILES, STORIES

    return f"Stories: {', '.join(STORIES)}. Files: {', '.join(FILES)}.\n"


def daily() -> str:
    """What a day cost, and the runs that were killed."""
    found = stored("daily")
    seconds = found["seconds"]
    rows = [
        *_where(found),
        ("messages per day", str(found["messages"])),
        ("second week, median", f"{statistics.median(seconds[7:14]):.2f} s of the processor"),
        ("last week, median", f"{statistics.median(seconds[-7:]):.2f} s of the processor"),
        (
            "runs killed",
            f"{found['kills'] - found['ended_before']} of {found['kills']}; the others had ended",
        ),
        ("repeated to other tables", str(found["differing"])),
    ]
    return table(("", ""), rows)


def _where(found: Mapping[str, Any]) -> list[tuple[str, str]]:
    on = found["machine"]
    return [
        ("last run", found["at"]),
        ("machine", f"{on['cores']} cores, {on['system']}, Python {on['python']}"),
    ]


BLOCKS: dict[str, Callable[[], str]] = {
    "tampering-run": run,
    "tampering-stories": stories,
    "tampering-table": tamperings,
    "incidents-run": incidents_run,
    "incidents-table": incidents,
    "daily-run": daily,
}
