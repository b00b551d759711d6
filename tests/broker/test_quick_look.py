"""The quick look at properties never says anything the decoder would not."""

from __future__ import annotations

import pytest
from hypothesis import example, given
from hypothesis import strategies as st

from sbpair.amqp.message import Properties, decode_properties, encode_properties
from sbpair.amqp.types import DecodeError, ULong
from sbpair.broker.faces.quick_look import plain_properties

TEXT = st.none() | st.text(max_size=10)
PLAIN = st.builds(
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


@given(PLAIN)
def test_it_sees_what_the_decoder_sees_or_nothing(properties):
    seen = plain_properties(encode_properties(properties))

    if seen is not None:
        assert properties.message_id is not None
        assert properties.absolute_expiry_time is properties.creation_time is None
        assert seen.message_id == properties.message_id
        assert seen.group_id == properties.group_id
        assert seen.content_type.decode() == (properties.content_type or "")


@given(st.binary(max_size=30), st.integers(0, 40))
@example(b"", 0)
def test_what_it_passes_the_decoder_reads_too(tail, cut):
    good = encode_properties(Properties(message_id="m", to="t", content_type="c", correlation_id="x"))
    for section in (
        good[:cut] + tail,
        good[:6] + tail,
        b"\x00\x53\x73\xc0" + bytes((len(tail) % 256,)) + tail,
    ):
        if plain_properties(section) is not None:
            assert decode_properties(section).message_id is not None


@pytest.mark.parametrize("section", [b"", b"\x00\x53\x73\x45", encode_properties(Properties(to="x"))])
def test_properties_without_an_id_are_not_plain(section):
    assert plain_properties(section) is None


def test_an_id_of_129_characters_is_not_plain():
    assert plain_properties(encode_properties(Properties(message_id="x" * 128))) == ("x" * 128, None, b"")
    assert plain_properties(encode_properties(Properties(message_id="x" * 129))) is None


def test_a_field_that_is_cut_is_not_plain():
    section = b"\x00\x53\x73\xc0\x04\x01\xa1\x09x"

    assert plain_properties(section) is None
    with pytest.raises(DecodeError):
        decode_properties(section)
