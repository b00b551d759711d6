"""Session receivers: a link that holds one session, and the requests about that session.

    attach, filter com.microsoft:session-filter = an id, or null for the next available
    answer: the id that was granted, and until when the session is locked

The link holds the session: detaching releases it. When its lock is lost, the peer detaches the link with
``com.microsoft:session-lock-lost``, which :attr:`SessionReceiver.detached` resolves with.
"""

from __future__ import annotations

from sbpair.pair.amqp.errors import SESSION_CANNOT_BE_LOCKED, TIMEOUT
from sbpair.pair.amqp.events import LinkAttached
from sbpair.pair.amqp.link import ReceiverLink
from sbpair.pair.amqp.performatives import AmqpMap, Source
from sbpair.pair.amqp.types import Described, Symbol, UInt

from .errors import LinkRefusedError, SessionUnavailableError
from .link import LinkOwner, OnDisposition, OnDrained, OnMessage, Receiver
from .request import RequestNode, refusal_of, value_of, wait_for_renewal

FILTER = Symbol("com.microsoft:session-filter")
WAIT = Symbol("com.microsoft:timeout")
LOCKED_UNTIL = "com.microsoft:locked-until-utc"
UNAVAILABLE = {TIMEOUT, SESSION_CANNOT_BE_LOCKED}
TICKS_AT_EPOCH, TICKS_PER_SECOND = 621_355_968_000_000_000, 10_000_000  # of .NET, since the year 1


def session_filter(session_id: str | None) -> AmqpMap:
    """Return the source filter of a session receiver; None for the next available session."""
    return {FILTER: session_id}


def waiting_for(timeout: float) -> AmqpMap:
    """Return the properties of an attach that waits ``timeout`` seconds for a session."""
    return {WAIT: UInt(round(timeout * 1000))}


class SessionReceiver(Receiver):
    """Receives the messages of one session, in order. Made by ``NamespaceConnection.open_session_receiver``."""

    def __init__(
        self,
        owner: LinkOwner,
        link: ReceiverLink,
        path: str,
        on_message: OnMessage,
        on_disposition: OnDisposition | None = None,
        on_drained: OnDrained | None = None,
        *,
        timeout: float,
    ) -> None:
        super().__init__(owner, link, path, on_message, on_disposition, on_drained)
        self._answer_timeout += timeout
        self.session_id = ""
        """The session that was granted."""
        self.locked_until = 0.0
        """When the lock expires unless renewed: seconds since the epoch by the broker's clock; 0 if not given."""

    async def wait_attached(self) -> None:
        """Wait for a session. Raises SessionUnavailableError, LinkRefusedError, ConnectionLostError."""
        try:
            await super().wait_attached()
        except LinkRefusedError as error:
            if error.condition is not None and error.condition.symbol in UNAVAILABLE:
                raise SessionUnavailableError(f"no session of {self.path}", error.condition) from error
            raise

    async def renew(self, node: RequestNode) -> float:
        """Renew the session lock; return :attr:`locked_until`.

        ``node`` is the ``$management`` node of the entity, on the same connection. Raises ConnectionLostError, and
        LinkRefusedError with the condition ``com.microsoft:session-lock-lost`` when the lock is lost.
        """
        request = self._ask(node, "renew-session-lock")
        until = (await wait_for_renewal(request, f"a session of {self.path}")).get("expiration")
        if not isinstance(until, int):
            raise LinkRefusedError(f"the lock of a session of {self.path} was renewed without an expiration")
        self.locked_until = until / 1000
        return self.locked_until

    async def state(self, node: RequestNode) -> bytes | None:
        """Return the state of the session; None if it has none. Raises as :meth:`renew`."""
        state = (await self._ask(node, "get-session-state")).get("session-state")
        return state if isinstance(state, bytes) else None

    async def set_state(self, node: RequestNode, state: bytes | None) -> None:
        """Set the state of the session; None clears it. Raises as :meth:`renew`."""
        await self._ask(node, "set-session-state", {"session-state": state})

    async def _ask(self, node: RequestNode, operation: str, body: AmqpMap | None = None) -> AmqpMap:
        properties: AmqpMap = {
            "operation": f"com.microsoft:{operation}",
            "type": "entity-mgmt",
            "associated-link-name": self.link.name,
        }
        answer = await node.ask(properties, {"session-id": self.session_id, **(body or {})})
        refusal = refusal_of(answer)
        if refusal is not None:
            raise LinkRefusedError(f"{operation} of a session of {self.path}", refusal)
        return value_of(answer)

    def _on_attached(self, event: LinkAttached) -> None:
        source = event.attach.source
        if isinstance(source, Source):
            granted = (source.filter or {}).get(FILTER)
            name = granted.value if isinstance(granted, Described) else granted
            self.session_id = name if isinstance(name, str) else ""
        ticks = (event.attach.properties or {}).get(LOCKED_UNTIL)
        if isinstance(ticks, int):
            self.locked_until = (ticks - TICKS_AT_EPOCH) / TICKS_PER_SECOND
        super()._on_attached(event)
