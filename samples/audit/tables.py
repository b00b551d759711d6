"""The tables of a daily audit as Delta or Iceberg tables, after each `sbpair audit --state STATE ...`:

    tables.py delta STATE PLACE
    tables.py iceberg STATE CATALOG NAMESPACE    # a catalog of .pyiceberg.yaml

Each table is changed by one commit, which replaces the days that the audit has changed since the commit before, and
records the number of the audit's run. So a program that is run twice, or killed and run again, leads to the same rows.
"""

import json
import sys
from datetime import date
from pathlib import Path

import pyarrow as pa
import pyarrow.dataset as ds

TABLES = ("messages", "missing", "duplicates", "order", "waits", "days", "writers")
BY_DAY = ds.partitioning(pa.schema([("day", pa.date32())]), flavor="hive")
RUN = "sbpair.run"


def change(run: Path, table: str, done: int) -> tuple[int, list[date] | None, pa.Table] | None:
    """The number of a run, the days that changed after the run `done` (None: all), and their rows; None if none did."""
    changes = json.loads((run / "changes.json").read_text("utf-8"))
    parts = [part for part, number in changes["tables"].get(table, {}).items() if number > done]
    if not parts:
        return None
    days = None if parts == [""] else sorted(map(date.fromisoformat, parts))
    rows = ds.dataset(run / table, partitioning=BY_DAY)
    return changes["run"], days, rows.to_table(filter=None if days is None else ds.field("day").isin(days))


def to_delta(state: str, place: str) -> None:
    from deltalake import CommitProperties, DeltaTable, Transaction, write_deltalake

    run = Path(state, "current").resolve()  # the tables of one run, whatever runs meanwhile
    for table in TABLES:
        uri = f"{place}/{table}"
        done = DeltaTable(uri).transaction_version(RUN) if DeltaTable.is_deltatable(uri) else None
        if found := change(run, table, done or 0):
            number, days, rows = found
            changed = ", ".join(f"'{day}'" for day in days or ())
            write_deltalake(
                uri, rows, mode="overwrite",
                partition_by=["day"] if days else None,
                predicate=f"day IN ({changed})" if days and done else None,
                commit_properties=CommitProperties(app_transactions=[Transaction(RUN, number)]),
            )  # fmt: skip


def to_iceberg(state: str, catalog_name: str, namespace: str) -> None:
    from pyiceberg.catalog import load_catalog
    from pyiceberg.expressions import AlwaysTrue, In

    run = Path(state, "current").resolve()
    catalog = load_catalog(catalog_name)
    catalog.create_namespace_if_not_exists(namespace)
    for name in TABLES:
        place = f"{namespace}.{name}"
        is_there = catalog.table_exists(place)
        done = catalog.load_table(place).properties.get(RUN) if is_there else None
        if found := change(run, name, int(done or 0)):
            number, days, rows = found
            table = catalog.create_table_if_not_exists(place, rows.schema)
            if days and table.spec().is_unpartitioned():
                table.update_spec().add_identity("day").commit()
            with table.transaction() as commit:
                commit.overwrite(rows, In("day", days) if days else AlwaysTrue())
                commit.set_properties({RUN: str(number)})


if __name__ == "__main__":
    {"delta": to_delta, "iceberg": to_iceberg}[sys.argv[1]](*sys.argv[2:])
