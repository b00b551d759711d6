"""Small decisions of the envelope: names of ordered backlogs, errors that travel, and the edges of lengths."""

from __future__ import annotations

import pickle

import pytest
from azure.servicebus import ServiceBusMessage
from azure.servicebus.amqp import AmqpAnnotatedMessage, AmqpMessageHeader, AmqpMessageProperties

from sbpair.pair.amqp.errors import DecodeError
from sbpair.pair.amqp.message import Message, Properties, ValueBody
from sbpair.pair.amqp.sections import is_needlessly_wide, split_fields, value_end
from sbpair.pair.envelope import copies
from sbpair.pair.envelope.copies import message_id_of, prepare
from sbpair.pair.envelope.errors import PairingError, ReservedPropertyError
from sbpair.pair.envelope.names import is_ordered_backlog, ordered_backlog_name
from sbpair.pair.envelope.ordering import Numbering
from sbpair.pair.envelope.park import park
from sbpair.pair.envelope.restore import Forward, restore
from sbpair.pair.syphon.land.transfer import address, park_again

pytestmark = pytest.mark.spec("R-66")


@pytest.mark.parametrize(
    ("path", "is_one"),
    [
        (ordered_backlog_name("contoso", 0), True),
        (ordered_backlog_name("contoso", 12).upper(), True),
        ("contoso/x-servicebus-transfer/0", False),
        ("contoso/x-servicebus-transfer/ordered/x", False),
        ("contoso/x-servicebus-transfer/ordered/0/more", False),
        ("contoso/x-servicebus-transfer/unordered/0", False),
        ("contoso/another-segment/ordered/0", False),
        ("x-servicebus-transfer/ordered/0", False),
        ("orders", False),
    ],
)
def test_an_ordered_backlog_is_known_by_its_name(path: str, is_one: bool) -> None:
    assert is_ordered_backlog(path) is is_one


class ExplainedError(PairingError):
    """An error with causes."""

    def __init__(self, why: str, causes: tuple[BaseException, ...] = ()) -> None:
        super().__init__(f"it failed: {why}")
        self.why, self.causes = why, causes


def test_an_error_keeps_its_type_text_and_fields_in_another_process() -> None:
    error = ReservedPropertyError("x-ms-path")
    copy = pickle.loads(pickle.dumps(error))
    assert (type(copy), str(copy), copy.name) == (ReservedPropertyError, str(error), "x-ms-path")
    assert copy.inner_exception is None


def test_the_causes_of_an_error_keep_their_type_and_text() -> None:
    cause = ConnectionResetError(104, "reset")
    copy = pickle.loads(pickle.dumps(ExplainedError("why", (cause, ReservedPropertyError("n")))))
    assert isinstance(copy, ExplainedError)
    assert copy.why == "why"
    first, second = copy.causes
    assert (type(first), first.args) == (ConnectionResetError, (104, "reset"))
    assert (type(second), second.name) == (ReservedPropertyError, "n")


def wide(length: int) -> bytes:
    """A section of application properties of so many bytes, in its 32-bit form."""
    return b"\x00\x53\x74\xd1" + (length - 8).to_bytes(4, "big") + bytes(length - 8)


@pytest.mark.parametrize(("length", "is_wide"), [(9, True), (254, True), (255, False), (8, False)])
def test_a_section_is_needlessly_wide_up_to_the_length_of_the_narrow_form(length: int, is_wide: bool) -> None:
    assert is_needlessly_wide(wide(length)) is is_wide


def test_the_end_of_a_value_is_read_from_all_four_bytes_of_its_length() -> None:
    long = b"\xb0" + (2**24 + 3).to_bytes(4, "big")
    assert value_end(long + bytes(2**24 + 3), 0, 2**24 + 8) == 2**24 + 8
    with pytest.raises(DecodeError, match="a value extends beyond its section"):
        value_end(long, 0, 100)


@pytest.mark.parametrize(("ttl", "in_properties"), [(0xFFFF_FFFF, False), (0x1_0000_0000, True)])
def test_a_time_to_live_goes_into_the_properties_when_the_header_cannot_hold_it(
    ttl: int, in_properties: bool
) -> None:
    parked = Message(
        properties=Properties(message_id="m"),
        application_properties={"x-ms-path": "orders", "x-ms-timetolive": ttl},
        body=ValueBody("x"),
    ).encode()
    restored = restore(parked, 1_800_000_000_000)
    assert isinstance(restored, Forward)
    properties = Message.decode(restored.payload).properties
    assert properties is not None
    assert (properties.absolute_expiry_time is not None) is in_properties


def test_bytes_after_the_last_field_of_a_section_are_counted_in_the_error() -> None:
    section = b"\x00\x53\x73\xc0\x06\x01\x40abcd"
    with pytest.raises(DecodeError, match=r"^4 bytes after the last field of a section$"):
        split_fields(section)


def test_properties_in_the_wide_form_stay_wide_when_a_refused_message_is_parked_again() -> None:
    narrow = Message(application_properties={"mine": "1"}, body=ValueBody("x")).encode()
    start = narrow.index(b"\x00\x53\x74")
    size, count = narrow[start + 4], narrow[start + 5]
    entries = narrow[start + 6 : start + 5 + size]
    wide_form = (size + 3).to_bytes(4, "big") + count.to_bytes(4, "big") + entries
    message = narrow[:start] + b"\x00\x53\x74\xd1" + wide_form + narrow[start + 5 + size :]
    assert Message.decode(message) == Message.decode(narrow)
    forms = [park_again(address(each, "orders")) for each in (narrow, message)]
    assert [b"\x00\x53\x74\xd1" in form for form in forms] == [False, True]
    assert Message.decode(forms[0]) == Message.decode(forms[1])


def test_a_partition_key_of_bytes_is_parked_as_bytes_and_its_length_is_bounded() -> None:
    def keyed(key: bytes) -> AmqpAnnotatedMessage:
        return AmqpAnnotatedMessage(data_body=b"x", annotations={"x-opt-partition-key": key})

    parked = park(keyed(b"\xff\x00key"), "orders")
    assert parked.application_properties is not None
    assert parked.application_properties["x-sbpair-partitionkey"] == {
        "TYPE": "BINARY",
        "VALUE": b"\xff\x00key",
    }
    assert park(keyed(b"\xe9" * 128), "orders")
    with pytest.raises(ValueError, match="a partition key must have at most 128 characters, not 129"):
        park(keyed(b"\xe9" * 129), "orders")


@pytest.mark.parametrize(("given", "name"), [(5, "int"), ("text", "str"), (None, "NoneType")])
def test_what_is_no_message_is_refused_with_its_type(given: object, name: str) -> None:
    with pytest.raises(TypeError, match=f"not {name}$"):
        prepare(given)


def test_an_attribute_that_the_sdk_lacks_is_logged_once_with_what_is_lost(
    monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    monkeypatch.setattr(copies, "_missed", set())
    assert copies.private(object(), "_gone", "connections are closed late") is None
    assert copies.private(object(), "_gone", "connections are closed late") is None
    (record,) = caplog.records
    assert record.getMessage() == "azure-servicebus no longer has '_gone': connections are closed late"
    assert copies.private(object(), "__class__", "nothing") is object


def test_what_a_client_parks_is_numbered_from_one() -> None:
    numbering = Numbering("client", 1_000)
    assert [numbering.next().ordinal for _ in range(3)] == [1, 2, 3]


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
def test_a_copy_has_every_field_of_a_message_of_this_and_of_another_sdk(
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


def test_a_message_that_lacks_a_field_is_copied_without_it() -> None:
    message = full_message(AmqpAnnotatedMessage, {"data_body": [b"x"]})
    del message._footer
    assert vars(copies.snapshot(message)) == vars(message)


@pytest.mark.parametrize("change", ["more", "fewer"])
def test_an_sdk_whose_messages_have_other_fields_is_noticed(
    monkeypatch: pytest.MonkeyPatch, change: str
) -> None:
    def changed(self: AmqpMessageProperties) -> None:
        vars(self).update({"one_more": 1} if change == "more" else {})

    monkeypatch.setattr(AmqpMessageProperties, "__init__", changed)
    assert not copies._copies_all_fields()


@pytest.mark.spec("P-2")
def test_a_copy_leaves_out_a_header_without_values_and_keeps_one_with_any() -> None:
    message = ServiceBusMessage("x")
    assert message.raw_amqp_message.header is not None  # the SDK makes one for each message, and sends none
    assert copies.snapshot(message).header is None
    for field, value in (("durable", False), ("priority", 0), ("delivery_count", 0)):
        header = AmqpMessageHeader(**{field: value})
        kept = copies.snapshot(AmqpAnnotatedMessage(data_body=b"x", header=header)).header
        assert kept is not None
        assert kept is not header
        assert getattr(kept, field) == value
