"""Limits on the memory and work a peer can cause.

`connection` enforces those on frames, the handshake, sessions and held bytes; `session` those on links, windows and
dispositions; `link` those on message sizes. `decoding` bounds the depth and number of decoded values.
"""

from __future__ import annotations

from dataclasses import dataclass


@dataclass(frozen=True, slots=True)
class Limits:
    """Limits for a broken or hostile peer; sizes in bytes, durations in seconds."""

    pre_open_frame_size: int = 8192
    """Largest frame before the peer's open."""
    max_handshake_bytes: int = 524_288
    """Maximum unparsed bytes before the handshake completes; more than one read of a socket."""
    performative_size: int = 65536
    """Largest performative of a frame, without its payload."""
    max_message_size: int = 1_048_576 + 65536
    """Largest message on a link whose attach sets no limit; a larger one detaches the link, unsettled."""
    max_sessions: int = 5000
    """Sessions of one connection."""
    max_links: int = 10_000
    """Links of one connection, including those being detached."""
    max_held: int = 1_073_741_824
    """Bytes of sessions, links and partial deliveries; `Connection.allowance` can lower it."""
    disposition_budget: int = 262_144
    """Deliveries that dispositions may name without settling them, before the session is ended."""
    disposition_budget_per_transfer: int = 16
    """Deliveries that each transfer adds to that budget, up to its maximum."""
    max_unsettled: int = 65536
    """Unsettled deliveries of one session, per direction."""
    incoming_window: int = 8192
    """Transfer frames a peer may send before the next flow (2.5.6)."""
    outgoing_window: int | None = 65535
    """The outgoing-window that is announced (2.5.6); None for the peer's incoming-window."""
    handshake_timeout: float = 20.0
    """From the creation of the connection to the peer's open."""
    close_timeout: float = 10.0
    """From our close to the peer's; afterwards the connection counts as closed."""
    min_heartbeat_interval: float = 0.05
    """Shortest interval between empty frames, however short the peer's idle-time-out."""
    enforce_credit: bool = False
    """Detach a sender that exceeds its credit. Off by default: Service Bus SDKs may send without credit."""
