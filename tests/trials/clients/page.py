"""The blocks of docs/evidence/clients.md, from the stored run of the table."""

from __future__ import annotations

import json
import re
from collections.abc import Callable, Mapping
from functools import cache, partial
from pathlib import Path
from typing import Any

from tests.tools.source import table
from tests.trials.clients.faults import FAULTS, Fault, Moment, Side

STORED = Path(__file__).resolve().parents[3] / "docs" / "evidence" / "clients.json"


@cache
def stored() -> Mapping[str, Any]:
    """The run that the page shows."""
    found: Mapping[str, Any] = json.loads(STORED.read_text("utf-8"))
    return found


def settings() -> str:
    """What was run, and where."""
    run = stored()
    on = run["machine"]
    clients = ", ".join(f"{each['title']} {each['version']}" for each in run["clients"])
    rows = (
        ("clients", clients),
        ("time for an operation", f"{run['limit']:g} s"),
        ("run", f"{run['began']}, seed {run['seed']}"),
        ("duration", f"{run['seconds'] // 60} min, {run['jobs']} rounds at a time"),
        ("played again", f"{run.get('again', 0)} rounds that had not begun"),
        ("machine", f"{on['cores']} cores, {on['system']}, load {on['load_before']} before"),
        ("runtimes", f"Python {on['python']}, Node {on['node']}, {on['java']}, {on['go']}"),
    )
    return table(("", ""), rows)


def cells(role: Side) -> str:
    """The faults of a role, against every client."""
    run = stored()
    found = {(each["fault"], each["client"]): each["symbols"] for each in run["rounds"]}
    names = [each["name"] for each in run["clients"]]
    rows = [
        (fault.title, *(_cell(found[fault.name, name]) for name in names))
        for fault in FAULTS
        if fault.role is role
    ]
    return table(("fault", *(each["title"] for each in run["clients"])), rows)


def _cell(symbols: str) -> str:
    letters, _, seconds = symbols.partition(" ")
    marked = re.sub("([A-Z]+)", r"**\1**", letters)
    return f"{marked} {seconds}".strip()


def sums() -> str:
    """Every client's rounds, added up."""
    run = stored()
    rows = []
    for client in run["clients"]:
        mine = [each for each in run["rounds"] if each["client"] == client["name"]]
        struck = [each for each in mine if each.get("has_struck")]
        counts = [sum(each[key] for each in struck) for key in ("lost", "duplicates", "reported", "again")]
        rounds = [sum(letter in each["symbols"] for each in struck) for letter in "HENf"]
        unharmed = sum(each["symbols"].startswith("·") for each in struck)
        recoveries = sorted(each["recovery"] for each in struck if each["recovery"] is not None)
        median = f"{recoveries[len(recoveries) // 2]:.1f}" if recoveries else ""
        rows.append(tuple(map(str, (client["title"], len(struck), unharmed, *counts, *rounds, median))))
    head = (
        "client", "rounds", "unharmed", "lost", "duplicated", "reported", "again",
        "rounds with **H**", "with **E**", "with **N**", "with `f`", "median seconds",
    )  # fmt: skip
    return table(head, rows)


def faults() -> str:
    """Every fault, and when it strikes."""
    rows = [(f"`{fault.name}`", fault.role.value, fault.title, _when(fault)) for fault in FAULTS]
    return table(("name", "strikes", "what happens", "when"), rows)


def _when(fault: Fault) -> str:
    span = f"for {fault.seconds:g} s" if fault.seconds else "once"
    return f"{'at the first connection' if fault.moment is Moment.OPENING else fault.moment.value}, {span}"


BLOCKS: dict[str, Callable[[], str]] = {
    "clients-run": settings,
    "clients-senders": partial(cells, Side.SEND),
    "clients-receivers": partial(cells, Side.RECEIVE),
    "clients-sums": sums,
    "clients-faults": faults,
}
