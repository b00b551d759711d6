"""Is this a peer we may talk AMQP with (2.2, 5.3)? Everything before the first AMQP frame.

    SASL_HEADER -> SASL -> [ AUTHENTICATING ] -> AMQP_HEADER -> DONE
                            (server: the owner decides)

The SASL layer cannot be skipped, and in it only SASL frames are read: a frame is taken for what
its type byte says, never for what its body looks like.
"""

from __future__ import annotations

from collections.abc import Callable
from enum import Enum, IntEnum

from .composite import decode_composite, encode_composite
from .decoding import Budget
from .errors import FRAMING_ERROR, UNAUTHORIZED_ACCESS, ConnectionFault, DecodeError, LinkMisuse
from .events import SaslInitReceived
from .frames import AMQP_HEADER, FRAME_HEAD, SASL_FRAME, SASL_HEADER, frame
from .performatives import SaslInit, SaslOutcome
from .sasl import AUTH, OK, SaslClient, SaslServer


class Role(Enum):
    """Who dialled."""

    CLIENT = "client"
    SERVER = "server"


class Phase(IntEnum):
    """What the next bytes of the peer must be."""

    SASL_HEADER, SASL, AUTHENTICATING, AMQP_HEADER, DONE = range(5)


class Preamble:
    """The exchange of headers and SASL frames, of either role."""

    def __init__(
        self,
        role: Role,
        mechanisms: tuple[str, ...],
        initial_response: bytes | None,
        hostname: str | None,
        largest_frame: int,
        write: Callable[[bytes], None],
        report: Callable[[SaslInitReceived], None],
    ) -> None:
        self.phase = Phase.SASL_HEADER
        self.needed = 8
        self._role = role
        self._largest_frame = largest_frame
        self._write = write
        self._report = report
        self._server = SaslServer(mechanisms)
        self._client = SaslClient(mechanisms[0], initial_response, hostname)

    def start(self) -> None:
        """Client: say who we are, without waiting for the offer."""
        self._write(SASL_HEADER)
        self._send(self._client.opening())

    @property
    def lets_frames_out(self) -> bool:
        """May our AMQP header and what follows it go out?

        A client waits for the outcome: there are servers (rhea) that cannot read ahead of it.
        """
        return self.phase >= (Phase.AMQP_HEADER if self._role is Role.CLIENT else Phase.DONE)

    def step(self, data: bytes, position: int) -> int | None:
        """Read one header or frame at `position`; where the next is, or None while bytes are missing.

        Raises ConnectionFault, DecodeError.
        """
        if self.phase is Phase.AUTHENTICATING:
            return None
        if len(data) - position < 8:
            self.needed = 8
            return None
        if self.phase is Phase.SASL:
            return self._sasl_frame(data, position)
        header = data[position : position + 8]
        if self.phase is Phase.SASL_HEADER:
            self._sasl_header(header)
        else:
            self._amqp_header(header)
        return position + 8

    def authenticate(self, accepted: bool) -> None:
        """Server: tell the outcome. Raises LinkMisuse when nobody asked."""
        if self.phase is not Phase.AUTHENTICATING:
            raise LinkMisuse("no SASL exchange waits for an answer")
        self._send(SaslOutcome(OK if accepted else AUTH))
        if accepted:
            self.phase = Phase.AMQP_HEADER

    def _sasl_header(self, header: bytes) -> None:
        if self._role is Role.SERVER:
            self._write(SASL_HEADER)  # also in answer to a wrong one: say what would have been right (2.2)
        if header != SASL_HEADER:
            raise ConnectionFault(FRAMING_ERROR, f"protocol header {header!r}, not SASL's")
        self.phase = Phase.SASL
        if self._role is Role.SERVER:
            self._send(self._server.greeting())

    def _amqp_header(self, header: bytes) -> None:
        if self._role is Role.SERVER:
            self._write(AMQP_HEADER)
        if header != AMQP_HEADER:
            raise ConnectionFault(FRAMING_ERROR, f"protocol header {header!r}, not AMQP 1.0's")
        self.phase = Phase.DONE

    def _sasl_frame(self, data: bytes, position: int) -> int | None:
        size, offset, kind, _channel = FRAME_HEAD.unpack_from(data, position)
        end, at = position + int(size), position + 4 * int(offset)
        if size > self._largest_frame or offset < 2 or at >= end or kind != SASL_FRAME:
            raise ConnectionFault(
                FRAMING_ERROR, f"no SASL frame has {size} bytes, data offset {offset}, type {kind}"
            )
        if end > len(data):
            self.needed = size
            return None
        performative, stop = decode_composite(data, at, end, Budget(size))
        if stop != end:
            raise DecodeError(f"{end - stop} bytes behind {type(performative).__name__}")
        if self._role is Role.SERVER:
            init = self._take_init(performative)
            self.phase = Phase.AUTHENTICATING
            self._report(SaslInitReceived(init.mechanism, init.initial_response, init.hostname))
        elif self._client.receive(performative):
            self.phase = Phase.AMQP_HEADER
        return end

    def _take_init(self, performative: object) -> SaslInit:
        try:
            return self._server.receive(performative)
        except ConnectionFault as fault:
            if fault.symbol == UNAUTHORIZED_ACCESS:
                self._send(SaslOutcome(AUTH))
            raise

    def _send(self, performative: object) -> None:
        self._write(frame(0, encode_composite(performative), kind=SASL_FRAME))
