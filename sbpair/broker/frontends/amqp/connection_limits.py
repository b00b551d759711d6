"""Limits of a connection: memory and attempts before a valid claim, and idle timeouts.

    a link to an entity     10 min without a message, credit or settlement    amqp:link:detach-forced
    a connection            5 min without a link                              amqp:connection:forced
    a new connection        60 s without a link                               amqp:connection:forced

Links to ``$cbs`` and ``$management`` may stay idle, and count as links of the connection. Times are in seconds of
connection time, which a test may advance.

Before its first valid claim, a client needs one or two links on $cbs and one request. Memory and attempts beyond that
are limited, to protect the other clients.
"""

from __future__ import annotations

from collections.abc import Iterable
from math import inf

from ....amqp.connection import Connection
from ...entities.quotas import Tier
from .node import Node
from .queue_receiver import QueueReceiver
from .queue_sender import QueueSender

MAX_UNCLAIMED_BYTES = 256 * 1024  # bytes of links and unfinished deliveries
# the same limit for a connection with a valid claim
MAX_CLAIMED_BYTES = {Tier.BASIC: 64 * 2**20, Tier.STANDARD: 64 * 2**20, Tier.PREMIUM: 1024 * 2**20}
MAX_TRIES = 64  # attaches and requests before a valid claim
TIME_TO_CLAIM = 20.0  # seconds from the first byte to the first valid claim


class Confinement:
    """The limits on a connection without a valid claim, which begins at ``now``."""

    __slots__ = ("_claim_by", "_engine", "_tries", "is_on")

    def __init__(self, engine: Connection, now: float) -> None:
        self._engine = engine
        self._claim_by = now + TIME_TO_CLAIM
        self.impose()

    def impose(self) -> None:
        """Apply the limits: the client has no valid claim for the namespace that it selected."""
        self.is_on = True
        self._tries = 0
        self._engine.allowance = MAX_UNCLAIMED_BYTES

    def lift(self, tier: Tier) -> None:
        """Lift the limits: the client has a valid claim."""
        self.is_on = False
        self._engine.allowance = MAX_CLAIMED_BYTES[tier]

    def allows_another_try(self) -> bool:
        """Count an attach or a request; False when there were too many."""
        self._tries += self.is_on
        return not self.is_exhausted

    @property
    def is_exhausted(self) -> bool:
        """Whether the client has used up its tries."""
        return self.is_on and self._tries > MAX_TRIES

    def next_timer(self) -> float:
        """Return when to call :meth:`is_overdue`; infinity for never."""
        return self._claim_by if self.is_on else inf

    def is_overdue(self, now: float) -> bool:
        """Whether the connection must be closed because it has no claim in time; True only once."""
        if now < self.next_timer():
            return False
        self._claim_by = inf
        return True


LINK_SPAN, BARE_SPAN, NEW_SPAN = 600.0, 300.0, 60.0  # seconds


class Idleness:
    """The idle timeouts of one connection."""

    def __init__(self, now: float) -> None:
        self._bare_since: float | None = now
        self._span = NEW_SPAN
        self._check_at = now + NEW_SPAN

    def next_timer(self) -> float:
        """Return when to check again."""
        return self._check_at

    def link_opened(self, now: float) -> None:
        """Report that a link was opened. Its own use is recorded in ``Node.used``."""
        self._bare_since = None
        self._check_at = min(self._check_at, now + LINK_SPAN)

    def last_link_ended(self, now: float) -> None:
        """Report that the last link was closed."""
        self._bare_since, self._span = now, BARE_SPAN
        self._check_at = min(self._check_at, now + BARE_SPAN)

    def is_bare_too_long(self, now: float) -> bool:
        """Whether the connection has been without links for too long."""
        return self._bare_since is not None and now >= self._bare_since + self._span

    def idle_nodes(self, nodes: Iterable[Node], now: float) -> list[Node]:
        """Return the nodes whose links must be detached now; also schedules the next check."""
        idle: list[Node] = []
        self._check_at = now + LINK_SPAN
        for node in nodes:
            if isinstance(node, QueueSender | QueueReceiver) and node.link.is_open:
                ends = node.used.idle + LINK_SPAN
                if now >= ends:
                    idle.append(node)
                else:
                    self._check_at = min(self._check_at, ends)
        if self._bare_since is not None:
            self._check_at = min(self._check_at, self._bare_since + self._span)
        return idle

    def text_of_link(self, node: Node) -> str:
        """Return the reason for detaching a link, in the service's words."""
        kind = "Publisher" if isinstance(node, QueueSender) else "Consumer"
        handle, name = node.link.handle, node.link.name
        return (
            f"The link 'G0:{handle}:{name}' is force detached. Code: {kind.lower()}(link{handle}). "
            f"Details: AmqpMessage{kind}.IdleTimerExpired: Idle timeout: 00:10:00."
        )

    def text_of_connection(self, container: str) -> str:
        """Return the reason for closing the connection, in the service's words; ``container``: our id."""
        allowed = int(self._span * 1000)
        return (
            f"The connection was closed by container '{container}' because it did not have any active links in the "
            f"past {allowed} milliseconds."
        )
