"""How is a valid conversation broken? Its frames one by one, then their order, then how the bytes are cut."""

from __future__ import annotations

import random
from collections.abc import Callable, Iterator, Sequence
from contextlib import suppress
from dataclasses import dataclass

from sbpair.amqp.decoding import decode
from sbpair.amqp.encoding import encode
from sbpair.amqp.errors import DecodeError, EncodeError
from sbpair.amqp.frames import FRAME_HEAD
from sbpair.amqp.types import Described, Symbol, ULong

ODD = (
    *(0, 1, 2, 31, 255, 256, 1023, 1024, 65535, 65536, 2**31 - 1, 2**31, 2**32 - 2, 2**32 - 1, -1, -(2**31)),
    *(
        None,
        True,
        False,
        "",
        "x" * 300,
        b"",
        b"t" * 33,
        Symbol("amqp:accepted:list"),
        1.5,
        [],
        [None] * 40,
        {},
    ),
    *(
        {"k": "v"},
        {Symbol("k"): [1]},
        Described(Symbol("a:b"), []),
        Described(0x28, [1, 2]),
        Described(0x24, []),
    ),
)
CONSTRUCTORS = bytes.fromhex(
    "0040414243444550525354555660616370717273747580828384949 8a0a1a3b0b1b3c0c1d0d1e0f0".replace(" ", "")
)


@dataclass(frozen=True, slots=True)
class Conversation:
    """What one side said: its opening bytes, and then frames."""

    preamble: tuple[bytes, ...]
    frames: tuple[bytes, ...]


def conversation(data: bytes) -> Conversation:
    """Cut what was said into protocol headers and frames."""
    preamble: list[bytes] = []
    frames: list[bytes] = []
    while data:
        size = 8 if data.startswith(b"AMQP") else int.from_bytes(data[:4], "big")
        is_opening = data.startswith(b"AMQP") or data[5] == 1
        (preamble if is_opening else frames).append(data[:size])
        data = data[size:]
    return Conversation(tuple(preamble), tuple(frames))


# -- mutations: of a frame, then of the order of frames


def flipped(frame: bytes, draw: random.Random) -> bytes:
    broken = bytearray(frame)
    for _ in range(draw.choice((1, 1, 2, 8))):
        broken[draw.randrange(len(broken))] = draw.randrange(256)
    return bytes(broken)


def retyped(frame: bytes, draw: random.Random) -> bytes:
    """A constructor in place of a byte that may be one."""
    at = draw.randrange(8, len(frame)) if len(frame) > 8 else 0
    return frame[:at] + bytes([draw.choice(CONSTRUCTORS)]) + frame[at + 1 :]


def resized(frame: bytes, draw: random.Random) -> bytes:
    """The frame, or what it holds, says a length that is not its own."""
    size = draw.choice((0, 7, 8, 9, len(frame) - 1, len(frame) + 1, 512, 2**16, 2**20 + 1, 2**32 - 1))
    return size.to_bytes(4, "big") + frame[4:]


def moved(frame: bytes, draw: random.Random) -> bytes:
    """On another channel, of another kind, with another offset."""
    size, offset, kind, _ = FRAME_HEAD.unpack_from(frame)
    channel = draw.choice((0, 1, 2, 255, 256, 65535))
    return (
        FRAME_HEAD.pack(
            size, draw.choice((offset, offset, 0, 1, 3, 255)), draw.choice((kind, kind, 0, 1, 2)), channel
        )
        + frame[8:]
    )


def cut(frame: bytes, draw: random.Random) -> bytes:
    body = frame[8 : draw.randrange(8, len(frame) + 1)]
    return framed(frame, body)


def refielded(frame: bytes, draw: random.Random) -> bytes:
    """A field of the performative is something else: another number or type, none; or there are more."""
    try:
        value, behind = decode(frame, 8)
    except DecodeError:
        return flipped(frame, draw)
    if not (isinstance(value, Described) and isinstance(value.value, list)):
        return flipped(frame, draw)
    fields, descriptor = list(value.value), value.descriptor
    if not fields or draw.random() < 0.1:
        descriptor = draw.choice(
            (0x10, 0x11, 0x12, 0x13, 0x14, 0x15, 0x16, 0x17, 0x18, 0x40, 0x44, "amqp:flow:list", 0xFFFF)
        )
    for _ in range(draw.choice((1, 1, 1, 2, 4))):
        if fields:
            fields[draw.randrange(len(fields))] = draw.choice(ODD)
    if draw.random() < 0.1:
        fields = fields[: draw.randrange(len(fields) + 1)] + [draw.choice(ODD)] * draw.choice((0, 1, 20))
    with suppress(EncodeError):
        return framed(frame, encode(Described(as_code(descriptor), fields)) + frame[behind:])
    return flipped(frame, draw)


def as_code(descriptor: object) -> object:
    """Numbers of descriptors travel as ulong."""
    return ULong(descriptor) if isinstance(descriptor, int) else Symbol(str(descriptor))


def framed(like: bytes, body: bytes) -> bytes:
    _, offset, kind, channel = FRAME_HEAD.unpack_from(like)
    return FRAME_HEAD.pack(8 + len(body), offset, kind, channel) + body


FRAME_MUTATIONS: tuple[Callable[[bytes, random.Random], bytes], ...] = (
    *(flipped, retyped, resized, moved, cut),
    *(refielded,) * 5,
)


def reordered(frames: list[bytes], others: Sequence[bytes], draw: random.Random) -> None:
    """One frame is lost, doubled, swapped with another, or comes from elsewhere."""
    at, other = draw.randrange(len(frames)), draw.randrange(len(frames))
    match draw.randrange(4):
        case 0 if len(frames) > 1:
            del frames[at]
        case 1:
            frames[at:at] = [frames[at]] * draw.choice((1, 1, 3, 50))
        case 2:
            frames[at], frames[other] = frames[other], frames[at]
        case _:
            frames.insert(at, draw.choice(others))


def mutated(said: Conversation, others: Sequence[bytes], draw: random.Random) -> bytes:
    """What is fed: mostly valid, so that it gets somewhere."""
    preamble, frames = list(said.preamble), list(said.frames)
    for _ in range(draw.choice((1, 1, 2, 3, 6))):
        if draw.random() < 0.3:
            reordered(frames, others, draw)
        else:
            at = draw.randrange(len(frames))
            frames[at] = draw.choice(FRAME_MUTATIONS)(frames[at], draw)
    if draw.random() < 0.1:
        at = draw.randrange(len(preamble))
        preamble[at] = flipped(preamble[at], draw)
    return b"".join((*preamble, *frames))


def pieces(data: bytes, draw: random.Random) -> Iterator[bytes]:
    """The same bytes in reads of any size."""
    most = draw.choice((1, 7, 64, 4096, len(data) + 1))
    at = 0
    while at < len(data):
        size = draw.randint(1, most)
        yield data[at : at + size]
        at += size
