"""Messages as JSON: commands read what they print."""

from __future__ import annotations

import json
import math
from datetime import UTC, datetime
from uuid import UUID

import pytest
from hypothesis import given
from hypothesis import strategies as st

from sbpair.pair.amqp.message import DataBody, Message, Properties
from sbpair.pair.amqp.types import Timestamp
from sbpair.pair.cli.form import as_line, as_object, property_of, to_send

pytestmark = pytest.mark.spec("E-1")
NOW = datetime(2026, 11, 23, 7, 0, tzinfo=UTC)
TEXT = st.text(st.characters(exclude_categories=["Cs"]), max_size=20)
VALUES = st.one_of(
    st.none(),
    st.booleans(),
    st.integers(-(2**63), 2**63 - 1),
    st.floats(allow_nan=False),
    TEXT,
    st.binary(max_size=20),
    st.uuids(),
    st.integers(0, 253_402_300_799_999).map(Timestamp),
)


@given(body=st.binary(max_size=50), properties=st.dictionaries(TEXT, VALUES, max_size=5), session=TEXT)
def test_any_message_of_bytes_survives_being_printed_and_read(
    body: bytes, properties: dict[str, object], session: str
) -> None:
    message = Message(
        properties=Properties(message_id="m", group_id=session),
        application_properties=dict(properties),
        body=DataBody((body,)),
    )
    printed = json.dumps(as_object(message.encode()))
    assert Message.decode(to_send(json.loads(printed), NOW, "new")) == message


@given(st.binary(max_size=60))
def test_bytes_that_are_no_message_are_shown_as_such(payload: bytes) -> None:
    shown = as_object(payload)
    assert "unreadable" in shown or "state" in shown
    as_line(payload)


@pytest.mark.parametrize(
    ("text", "value"),
    [
        ("5", 5),
        ("5.5", 5.5),
        ("true", True),
        ('"5"', "5"),
        ("five", "five"),
        ("[1]", "[1]"),
        ("", ""),
        ("a=b", "a=b"),
    ],
)
def test_the_type_of_a_property_is_inferred_from_its_text(text: str, value: object) -> None:
    assert property_of(f"name={text}") == ("name", value)


@pytest.mark.parametrize(
    ("given", "field"),
    [
        ({"time_to_live": True}, "time_to_live"),
        ({"time_to_live": 0}, "time_to_live"),
        ({"time_to_live": "60d"}, "time_to_live"),
        ({"time_to_live": math.nan}, "time_to_live"),
        ({"scheduled_enqueue_time_utc": "soon"}, "scheduled_enqueue_time_utc"),
        ({"subject": 5}, "subject"),
        ({"body_base64": "?"}, "body_base64"),
        ({"application_properties": []}, "application_properties"),
        ({"application_properties": {"a": [1]}}, "'a'"),
        ({"application_properties": {"a": {"$uuid": "x"}}}, "'a'"),
        ({"application_properties": {"a": 2**63}}, "value"),
        ({"Body": "x"}, "'Body'"),
    ],
)
def test_a_field_unknown_to_messages_is_refused_by_name(given: dict[str, object], field: str) -> None:
    with pytest.raises(ValueError, match=field):
        to_send(given, NOW, "new")


def test_a_json_value_as_body_is_sent_as_json() -> None:
    message = Message.decode(to_send({"body": {"a": 1}}, NOW, "new"))
    assert message.body == DataBody((b'{"a":1}',))
    assert message.properties == Properties(message_id="new", content_type="application/json")


@pytest.mark.parametrize(
    "when", ["10m", 600, "2026-11-23T07:10:00Z", "2026-11-23T08:10:00+01:00", "2026-11-23T07:10"]
)
def test_a_schedule_is_a_delay_or_a_time(when: object) -> None:
    message = Message.decode(to_send({"scheduled_enqueue_time_utc": when}, NOW, "new"))
    at = datetime(2026, 11, 23, 7, 10, tzinfo=UTC)
    assert message.message_annotations == {
        "x-opt-scheduled-enqueue-time": Timestamp(int(at.timestamp() * 1000))
    }


def test_a_uuid_message_id_stays_readable() -> None:
    shown = as_object(Message(properties=Properties(message_id=UUID(int=5))).encode())
    message = Message.decode(to_send(shown, NOW, "new"))
    assert message.properties is not None
    assert message.properties.message_id == str(UUID(int=5))
