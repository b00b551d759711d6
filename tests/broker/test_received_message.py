"""The fast parser of messages agrees with the decoder."""

from __future__ import annotations

import pytest
from hypothesis import example, given
from hypothesis import strategies as st

from sbpair.amqp.errors import DecodeError
from sbpair.amqp.message import (
    DataBody,
    Header,
    Message,
    Properties,
    decode_properties,
    encode_properties,
    split,
)
from sbpair.amqp.types import ULong
from sbpair.broker.frontends.received_message import decoded_message, plain_message, stored_message

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
def test_what_it_lifts_out_is_what_the_decoder_does(message):
    payload = message.encode()
    if message.properties.message_id is not None:  # otherwise each generates an id
        assert repr(stored_message(payload)) == repr(decoded_message(payload))


@pytest.mark.parametrize(
    "properties",
    [Properties(message_id="m"), GOOD, Properties(message_id="m", group_id="s")],
    ids=["an id", "texts and an instant", "a session"],
)
def test_what_is_plain_is_seen(properties):
    assert plain_message(encoded(properties)) == (
        0,
        0,
        "m",
        (
            properties.group_id,
            (properties.content_type or "").encode(),
            properties.creation_time is not None,
        ),
    )


@given(st.binary(max_size=30), st.integers(0, 60))
@example(b"", 0)
def test_what_it_passes_the_decoder_reads_too(tail, cut):
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
    assert plain_message(encoded(Properties(message_id="x" * 128))) == (0, 0, "x" * 128, (None, b"", False))
    assert plain_message(encoded(Properties(message_id="x" * 129))) is None


def test_a_field_that_is_cut_is_not_plain():
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

    assert plain_message(message.encode()) == (0, 0, "m", (None, b"", False))
