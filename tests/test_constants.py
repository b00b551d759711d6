"""The numbers of those that receive with locks: each has one home, so that changing it is one change."""

from __future__ import annotations

import ast
from collections import defaultdict
from collections.abc import Iterator
from pathlib import Path

PACKAGE = Path(__file__).resolve().parent.parent / "sbpair"
ROOMS = ("pair/client", "pair/syphon", "pair/processor")
STILL = {"ACTIVE", "DETACHED_WITHIN", "LOCKED_PAUSE", "MAX_PATHS", "MAX_RETRY_SECONDS", "OK", "TICK"}
"""Names that two modules give the same number; no other does, and the set only shrinks."""


def numbers(tree: ast.Module) -> Iterator[tuple[str, str]]:
    """Name and value of every constant of a module that is a number."""
    for node in tree.body:
        if isinstance(node, ast.Assign):
            for target in node.targets:
                names = target.elts if isinstance(target, ast.Tuple) else [target]
                values = node.value.elts if isinstance(node.value, ast.Tuple) else [node.value]
                for name, value in zip(names, values, strict=False):
                    text = ast.unparse(value)
                    if isinstance(name, ast.Name) and text.strip("0123456789_./* ") == "":
                        yield name.id.strip("_"), text


def test_each_number_of_the_consumers_is_defined_once() -> None:
    homes = defaultdict[tuple[str, str], list[str]](list)
    for room in ROOMS:
        for path in sorted((PACKAGE / room).rglob("*.py")):
            for each in numbers(ast.parse(path.read_text("utf-8"))):
                homes[each].append(f"{room}/{path.name}")
    assert [home for (name, _), home in homes.items() if name.startswith("LEFT_AT_RENEWAL")] == [
        ["pair/client/locks.py"]
    ]
    twice = {name: modules for (name, _), modules in homes.items() if len(modules) > 1 and name.isupper()}
    assert twice.keys() <= STILL, twice
