"""The contract, the dbt sources and the notebook of the audit's tables, as they are in samples/."""

from __future__ import annotations

import contextlib
import io
import json
import os
import sys
from pathlib import Path
from typing import Any

import duckdb
import pytest
import yaml

from sbpair.audit import audit
from tests.data.audit.world import a_day
from tests.tools.contracts import CONTRACT, FILES, SOURCES

pytestmark = pytest.mark.spec("R-230")
NOTEBOOK = CONTRACT.with_name("outage.ipynb")


@pytest.fixture
def tables(tmp_path: Path) -> Path:
    a_day().write(tmp_path / "journals", "all")
    audit(tmp_path / "journals", tmp_path / "out")
    return tmp_path / "out"


def lake(tables: Path) -> duckdb.DuckDBPyConnection:
    """Each table as a view."""
    found = duckdb.connect()
    for each in filter(Path.is_dir, tables.iterdir()):
        found.execute(f"CREATE VIEW \"{each.name}\" AS FROM read_parquet('{each}/*.parquet')")
    return found


@pytest.mark.parametrize("file", FILES, ids=lambda each: each.name)
def test_a_file_matches_its_documented_columns(file: Path) -> None:
    assert file.read_text("utf-8") == FILES[file](), "python -m tests.tools.contracts"


def test_the_data_contract_holds_for_a_green_audit_and_fails_for_a_red_one(tables: Path) -> None:
    told = [
        rule
        for table in yaml.safe_load(CONTRACT.read_text("utf-8"))["schema"]
        for rule in table.get("quality", ())
    ]
    assert [lake(tables).sql(rule["query"]).fetchall()[0][0] for rule in told] == [0] * len(told)

    world = a_day()
    for who in ("secondary", "syphon", "primary", "receiver"):
        world.drop(who, ["p05"])
    world.again("receiver", "messages_received", "d03", sequence_numbers=[9000])
    world.write(tables.parent / "others", "cloud")
    audit(tables.parent / "others", tables)
    assert [lake(tables).sql(rule["query"]).fetchall()[0][0] for rule in told] == [1, 1, 1, 0]


def test_required_columns_are_never_null_and_keys_are_unique(tables: Path) -> None:
    there = lake(tables)
    for table in yaml.safe_load(CONTRACT.read_text("utf-8"))["schema"]:
        if table["name"] == "days":  # of a daily audit
            continue
        of = f'"{table["name"]}"'
        for column in table["properties"]:
            if column["required"]:
                ((count,),) = there.sql(
                    f'SELECT count(*) FROM {of} WHERE "{column["name"]}" IS NULL'
                ).fetchall()
                assert count == 0, (of, column["name"])
        keys = ", ".join(f'"{each["name"]}"' for each in table["properties"] if each.get("primaryKey"))
        assert there.sql(f"SELECT {keys} FROM {of} GROUP BY ALL HAVING count(*) > 1").fetchall() == [], of


def test_dbt_sources_read_from_their_declared_location(tables: Path) -> None:
    (source,) = yaml.safe_load(SOURCES.read_text("utf-8"))["sources"]
    place = source["config"]["meta"]["external_location"].replace(
        '{{ env_var("SBPAIR_AUDIT") }}', str(tables)
    )
    for table in source["tables"]:
        found = duckdb.sql(f"FROM {place.replace('{name}', table['name'])}").columns
        assert found == [each["name"] for each in table["columns"]]


@pytest.mark.slow
@pytest.mark.timeout(240)
def test_the_notebook_runs_in_an_empty_folder_and_matches_its_stored_output(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv("PATH", f"{Path(sys.executable).parent}:{os.environ['PATH']}")
    told: list[Any] = [
        each for each in json.loads(NOTEBOOK.read_text("utf-8"))["cells"] if each["cell_type"] == "code"
    ]
    names: dict[str, object] = {}
    for cell in told:
        with contextlib.redirect_stdout(io.StringIO()) as out:
            exec("".join(cell["source"]), names)
        stored = "".join("".join(each["text"]) for each in cell["outputs"])
        assert out.getvalue() == stored
