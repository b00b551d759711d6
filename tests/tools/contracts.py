"""Write the data contract and the dbt sources of an audit's tables, from their described columns.

python -m tests.tools.contracts        samples/audit/contract.odcs.yaml, samples/audit/dbt/models/sources.yml
"""

from __future__ import annotations

from pathlib import Path

import pyarrow as pa
import yaml

from sbpair.data.audit.judge.verdict import SOUND, Verdict
from sbpair.data.audit.result.interface import COLUMNS, VERSION, Column
from tests.tools.source import ROOT

CONTRACT = ROOT / "samples/audit/contract.odcs.yaml"
SOURCES = ROOT / "samples/audit/dbt/models/sources.yml"
TABLES = {
    "messages": "one row per message: its counts, times and verdict",
    "missing": "the messages that are lost",
    "duplicates": "the messages that arrived more than once",
    "order": "one row per session and sender",
    "waits": "one row per primary and backlog queue",
    "writers": "one row per journal",
    "days": "one row per day, of a daily audit",
}
KEYS = {
    "messages": ("primary", "path_key", "message_id"),
    "missing": ("primary", "path", "message_id"),
    "duplicates": ("primary", "path", "message_id"),
    "order": ("primary", "path_key", "session_id", "sender"),
    "waits": ("primary", "backlog"),
    "writers": ("writer",),
    "days": ("day",),
}
VERDICTS = [each.value for each in Verdict]
FAILED = ", ".join(f"'{each.value}'" for each in Verdict if each not in SOUND)
QUALITY = {  # what must hold of a green audit, as SQL that counts what is wrong
    "messages": (
        "every message is accounted for",
        f"SELECT count(*) FROM messages WHERE verdict IN ({FAILED})",
    ),
    "missing": ("nothing is lost", "SELECT count(*) FROM missing"),
    "duplicates": ("each copy has an explanation", "SELECT count(*) FROM duplicates WHERE NOT is_explained"),
    "order": (
        "each order that is promised is kept",
        'SELECT count(*) FROM "order" WHERE is_promised AND NOT is_kept',
    ),
}


def contract() -> str:
    """The tables as a contract of the Open Data Contract Standard."""
    told = {
        "apiVersion": "v3.0.2",
        "kind": "DataContract",
        "id": "sbpair-audit-tables",
        "name": "Tables of sbpair audit",
        "version": f"{VERSION}.0.0",
        "status": "active",
        "description": {
            "purpose": "What became of each message of a pair of Service Bus namespaces.",
            "usage": "Within a major version, columns are only added.",
            "limitations": "What no journal tells is no evidence: see the reference of the audit.",
        },
        "schema": [_table(name) for name in COLUMNS],
    }
    return _yaml(told)


def _table(name: str) -> dict[str, object]:
    keys = KEYS[name]
    found: dict[str, object] = {
        "name": name,
        "physicalName": name,
        "physicalType": "parquet",
        "logicalType": "object",
        "description": TABLES[name],
        "properties": [_property(each, keys) for each in COLUMNS[name]],
    }
    if name in QUALITY:
        what, query = QUALITY[name]
        found["quality"] = [{"type": "sql", "description": what, "query": query, "mustBe": 0}]
    return found


def _property(column: Column, keys: tuple[str, ...]) -> dict[str, object]:
    key = (
        {"primaryKey": True, "primaryKeyPosition": keys.index(column.name) + 1} if column.name in keys else {}
    )
    return {
        "name": column.name,
        "logicalType": _logical(column.kind),
        "physicalType": str(column.kind),
        "description": column.comment,
        "required": not column.null,
        **key,
    }


def _logical(kind: pa.DataType) -> str:
    tests = (
        (pa.types.is_integer, "integer"), (pa.types.is_floating, "number"), (pa.types.is_boolean, "boolean"),
        (pa.types.is_timestamp, "date"), (pa.types.is_date, "date"), (pa.types.is_list, "array"),
        (pa.types.is_struct, "object"),
    )  # fmt: skip
    return next((name for is_it, name in tests if is_it(kind)), "string")


def sources() -> str:
    """The tables as sources of dbt, with tests; read where SBPAIR_AUDIT says."""
    tables = [
        {
            "name": name,
            "description": TABLES[name],
            "columns": [_source_column(name, each) for each in columns],
        }
        for name, columns in COLUMNS.items()
        if name != "days"
    ]
    place = "read_parquet('{{ env_var(\"SBPAIR_AUDIT\") }}/{name}/**/*.parquet')"
    source = {
        "name": "sbpair_audit",
        "description": "The tables of `sbpair audit`.",
        "config": {"meta": {"external_location": place}},
        "tables": tables,
    }
    return _yaml({"version": 2, "sources": [source]})


def _source_column(table: str, column: Column) -> dict[str, object]:
    tests: list[object] = [] if column.null else ["not_null"]
    if (table, column.name) == ("messages", "verdict"):
        tests.append({"accepted_values": {"arguments": {"values": VERDICTS}}})
    if KEYS[table] == (column.name,):
        tests.append("unique")
    return {"name": column.name, "description": column.comment} | ({"data_tests": tests} if tests else {})


def _yaml(content: object) -> str:
    head = "# Written by `python -m tests.tools.contracts`.\n"
    return head + yaml.safe_dump(content, sort_keys=False, width=120, allow_unicode=True)


FILES = {CONTRACT: contract, SOURCES: sources}


def main() -> None:
    for file, made in FILES.items():
        file.parent.mkdir(parents=True, exist_ok=True)
        Path(file).write_text(made(), "utf-8")
        print(f"wrote {file.relative_to(ROOT)}")


if __name__ == "__main__":
    main()
