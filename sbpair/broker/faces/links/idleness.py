"""Who has been idle for too long? (3.10)

    a link to an entity     10 min without a message, credit or settlement    amqp:link:detach-forced
    a connection            5 min without a link                              amqp:connection:forced
    a new connection        60 s without any                                  amqp:connection:forced

Links to ``$cbs`` and ``$management`` may rest, and count as links of the connection. Pure; seconds of
connection time, which a test may set ahead.
"""

from __future__ import annotations

from collections.abc import Iterable

from .node import Node
from .queue_receiver import QueueReceiver
from .queue_sender import QueueSender

LINK_SPAN, BARE_SPAN, NEW_SPAN = 600.0, 300.0, 60.0  # seconds


class Idleness:
    """What one connection has to do until when."""

    def __init__(self, now: float) -> None:
        self._bare_since: float | None = now
        self._span = NEW_SPAN
        self._look_at = now + NEW_SPAN

    def next_timer(self) -> float:
        """When to look again."""
        return self._look_at

    def link_opened(self, now: float) -> None:
        """There is a link now; each says itself when it was last used."""
        self._bare_since = None
        self._look_at = min(self._look_at, now + LINK_SPAN)

    def last_link_ended(self, now: float) -> None:
        """There is none any more."""
        self._bare_since, self._span = now, BARE_SPAN
        self._look_at = min(self._look_at, now + BARE_SPAN)

    def is_bare_too_long(self, now: float) -> bool:
        """Whether the connection is to be closed."""
        return self._bare_since is not None and now >= self._bare_since + self._span

    def idle_nodes(self, nodes: Iterable[Node], now: float) -> list[Node]:
        """Those whose links are to be detached now; sets when to look again."""
        idle: list[Node] = []
        self._look_at = now + LINK_SPAN
        for node in nodes:
            if isinstance(node, QueueSender | QueueReceiver) and node.link.is_open:
                ends = node.used.idle + LINK_SPAN
                if now >= ends:
                    idle.append(node)
                else:
                    self._look_at = min(self._look_at, ends)
        if self._bare_since is not None:
            self._look_at = min(self._look_at, self._bare_since + self._span)
        return idle

    def text_of_link(self, node: Node) -> str:
        """Why a link is detached, as the service words it."""
        kind = "Publisher" if isinstance(node, QueueSender) else "Consumer"
        why = f"AmqpMessage{kind}.IdleTimerExpired: Idle timeout: 00:10:00."
        return f"The link '{node.link.name}' is force detached by the broker. Details: {why}"

    def text_of_connection(self) -> str:
        """Why the connection is closed."""
        allowed = int(self._span * 1000)
        return (
            f"The connection was inactive for more than the allowed {allowed} milliseconds "
            "and is closed by container 'LinkTracker'."
        )
