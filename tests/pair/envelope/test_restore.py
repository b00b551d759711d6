"""Restoring a parked message, or the reason to dead-letter it."""

from __future__ import annotations

import uuid

import pytest
from hypothesis import given
from hypothesis import strategies as st

from sbpair.pair.amqp.encoding import encode
from sbpair.pair.amqp.message import DataBody, Header, Message, Properties, SequenceBody, ValueBody
from sbpair.pair.amqp.sections import split
from sbpair.pair.amqp.types import Array, Described, Float, Int, Symbol, Timestamp, UInt
from sbpair.pair.envelope import aliases as names
from sbpair.pair.envelope.restore import Forward, Poison, restore

NOW = 1_795_219_200_000
DELIVERED = {  # what a broker adds to what it delivers
    Symbol("x-opt-sequence-number"): 7,
    Symbol("x-opt-enqueued-time"): Timestamp(NOW - 1000),
    Symbol("x-opt-locked-until"): Timestamp(NOW + 60_000),
    Symbol("x-opt-enqueue-sequence-number"): 7,
    Symbol("x-opt-message-state"): Int(0),
}


def parked(
    *,
    header: Header | None = None,
    annotations: dict[object, object] | None = None,
    properties: Properties | None = None,
    body: DataBody | SequenceBody | ValueBody | None = None,
    **application_properties: object,
) -> bytes:
    """Encode a parked message as a backlog delivers it; keyword arguments with underscores are aliases."""
    carried = {name.replace("_", "-"): value for name, value in application_properties.items()}
    return Message(
        header=header or Header(delivery_count=0),
        message_annotations=DELIVERED | (annotations or {}),
        properties=properties,
        application_properties={"x-ms-path": "orders"} | carried,
        body=body or DataBody((b"hello",)),
    ).encode()


def forward(payload: bytes) -> Message:
    restored = restore(payload, NOW)
    assert isinstance(restored, Forward), restored
    return Message.decode(restored.payload)


def poison(payload: bytes) -> Poison:
    restored = restore(payload, NOW)
    assert isinstance(restored, Poison), restored
    return restored


@pytest.mark.spec("P-42")
def test_restoring_returns_the_destination_and_the_lock_expiry() -> None:
    restored = restore(parked(x_ms_path="sales/orders"), NOW)

    assert isinstance(restored, Forward)
    assert restored.path == "sales/orders"
    assert restored.locked_until == NOW + 60_000


@pytest.mark.spec("P-21")
def test_a_restored_message_does_not_show_that_it_was_parked() -> None:
    bare = Message(properties=Properties(message_id="m"), body=DataBody((b"hello",)))
    message = restore(
        parked(properties=Properties(message_id="m"), **{names.VERSION.replace("-", "_"): "1"}), NOW
    )

    assert isinstance(message, Forward)
    assert message.payload == bare.encode()


@pytest.mark.spec("P-21")
def test_the_time_to_live_is_restored_in_full() -> None:
    message = forward(parked(x_ms_timetolive="PT5M"))

    assert message.header == Header(ttl=300_000)
    assert message.properties is None


@pytest.mark.spec("P-21")
def test_an_expiry_time_is_restored_with_its_creation_time() -> None:
    message = forward(parked(properties=Properties(creation_time=Timestamp(NOW)), x_ms_timetolive=5000))

    assert message.properties == Properties(
        creation_time=Timestamp(NOW), absolute_expiry_time=Timestamp(NOW + 5000)
    )


@pytest.mark.spec("G-16")
def test_a_time_to_live_beyond_the_header_travels_in_the_properties() -> None:
    message = forward(parked(x_ms_timetolive="P60D"))

    assert message.header == Header(ttl=2**32 - 1)
    assert message.properties is not None
    assert message.properties.creation_time == NOW
    assert message.properties.absolute_expiry_time == NOW + 60 * 86_400_000


@pytest.mark.spec("P-21")
def test_the_session_is_restored_and_other_properties_keep_their_types() -> None:
    message_id, user_id = uuid.UUID(int=5), b"\xff\x00"
    message = forward(
        parked(properties=Properties(message_id=message_id, user_id=user_id, to="t"), x_ms_sessionid="s1")
    )

    assert message.properties == Properties(message_id=message_id, user_id=user_id, to="t", group_id="s1")


@pytest.mark.spec("P-21", "G-17", "S-17")
def test_key_and_schedule_come_back_as_annotations_and_the_brokers_own_are_gone() -> None:
    message = forward(
        parked(
            annotations={Symbol("x-custom"): UInt(7), Symbol("x-opt-deadletter-source"): "x"},
            x_ms_scheduledenqueuetimeutc="2026-11-21T00:00:00Z",
            x_sbpair_partitionkey="k",
        )
    )

    assert message.message_annotations == {
        Symbol("x-custom"): UInt(7),
        Symbol("x-opt-partition-key"): "k",
        Symbol("x-opt-scheduled-enqueue-time"): Timestamp(NOW),
    }


def test_durable_and_priority_stay_and_the_backlogs_delivery_count_does_not() -> None:
    header = Header(durable=True, priority=9, first_acquirer=True, delivery_count=3)

    assert forward(parked(header=header)).header == Header(durable=True, priority=9)


@pytest.mark.spec("F-82", "G-22")
def test_application_properties_of_every_type_keep_their_bytes() -> None:
    typed: dict[str, object] = {
        "long": 2**40,
        "uint": UInt(4_000_000_000),
        "timestamp": Timestamp(-5),
        "uuid": uuid.UUID(int=9),
        "binary": b"\xff\xfe",
        "symbol": Symbol("s"),
        "float": Float(0.5),
        "nested": {"a": [1, {"b": None}]},
        "array": Array(0x71, (1, 2)),
        "described": Described(Symbol("d"), 5),
    }
    sent = Message(application_properties=typed, body=DataBody((b"x",))).encode()
    restored = restore(parked(body=DataBody((b"x",)), **typed, x_ms_timetolive="PT1S"), NOW)

    assert isinstance(restored, Forward)
    assert split(restored.payload).application_properties == split(sent).application_properties


@pytest.mark.spec("F-81", "G-22")
@pytest.mark.parametrize(
    "body",
    [DataBody((b"a", b"", b"c")), SequenceBody(([1, "a"], [])), ValueBody(None), ValueBody({"k": UInt(1)})],
)
def test_every_kind_of_body_and_the_footer_keep_their_bytes(
    body: DataBody | SequenceBody | ValueBody,
) -> None:
    message = Message(application_properties={"x-ms-path": "q"}, body=body, footer={Symbol("f"): 1})
    restored = restore(message.encode(), NOW)

    assert isinstance(restored, Forward)
    assert restored.payload == Message(body=body, footer={Symbol("f"): 1}).encode()


@pytest.mark.spec("F-73")
@pytest.mark.parametrize("carried", [None, {}, {"X-MS-Path": "orders"}, {"other": 1}])
def test_a_message_without_a_path_is_poison(carried: dict[str, object] | None) -> None:
    message = Message(application_properties=carried, body=DataBody((b"x",))).encode()

    assert poison(message).reason == "MissingPath"
    assert "x-ms-path" in poison(message).description


@pytest.mark.spec("F-74")
@pytest.mark.parametrize(
    "path", ["$management", "q/$DeadLetterQueue", "c/x-servicebus-transfer/0", "", "sb://a/b"]
)
def test_a_path_that_leads_elsewhere_is_poison(path: str) -> None:
    found = poison(parked(x_ms_path=path))

    assert found.reason == "InvalidPath"
    assert "x-ms-path" in found.description


@pytest.mark.spec("F-74", "S-14")
def test_a_path_is_escaped_and_truncated_for_display() -> None:
    found = poison(parked(x_ms_path="a\r\n\x1b[31m" + "x" * 5000))

    assert found.description.isprintable()
    assert len(found.description) < 500


@pytest.mark.spec("F-74", "F-75")
@pytest.mark.parametrize(
    ("name", "value", "kind"),
    [
        ("x-ms-path", 5, "long"),
        ("x-ms-path", None, "null"),
        ("x-ms-path", b"orders", "binary"),
        ("x-ms-sessionid", 5, "long"),
        ("x-ms-timetolive", -1, "long"),
        ("x-ms-timetolive", 0, "long"),
        ("x-ms-timetolive", "soon", "string"),
        ("x-ms-scheduledenqueuetimeutc", 1.5, "double"),
        ("x-sbpair-partitionkey", UInt(1), "uint"),
        ("x-sbpair-deadline", {}, "map"),
    ],
)
def test_an_alias_of_a_wrong_type_is_poison_that_names_property_and_type(
    name: str, value: object, kind: str
) -> None:
    message = Message(application_properties={"x-ms-path": "q", name: value}, body=DataBody((b"x",))).encode()
    found = poison(message)

    assert found.reason == "InvalidAlias"
    assert name in found.description
    assert kind in found.description


@pytest.mark.spec("S-16")
def test_a_path_outside_the_allow_list_is_poison() -> None:
    found = restore(parked(x_ms_path="secrets"), NOW, lambda path: path == "orders")

    assert isinstance(found, Poison)
    assert found.reason == "PathNotAllowed"
    asked: list[str] = []
    for _ in range(2):  # the second time its like is known
        assert isinstance(
            restore(parked(x_ms_path="orders"), NOW, lambda path: not asked.append(path)), Forward
        )
    assert asked == ["orders"] * 2


@pytest.mark.spec("G-15")
def test_a_message_with_a_deadline_is_sent_with_its_remaining_time() -> None:
    deadline = {"x_sbpair_deadline": Timestamp(NOW + 2500), "x_ms_timetolive": "PT1H"}

    assert forward(parked(**deadline)).header == Header(ttl=2500)


@pytest.mark.spec("G-15")
@pytest.mark.parametrize("late", [0, 1, 10**9])
def test_a_message_past_its_deadline_is_set_aside_as_expired(late: int) -> None:
    assert poison(parked(x_sbpair_deadline=Timestamp(NOW - late))).reason == "TTLExpiredException"


@pytest.mark.parametrize("cut", [1, 5, 17, 40, -3])
def test_a_message_that_is_not_well_formed_is_poison(cut: int) -> None:
    assert poison(parked()[:cut]).reason in ("UnreadableMessage", "MissingPath")


@given(st.binary(max_size=200))
def test_no_bytes_whatsoever_raise(payload: bytes) -> None:
    assert isinstance(restore(payload, NOW), Forward | Poison)


@given(st.data())
def test_a_damaged_parked_message_never_raises(data: st.DataObject) -> None:
    whole = bytearray(
        parked(x_ms_timetolive="PT5M", x_ms_sessionid="s", properties=Properties(message_id="m"))
    )
    for _ in range(data.draw(st.integers(1, 4))):
        whole[data.draw(st.integers(0, len(whole) - 1))] = data.draw(st.integers(0, 255))
    assert isinstance(restore(bytes(whole), NOW), Forward | Poison)


def test_an_alias_is_found_whatever_the_width_of_its_encoding() -> None:
    wide = b"\xb1\x00\x00\x00\x09x-ms-path\xb1\x00\x00\x00\x01q"
    section = b"\x00\x53\x74\xd1" + (len(wide) + 4).to_bytes(4, "big") + b"\x00\x00\x00\x02" + wide
    restored = restore(section + b"\x00\x53\x77" + encode("body"), NOW)

    assert restored == Forward("q", b"\x00\x53\x77" + encode("body"), None)


@pytest.mark.spec("G-15", "T-5")
def test_the_deadline_of_a_scheduled_message_counts_from_its_enqueue_time() -> None:
    at = {"x_ms_scheduledenqueuetimeutc": Timestamp(NOW + 60_000)}
    assert forward(parked(x_sbpair_deadline=Timestamp(NOW + 90_000), **at)).header == Header(ttl=30_000)


@pytest.mark.spec("G-16", "P-21")
def test_an_absolute_expiry_time_is_restored() -> None:
    restored = forward(parked(x_sbpair_absoluteexpirytime=Timestamp(NOW + 5000)))
    assert restored.properties.absolute_expiry_time == NOW + 5000
    assert restored.properties.creation_time is None
    assert restored.header is None
