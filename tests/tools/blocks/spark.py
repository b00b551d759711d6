"""The blocks of the docs about the columns of the Spark sources."""

from __future__ import annotations

from collections.abc import Callable, Iterable

from tests.tools.source import commented_members, table


def message_columns() -> str:
    from sbpair.data.spark.message_rows import COLUMNS

    return _columns(COLUMNS)


def drain_columns() -> str:
    from sbpair.data.spark.syphon_source import AFTER_COUNTERS, BEFORE_COUNTERS, COUNTERS

    meanings = {
        name: doc for name, _, doc in commented_members("sbpair/pair/syphon/status.py", "SyphonCounters")
    }
    return _columns(
        (*BEFORE_COUNTERS, *((name, "bigint", meanings[name]) for name in COUNTERS), *AFTER_COUNTERS)
    )


def _columns(columns: Iterable[tuple[str, str, str]]) -> str:
    return table(
        ("column", "type", "meaning"), [(f"`{name}`", f"`{kind}`", doc) for name, kind, doc in columns]
    )


def audit_columns() -> str:
    from sbpair.data.audit.result.interface import COLUMNS

    parts = []
    for name, columns in COLUMNS.items():
        rows = [(f"`{each.name}`", f"`{each.kind}`", each.meaning, each.null) for each in columns]
        parts.append(f"**`{name}`**\n\n{table(('column', 'type', 'meaning', 'null'), rows)}")
    return "\n\n".join(parts)


BLOCKS: dict[str, Callable[[], str]] = {
    "message-columns": message_columns,
    "drain-columns": drain_columns,
    "audit-columns": audit_columns,
}
