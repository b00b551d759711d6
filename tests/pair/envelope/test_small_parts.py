"""Small decisions of the envelope: names of ordered backlogs, errors that travel, and the edges of lengths."""

from __future__ import annotations

import pytest
from azure.servicebus import ServiceBusMessage
from azure.servicebus.amqp import AmqpAnnotatedMessage, AmqpMessageHeader, AmqpMessageProperties

from sbpair.pair.envelope import copies
from sbpair.pair.envelope.copies import message_id_of

pytestmark = pytest.mark.spec("R-66")


def test_an_attribute_missing_in_the_sdk_is_logged_once_with_its_consequence(
    monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    monkeypatch.setattr(copies, "_missed", set())
    assert copies.private(object(), "_gone", "connections are closed late") is None
    assert copies.private(object(), "_gone", "connections are closed late") is None
    (record,) = caplog.records
    assert record.getMessage() == "azure-servicebus no longer has '_gone': connections are closed late"
    assert copies.private(object(), "__class__", "nothing") is object


def test_a_message_id_of_bytes_that_are_no_text_is_shown_with_replacements() -> None:
    message = AmqpAnnotatedMessage(data_body=b"x", properties=AmqpMessageProperties(message_id=b"\xffid"))
    assert message_id_of(message) == "\ufffdid"


class Extended(AmqpAnnotatedMessage):
    """A message of an application's own class."""


def full_message(kind: type[AmqpAnnotatedMessage], body: dict[str, object]) -> AmqpAnnotatedMessage:
    """A message with a value in every field."""
    properties = {name: number for number, name in enumerate(vars(AmqpMessageProperties()), 1)}
    header = {name: number for number, name in enumerate(vars(AmqpMessageHeader()), 1)}
    return kind(
        **body,
        header=AmqpMessageHeader(**header),
        properties=AmqpMessageProperties(**properties),
        application_properties={"a": ["1"]},
        annotations={"b": ["2"]},
        delivery_annotations={"c": ["3"]},
        footer={"d": ["4"]},
    )


@pytest.mark.spec("P-2", "R-12")
@pytest.mark.parametrize("kind", [AmqpAnnotatedMessage, Extended])
@pytest.mark.parametrize("has_known_fields", [True, False])
@pytest.mark.parametrize(
    "body", [{"data_body": [b"x", b"y"]}, {"sequence_body": [[1, ["z"]]]}, {"value_body": ["v"]}]
)
def test_a_copy_has_every_field_of_this_and_another_sdk_version(
    monkeypatch: pytest.MonkeyPatch,
    kind: type[AmqpAnnotatedMessage],
    has_known_fields: bool,
    body: dict[str, object],
) -> None:
    assert copies._HAS_KNOWN_FIELDS, "the installed SDK has messages with other fields: a copy is slower"
    monkeypatch.setattr(copies, "_HAS_KNOWN_FIELDS", has_known_fields)
    message = full_message(kind, body)
    made = copies.snapshot(message)
    assert type(made) is kind
    assert vars(made) == vars(message)
    for name, value in vars(message).items():
        if isinstance(value, (list, dict, AmqpMessageHeader, AmqpMessageProperties)):
            assert vars(made)[name] is not value


@pytest.mark.spec("P-2")
def test_a_copy_omits_an_empty_header_and_keeps_one_with_values() -> None:
    message = ServiceBusMessage("x")
    assert message.raw_amqp_message.header is not None  # the SDK makes one for each message, and sends none
    assert copies.snapshot(message).header is None
    for field, value in (("durable", False), ("priority", 0), ("delivery_count", 0)):
        header = AmqpMessageHeader(**{field: value})
        kept = copies.snapshot(AmqpAnnotatedMessage(data_body=b"x", header=header)).header
        assert kept is not None
        assert kept is not header
        assert getattr(kept, field) == value
