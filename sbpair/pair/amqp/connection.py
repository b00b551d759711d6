"""AMQP connections without I/O (2.4).

    handshake (headers, SASL)  ->  open  ->  frames  ->  close

    receive_data(data, now)   feed bytes of the peer, in pieces of any size
    events()                  take the events they caused
    data_to_send()            take the bytes to send; pieces_to_send(), without joining long payloads to them
    next_timer(), handle_timer(now)

No socket is opened and no clock read. `receive_data` does not raise for anything the peer sends: a violation is
answered with close, end or detach, and becomes an event.
"""

from __future__ import annotations

import struct
from collections.abc import Callable, Iterable, Sequence
from typing import Final

from .composite import decode_composite, encode_composite
from .decoding import DecodeBudget
from .encoding import AMQP_FRAME, AMQP_HEADER, EMPTY_FRAME, FRAME_HEAD, MIN_MAX_FRAME_SIZE, frame
from .endpoint import CLOSED, OPEN, UNOPENED, Endpoint
from .errors import (
    DECODE_ERROR,
    FRAMING_ERROR,
    ILLEGAL_STATE,
    INVALID_FIELD,
    NOT_ALLOWED,
    RESOURCE_LIMIT_EXCEEDED,
    UNAUTHORIZED_ACCESS,
    DecodeError,
    EncodeError,
    LocalProtocolError,
    PeerConnectionError,
    PeerSessionError,
)
from .events import ConnectionClosed, ConnectionOpened, Event
from .fast_path import DISPOSITION, TRANSFER, Chunk, Reader, is_whole_transfer
from .handshake import ConnectionRole, Handshake, HandshakePhase
from .limits import Limits
from .performatives import AmqpMap, Begin, Close, Condition, Open, without_details
from .session import Session

__all__ = ["Connection", "ConnectionRole", "Limits"]

NODE_WEIGHT: Final = 64  # bytes of memory per decoded value, its text not counted
SESSION_WEIGHT: Final = 4096


CHANNEL_MAX: Final = 4999
"""Each receiver has a session of its own: as many as an entity may have receivers."""
GATHERED_BELOW: Final = 4096
"""Bytes: a peer that sends its frames in smaller chunks does not fill a list with them."""
JOINED_LAST: Final = 16_384
"""Bytes of a frame, or of a piece to send, from which a copy is worth avoiding."""
FIRST_TRANSFER_ID: Final = 1
"""Apart from the delivery ids: rhea before 3.0.3 expects its peer's first transfer within 2,048 of zero."""


class Connection(Endpoint):
    """One AMQP connection, client or server. Times are seconds of a monotonic clock."""

    def __init__(
        self,
        *,
        role: ConnectionRole,
        container_id: str,
        now: float,
        hostname: str | None = None,
        max_frame_size: int = 1_048_576,
        channel_max: int = CHANNEL_MAX,
        handle_max: int = 1023,
        idle_time_out: float | None = None,
        properties: AmqpMap | None = None,
        mechanisms: tuple[str, ...] = ("ANONYMOUS",),
        initial_response: bytes | None = None,
        first_delivery_id: int = 0,
        first_transfer_id: int = FIRST_TRANSFER_ID,
        limits: Limits | None = None,
        answer_open: Callable[[Open, Open], Open] | None = None,
    ) -> None:
        """Create a connection. A client queues its SASL init and open at once; other frames follow the outcome.

        A client uses the first of `mechanisms`, with `initial_response`; a server offers all of them. `idle_time_out`
        is announced to the peer (2.4.5); the connection closes after the peer has been silent for twice as long.
        `answer_open(ours, theirs)` returns the open with which a server answers its client's.

        Raises LocalProtocolError for a `max_frame_size` below 512.
        """
        super().__init__()
        if max_frame_size < MIN_MAX_FRAME_SIZE:
            raise LocalProtocolError(f"max_frame_size is at least {MIN_MAX_FRAME_SIZE}, not {max_frame_size}")
        self.role = role
        self.limits = limits or Limits()
        self.allowance = self.limits.max_held
        """Bytes of memory the peer may occupy; may be changed at any time."""
        self.unfinished = 0
        """Bytes of deliveries whose last frame has not arrived."""
        self.disposition_budget = self.limits.disposition_budget
        self.channel_max = channel_max
        self.handle_max = handle_max
        self.remote_open: Open | None = None
        self.remote_max_frame_size = MIN_MAX_FRAME_SIZE
        self.reader = Reader()
        self._idle_time_out = idle_time_out
        self._max_frame_size = max_frame_size
        self._open = Open(
            container_id,
            hostname,
            max_frame_size,
            channel_max,
            None if idle_time_out is None else int(idle_time_out * 1000),
            properties=properties,
        )
        self._answer_open = answer_open
        self._first_delivery_id = first_delivery_id
        self.first_transfer_id = first_transfer_id
        self._greeting: list[bytes] = []  # sent before any frame
        self._events: list[Event] = []
        self.report: Callable[[Event], None] = self._events.append
        self._handshake = Handshake(
            role,
            mechanisms,
            initial_response,
            hostname,
            self.limits.pre_open_frame_size,
            self._greeting.append,
            self.report,
        )
        self._pending: list[Chunk] = []  # the beginning of a frame, in the chunks in which it came
        self._pending_size = 0
        self._needed = 0
        self._out: list[bytes | memoryview] = []
        self.write: Callable[[bytes | memoryview], None] = self._out.append
        self._with_acks: list[Session] = []
        self._ours: dict[int, Session] = {}  # by our channel
        self._theirs: dict[int, Session] = {}  # by the peer's channel
        self._links = 0
        self._held = 0
        self._is_finished = False  # ConnectionClosed was emitted
        self._now = self._last_received = self._last_sent = now
        self._handshake_deadline: float | None = now + self.limits.handshake_timeout
        self._close_deadline: float | None = None
        if role is ConnectionRole.CLIENT:
            self._handshake.start()
            self._out.append(AMQP_HEADER)
            self._send_open()

    # For the application

    def receive_data(self, data: bytes | bytearray | memoryview, now: float) -> None:
        """Process bytes from the peer. Never raises for their content."""
        if not isinstance(data, bytes):
            data = bytes(data)
        self._now = self._last_received = now
        if self._is_finished:
            return
        if self._handshake.phase is HandshakePhase.DONE:
            position = self._finish_frame(data) if self._pending else 0
            if position < len(data) and not self._is_finished:
                self._parse(data, position)
            return
        if self._pending:
            self._keep(data, 0)
            if (
                self._pending_size < self._needed
                and self._handshake.phase is not HandshakePhase.AUTHENTICATING
            ):
                return
            data = self._take_pending()
        self._parse(data)

    def receive_eof(self, now: float) -> None:
        """Process the end of the peer's byte stream; idempotent."""
        self._now = now
        self._finish(None)

    def events(self) -> list[Event]:
        """Return the events since the last call, in order."""
        events = self._events[:]
        self._events.clear()
        return events

    def data_to_send(self) -> bytes:
        """Return the bytes to send; consecutive dispositions are merged into one range."""
        return b"".join(self.pieces_to_send())

    def pieces_to_send(self) -> list[Chunk]:
        """Return the bytes to send in pieces: long payloads uncopied, all that is between them joined."""
        if self._with_acks:
            sessions, self._with_acks = self._with_acks, []
            flushed = 0
            try:
                for session in sessions:
                    flushed += 1
                    session.flush_acks()
            finally:  # a state that cannot be encoded must not affect the other sessions
                self._with_acks += sessions[flushed:]
        if self._greeting:
            self._last_sent = self._now
            data = b"".join(self._greeting)
            self._greeting.clear()
            return [data, *self._frames_to_send()]
        return self._frames_to_send()

    def _frames_to_send(self) -> list[Chunk]:
        out = self._out
        if not out or not (self.remote is OPEN or self._handshake.may_send_frames):
            return []
        self._last_sent = self._now
        is_short = max(map(len, out)) < JOINED_LAST
        pieces: list[Chunk] = [b"".join(out)] if is_short else joined_between(out)
        out.clear()
        return pieces

    def next_timer(self) -> float | None:
        """Return when to call :meth:`handle_timer`; None for never."""
        if self._is_finished:
            return None
        deadlines = (
            self._handshake_deadline,
            self._close_deadline,
            self._silence_deadline(),
            self._heartbeat_due(),
        )
        return min((deadline for deadline in deadlines if deadline is not None), default=None)

    def handle_timer(self, now: float) -> None:
        """Send a heartbeat if one is due at `now`, or close the connection if the peer has been silent for too long."""
        self._now = now
        if self._is_finished:
            return
        if _is_due(self._close_deadline, now):
            self._finish(None)
        elif _is_due(self._handshake_deadline, now):
            self._fault(RESOURCE_LIMIT_EXCEEDED, f"no open within {self.limits.handshake_timeout:g} s")
        elif _is_due(self._silence_deadline(), now):
            self._fault(RESOURCE_LIMIT_EXCEEDED, f"silent for {now - self._last_received:.1f} s")
        elif _is_due(self._heartbeat_due(), now) and not self._out:
            self._out.append(EMPTY_FRAME)

    def authenticate(self, accepted: bool, welcome: bytes | None = None) -> None:
        """Server: answer a SaslInitReceived. Raises LocalProtocolError when no client awaits an answer."""
        if self._is_finished:
            return
        self._handshake.authenticate(accepted, welcome)
        if not accepted:
            self._finish(Condition(UNAUTHORIZED_ACCESS, "authentication failed"))
            return
        self._parse(self._take_pending())

    def begin(self) -> Session:
        """Begin a session (2.5.1). Raises LocalProtocolError when closed or out of channels."""
        if self.local is not OPEN:
            raise LocalProtocolError("the connection is not open")
        session = self._new_session()
        session.begin()
        return session

    def close(self, condition: Condition | None = None) -> None:
        """Close our half; idempotent. ConnectionClosed follows once the peer has closed its half."""
        if not self._is_finished and self.local is not CLOSED:
            self._close_deadline = self._now + self.limits.close_timeout
            if not self._send_close(condition):  # before AMQP: no close of the peer will follow
                self._finish(condition)

    @property
    def sessions(self) -> list[Session]:
        """The sessions not yet ended by both peers."""
        return list(self._ours.values())

    @property
    def is_closed(self) -> bool:
        """Whether the connection has ended; :meth:`data_to_send` may still return bytes to send."""
        return self._is_finished

    # For sessions and links

    def send(self, channel: int, performative: object) -> None:
        """Send a frame; an error too long for the peer's frame size is sent without details (2.3)."""
        body = encode_composite(performative)
        if len(body) + 8 > self.remote_max_frame_size:
            body = encode_composite(without_details(performative))
        self._out.append(frame(channel, body))

    def queue_acks(self, session: Session) -> None:
        self._with_acks.append(session)

    def forget_session(self, session: Session) -> None:
        if self._ours.pop(session.channel, None) is not None:
            self.charge(-session.weight)
        if session.remote_channel is not None:
            self._theirs.pop(session.remote_channel, None)

    def charge(self, size: int) -> None:
        """Add `size` bytes to the memory that the peer occupies; a negative `size` frees some.

        Raises PeerConnectionError above `allowance`.
        """
        self._held += size
        if size > 0 and self._held > self.allowance:
            raise PeerConnectionError(
                RESOURCE_LIMIT_EXCEEDED,
                f"more than {self.allowance} bytes of links and partial deliveries",
            )

    def count_links(self, more: int, *, ours: bool = False) -> None:
        """Add `more` to the number of links.

        Raises above the limit: LocalProtocolError for links of `ours`, otherwise PeerSessionError.
        """
        if more > 0 and self._links >= self.limits.max_links:
            text = f"{self._links} links on this connection"
            raise LocalProtocolError(text) if ours else PeerSessionError(RESOURCE_LIMIT_EXCEEDED, text)
        self._links += more

    # Frames

    def _parse(self, data: bytes, position: int = 0, rest: Sequence[Chunk] = ()) -> None:
        """Process frames. ``rest``, if given, continues a long frame that begins in the data."""
        try:
            while self._handshake.phase is not HandshakePhase.DONE:
                step = self._handshake.step(data, position)
                if step is None:
                    self._needed = self._handshake.needed
                    self._keep_handshake_bytes(data, position)
                    return
                position = step
            if rest and self._receive_long_transfer(data, rest):
                return
            self._parse_frames(b"".join((data, *rest)) if rest else data, position)
        except PeerConnectionError as fault:
            self._fault(fault.symbol, fault.description)
        except DecodeError as error:
            self._fault(DECODE_ERROR, str(error))
        except EncodeError as error:  # an answer repeats a value of the peer that cannot be encoded
            self._fault(INVALID_FIELD, str(error))
        except (IndexError, struct.error):
            self._fault(DECODE_ERROR, "a frame ends inside a value")

    def _keep_handshake_bytes(self, data: bytes, position: int) -> None:
        if len(data) - position > self.limits.max_handshake_bytes:
            raise PeerConnectionError(
                RESOURCE_LIMIT_EXCEEDED, "too many bytes before the handshake completed"
            )
        self._keep(data, position)

    def _keep(self, data: bytes, position: int) -> None:
        """Keep the beginning of an incomplete frame; it is joined with the rest once, when the frame is complete."""
        size = len(data) - position
        if size <= 0:
            return
        self._pending_size += size
        last = self._pending[-1] if self._pending else None
        if size >= GATHERED_BELOW:
            self._pending.append(data[position:] if position else data)  # compiled, a whole slice is a copy
        elif isinstance(last, bytearray):
            last += data[position:]
        else:
            self._pending.append(bytearray(data[position:]))

    def _take_pending(self) -> bytes:
        data = b"".join(self._pending)
        self._drop_pending()
        return data

    def _drop_pending(self) -> None:
        self._pending.clear()
        self._pending_size = 0

    def _finish_frame(self, data: bytes) -> int:
        """Process the frame whose beginning was kept; return how many bytes of `data` belong to it.

        Only these bytes are joined with the beginning: the frames that follow are read in place.
        """
        taken = 0
        while self._pending and taken < len(data):
            missing = self._needed - self._pending_size
            if len(data) - taken < missing:
                self._keep(data, taken)
                return len(data)
            first, *rest = self._pending
            rest.append(data if missing == len(data) else memoryview(data)[taken : taken + missing])
            is_long = self._pending_size + missing >= JOINED_LAST
            self._drop_pending()
            taken += missing
            if is_long:
                self._parse(bytes(first), rest=rest)
            else:
                self._parse(b"".join((first, *rest)))
        return taken

    def _parse_frames(self, data: bytes, position: int) -> None:
        size = len(data)
        theirs = self._theirs
        unpack = FRAME_HEAD.unpack_from
        limit = self._frame_limit()
        while position + 8 <= size:
            frame_size, offset, kind, channel = unpack(data, position)
            end = position + frame_size
            at = position + 4 * offset
            if frame_size < 8 or frame_size > limit or offset < 2 or at > end or kind != AMQP_FRAME:
                raise PeerConnectionError(FRAMING_ERROR, _framing_error(frame_size, offset, kind))
            if end > size:
                self._needed = frame_size
                break
            if at < end:
                session = theirs.get(channel)
                try:
                    if session is not None and data.startswith(TRANSFER, at):
                        session.receive_transfer(data, at, end)
                    elif session is not None and data.startswith(DISPOSITION, at):
                        role, first, last, tail = self.reader.disposition(data, at, end)
                        session.receive_disposition(role, first, last, tail)
                    else:
                        self._receive(channel, session, data, at, end)
                        limit = self._frame_limit()
                except PeerSessionError as fault:
                    if session is not None:
                        session.fault(Condition(fault.symbol, fault.description))
                if self._is_finished:
                    return
            position = end
        else:
            self._needed = 8
        self._keep(data, position)

    def _receive_long_transfer(self, data: bytes, rest: Sequence[Chunk]) -> bool:
        """Process a transfer by joining its payload only, not its head; return whether this is a transfer."""
        frame_size, offset, _kind, channel = FRAME_HEAD.unpack_from(data)
        at, session = 4 * offset, self._theirs.get(channel)
        if session is None or frame_size > self._frame_limit() or not is_whole_transfer(data, at):
            return False
        try:
            session.receive_transfer(data, at, frame_size, rest)
        except PeerSessionError as fault:
            session.fault(Condition(fault.symbol, fault.description))
        return True

    def _frame_limit(self) -> int:
        if self.remote_open is None:
            return self.limits.pre_open_frame_size
        return min(self._max_frame_size, self.allowance)

    def _receive(self, channel: int, session: Session | None, data: bytes, at: int, end: int) -> None:
        if end - at > self.limits.performative_size:
            raise PeerConnectionError(DECODE_ERROR, f"a performative of {end - at} bytes")
        budget = DecodeBudget(end - at)
        performative, stop = decode_composite(data, at, end, budget)
        if stop != end:
            raise DecodeError(f"{end - stop} bytes after {type(performative).__name__}")
        if isinstance(performative, Open):
            self._receive_open(performative)
        elif self.remote is not OPEN:
            raise PeerConnectionError(ILLEGAL_STATE, f"{type(performative).__name__} before open")
        elif isinstance(performative, Close):
            self._receive_close(performative)
        elif self.local is CLOSED:
            return  # sent before the peer received our close
        elif isinstance(performative, Begin):
            self._receive_begin(channel, performative, end - at + NODE_WEIGHT * budget.spent)
        elif session is None:
            raise PeerConnectionError(
                NOT_ALLOWED, f"{type(performative).__name__} on channel {channel}, which has no session"
            )
        else:
            session.receive(performative, end - at + NODE_WEIGHT * budget.spent)

    # Handshake

    def _receive_open(self, performative: Open) -> None:
        if self.remote is not UNOPENED:
            raise PeerConnectionError(ILLEGAL_STATE, "a second open")
        if performative.max_frame_size < MIN_MAX_FRAME_SIZE:
            raise PeerConnectionError(
                INVALID_FIELD, f"max-frame-size {performative.max_frame_size} is below 512"
            )
        self.remote = OPEN
        self.remote_open = performative
        self.remote_max_frame_size = performative.max_frame_size
        self._handshake_deadline = None
        if self.local is UNOPENED:
            self._adapt_to(performative)
            self._send_open()
        self.report(ConnectionOpened(performative))

    def _receive_begin(self, channel: int, begin: Begin, weight: int) -> None:
        if channel in self._theirs:
            raise PeerConnectionError(NOT_ALLOWED, f"a second begin on channel {channel}")
        if channel > self.channel_max:
            raise PeerConnectionError(FRAMING_ERROR, f"channel {channel} is above {self.channel_max}")
        if begin.remote_channel is None:
            if len(self._ours) >= self.limits.max_sessions:
                raise PeerConnectionError(
                    RESOURCE_LIMIT_EXCEEDED, f"{len(self._ours)} sessions on this connection"
                )
            session = self._new_session(PeerConnectionError)
        else:
            answered = self._ours.get(begin.remote_channel)
            if answered is None or answered.remote is not UNOPENED:
                raise PeerConnectionError(
                    NOT_ALLOWED,
                    f"begin answers channel {begin.remote_channel}, which did not begin a session",
                )
            session = answered
        session.weight = SESSION_WEIGHT + weight
        self.charge(session.weight)
        session.remote_channel = channel
        self._theirs[channel] = session
        session.receive_begin(begin)

    def _new_session(self, failure: type[Exception] = LocalProtocolError) -> Session:
        limit = (
            self.channel_max
            if self.remote_open is None
            else min(self.channel_max, self.remote_open.channel_max)
        )
        channel = len(self._ours)
        if channel in self._ours:
            channel = next(free for free in range(channel) if free not in self._ours)
        if channel > limit:
            text = f"all {limit + 1} channels are in use"
            raise (
                LocalProtocolError(text)
                if failure is LocalProtocolError
                else PeerConnectionError(RESOURCE_LIMIT_EXCEEDED, text)
            )
        session = Session(self, channel, self._first_delivery_id)
        self._ours[channel] = session
        return session

    def _receive_close(self, performative: Close) -> None:
        self.remote = CLOSED
        if self.local is OPEN:
            self._send_close(None)
        self._finish(performative.error)

    # Open and close

    def _adapt_to(self, theirs: Open) -> None:
        if self._answer_open is not None:
            self._open = opened = self._answer_open(self._open, theirs)
            self._max_frame_size = opened.max_frame_size
            if opened.idle_time_out is not None:
                self._idle_time_out = opened.idle_time_out / 1000

    def _send_open(self) -> None:
        self.local = OPEN
        self._out.append(frame(0, encode_composite(self._open)))

    def _send_close(self, condition: Condition | None) -> bool:
        """Send close, after an open if none was sent (2.4.3). Return False before the AMQP header."""
        if self._handshake.phase is not HandshakePhase.DONE and self.role is ConnectionRole.SERVER:
            return False
        for session in self._ours.values():
            session.flush_acks()
        if self.local is UNOPENED:
            self._send_open()
        self.send(0, Close(condition))
        self.local = CLOSED
        self._drop_credit()
        return True

    def _fault(self, symbol: str, description: str) -> None:
        condition = Condition(symbol, description)
        if self._handshake.phase is HandshakePhase.DONE and self.local is not CLOSED:
            self._send_close(condition)
        self._finish(condition)

    def _finish(self, condition: Condition | None) -> None:
        self.local = self.remote = CLOSED
        self._drop_pending()
        self._drop_credit()
        if not self._is_finished:
            self._is_finished = True
            self.report(ConnectionClosed(condition))

    def _drop_credit(self) -> None:
        for session in self._ours.values():
            session.drop_credit()

    # Timers

    def _silence_deadline(self) -> float | None:
        if self._idle_time_out is None or self.remote_open is None:
            return None
        return self._last_received + 2 * self._idle_time_out

    def _heartbeat_due(self) -> float | None:
        if self.remote_open is None or not self.remote_open.idle_time_out or self.local is CLOSED:
            return None
        return self._last_sent + max(
            self.remote_open.idle_time_out / 2000, self.limits.min_heartbeat_interval
        )


def joined_between(pieces: Iterable[Chunk]) -> list[Chunk]:
    """Return these bytes with the long pieces uncopied, and the short ones between them joined."""
    found: list[Chunk] = []
    short: list[Chunk] = []
    for piece in pieces:
        if len(piece) < JOINED_LAST:
            short.append(piece)
            continue
        if short:
            found.append(b"".join(short))
            short.clear()
        found.append(piece)
    if short:
        found.append(b"".join(short))
    return found


def _is_due(deadline: float | None, now: float) -> bool:
    return deadline is not None and now >= deadline


def _framing_error(size: int, offset: int, kind: int) -> str:
    return f"a frame of {size} bytes, data offset {offset}, type {kind} is malformed"
