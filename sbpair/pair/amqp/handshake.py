"""The handshake before the first AMQP frame: protocol headers and SASL (2.2, 5.3).

    client                       server
      header, init        ->
                          <-     header, mechanisms
                                 (the owner decides)
                          <-     outcome
      header, open, ...   ->
                          <-     header, open, ...

A client goes through SASL. A server also takes a connection that begins with AMQP's header: its client is not
authenticated, and must put a token later (on $cbs). During SASL only SASL frames are read; any other frame is an error.
Only mechanisms with one step are supported: ANONYMOUS, PLAIN, EXTERNAL; a challenge is an error.
"""

from __future__ import annotations

from collections.abc import Callable
from enum import Enum, IntEnum
from typing import Final

from .composite import decode_composite, encode_composite
from .decoding import DecodeBudget
from .encoding import AMQP_HEADER, FRAME_HEAD, SASL_FRAME, SASL_HEADER, frame
from .errors import (
    FRAMING_ERROR,
    NOT_ALLOWED,
    UNAUTHORIZED_ACCESS,
    DecodeError,
    LocalProtocolError,
    PeerConnectionError,
)
from .events import SaslInitReceived
from .performatives import SaslInit, SaslMechanisms, SaslOutcome


class ConnectionRole(Enum):
    """Which end of the connection this is."""

    CLIENT = "client"
    SERVER = "server"


class HandshakePhase(IntEnum):
    """The next input expected from the peer."""

    SASL_HEADER = 0
    SASL = 1
    AUTHENTICATING = 2
    AMQP_HEADER = 3
    DONE = 4


class Handshake:
    """The protocol headers and SASL frames of one connection, in either role."""

    def __init__(
        self,
        role: ConnectionRole,
        mechanisms: tuple[str, ...],
        initial_response: bytes | None,
        hostname: str | None,
        largest_frame: int,
        write: Callable[[bytes], None],
        report: Callable[[SaslInitReceived], None],
    ) -> None:
        self.phase = HandshakePhase.SASL_HEADER
        self.needed = 8
        self._role = role
        self._largest_frame = largest_frame
        self._write = write
        self._report = report
        self._server = SaslServer(mechanisms)
        self._client = SaslClient(mechanisms[0], initial_response, hostname)

    def start(self) -> None:
        """Client: send the SASL header and init, without waiting for the mechanisms."""
        self._write(SASL_HEADER)
        self._send(self._client.opening())

    @property
    def may_send_frames(self) -> bool:
        """Whether our AMQP header and frames may be sent.

        A client waits for the SASL outcome, because some servers (rhea) cannot read ahead of it.
        """
        return self.phase >= (
            HandshakePhase.AMQP_HEADER if self._role is ConnectionRole.CLIENT else HandshakePhase.DONE
        )

    def step(self, data: bytes, position: int) -> int | None:
        """Read one header or frame at ``position``; return the offset after it, or None while it is incomplete.

        Raises PeerConnectionError, DecodeError.
        """
        if self.phase is HandshakePhase.AUTHENTICATING:
            return None
        if len(data) - position < 8:
            self.needed = 8
            return None
        if self.phase is HandshakePhase.SASL:
            return self._sasl_frame(data, position)
        header = data[position : position + 8]
        if self.phase is HandshakePhase.SASL_HEADER:
            self._sasl_header(header)
        else:
            self._amqp_header(header)
        return position + 8

    def authenticate(self, accepted: bool, welcome: bytes | None = None) -> None:
        """Server: send the SASL outcome. Raises LocalProtocolError unless a client is waiting for it."""
        if self.phase is not HandshakePhase.AUTHENTICATING:
            raise LocalProtocolError("no SASL exchange is waiting for an outcome")
        self._send(SaslOutcome(OK, welcome) if accepted else SaslOutcome(AUTH))
        if accepted:
            self.phase = HandshakePhase.AMQP_HEADER

    def _sasl_header(self, header: bytes) -> None:
        if header == AMQP_HEADER and self._role is ConnectionRole.SERVER:
            self._amqp_header(header)  # without SASL: the client is not authenticated yet
            return
        if self._role is ConnectionRole.SERVER:
            self._write(SASL_HEADER)  # also in answer to a wrong one: it names the expected protocol (2.2)
        if header != SASL_HEADER:
            raise PeerConnectionError(FRAMING_ERROR, f"protocol header {header!r}, not SASL's")
        self.phase = HandshakePhase.SASL
        if self._role is ConnectionRole.SERVER:
            self._send(self._server.greeting())

    def _amqp_header(self, header: bytes) -> None:
        if self._role is ConnectionRole.SERVER:
            self._write(AMQP_HEADER)
        if header != AMQP_HEADER:
            raise PeerConnectionError(FRAMING_ERROR, f"protocol header {header!r}, not AMQP 1.0's")
        self.phase = HandshakePhase.DONE

    def _sasl_frame(self, data: bytes, position: int) -> int | None:
        size, offset, kind, _channel = FRAME_HEAD.unpack_from(data, position)
        end, at = position + int(size), position + 4 * int(offset)
        if size > self._largest_frame or offset < 2 or at >= end or kind != SASL_FRAME:
            raise PeerConnectionError(
                FRAMING_ERROR, f"malformed SASL frame: {size} bytes, data offset {offset}, type {kind}"
            )
        if end > len(data):
            self.needed = size
            return None
        performative, stop = decode_composite(data, at, end, DecodeBudget(size))
        if stop != end:
            raise DecodeError(f"{end - stop} bytes after {type(performative).__name__}")
        if self._role is ConnectionRole.SERVER:
            init = self._take_init(performative)
            self.phase = HandshakePhase.AUTHENTICATING
            self._report(SaslInitReceived(init.mechanism, init.initial_response, init.hostname))
        elif self._client.receive(performative):
            self.phase = HandshakePhase.AMQP_HEADER
        return end

    def _take_init(self, performative: object) -> SaslInit:
        try:
            return self._server.receive(performative)
        except PeerConnectionError as fault:
            if fault.symbol == UNAUTHORIZED_ACCESS:
                self._send(SaslOutcome(AUTH))
            raise

    def _send(self, performative: object) -> None:
        self._write(frame(0, encode_composite(performative), kind=SASL_FRAME))


OK: Final = 0
AUTH: Final = 1


class SaslServer:
    """The server side of SASL: offers mechanisms and takes one init."""

    def __init__(self, mechanisms: tuple[str, ...]) -> None:
        self._mechanisms = mechanisms
        self.init: SaslInit | None = None

    def greeting(self) -> SaslMechanisms:
        return SaslMechanisms(self._mechanisms)

    def receive(self, performative: object) -> SaslInit:
        """Take the init of the client. Raises PeerConnectionError for any other frame."""
        if not isinstance(performative, SaslInit) or self.init is not None:
            raise PeerConnectionError(
                NOT_ALLOWED, f"{type(performative).__name__} instead of a single sasl-init"
            )
        self.init = performative
        if performative.mechanism not in self._mechanisms:
            raise PeerConnectionError(
                UNAUTHORIZED_ACCESS, f"SASL mechanism {performative.mechanism[:40]!r} not offered"
            )
        return performative


class SaslClient:
    """The client side of SASL: sends init without waiting for the mechanisms."""

    def __init__(self, mechanism: str, initial_response: bytes | None, hostname: str | None) -> None:
        self._init = SaslInit(mechanism, initial_response, hostname)

    def opening(self) -> SaslInit:
        return self._init

    def receive(self, performative: object) -> bool:
        """Take a frame of the server; True once authenticated. Raises PeerConnectionError when refused."""
        if isinstance(performative, SaslMechanisms):
            if self._init.mechanism not in performative.sasl_server_mechanisms:
                offered = ", ".join(performative.sasl_server_mechanisms)[:200]
                raise PeerConnectionError(
                    UNAUTHORIZED_ACCESS, f"SASL {self._init.mechanism} is not among {offered}"
                )
            return False
        if isinstance(performative, SaslOutcome):
            if performative.code != OK:
                raise PeerConnectionError(UNAUTHORIZED_ACCESS, f"SASL outcome {performative.code}")
            return True
        raise PeerConnectionError(NOT_ALLOWED, f"{type(performative).__name__} in a one-step SASL exchange")
