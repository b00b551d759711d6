"""Who is there (5.3)? One exchange each way, before any AMQP frame.

    client                       server
      header, init        ->
                          <-     header, mechanisms
                                 (the owner decides)
                          <-     outcome
      header, open, ...   ->

Only mechanisms of one step: ANONYMOUS, PLAIN, EXTERNAL. A challenge therefore is a fault.
"""

from __future__ import annotations

from .errors import NOT_ALLOWED, UNAUTHORIZED_ACCESS, ConnectionFault
from .performatives import SaslInit, SaslMechanisms, SaslOutcome

OK, AUTH = 0, 1


class SaslServer:
    """The server's side: offers mechanisms, takes one init, tells the outcome."""

    def __init__(self, mechanisms: tuple[str, ...]) -> None:
        self._mechanisms = mechanisms
        self.init: SaslInit | None = None

    def greeting(self) -> SaslMechanisms:
        return SaslMechanisms(self._mechanisms)

    def receive(self, performative: object) -> SaslInit:
        """Take the client's only frame. Raises ConnectionFault for any other."""
        if not isinstance(performative, SaslInit) or self.init is not None:
            raise ConnectionFault(NOT_ALLOWED, f"{type(performative).__name__} where one sasl-init was due")
        self.init = performative
        if performative.mechanism not in self._mechanisms:
            raise ConnectionFault(
                UNAUTHORIZED_ACCESS, f"SASL mechanism {performative.mechanism[:40]!r} not offered"
            )
        return performative


class SaslClient:
    """The client's side: sends init at once, without waiting for the offer."""

    def __init__(self, mechanism: str, initial_response: bytes | None, hostname: str | None) -> None:
        self._init = SaslInit(mechanism, initial_response, hostname)

    def opening(self) -> SaslInit:
        return self._init

    def receive(self, performative: object) -> bool:
        """Take a frame of the server; True when we are in. Raises ConnectionFault when we are not."""
        if isinstance(performative, SaslMechanisms):
            if self._init.mechanism not in performative.sasl_server_mechanisms:
                offered = ", ".join(performative.sasl_server_mechanisms)[:200]
                raise ConnectionFault(
                    UNAUTHORIZED_ACCESS, f"SASL {self._init.mechanism} is not among {offered}"
                )
            return False
        if isinstance(performative, SaslOutcome):
            if performative.code != OK:
                raise ConnectionFault(UNAUTHORIZED_ACCESS, f"SASL outcome {performative.code}")
            return True
        raise ConnectionFault(NOT_ALLOWED, f"{type(performative).__name__} in an exchange of one step")
