"""Bounds what a peer occupies with deliveries whose last frame has not arrived.

Each link may carry a message of the largest size, and a peer that finishes none would fill the memory. Above the limit
the link that is furthest on keeps its delivery, for it is the next to free its bytes; the others are detached, the
largest first, and their messages come again.
"""

from __future__ import annotations

from collections.abc import Iterable

from sbpair.pair.amqp.link import Link, ReceiverLink


def in_excess(links: Iterable[Link], limit: int) -> list[ReceiverLink]:
    """Return the links to detach so that unfinished deliveries occupy ``limit`` bytes at most, or there is only one."""
    found = [link for link in links if isinstance(link, ReceiverLink) and link.unfinished]
    found.sort(key=lambda link: link.unfinished, reverse=True)
    total, excess = sum(link.unfinished for link in found), []
    for link in found[1:]:
        if total <= limit:
            break
        excess.append(link)
        total -= link.unfinished
    return excess
