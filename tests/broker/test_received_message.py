"""The fast parser of messages agrees with the decoder."""

from __future__ import annotations

import pytest
from hypothesis import example, given
from hypothesis import strategies as st

from sbpair.broker.frontends.received_message import decoded_message, plain_message, stored_message
from sbpair.broker.store.columns import pack_messages, unpack_messages
from sbpair.pair.amqp.errors import DecodeError
from sbpair.pair.amqp.events import MessageReceived
from sbpair.pair.amqp.message import (
    DataBody,
    Header,
    Message,
    Properties,
    decode_properties,
    encode_properties,
)
from sbpair.pair.amqp.sections import split
from sbpair.pair.amqp.types import Symbol, ULong

TEXT = st.none() | st.text(max_size=10)
ASCII = st.sampled_from([None, "", "a", "orders"])
PLAIN = st.builds(
    Properties,
    message_id=st.sampled_from(["", "m", "x" * 128]),
    to=ASCII,
    correlation_id=ASCII,
    content_type=ASCII,
    creation_time=st.none() | st.integers(0, 2**40),
    absolute_expiry_time=st.none() | st.integers(0, 2**40),
    group_id=ASCII,
)
UNUSUAL = st.builds(
    Properties,
    message_id=TEXT | st.uuids() | st.binary(max_size=5) | st.just(ULong(3)),
    to=TEXT,
    subject=TEXT,
    reply_to=TEXT,
    correlation_id=TEXT,
    content_type=st.none() | st.sampled_from(["text/plain", "application/vnd.ms-servicebus-ping"]),
    absolute_expiry_time=st.none() | st.integers(0, 2**40),
    creation_time=st.none() | st.integers(0, 2**40),
    group_id=TEXT,
    group_sequence=st.none() | st.integers(0, 2**32 - 1),
)
MESSAGES = st.builds(
    Message,
    header=st.none()
    | st.builds(
        Header,
        durable=st.none() | st.booleans(),
        priority=st.none() | st.integers(0, 9),
        ttl=st.none() | st.sampled_from([0, 1, 5000, 2**32 - 1]),
    ),
    message_annotations=st.none() | st.just({"x-opt-partition-key": "k"}) | st.just({"a": "x" * 300}),
    properties=PLAIN | UNUSUAL,
    application_properties=st.none() | st.just({"a": 1}) | st.just({"a": "x" * 300}),
    body=st.builds(DataBody, st.lists(st.binary(max_size=300), min_size=1, max_size=2).map(tuple)),
)
GOOD = Properties(message_id="m", to="t", content_type="c", correlation_id="x", creation_time=5)
BODY = b"\x00\x53\x75\xa0\x01x"


def encoded(properties: Properties) -> bytes:
    return encode_properties(properties) + BODY


@given(MESSAGES)
@example(Message(properties=Properties(message_id="m"), body=DataBody((b"x",))))
def test_the_fast_parse_agrees_with_the_decoder(message):
    payload = message.encode()
    if message.properties.message_id is not None:  # otherwise each generates an id
        assert repr(stored_message(payload)) == repr(decoded_message(payload))


@pytest.mark.parametrize(
    "properties",
    [Properties(message_id="m"), GOOD, Properties(message_id="m", group_id="s")],
    ids=["an id", "texts and an instant", "a session"],
)
def test_a_plain_message_is_recognised(properties):
    assert plain_message(encoded(properties)) == (
        0,
        0,
        "m",
        (
            properties.group_id,
            properties.content_type or "",
            properties.creation_time is not None,
        ),
    )


@given(st.binary(max_size=30), st.integers(0, 60))
@example(b"", 0)
def test_the_decoder_reads_every_message_that_the_fast_parse_accepts(tail, cut):
    good = encode_properties(GOOD)
    for payload in (
        good[:cut] + tail,
        good[:cut] + tail + BODY,
        good[:6] + tail + BODY,
        b"\x00\x53\x73\xc0" + bytes((len(tail) % 256,)) + tail + BODY,
        (good + BODY)[:cut] + tail,
    ):
        seen = plain_message(payload)
        if seen is not None:
            assert decode_properties(split(payload).properties).message_id == seen[2]


@pytest.mark.parametrize("section", [b"", b"\x00\x53\x73\x45", encode_properties(Properties(to="x"))])
def test_properties_without_an_id_are_not_plain(section):
    assert plain_message(section + BODY) is None


def test_an_id_of_129_characters_is_not_plain():
    assert plain_message(encoded(Properties(message_id="x" * 128))) == (0, 0, "x" * 128, (None, "", False))
    assert plain_message(encoded(Properties(message_id="x" * 129))) is None


def test_a_truncated_field_is_not_plain():
    payload = b"\x00\x53\x73\xc0\x04\x01\xa1\x09x" + BODY

    assert plain_message(payload) is None
    with pytest.raises(DecodeError):
        stored_message(payload)


@pytest.mark.parametrize("size", [0, 1, 2, 255, 256])
@pytest.mark.parametrize("fields", [None, {"a": 1}])
def test_a_body_of_any_size_is_plain(size, fields):
    message = Message(
        properties=Properties(message_id="m"), application_properties=fields, body=DataBody((bytes(size),))
    )

    assert plain_message(message.encode()) == (0, 0, "m", (None, "", False))


PARTS = Message(
    header=Header(durable=False, first_acquirer=False),
    message_annotations={"a": 1},
    properties=Properties(message_id="m"),
    application_properties={"n": 1},
    body=DataBody((b"x",)),
    footer={Symbol("f"): 1},
)


@pytest.mark.spec("X-6")
@pytest.mark.parametrize("order", [(0, 2, 3, 4, 6, 5), (5, 0, 2, 3, 4, 6), (3, 0, 4, 2, 6, 5)], ids=str)
def test_sections_out_of_order_are_stored_in_order(order):
    sections = split(PARTS.encode())
    stored = stored_message(b"".join(sections[part] for part in order))

    assert stored.bare == b"".join(sections[3:])
    assert (stored.message_id, stored.annotations) == ("m", sections.message_annotations)


@pytest.mark.spec("X-23")
def test_the_keys_of_a_footer_become_symbols():
    sent = Message(
        properties=Properties(message_id="m"), body=DataBody((b"x",)), footer={"f": 1, Symbol("g"): 2}
    )
    footer = Message.decode(stored_message(sent.encode()).bare).footer

    assert footer == {"f": 1, "g": 2}
    assert {type(key) for key in footer} == {Symbol}


@pytest.mark.spec("X-6")
@pytest.mark.parametrize("as_sent", [None, True, False])
@pytest.mark.parametrize("has_footer", [True, False], ids=["decoded", "plain"])
def test_the_first_acquirer_flag_is_returned_as_sent_even_from_disk(lab, as_sent, has_footer):
    queue = lab.queue()
    footer = {Symbol("f"): 1} if has_footer else {}
    sent = Message(
        Header(first_acquirer=as_sent),
        properties=Properties(message_id="m"),
        body=DataBody((b"x",)),
        footer=footer,
    )
    client = lab.client()
    client.send(client.sender("orders"), sent.encode())
    client.receiver("orders", credit=1)
    (delivery,) = client.take(MessageReceived)
    assert Message.decode(delivery.payload).header.first_acquirer is as_sent
    (kept,) = unpack_messages(pack_messages(queue.browse(0, 1)))
    assert kept.first_acquirer is as_sent
