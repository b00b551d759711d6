"""The tables of a daily audit as Delta and Iceberg tables: grown by the day, and whole at every moment."""

from __future__ import annotations

import json
import random
import re
import shutil
import signal
import subprocess
import sys
from importlib.util import module_from_spec, spec_from_file_location
from pathlib import Path
from types import ModuleType

import pyarrow as pa
import pyarrow.dataset as ds
import pytest
from deltalake import DeltaTable
from pyiceberg import catalog as catalogs
from pyiceberg.catalog import load_catalog
from pyiceberg.utils.config import Config

from sbpair.data.audit.daily import audit_daily
from sbpair.data.audit.daily import job as daily_job
from tests.data.audit.month import DAY, month
from tests.data.audit.story import Story

SAMPLE = Path(__file__).resolve().parents[3] / "samples" / "audit" / "tables.py"
CATALOG, NAMESPACE = "here", "audit"
KINDS = ("delta", "iceberg")
KILLED = """
import os, runpy, signal, sys, threading
import deltalake, pyarrow.dataset, pyiceberg.catalog.sql
number, moment, sample, *sys.argv = sys.argv[1:]
sys.argv.insert(0, sample)
dataset, left = pyarrow.dataset.dataset, iter(range(int(number)))

def kill():
    os.kill(os.getpid(), signal.SIGKILL)

def read(*given, **more):
    if next(left, None) is None:
        threading.Timer(float(moment), kill).start() if float(moment) else kill()
    return dataset(*given, **more)

pyarrow.dataset.dataset = read
runpy.run_path(sample, run_name="__main__")
"""

pytestmark = [
    pytest.mark.spec("R-146"),
    pytest.mark.filterwarnings("ignore:Delete operation did not match any records"),  # of a day that is new
]


@pytest.fixture(autouse=True)
def _no_page(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(daily_job, "page", lambda *given: "")


@pytest.fixture(autouse=True)
def catalog(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    for name, value in (
        ("TYPE", "sql"),
        ("URI", f"sqlite:///{tmp_path}/catalog.db"),
        ("WAREHOUSE", f"file://{tmp_path}/warehouse"),
    ):
        monkeypatch.setenv(f"PYICEBERG_CATALOG__HERE__{name}", value)
    monkeypatch.setenv("PYICEBERG_HOME", str(tmp_path))
    monkeypatch.setattr(catalogs, "_ENV_CONFIG", Config())  # read once, when it is imported


def sample() -> ModuleType:
    spec = spec_from_file_location("tables", SAMPLE)
    assert spec
    assert spec.loader
    module = module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


def arguments(kind: str, state: Path, place: Path) -> tuple[str, ...]:
    return (str(state), str(place)) if kind == "delta" else (str(state), CATALOG, NAMESPACE)


def publish(kind: str, state: Path, place: Path) -> None:
    getattr(sample(), f"to_{kind}")(*arguments(kind, state, place))


def opened(kind: str, place: Path, table: str) -> pa.Table | None:
    if kind == "delta":
        uri = str(place / table)
        return DeltaTable(uri).to_pyarrow_table() if DeltaTable.is_deltatable(uri) else None
    catalog = load_catalog(CATALOG)
    name = f"{NAMESPACE}.{table}"
    return catalog.load_table(name).scan().to_arrow() if catalog.table_exists(name) else None


def rows(table: pa.Table | None) -> list[str]:
    if table is None:
        return []
    return sorted(repr(sorted(row.items())) for row in table.to_pylist())


def there(kind: str, place: Path) -> dict[str, list[str]]:
    return {table: rows(opened(kind, place, table)) for table in sample().TABLES}


def here(state: Path) -> dict[str, list[str]]:
    whole = state / "current"
    return {
        table: rows(ds.dataset(whole / table, partitioning=sample().BY_DAY).to_table())
        for table in sample().TABLES
        if (whole / table).exists()
    }


def versions(kind: str, place: Path) -> list[object]:
    """What changes with each commit."""
    if kind == "delta":
        return [DeltaTable(str(place / table)).version() for table in sample().TABLES]
    catalog = load_catalog(CATALOG)
    return [
        catalog.load_table(f"{NAMESPACE}.{table}").metadata.current_snapshot_id for table in sample().TABLES
    ]


@pytest.mark.parametrize("kind", KINDS)
def test_the_lake_tables_equal_the_audit_every_day_and_rerunning_a_day_changes_nothing(
    tmp_path: Path, kind: str
) -> None:
    """A month begins in which journals arrive late: days of before change, too."""
    journals, state, place = tmp_path / "journals", tmp_path / "state", tmp_path / "lake"
    for day in month(journals, days=9, messages=10):
        audit_daily(journals, state)
        if day in (0, 4, 7, 8):  # what changed on the days between is made up for
            publish(kind, state, place)
            assert there(kind, place) == here(state), f"day {day}"
    audit_daily(journals, state)  # of the syphon's last words
    publish(kind, state, place)
    before = versions(kind, place)
    audit_daily(journals, state)
    publish(kind, state, place)
    assert versions(kind, place) == before, "nothing was new: no commit"


@pytest.mark.parametrize("kind", KINDS)
def test_a_day_whose_messages_all_moved_to_an_earlier_day_is_emptied(tmp_path: Path, kind: str) -> None:
    """A journal that arrives late shows that they were sent before midnight."""
    journals, state, place = tmp_path / "journals", tmp_path / "state", tmp_path / "lake"
    story = Story(journals)
    story.sender().sent("first", "moved")
    story.end()
    sent = shutil.move(next(journals.glob("*")), tmp_path / "late.jsonl")
    later = Story(journals, now=DAY)
    later.receiver().received("moved", numbers=(1,))
    later.end()
    audit_daily(journals, state)
    publish(kind, state, place)
    shutil.move(sent, journals / "sender-late-000001.jsonl")
    audit_daily(journals, state)
    publish(kind, state, place)

    found = opened(kind, place, "messages")
    assert found is not None
    assert sorted(found.column("message_id").to_pylist()) == ["first", "moved"]
    assert len(set(found.column("day").to_pylist())) == 1
    assert there(kind, place)["messages"] == here(state)["messages"]


@pytest.mark.parametrize("kind", KINDS)
def test_a_program_killed_at_any_moment_leaves_whole_tables_and_reruns_to_the_same(
    tmp_path: Path, kind: str
) -> None:
    journals, state, place = tmp_path / "journals", tmp_path / "state", tmp_path / "lake"
    luck = random.Random(5)
    for day in month(journals, days=3, messages=20):
        before = there(kind, place)
        audit_daily(journals, state)
        after = here(state)
        for _ in range(2 if day else 0):
            moment = luck.uniform(0.01, 0.2) if day == 1 else 0.0  # within the first commit, or after it
            done = run_and_kill(kind, state, place, 0 if moment else 1, moment)
            assert done == -signal.SIGKILL or moment
            found = there(kind, place)
            for table, now in found.items():
                assert now in (before[table], after[table]), f"day {day}, {table}, {moment:.3f} s"
            assert moment or sum(found[table] != before[table] for table in found) <= 1
            before = found
        publish(kind, state, place)
        assert there(kind, place) == after


def run_and_kill(kind: str, state: Path, place: Path, number: int, moment: float) -> int:
    """Kill the program so many seconds after it reads the table of this number, from 0, of those that change."""
    command = [sys.executable, "-W", "ignore", "-c", KILLED, str(number), str(moment), str(SAMPLE), kind]
    return subprocess.run([*command, *arguments(kind, state, place)], timeout=100, check=False).returncode


def test_changes_are_reported_per_run(tmp_path: Path) -> None:
    journals, state = tmp_path / "journals", tmp_path / "state"
    days = month(journals, days=2, messages=10)
    told = []
    for number in range(3):
        if number < 2:
            next(days)
        audit_daily(journals, state)
        told.append(json.loads((state / "current" / "changes.json").read_text("utf-8")))

    assert [each["run"] for each in told] == [1, 2, 3]
    assert told[1]["tables"]["messages"].keys() == {"2026-11-21", "2026-11-22"}
    assert told[1]["tables"]["messages"]["2026-11-22"] == 2
    assert told[2]["tables"] == told[1]["tables"], "the third run found nothing new"


def test_the_how_to_shows_the_tested_program() -> None:
    page = SAMPLE.parents[2] / "docs" / "how-to" / "audit.md"
    blocks = re.findall(r"^```python\n(def .*?)^```$", page.read_text("utf-8"), re.MULTILINE | re.DOTALL)
    assert len(blocks) == 1
    assert blocks[0] in SAMPLE.read_text("utf-8")
