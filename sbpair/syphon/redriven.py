"""What is a dead-lettered backlog message when it goes back into its backlog?

    dead letter    header | delivery ann. | message ann. | properties | application properties | body | footer
                      |                        |              |                  |                 |       |
    redriven      delivery count    x   the broker's    bit for bit    the two dead-letter    bit for bit
                  left out              own left out                   reasons left out

So the syphon is given what was parked: the aliases and the application's own bytes are untouched. Pure.
"""

from __future__ import annotations

from sbpair.amqp.message import split

from .forward import APPLICATION_PROPERTIES, HEADER, MESSAGE_ANNOTATIONS, SERVER_ANNOTATIONS
from .parked import DESCRIPTION, REASON
from .raw import is_needlessly_wide, join_entries, join_fields, part_entries, split_fields

TTL = 2  # the last field of the header that is the sender's (3.2.1)
WHY = frozenset({REASON.encode(), DESCRIPTION.encode()})


def redriven(payload: bytes) -> bytes:
    """The message to send to the backlog in place of this dead letter. Raises DecodeError, IndexError."""
    sections = split(payload)
    fields = split_fields(sections.header)[: TTL + 1] if sections.header else []
    annotations = part_entries(sections.message_annotations, SERVER_ANNOTATIONS)
    carried = part_entries(sections.application_properties, WHY)
    wide = is_needlessly_wide(sections.application_properties)
    return b"".join(
        (
            join_fields(HEADER, fields, wide=False),
            join_entries(MESSAGE_ANNOTATIONS, annotations.kept, annotations.kept_values, wide=False),
            sections.properties,
            join_entries(APPLICATION_PROPERTIES, carried.kept, carried.kept_values, wide),
            sections.body,
            sections.footer,
        )
    )
