"""The fast path reads and writes transfers and dispositions exactly as the general codec does."""

from __future__ import annotations

import struct

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from sbpair.pair.amqp.composite import decode_composite, encode_composite
from sbpair.pair.amqp.encoding import frame
from sbpair.pair.amqp.errors import DecodeError
from sbpair.pair.amqp.fast_path import Reader, transfer_tail, write_disposition, write_transfer
from sbpair.pair.amqp.performatives import (
    ACCEPTED,
    Condition,
    Disposition,
    Modified,
    Rejected,
    Released,
    Transfer,
)
from sbpair.pair.amqp.types import Described, ULong

pytestmark = pytest.mark.spec("R-66")

MALFORMED = (DecodeError, IndexError, struct.error)  # all of them close the connection
PREFIX = b"head"
BOOLEANS = [b"\x41", b"\x42", b"\x40", b"\x56\x01", b"\x56\x00"]
UINTS = [
    b"\x43",
    b"\x52\x00",
    b"\x52\x07",
    b"\x52\xff",
    b"\x70\x00\x00\x00\x07",
    b"\x70\xff\xff\xff\xff",
    b"\x40",
    b"\x53\x07",  # a ulong
]
TAGS = [b"\xa0\x00", b"\xa0\x01t", b"\xa0\x20" + bytes(32), b"\xb0\x00\x00\x00\x01t", b"\x40", b"\xa1\x01t"]
STATES = [
    b"\x40",
    b"\x00\x53\x26\xc0\x01\x00",  # released, its list in another form
    *map(
        encode_composite,
        [
            ACCEPTED,
            Released(),
            Modified(True),
            Modified(True, None, {"k": True}),
            Rejected(Condition("a:b")),
            Described(ULong(0x99), []),
        ],
    ),
]


@st.composite
def described_lists(draw: st.DrawFn, code: int, columns: list[list[bytes]]) -> bytes:
    """Draw a performative with leading fields from the columns; its size and count may be wrong."""
    fields = [draw(st.sampled_from(column)) for column in columns[: draw(st.integers(0, len(columns)))]]
    content = b"".join(fields)
    lie = draw(st.sampled_from([0] * 12 + [-1, 1, 40]))
    count = max(0, len(fields) + draw(st.sampled_from([0] * 12 + [-1, 1])))
    descriptor = bytes((0x00, 0x53, code))
    if draw(st.sampled_from([True] * 5 + [False])):
        return descriptor + b"\xc0" + bytes((max(0, min(255, len(content) + 1 + lie)), count)) + content
    return descriptor + b"\xd0" + struct.pack(">II", len(content) + 4 + lie, count) + content


dispositions = described_lists(0x15, [BOOLEANS, UINTS, UINTS, BOOLEANS, STATES])
transfers = described_lists(
    0x14, [UINTS, UINTS, TAGS, UINTS, BOOLEANS, BOOLEANS, [b"\x40"], STATES, BOOLEANS, BOOLEANS]
)


def general_disposition(data: bytes, at: int, end: int) -> object:
    read, _stop = decode_composite(data, at, end)
    assert isinstance(read, Disposition)
    return read.role, read.first, read.first if read.last is None else read.last, read.settled, read.state


def fast_disposition(reader: Reader, data: bytes, at: int, end: int) -> object:
    role, first, last, tail = reader.disposition(data, at, end)
    return role, first, last, tail.settled, tail.state


def general_transfer(data: bytes, at: int, end: int) -> object:
    read, stop = decode_composite(data, at, end)
    assert isinstance(read, Transfer)
    return (
        (read.handle, read.delivery_id, read.delivery_tag, read.message_format or 0, bool(read.settled)),
        (read.more, read.state, read.aborted, read.more or read.aborted, stop),
    )


def fast_transfer(reader: Reader, data: bytes, at: int, end: int) -> object:
    handle, delivery_id, tag, tail, stop = reader.transfer(data, at, end)
    return (
        (handle, delivery_id, tag, tail.message_format, tail.settled),
        (tail.more, tail.state, tail.aborted, tail.is_piece, stop),
    )


def outcome(read: object, *arguments: object) -> object:
    try:
        return read(*arguments)  # type: ignore[operator]
    except MALFORMED:
        return "malformed"


@pytest.mark.slow
@given(st.lists(dispositions, min_size=1, max_size=3), st.sampled_from([0, 0, 0, 1, -1, 9]))
@settings(max_examples=250, deadline=None)
def test_the_fast_path_reads_dispositions_like_the_general_decoder(bodies: list[bytes], off: int) -> None:
    reader = Reader()
    for body in [*bodies, *bodies]:  # the second time, the fields after the range are cached
        data = PREFIX + body + b"\x41\x43\x43\x41\x40\x00\x53\x24\x45"  # roughly the next frame
        end = len(PREFIX) + len(body) + off
        expected = outcome(general_disposition, data, len(PREFIX), end)
        assert outcome(fast_disposition, reader, data, len(PREFIX), end) == expected


@pytest.mark.slow
@given(st.lists(transfers, min_size=1, max_size=3), st.sampled_from([0, 0, 0, 7, -1]))
@settings(max_examples=250, deadline=None)
def test_the_fast_path_reads_transfers_like_the_general_decoder(bodies: list[bytes], payload: int) -> None:
    reader = Reader()
    for body in [*bodies, *bodies]:
        data = PREFIX + body + b"\x00\x53\x75\xa0\x02xy" + b"\x00\x00\x00\x08"
        end = len(PREFIX) + len(body) + payload
        expected = outcome(general_transfer, data, len(PREFIX), end)
        assert outcome(fast_transfer, reader, data, len(PREFIX), end) == expected


@given(
    st.integers(0, 65535), st.booleans(), st.integers(0, 2**32 - 1), st.integers(0, 2**32 - 1), st.booleans(),
    st.sampled_from([ACCEPTED, Released()]),
)  # fmt: skip
@settings(max_examples=100, deadline=None)
def test_a_written_disposition_reads_back_equal(channel, role, first, last, settled, state) -> None:
    written = write_disposition(channel, role, first, last, settled, state)
    assert written is not None
    body = written[8:]
    assert written == frame(channel, body)
    shown = None if first == last else last  # as the service
    assert decode_composite(body, 0, len(body)) == (
        Disposition(role, first, shown, settled, state),
        len(body),
    )


def test_the_fast_path_leaves_unusual_states_to_the_general_encoder() -> None:
    assert write_disposition(0, True, 1, 1, True, Rejected()) is None


@given(
    st.integers(0, 65535), st.integers(0, 255), st.integers(0, 2**32 - 1), st.binary(max_size=32),
    st.integers(0, 2**32 - 1), st.booleans(), st.booleans(), st.integers(0, 10_000),
)  # fmt: skip
@settings(max_examples=100, deadline=None)
def test_a_written_transfer_reads_back_equal(
    channel, handle, number, tag, message_format, settled, more, size
) -> None:
    tail = transfer_tail(message_format, settled, more)
    head = write_transfer(channel, bytes((0x52, handle)), number, tag, tail, size)
    body = head[8:]
    assert head == frame(channel, body, size)
    read, stop = decode_composite(body, 0, len(body))
    assert stop == len(body)
    assert encode_composite(read) == encode_composite(
        Transfer(handle, number, tag, message_format, settled, more)
    )


@pytest.mark.spec("R-111")
@pytest.mark.parametrize("tag_size", range(1, 256))
def test_a_tag_longer_than_its_transfer_is_malformed(tag_size) -> None:
    fields = b"\x43\x43\xa0" + bytes((tag_size,))
    data = b"\x00\x53\x14\xc0" + bytes((1 + len(fields), 3)) + fields + bytes(300)

    with pytest.raises(MALFORMED):
        Reader().transfer(data, 0, len(data))
