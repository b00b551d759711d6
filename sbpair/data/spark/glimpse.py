"""An encoded message, split into its sections: all that reading needs before columns are made.

Performs no I/O.
"""

from __future__ import annotations

from typing import NamedTuple

from sbpair.pair.amqp.errors import DecodeError
from sbpair.pair.amqp.message import decode_header, decode_properties
from sbpair.pair.amqp.sections import Sections, split
from sbpair.pair.envelope.inspect import read_parked

from .positions import Position, position_in, position_of
from .ranges import ACTIVE, Seen


class Glimpse(NamedTuple):
    """The position of an encoded message. Its sections stay encoded, for speed."""

    number: int | None
    """The sequence number; None if absent."""

    enqueued_at: int | None
    """Milliseconds since the epoch; None if absent."""

    state: int
    sections: Sections
    """All empty if the message is not well-formed."""

    trouble: str | None = None
    """Why the message is not well-formed; None if its sections are."""

    @property
    def seen(self) -> Seen:
        return Seen(self.number or 0, self.enqueued_at or 0, self.state)

    @property
    def deliveries(self) -> int:
        """How often the message was delivered before."""
        return decode_header(self.sections.header).delivery_count or 0

    @property
    def session(self) -> str | None:
        """The session id."""
        return decode_properties(self.sections.properties).group_id if self.sections.properties else None


class UnsettledMessage(NamedTuple):
    """A message to be settled: its position, and the rest only when it is needed."""

    number: int | None
    enqueued_at: int | None
    state: int
    payload: bytes

    @property
    def deliveries(self) -> int:
        """How often the message was delivered before."""
        return glimpse(self.payload).deliveries

    @property
    def session(self) -> str | None:
        """The session id."""
        return glimpse(self.payload).session


def glimpse(payload: bytes) -> Glimpse:
    """Split a message. Never raises: for a malformed message only the position is known, if at all."""
    try:
        sections = split(payload)
        number, enqueued_at, state = position_in(sections.message_annotations)
    except (DecodeError, IndexError) as error:
        parked = read_parked(payload)
        trouble = f"not well-formed AMQP: {error}"
        return Glimpse(parked.sequence_number, parked.parked_at, ACTIVE, Sections(), trouble)
    return Glimpse(number, enqueued_at, state, sections)


def unsettled_message(payload: bytes) -> UnsettledMessage:
    """Return the message as settling needs it.

    Never raises; for a malformed one only the position is known, if at all.
    """
    found: Position | Glimpse | None = position_of(payload)
    if found is None:
        found = glimpse(payload)
    return UnsettledMessage(found[0], found[1], found[2], payload)
