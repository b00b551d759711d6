"""The columns in Spark are the fields of the journal."""

from __future__ import annotations

from sbpair.data.audit.columns import EVENT_FIELDS, HEADER, SPARK_TYPES
from tests.tools.blocks.observation import journal_schema


def spark_type(kind: str) -> str:
    return SPARK_TYPES[kind.removesuffix(" | None")]


def test_every_field_of_every_event_has_a_column_and_every_column_a_field() -> None:
    schema = journal_schema()
    schema.pop("")
    fields = {name: spark_type(kind) for own in schema.values() for name, kind in own.items()}

    assert dict(EVENT_FIELDS) == fields


def test_the_header_has_its_columns_in_order() -> None:
    assert [name for name, _ in HEADER] == list(journal_schema()[""])
