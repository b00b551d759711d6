"""The table of what a peer can fill, in docs/explanation/security.md, held against the code."""

from __future__ import annotations

import importlib
import re
from pathlib import Path

import pytest

import sbpair
from sbpair.broker.entities.quotas import Tier

pytestmark = pytest.mark.spec("S-23")

ROOT = Path(__file__).resolve().parents[2]
PAGE = ROOT / "docs/explanation/security.md"
ROW = re.compile(
    r"^\| (?P<what>[^|]+) \| (?P<when>[^|]+) \| (?P<bound>[^|]+) \| `(?P<where>[\w.:\[\]]+)` \|$",
    re.MULTILINE,
)
UNITS = {"KiB": 2**10, "MiB": 2**20, "GiB": 2**30}
ROWS = [match.groupdict() for match in ROW.finditer(PAGE.read_text("utf-8"))]
IN_BYTES = re.compile(r"^(_?MAX_[A-Z_]*(?:BYTES|SIZE)[A-Z_]*|_?MAX_[A-Z_]+(?=.*# bytes))\b.*=", re.MULTILINE)
OF_ANSWERS = {
    "sbpair.broker.frontends.dashboard.message:MAX_BODY",
    "sbpair.broker.frontends.dashboard.message:MAX_BYTES_SHOWN",
    "sbpair.broker.frontends.dashboard.views:MAX_STATE",
    "sbpair.broker.store.message_rows:MAX_BYTES",
}
"""Bounds of what the broker itself writes, to a reader with the token or to its disk."""


def value_of(where: str) -> int:
    module, _, name = where.partition(":")
    name, _, key = name.removesuffix("]").partition("[")
    found = importlib.import_module(module)
    for part in name.split("."):
        found = getattr(found() if isinstance(found, type) else found, part)
    return found[Tier[key]] if key else found


def bound_of(text: str) -> int:
    number, _, unit = text.partition(" ")
    return int(number.replace(",", "")) * (UNITS[unit] if unit else 1)


@pytest.mark.parametrize("row", ROWS, ids=lambda row: row["where"])
def test_every_bound_in_the_table_equals_its_constant(row: dict[str, str]) -> None:
    assert value_of(row["where"]) == bound_of(row["bound"])
    assert row["when"] in ("before", "after")


def test_the_table_of_bounds_is_readable_and_has_no_duplicates() -> None:
    names = [row["where"] for row in ROWS]
    assert len(names) > 25
    assert len(set(names)) == len(names)


def test_every_byte_limit_of_the_code_is_in_the_table() -> None:
    known = {row["where"].partition("[")[0] for row in ROWS} | OF_ANSWERS
    found = set()
    installed = Path(sbpair.__file__).parent
    files = [*(installed / "broker").rglob("*.py"), *(installed / "pair" / "amqp").glob("*.py")]
    for file in (each for each in files if not {"cli", "testing"} & set(each.parts)):
        module = ".".join(file.relative_to(installed.parent).with_suffix("").parts)
        found |= {f"{module}:{match[1]}" for match in IN_BYTES.finditer(file.read_text("utf-8"))}
    assert len(found) > 12
    assert found - known - {each for each in found if "frames:MIN" in each} == set()


def test_an_unauthenticated_connection_costs_little() -> None:
    heads = {row["where"]: bound_of(row["bound"]) for row in ROWS if row["when"] == "before"}
    kept = {where: size for where, size in heads.items() if size > 512 * 1024}
    assert set(kept) == {"sbpair.broker.server.wire:MAX_DISCARDED"}  # which is not kept
