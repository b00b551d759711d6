"""How much may a peer make us hold or do?

Where each bound is enforced: frames in `connection`, SASL and handshake in `connection` and `sasl`,
sessions in `connection`, links and windows in `session`, message assembly in `link`; depth and node
budget of a decoded value in `decoding`.
"""

from __future__ import annotations

from dataclasses import dataclass


@dataclass(frozen=True, slots=True)
class Limits:
    """Bounds against a peer that is broken or hostile; sizes in bytes, spans in seconds."""

    pre_open_frame_size: int = 8192
    """Largest frame before the peer's open is in."""
    ahead_of_handshake: int = 524_288
    """What a peer may have sent, unread, before its handshake is through: more than one chunk of a socket."""
    performative_size: int = 65536
    """Largest performative of any frame, its payload not counted."""
    max_message_size: int = 1_048_576 + 65536
    """Largest message put together out of several frames, where the link's attach names none."""
    max_sessions: int = 256
    max_links: int = 1024
    """Links of one connection, those on their way out included."""
    max_unsettled: int = 65536
    """Deliveries of one session, in one direction, whose fate is open."""
    incoming_window: int = 8192
    """Transfer frames a peer may send before it hears from us (2.5.6)."""
    outgoing_window: int = 65535
    handshake_timeout: float = 20.0
    """From the first moment to the peer's open."""
    close_timeout: float = 10.0
    """From our close to the peer's; then the connection counts as closed."""
    smallest_heartbeat: float = 0.05
    """An idle-time-out of the peer that asks for more frames a second than this is not obeyed further."""
    enforce_credit: bool = False
    """Detach a sender that overruns its credit; Service Bus clients ignore credit by design of their SDK."""
