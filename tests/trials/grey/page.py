"""The blocks of docs/evidence/half-down.md, from the stored runs of the scenarios."""

from __future__ import annotations

import json
import os
import platform
from collections.abc import Callable, Mapping
from functools import cache
from pathlib import Path
from typing import Any

from tests.tools.source import table

STORED = Path(__file__).resolve().parents[3] / "docs" / "evidence" / "half-down.json"
NAMES = {"sdk": "bare SDK", "pair": "sbpair", "asyncio": "sbpair asyncio"}


@cache
def stored() -> Mapping[str, Any]:
    """The runs that the page shows."""
    found: Mapping[str, Any] = json.loads(STORED.read_text("utf-8"))
    return found


def machine() -> dict[str, Any]:
    """Where the runs are made."""
    return {
        "cores": os.cpu_count(),
        "system": platform.platform(terse=True),
        "python": platform.python_version(),
    }


def run() -> str:
    """When and where the runs were made."""
    on = stored()["machine"]
    rows = (
        ("last run", stored()["at"]),
        ("machine", f"{on['cores']} cores, {on['system']}, Python {on['python']}"),
    )
    return table(("", ""), rows)


def real() -> str:
    """Every scenario in real time, a row for each contestant."""
    rows = []
    for each in stored()["real"]:
        for contestant, figures in each["figures"].items():
            rows.append(
                (
                    each["title"],
                    NAMES.get(contestant, contestant.replace("pair", "sbpair")),
                    _share(figures.get("goodput")),
                    _number(figures.get("goodput_per_s"), ""),
                    _share(figures.get("raised")),
                    _number(figures.get("p50"), " s"),
                    _number(figures.get("p99"), " s"),
                    _number(figures.get("failed_over_at"), " s"),
                    _others(figures),
                )
            )
    head = (
        "what happens", "client", "stored in 5 s", "stored a second", "raised", "p50", "p99", "failed over after", "",
    )  # fmt: skip
    return table(head, rows)


def promises() -> str:
    """What each scenario must show, and whether it did."""
    rows = [
        (f"`{each['scenario']}`", each["title"], each["promise"], "yes" if each["holds"] else "**no**")
        for each in stored()["real"]
    ]
    return table(("name", "what happens", "what must come of it", "holds"), rows)


def virtual() -> str:
    """Every scenario in virtual time, a row for each policy."""
    run = stored()["virtual"]
    rows = [
        (
            each["scenario"],
            each["policy"],
            _share(each["goodput"]),
            *(f"{each[key]:.2f} s" for key in ("p50", "p99", "longest")),
            *(_share(each[key]) for key in ("raised", "parked", "needless", "copies")),
            f"{each['failed_over'] / run['clients']:.0%}",
            _number(each["median"], " s"),
        )
        for each in run["rows"]
    ]
    head = (
        "the primary",
        "`suspect_policy`",
        "stored in 5 s",
        "p50",
        "p99",
        "longest",
        "raised",
        "parked",
        "needlessly",
        "copies",
        "failed over",
        "after",
    )
    return table(head, rows)


def _share(value: float | None) -> str:
    return "" if value is None else f"{value:.1%}"


def _number(value: float | None, unit: str) -> str:
    return "" if value is None else f"{value:g}{unit}"


def _others(figures: Mapping[str, Any]) -> str:
    shown = {"home": "home", "late": "later than 8 s", "withdrawals": "withdrawals"}
    found = [f"{figures[key]} {name}" for key, name in shown.items() if figures.get(key)]
    if figures.get("raised") and figures.get("raised_after"):
        found.append(f"none raised before {figures['raised_after']:g} s")
    return ", ".join(found)


BLOCKS: dict[str, Callable[[], str]] = {
    "grey-run": run,
    "grey-real": real,
    "grey-promises": promises,
    "grey-virtual": virtual,
}
