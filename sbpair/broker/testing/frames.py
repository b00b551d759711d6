"""AMQP frames in transit, the entity each concerns, and the rules that act on them.

A Conversation splits both directions of a connection into frames:

    bytes in  --.                    .-- Passing(raw, "in", "transfer", address "orders")
    bytes out --+-- one Conversation +-- Passing(raw, "out", "disposition", address "orders")

Anything but plain AMQP (TLS, HTTP, WebSocket) passes as unnamed bytes. A rule can also break a frame. No I/O.
"""

from __future__ import annotations

import asyncio
import re
import threading
from concurrent.futures import Future, InvalidStateError
from contextlib import suppress
from dataclasses import dataclass
from enum import Enum
from fnmatch import fnmatchcase

from sbpair.pair.amqp.composite import decode_composite
from sbpair.pair.amqp.decoding import DecodeBudget
from sbpair.pair.amqp.encoding import AMQP_FRAME, FRAME_HEAD
from sbpair.pair.amqp.errors import DecodeError
from sbpair.pair.amqp.performatives import Attach, Begin, Disposition, Flow, Source, Target

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
MAX_FRAME_BYTES = 1 << 26
OVERSIZE_BYTES = 1 << 26  # more than any peer takes, and little enough for one that allocates it
MAX_DELIVERIES = 65_536  # remembered per connection, to find the entity of a disposition
_HEADER_SIZE = 8
_OPENS_AMQP = b"AMQP"
_ORIGIN = re.compile(r"^[a-z]+://[^/]*/", re.IGNORECASE)


@dataclass(frozen=True, slots=True)
class Passing:
    """One frame in transit, or a chunk of bytes of a connection that is not plain AMQP."""

    raw: bytes
    direction: str
    performative: str | None = None
    address: str | None = None


class Conversation:
    """Both directions of one connection."""

    def __init__(self) -> None:
        self._waiting = {IN: bytearray(), OUT: bytearray()}
        self._needed = {IN: 0, OUT: 0}  # bytes from which on the waiting ones are worth a look
        self._is_opaque = False
        self._names: dict[str, str] = {}  # link name -> address
        self._links: dict[tuple[str, int, int], str] = {}  # direction, session, handle -> address
        self._sessions: dict[int, int] = {}  # channel out -> channel in
        self._deliveries: dict[tuple[str, int, int], str] = {}  # direction, session, delivery-id -> address

    def feed(self, direction: str, data: bytes) -> list[Passing]:
        """Return the frames completed by ``data``; keep an incomplete one. Takes time proportional to the bytes fed."""
        waiting = self._waiting[direction]
        if waiting:
            waiting += data
            if len(waiting) < self._needed[direction] and not self._is_opaque:
                return []
            data = self.rest(direction)
        if self._is_opaque:
            return [Passing(data, direction)]
        found: list[Passing] = []
        at = 0
        while (size := self._size(data, at)) is not None and at + size <= len(data):
            found.append(self._passing(direction, data[at : at + size]))
            at += size
        if self._is_opaque:
            found.append(Passing(data[at:], direction))
        else:
            waiting += memoryview(data)[at:]
            self._needed[direction] = size or _HEADER_SIZE
        return found

    def rest(self, direction: str) -> bytes:
        """Remove and return the bytes of the incomplete frame."""
        waiting = self._waiting[direction]
        rest = bytes(waiting)
        waiting.clear()
        return rest

    def _size(self, data: bytes, at: int) -> int | None:
        start = data[at : at + _HEADER_SIZE]
        if len(start) < _HEADER_SIZE:
            self._is_opaque |= not _may_be_amqp(start)
            return None
        if start.startswith(_OPENS_AMQP):
            return _HEADER_SIZE
        size: int = FRAME_HEAD.unpack_from(data, at)[0]
        if not _HEADER_SIZE <= size <= MAX_FRAME_BYTES:
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
            return Passing(raw, direction, name)  # malformed: left to the receiving peer

    # -- the entity a frame concerns

    def _address(self, direction: str, channel: int, name: str, raw: bytes, at: int) -> str | None:
        if name not in ("begin", "attach", "flow", "transfer", "disposition", "detach"):
            return None
        if name in ("transfer", "detach"):
            return self._of_handle(direction, channel, name, _numbers(raw, at))
        value, _ = decode_composite(raw, at, len(raw), DecodeBudget(len(raw)))
        match value:
            case Begin(remote_channel=other) if direction == OUT and other is not None:
                self._sessions[channel] = other
            case Attach():
                return self._note_attach(direction, self._session(direction, channel), value)
            case Flow(handle=handle) if handle is not None:
                return self._links.get((direction, self._session(direction, channel), handle))
            case Disposition():
                return self._address_of(direction, self._session(direction, channel), value)
        return None

    def _session(self, direction: str, channel: int) -> int:
        return channel if direction == IN else self._sessions.get(channel, channel)

    def _note_attach(self, direction: str, session: int, attach: Attach) -> str | None:
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
            if len(self._deliveries) > MAX_DELIVERIES:
                del self._deliveries[next(iter(self._deliveries))]
        return address

    def _address_of(self, direction: str, session: int, disposition: Disposition) -> str | None:
        # A receiver's disposition concerns deliveries towards it, a sender's its own.
        sent = (OUT if direction == IN else IN) if disposition.role else direction
        address = self._deliveries.get((sent, session, disposition.first))
        if disposition.settled:
            last = disposition.first if disposition.last is None else disposition.last
            for number in range(disposition.first, min(last, disposition.first + MAX_DELIVERIES) + 1):
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
    """Return the first two uints of a performative's list, without a full decode, because transfers are frequent."""
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


class Action(Enum):
    """What to do with a frame."""

    DROP = "drop"  # the frame is discarded; the connection continues
    DELAY = "delay"  # the frame, and all that follow it, arrive `seconds` later
    HOLD = "hold"  # the frame, and all that follow it, wait until the rule is released
    CUT = "cut"  # the connection is closed in both directions before the frame
    RESET = "reset"  # like cut, with a TCP reset
    TRUNCATE = "truncate"  # the first half of the frame arrives, then the connection is closed
    REPEAT = "repeat"  # the frame arrives twice
    OVERSIZE = "oversize"  # the frame arrives, and its head announces 64 MiB
    KILL = "kill"  # the process `pid` is killed before the frame, which is discarded

    @classmethod
    def _missing_(cls, value: object) -> None:
        known = ", ".join(each.value for each in cls)
        raise ValueError(f"unknown action {value!r}: must be one of {known}")


@dataclass(frozen=True, slots=True)
class FrameRule:
    """Selects frames and the action for them.

    ``performative`` (``open`` to ``close``), ``direction`` (``in``: from the client, or ``out``) and ``address``
    (an entity path, or a pattern with ``*``) select frames; None selects all. ``nth`` restricts the action to the
    n-th match, from 1; None acts on every match. ``seconds`` is the delay of ``delay``, ``pid`` the process for
    ``kill``. ``after`` lets the frame pass before the action (cut, reset, kill). Raises ValueError.
    """

    action: Action
    performative: str | None = None
    direction: str | None = None
    address: str | None = None
    nth: int | None = 1
    seconds: float = 0.0
    pid: int | None = None
    after: bool = False

    def __post_init__(self) -> None:
        known = PERFORMATIVES.values()
        if self.performative not in (None, *known):
            raise ValueError(f"unknown performative '{self.performative}': must be one of {', '.join(known)}")
        if self.direction not in (None, IN, OUT):
            raise ValueError(f"direction must be 'in' (from the client) or 'out', not '{self.direction}'")
        if self.nth is not None and self.nth < 1:
            raise ValueError(f"nth must be at least 1, or None for every match, not {self.nth}")
        if not self.seconds >= 0:
            raise ValueError(f"seconds must be 0 or more, not {self.seconds}")
        if (self.action is Action.KILL) != (self.pid is not None):
            raise ValueError("pid is required for kill and only allowed there")

    def matches(self, passing: Passing) -> bool:
        """Whether the rule selects this frame, regardless of ``nth``."""
        if passing.performative is None or self.direction not in (None, passing.direction):
            return False
        if self.performative not in (None, passing.performative):
            return False
        if self.address is None:
            return True
        return passing.address is not None and fnmatchcase(
            passing.address.casefold(), self.address.casefold()
        )


def alter(action: Action, raw: bytes) -> bytes:
    """Return the bytes of a frame after an action that changes them; unchanged for any other action."""
    match action:
        case Action.TRUNCATE:
            return raw[: len(raw) // 2]
        case Action.REPEAT:
            return raw + raw
        case Action.OVERSIZE:
            return OVERSIZE_BYTES.to_bytes(4, "big") + raw[4:]
        case _:
            return raw


class ActiveRule:
    """A rule set on a proxy, with its counts: ``seen`` frames it selects, ``hits`` it acted on."""

    def __init__(self, rule: FrameRule) -> None:
        self.rule = rule
        self.seen = 0
        self.hits = 0
        self._has_applied = threading.Event()
        self._released: Future[None] = Future()

    def is_due(self, passing: Passing) -> bool:
        """Count a frame; return whether to act on it."""
        if not self.rule.matches(passing):
            return False
        self.seen += 1
        return self.rule.nth in (None, self.seen)

    def applied(self) -> None:
        """Count a hit and wake the callers of :meth:`wait`."""
        self.hits += 1
        self._has_applied.set()

    def wait(self, seconds: float = 20.0) -> bool:
        """Wait until the rule has acted; False on timeout."""
        return self._has_applied.wait(seconds)

    def release(self) -> None:
        """Forward the frames this rule holds. Idempotent and thread-safe."""
        with suppress(InvalidStateError):
            self._released.set_result(None)

    async def released(self) -> None:
        """Return once the rule is released. No thread waits, since many connections may be held."""
        await asyncio.shield(asyncio.wrap_future(self._released))  # cancelled, it must not release the others
