"""The tables as an interface: each column is described, on the page and in each file, and all are there."""

from __future__ import annotations

from pathlib import Path

import pyarrow as pa
import pyarrow.dataset as ds
import pyarrow.parquet as pq
import pytest

from sbpair.audit import audit
from sbpair.data.audit.daily import audit_daily
from sbpair.data.audit.job import TABLES
from sbpair.data.audit.result.interface import COLUMNS, VERSION, VERSION_KEY, schema_of
from tests.data.audit.story import Story
from tests.data.audit.world import a_day

pytestmark = pytest.mark.spec("R-230")


def healthy(journals: Path) -> Path:
    """The first day of a pair to which nothing happened: no session, nothing parked, lost or doubled."""
    story = Story(journals)
    story.sender().sent("m")
    story.receiver().received("m", numbers=(1,))
    story.end()
    return journals


def nothing(journals: Path) -> Path:
    story = Story(journals)
    story.sender()
    story.end()
    return journals


def eventful(journals: Path) -> Path:
    a_day().write(journals, "all")
    return journals


def described(schema: pa.Schema) -> list[tuple[str, pa.DataType, bytes]]:
    return [(each.name, each.type, each.metadata[b"comment"]) for each in schema]


STORIES = (healthy, nothing, eventful)


@pytest.mark.parametrize("told", STORIES, ids=lambda each: each.__name__)
def test_all_tables_are_written_with_all_columns_and_their_comments(tmp_path: Path, told) -> None:
    audit(told(tmp_path / "journals"), tmp_path / "out")

    for table in TABLES:
        found = ds.dataset(tmp_path / "out" / table, format="parquet").schema
        assert described(found) == described(schema_of(table)), table


@pytest.mark.parametrize("told", STORIES, ids=lambda each: each.__name__)
def test_a_daily_audit_writes_all_tables_on_its_first_day(tmp_path: Path, told) -> None:
    audit_daily(told(tmp_path / "journals"), tmp_path / "state")

    for table in COLUMNS:
        for file in sorted((tmp_path / "state" / "current" / table).rglob("*.parquet")):
            assert described(pq.read_schema(file)) == described(schema_of(table)), file
        assert (tmp_path / "state" / "current" / table).exists(), table


def test_a_daily_audit_has_the_same_missing_duplicates_and_waits_as_a_single_one(tmp_path: Path) -> None:
    world = a_day()
    for who in ("secondary", "syphon", "primary", "receiver"):
        world.drop(who, ["p05"])
    world.again("receiver", "messages_received", "d03", sequence_numbers=[9000])
    world.write(tmp_path / "journals", "cloud")
    audit(tmp_path / "journals", tmp_path / "out")
    audit_daily(tmp_path / "journals", tmp_path / "state")

    for table in ("missing", "duplicates", "waits"):
        once, daily = (
            ds.dataset(place, format="parquet").to_table().to_pylist()
            for place in (tmp_path / "out" / table, tmp_path / "state" / "current" / table)
        )
        assert sorted(map(repr, once)) == sorted(map(repr, daily)) != [], table


def test_each_file_states_its_table_version(tmp_path: Path) -> None:
    audit(healthy(tmp_path / "journals"), tmp_path / "out")

    for file in (tmp_path / "out").rglob("*.parquet"):
        assert pq.read_schema(file).metadata[VERSION_KEY.encode()] == str(VERSION).encode(), file


PROMISED = Path(__file__).with_name("tables.txt")


def test_within_a_version_columns_are_only_added() -> None:
    """tables.txt has a line for each column that was ever released in this version."""
    version, *lines = PROMISED.read_text("utf-8").splitlines()
    now = {f"{table}.{each.name}: {each.kind}" for table, columns in COLUMNS.items() for each in columns}

    assert version == f"version {VERSION}"
    assert set(lines) - now == set(), "removed, renamed or of another type: that takes another version"
    assert now - set(lines) == set(), f"new: add them to {PROMISED.name}"
