"""Which frames pass by, and which entity is each about? Told the bytes of both directions, it says.

    bytes in  --.                    .-- Passing(raw, "transfer", "in", address "orders")
    bytes out --+-- one Conversation +-- Passing(raw, "disposition", "out", address "orders")

What is no plain AMQP (TLS, HTTP, a WebSocket) passes as bytes without a name. No socket and no clock.
"""

from __future__ import annotations

import re
from dataclasses import dataclass

from sbpair.amqp.composite import decode_composite
from sbpair.amqp.decoding import Budget
from sbpair.amqp.frames import AMQP_FRAME, FRAME_HEAD
from sbpair.amqp.performatives import Attach, Begin, Disposition, Flow, Source, Target
from sbpair.amqp.types import DecodeError

IN, OUT = "in", "out"
"""From the client to the broker, and back."""
PERFORMATIVES = {
    0x10: "open",
    0x11: "begin",
    0x12: "attach",
    0x13: "flow",
    0x14: "transfer",
    0x15: "disposition",
    0x16: "detach",
    0x17: "end",
    0x18: "close",
}
LARGEST_FRAME = 1 << 26
MOST_REMEMBERED = 65_536  # deliveries of one connection, to know whom a disposition is about
_HEADER_SIZE = 8
_OPENS_AMQP = b"AMQP"
_ORIGIN = re.compile(r"^[a-z]+://[^/]*/", re.IGNORECASE)


@dataclass(frozen=True, slots=True)
class Passing:
    """Some bytes on their way: one frame, or, where none can be told apart, what came in one piece."""

    raw: bytes
    direction: str
    performative: str | None = None
    address: str | None = None


class Conversation:
    """Both directions of one connection."""

    def __init__(self) -> None:
        self._waiting = {IN: b"", OUT: b""}
        self._is_opaque = False
        self._names: dict[str, str] = {}  # link name -> address
        self._links: dict[tuple[str, int, int], str] = {}  # direction, session, handle -> address
        self._sessions: dict[int, int] = {}  # channel out -> channel in
        self._deliveries: dict[tuple[str, int, int], str] = {}  # direction, session, delivery-id -> address

    def feed(self, direction: str, data: bytes) -> list[Passing]:
        """The frames that are whole now; the rest is kept until it is."""
        data = self.rest(direction) + data
        if self._is_opaque:
            return [Passing(data, direction)]
        found: list[Passing] = []
        at = 0
        while (size := self._size(data, at)) is not None and at + size <= len(data):
            found.append(self._passing(direction, data[at : at + size]))
            at += size
        self._waiting[direction] = data[at:]
        if self._is_opaque:
            found.append(Passing(self._waiting[direction], direction))
            self._waiting[direction] = b""
        return found

    def rest(self, direction: str) -> bytes:
        """What has come of a frame that will not be finished."""
        rest, self._waiting[direction] = self._waiting[direction], b""
        return rest

    def _size(self, data: bytes, at: int) -> int | None:
        start = data[at : at + _HEADER_SIZE]
        if len(start) < _HEADER_SIZE:
            self._is_opaque |= not _may_be_amqp(start)
            return None
        if start.startswith(_OPENS_AMQP):
            return _HEADER_SIZE
        size: int = FRAME_HEAD.unpack_from(data, at)[0]
        if not _HEADER_SIZE <= size <= LARGEST_FRAME:
            self._is_opaque = True
            return None
        return size

    def _passing(self, direction: str, raw: bytes) -> Passing:
        _, offset, kind, channel = FRAME_HEAD.unpack_from(raw)
        at = 4 * offset
        if raw.startswith(_OPENS_AMQP) or kind != AMQP_FRAME or len(raw) <= at:
            return Passing(raw, direction)
        name = PERFORMATIVES.get(raw[at + 2]) if raw[at : at + 2] == b"\x00\x53" else None
        if name is None:
            return Passing(raw, direction)
        try:
            return Passing(raw, direction, name, self._address(direction, channel, name, raw, at))
        except (DecodeError, IndexError, ValueError, TypeError):
            return Passing(raw, direction, name)  # a peer's nonsense is the other peer's to judge

    # -- whom it is about

    def _address(self, direction: str, channel: int, name: str, raw: bytes, at: int) -> str | None:
        if name not in ("begin", "attach", "flow", "transfer", "disposition", "detach"):
            return None
        if name in ("transfer", "detach"):
            return self._of_handle(direction, channel, name, _numbers(raw, at))
        value, _ = decode_composite(raw, at, len(raw), Budget(len(raw)))
        match value:
            case Begin(remote_channel=other) if direction == OUT and other is not None:
                self._sessions[channel] = other
            case Attach():
                return self._attached(direction, self._session(direction, channel), value)
            case Flow(handle=handle) if handle is not None:
                return self._links.get((direction, self._session(direction, channel), handle))
            case Disposition():
                return self._disposed(direction, self._session(direction, channel), value)
        return None

    def _session(self, direction: str, channel: int) -> int:
        return channel if direction == IN else self._sessions.get(channel, channel)

    def _attached(self, direction: str, session: int, attach: Attach) -> str | None:
        node = attach.source if attach.role else attach.target
        if direction == OUT:
            node = attach.target if attach.role else attach.source
        address = node.address if isinstance(node, Source | Target) else None
        if direction == IN and address is not None:
            self._names[attach.name] = _ORIGIN.sub("", address)
        known = self._names.get(attach.name)
        if known is not None:
            self._links[direction, session, attach.handle] = known
        return known

    def _of_handle(self, direction: str, channel: int, name: str, numbers: list[int | None]) -> str | None:
        session = self._session(direction, channel)
        handle = numbers[0] if numbers else None
        address = None if handle is None else self._links.get((direction, session, handle))
        delivery = numbers[1] if name == "transfer" and len(numbers) > 1 else None
        if address is not None and delivery is not None:
            self._deliveries[direction, session, delivery] = address
            if len(self._deliveries) > MOST_REMEMBERED:
                del self._deliveries[next(iter(self._deliveries))]
        return address

    def _disposed(self, direction: str, session: int, disposition: Disposition) -> str | None:
        # A receiver speaks of what came towards it, a sender of what it sent itself.
        sent = (OUT if direction == IN else IN) if disposition.role else direction
        address = self._deliveries.get((sent, session, disposition.first))
        if disposition.settled:
            last = disposition.first if disposition.last is None else disposition.last
            for number in range(disposition.first, min(last, disposition.first + MOST_REMEMBERED) + 1):
                self._deliveries.pop((sent, session, number), None)
        return address


def _may_be_amqp(start: bytes) -> bool:
    return start.startswith(_OPENS_AMQP[: len(start)]) or start[:1] in (
        b"",
        b"\x00",
        b"\x01",
        b"\x02",
        b"\x03",
    )


def _numbers(raw: bytes, at: int) -> list[int | None]:
    """The uints that a performative's list begins with, cheaply: transfers are many."""
    constructor = raw[at + 3]
    at += {0x45: 4, 0xC0: 6, 0xD0: 12}[constructor]
    found: list[int | None] = []
    while len(found) < 2 and at < len(raw) and constructor != 0x45:
        code = raw[at]
        if code == 0x43:
            found.append(0)
            at += 1
        elif code == 0x52:
            found.append(raw[at + 1])
            at += 2
        elif code == 0x70:
            found.append(int.from_bytes(raw[at + 1 : at + 5], "big"))
            at += 5
        else:
            found.append(None)
            break
    return found
