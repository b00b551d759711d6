"""Events become records with a name, a time and plain, harmless values."""

from __future__ import annotations

import json
import math
from dataclasses import dataclass
from datetime import timedelta
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from sbpair.pair.observation.record import (
    HEADER,
    MAX_TEXT,
    Instant,
    Origin,
    PairLabels,
    WriterRole,
    event_name,
    to_line,
    to_record,
)
from sbpair.pair.pairing.events import BacklogsCreated, BacklogWithdrawn, EntityFailedOver
from sbpair.pair.syphon.events import MessageSetAside, SyphonConnected
from tests.tools.blocks.observation import journal_schema

NOW = Instant(1795242840.0, 1000.0)
SENDER = Origin("w", WriterRole.SENDER, PairLabels("contoso", "contoso-dr"))
SYPHON = Origin("w", WriterRole.SYPHON, PairLabels("contoso", "contoso-dr"))
PINNED = Path(__file__).with_name("schema_v1.json")


def test_a_sender_event_is_dated_by_how_long_ago_it_happened():
    record = to_record(EntityFailedOver(998.75, "orders", "interval ended"), SENDER, 7, NOW)

    assert record == {
        "v": 1,
        "writer": "w",
        "role": "sender",
        "ordinal": 7,
        "at": "2026-11-21T06:33:58.750Z",
        "mono": 998.75,
        "pair": {"primary": "contoso", "secondary": "contoso-dr"},
        "event": "entity_failed_over",
        "path": "orders",
        "cause": "interval ended",
    }


def test_a_syphon_event_is_dated_by_its_wall_clock():
    record = to_record(SyphonConnected(1795242830.5), SYPHON, 0, NOW)

    assert (record["at"], record["mono"]) == ("2026-11-21T06:33:50.500Z", 990.5)
    assert record["path"] == ""


def test_every_record_begins_with_the_documented_header():
    record = to_record(BacklogWithdrawn(1000.0, "orders", 3, 1030.0, "refused"), SENDER, 0, NOW)

    assert tuple(record)[: len(HEADER)] == tuple(name for name, _, _ in HEADER)
    assert {name: record[name] for name in ("backlog", "until", "cause")} == {
        "backlog": 3,
        "until": 1030.0,
        "cause": "refused",
    }


@pytest.mark.parametrize(
    ("kind", "name"), [(EntityFailedOver, "entity_failed_over"), (WriterRole, "writer_role")]
)
def test_a_class_name_becomes_snake_case(kind, name):
    assert event_name(kind) == name


@given(st.text())
def test_any_text_stays_on_its_line_and_round_trips(text):
    event = MessageSetAside(NOW.epoch, "b/0", text, "PathMissing", "x")

    line = to_line(to_record(event, SYPHON, 0, NOW))

    assert line.endswith(b"\n")
    assert all(32 <= byte < 127 for byte in line[:-1])
    assert json.loads(line)["path"] == text or len(text) > MAX_TEXT or "=" in text


@pytest.mark.spec("S-14")
def test_escape_sequences_and_line_ends_are_escaped():
    event = MessageSetAside(NOW.epoch, "b/0", "a\r\n\x1b[31m\x7f", "PathMissing", "x")

    assert b'"path":"a\\r\\n\\u001b[31m\\u007f"' in to_line(to_record(event, SYPHON, 0, NOW))


def test_keys_are_redacted_and_long_text_is_truncated():
    text = "sb://h;SharedAccessKey=CANARY+/=%;x SharedAccessSignature sr=a&sig=CANARY2&se=1 " + "y" * 5000
    record = to_record(EntityFailedOver(0.0, "orders", text), SENDER, 0, NOW)

    assert "CANARY" not in str(record)
    assert len(record["cause"]) == MAX_TEXT


@dataclass(frozen=True)
class Odd:
    value: object


@pytest.mark.parametrize(
    ("value", "plain"),
    [
        (math.inf, None),
        (math.nan, None),
        (timedelta(seconds=1.5), 1.5),
        (("a", 1, None, True), ["a", 1, None, True]),
        ({"k": WriterRole.SENDER}, {"k": "sender"}),
        (frozenset({"b", "a"}), ["a", "b"]),
        (Odd(3), {"value": 3}),
    ],
)
def test_values_take_their_plain_form(value, plain):
    assert to_record(Odd(value), SENDER, 0, NOW)["value"] == plain


@pytest.mark.parametrize("value", [b"a body", bytearray(b"x"), memoryview(b"x"), object(), Odd(b"deep")])
def test_a_body_has_no_place_in_a_record(value):
    with pytest.raises(TypeError, match="cannot be written to a record"):
        to_record(Odd(value), SENDER, 0, NOW)


def test_an_object_that_is_no_event_is_refused():
    with pytest.raises(TypeError, match="dataclass, not str"):
        to_record("failed over", SENDER, 0, NOW)
    with pytest.raises(TypeError, match="not type"):
        to_record(Odd, SENDER, 0, NOW)


def test_a_field_cannot_hide_the_header():
    @dataclass(frozen=True)
    class Clash:
        ordinal: int

    with pytest.raises(ValueError, match="Clash redefines header fields: ordinal"):
        to_record(Clash(1), SENDER, 0, NOW)


@pytest.mark.parametrize(
    ("queue", "number"), [("contoso/x-servicebus-transfer/3", 3), ("orders", None), ("a/²", None)]
)
def test_a_backlog_queue_is_recorded_by_number_and_name(queue, number):
    record = to_record(MessageSetAside(0.0, queue, None, "r", "d"), SYPHON, 0, NOW)

    assert (record["backlog"], record["backlog_queue"], record["path"]) == (number, queue, None)


def test_an_event_without_a_time_is_dated_now():
    assert to_record(Odd(1), SENDER, 0, NOW)["at"] == "2026-11-21T06:34:00.000Z"


def test_the_schema_only_grows_within_its_version():
    """Readers rely on it: what version 1 has, keeps its name and type until there is a version 2.

    New events and fields go into the file when they are released: ``tests.tools.blocks.observation.journal_schema()``.
    """
    pinned, now = json.loads(PINNED.read_text("utf-8")), journal_schema()

    changed = {
        event: {name: kind for name, kind in fields.items() if now.get(event, {}).get(name) != kind}
        for event, fields in pinned.items()
    }
    assert {event: fields for event, fields in changed.items() if fields} == {}
    assert pinned.keys() <= now.keys()


def test_a_field_has_one_type_in_all_events():
    """A reader with one table for all events has one column for each field."""
    kinds: dict[str, set[str]] = {}
    for fields in journal_schema().values():
        for name, kind in fields.items():
            kinds.setdefault(name, set()).add(kind.removesuffix(" | None"))
    assert {name: found for name, found in kinds.items() if len(found) > 1} == {}


@pytest.mark.slow
def test_the_documented_types_are_those_that_are_written():
    written = {"int": int, "str": str, "float": float, "list[str]": list, "bool": bool}
    for event, kinds in (
        (MessageSetAside(0.0, "b/0", "orders", "r", "d"), journal_schema()["message_set_aside"]),
        (BacklogWithdrawn(0.0, "orders", 1, 2.0, "c"), journal_schema()["backlog_withdrawn"]),
        (BacklogsCreated(0.0, "", ("a",)), journal_schema()["backlogs_created"]),
    ):
        record = to_record(event, SYPHON, 0, NOW)
        own = {name: value for name, value in record.items() if name not in {name for name, *_ in HEADER}}
        assert {name: type(value) for name, value in own.items()} == {
            name: written[kind.removesuffix(" | None")] for name, kind in kinds.items()
        }


def test_tuples_are_lists():
    assert to_record(BacklogsCreated(0.0, "", ("a", "b")), SENDER, 0, NOW)["created"] == ["a", "b"]
