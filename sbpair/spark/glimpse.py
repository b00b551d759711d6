"""The position of an encoded message: what reading and settling need of each, whatever else they need of it.

Performs no I/O.
"""

from __future__ import annotations

from dataclasses import dataclass

from sbpair.amqp.errors import DecodeError
from sbpair.amqp.message import Sections, decode_header, decode_properties, split
from sbpair.envelope.inspect import read_parked
from sbpair.envelope.scan import part_entries

from .ranges import ACTIVE, Seen
from .section_values import whole_number

NUMBER, ENQUEUED, STATE = b"x-opt-sequence-number", b"x-opt-enqueued-time", b"x-opt-message-state"
POSITION = frozenset((NUMBER, ENQUEUED, STATE))


@dataclass(frozen=True, slots=True)
class Glimpse:
    """The position of an encoded message. Its sections stay encoded, for speed."""

    number: int | None
    """The sequence number; None if absent."""

    enqueued_at: int | None
    """Milliseconds since the epoch; None if absent."""

    state: int
    sections: Sections
    """All empty if the message is not well-formed."""

    trouble: str | None = None
    """Why the message is not well-formed; None if it is, as far as its sections."""

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


def glimpse(payload: bytes) -> Glimpse:
    """Never raises: of a malformed message only the position is known, if any."""
    try:
        sections = split(payload)
        found = part_entries(sections.message_annotations, POSITION).found
        return Glimpse(
            _whole(found.get(NUMBER)),
            _whole(found.get(ENQUEUED)),
            _whole(found.get(STATE)) or ACTIVE,
            sections,
        )
    except (DecodeError, IndexError) as error:
        parked = read_parked(payload)
        trouble = f"not well-formed AMQP: {error}"
        return Glimpse(parked.sequence_number, parked.parked_at, ACTIVE, Sections(), trouble)


def _whole(encoded: bytes | None) -> int | None:
    """Raises DecodeError."""
    return None if encoded is None else whole_number(encoded)
