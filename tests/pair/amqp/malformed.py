"""Mutations of a valid conversation: its frames, their order and the splitting of the bytes."""

from __future__ import annotations

import random
from collections.abc import Callable, Iterator, Sequence
from contextlib import suppress
from dataclasses import dataclass

from sbpair.pair.amqp.decoding import decode
from sbpair.pair.amqp.encoding import FRAME_HEAD, encode
from sbpair.pair.amqp.errors import DecodeError, EncodeError
from sbpair.pair.amqp.types import Array, Described, Int, Symbol, TypedKey, ULong

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
    *(
        "\u00e9",
        Described(Int(-1), "x"),
        Described([], None),
        {Int(1): 1, TypedKey(int, 1): 2},
        {Symbol("f"): Described(Int(-1), [])},
        Array(0xA1, ("\u00e9",)),
        Array(0xA3, (Symbol("a"), Symbol("b"))),
        Array(0x41, (True,) * 40),
    ),
)
ENDS: dict[type, tuple[object, ...]] = {
    bool: (True, False),
    int: (0, 1, 2, 5, 100, 2**31 - 1, 2**31, 2**32 - 1),
    str: ("", "\u00e9", Symbol("a"), "q"),
    dict: ({}, {Symbol("f"): Described(Int(-1), [])}, {Symbol("f"): {Int(1): 1, TypedKey(int, 1): 2}}),
    type(None): (None, 0, 2**32 - 1, True, "\u00e9", {Symbol("f"): Described(Int(-1), [])}),
}
"""Other values of a type, at its ends; what is left out may be any."""
CONSTRUCTORS = bytes.fromhex(
    "0040414243444550525354555660616370717273747580828384949 8a0a1a3b0b1b3c0c1d0d1e0f0".replace(" ", "")
)


@dataclass(frozen=True, slots=True)
class Conversation:
    """The bytes of one side: its opening bytes and then frames."""

    preamble: tuple[bytes, ...]
    frames: tuple[bytes, ...]


def conversation(data: bytes) -> Conversation:
    """Split the bytes into protocol headers and frames."""
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
    """Replace a byte that may be a constructor by another constructor."""
    at = draw.randrange(8, len(frame)) if len(frame) > 8 else 0
    return frame[:at] + bytes([draw.choice(CONSTRUCTORS)]) + frame[at + 1 :]


def resized(frame: bytes, draw: random.Random) -> bytes:
    """Change the length of the frame or of a value in it."""
    size = draw.choice((0, 7, 8, 9, len(frame) - 1, len(frame) + 1, 512, 2**16, 2**20 + 1, 2**32 - 1))
    return size.to_bytes(4, "big") + frame[4:]


def moved(frame: bytes, draw: random.Random) -> bytes:
    """Change the channel, the frame type or the data offset."""
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
    """Change a field of the performative to another number, type or null, or add fields."""
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
            at = draw.randrange(len(fields))
            fields[at] = altered(fields[at], draw)
    if draw.random() < 0.1:
        fields = fields[: draw.randrange(len(fields) + 1)] + [draw.choice(ODD)] * draw.choice((0, 1, 20))
    with suppress(EncodeError):
        return framed(frame, encode(Described(as_code(descriptor), fields)) + frame[behind:])
    return flipped(frame, draw)


def altered(value: object, draw: random.Random) -> object:
    """Replace a value, or change a part of it."""
    inner = value.value if isinstance(value, Described) else value
    if not isinstance(inner, list) or not inner or draw.random() < 0.3:
        return draw.choice(ODD)
    at = draw.randrange(len(inner))
    changed = [*inner[:at], altered(inner[at], draw), *inner[at + 1 :]]
    return Described(value.descriptor, changed) if isinstance(value, Described) else changed


def strained(frame: bytes, draw: random.Random) -> bytes:
    """Set many fields to extremes of their own types: each is valid, their combination may not be."""
    try:
        value, behind = decode(frame, 8)
        rate = draw.choice((0.1, 0.3, 0.6))
        return framed(frame, encode(strain(value, rate, draw)) + frame[behind:])
    except (DecodeError, EncodeError):
        return flipped(frame, draw)


def strain(value: object, rate: float, draw: random.Random) -> object:
    if isinstance(value, Described):
        return Described(value.descriptor, strain(value.value, rate, draw))
    if isinstance(value, list):
        return [strain(each, rate, draw) for each in value]
    if draw.random() > rate:
        return value
    choices = next((ends for kind, ends in ENDS.items() if isinstance(value, kind)), ODD)
    return draw.choice(choices)


def as_code(descriptor: object) -> object:
    """Return a descriptor code as a ulong."""
    return ULong(descriptor) if isinstance(descriptor, int) else Symbol(str(descriptor))


def framed(like: bytes, body: bytes) -> bytes:
    _, offset, kind, channel = FRAME_HEAD.unpack_from(like)
    return FRAME_HEAD.pack(8 + len(body), offset, kind, channel) + body


FRAME_MUTATIONS: tuple[Callable[[bytes, random.Random], bytes], ...] = (
    *(flipped, retyped, resized, moved, cut),
    *(refielded,) * 5,
    *(strained,) * 5,
)


def reordered(frames: list[bytes], others: Sequence[bytes], draw: random.Random) -> None:
    """Drop, duplicate, swap or insert a frame."""
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
    """Return a mutated conversation, mostly valid so that it reaches later states."""
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
    """Split the bytes into reads of random sizes."""
    most = draw.choice((1, 7, 64, 4096, len(data) + 1))
    at = 0
    while at < len(data):
        size = draw.randint(1, most)
        yield data[at : at + size]
        at += size
