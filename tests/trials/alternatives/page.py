"""The blocks of docs/evidence/alternatives.md, from the stored runs."""

from __future__ import annotations

import ast
import inspect
import json
from collections.abc import Callable, Mapping
from functools import cache
from pathlib import Path
from typing import Any

from tests.tools.source import table

from .scenarios import CONTESTANTS, PAIRED, SCENARIOS, module_of

STORED = Path(__file__).resolve().parents[3] / "docs" / "evidence" / "alternatives.json"


@cache
def stored() -> Mapping[str, Any]:
    """The runs that the page shows."""
    found: Mapping[str, Any] = json.loads(STORED.read_text("utf-8"))
    return found


def lines_of(contestant: str) -> int:
    """How many lines a contestant has: of code, without what it imports of its own package."""
    source = inspect.getsource(module_of(contestant))
    tree = ast.parse(source)
    texts = {
        line
        for node in ast.walk(tree)
        if isinstance(node, ast.Expr)
        and isinstance(node.value, ast.Constant)
        and isinstance(node.value.value, str)
        for line in range(node.lineno, (node.end_lineno or node.lineno) + 1)
    }
    lines = enumerate(source.splitlines(), 1)
    own = sum(
        bool(line.strip()) and number not in texts and not line.startswith(("from .", "#"))
        for number, line in lines
    )
    base = {"spooled": "paired", "always": "paired", "forwarder": "breaker"}.get(contestant)
    return own if base is None else own + lines_of(base) * (base == "paired") + _breaker_lines(base)


def _breaker_lines(base: str) -> int:
    """The lines of the breaker that a forwarder shares."""
    if base != "breaker":
        return 0
    return len([line for line in inspect.getsource(module_of(base).Breaker).splitlines() if line.strip()])


def run() -> str:
    """When and where the runs were made."""
    on = stored()["machine"]
    where = f"{on['cores']} cores, {on['system']}, Python {on['python']}"
    return table(("", ""), (("last run", stored()["at"]), ("machine", where)))


def _rows() -> list[tuple[str, str, list[Mapping[str, Any]]]]:
    """Each contestant: its title, its lines, and its runs."""
    found = []
    for contestant, title in CONTESTANTS.items():
        for is_asyncio in (False, True) if contestant in PAIRED else (False,):
            runs = [
                each
                for each in stored()["runs"]
                if each["contestant"] == contestant and each["asyncio"] == is_asyncio
            ]
            if runs:
                lines = "" if is_asyncio else str(lines_of(contestant))
                found.append((f"{title}, asyncio" if is_asyncio else title, lines, runs))
    return found


def shares() -> str:
    """What each contestant stored of what was offered, and the worst of all its runs."""
    rows = []
    for title, lines, runs in _rows():
        by_name = {each["scenario"]: each for each in runs}
        homes = [each["home_after"] for each in runs if not each["second"]]
        left = any(each["second"] for each in runs)
        rows.append(
            (
                title,
                lines,
                *(f"{by_name[name]['stored']:.0%}" if name in by_name else "" for name in SCENARIOS),
                f"{max(each['longest'] for each in runs):.1f} s",
                str(sum(each["raised"] for each in runs)),
                str(sum(each["lost"] for each in runs)),
                str(sum(each["twice"] for each in runs)),
                "left there" if left else f"{max(homes, default=0.0):.0f} s",
            )
        )
    names = (f"`{name}`" for name in SCENARIOS)
    return table(("", "lines", *names, "longest send", "raised", "lost", "twice", "home after"), rows)


def scenarios() -> str:
    """What each scenario is."""
    return table(("name", "what happens"), [(f"`{each.name}`", each.title) for each in SCENARIOS.values()])


BLOCKS: dict[str, Callable[[], str]] = {
    "alternatives-run": run,
    "alternatives-shares": shares,
    "alternatives-scenarios": scenarios,
}
