"""Messages sent via a backlog queue: they carry their destination, so that a refused one can be parked again.

    restored message --addressed()--> sent via the backlog --accepted--> its entity
                                               | refused after the commit
                                               v
                              transfer dead-letter queue of the backlog --parked_again()--> backlog

A broker does not record the destination of a message that it could not transfer. The syphon therefore adds it as a
message annotation, which no application reads by accident. No I/O and no clock.
"""

from __future__ import annotations

from sbpair.pair.amqp.decoding import decode
from sbpair.pair.amqp.encoding import encode
from sbpair.pair.amqp.sections import (
    NULL,
    Section,
    Sections,
    is_needlessly_wide,
    join_fields,
    map_section,
    split,
    split_fields,
)
from sbpair.pair.amqp.types import Symbol
from sbpair.pair.envelope import aliases as names
from sbpair.pair.envelope.aliases import format_duration, format_instant
from sbpair.pair.envelope.restore import (
    ABSOLUTE_EXPIRY_TIME,
    CREATION_TIME,
    DEAD_LETTER_PROPERTIES,
    MAX_HEADER_TTL,
    PRIORITY,
    RESERVED,
    SCHEDULED_ANNOTATION,
    SERVER_ANNOTATIONS,
    TTL,
)
from sbpair.pair.envelope.scan import part_entries

_DESTINATION = names.ANNOTATION_DESTINATION.encode()
_KEY = encode(Symbol(names.ANNOTATION_DESTINATION))
_MOVED = SERVER_ANNOTATIONS | {_DESTINATION, SCHEDULED_ANNOTATION}


class DestinationUnknownError(ValueError):
    """A message that could not be transferred does not name its destination."""


def address(payload: bytes, path: str) -> bytes:
    """Return a restored message with its destination. Raises DecodeError or IndexError when it is malformed."""
    sections = split(payload)
    annotations = part_entries(sections.message_annotations, frozenset((_DESTINATION,)))
    entry = _KEY + encode(path)
    section = map_section(Section.MESSAGE_ANNOTATIONS, annotations.kept + entry, annotations.kept_values + 2)
    return b"".join(sections._replace(message_annotations=section))


def destination_of(sections: Sections) -> str | None:
    """Return the destination that a message carries, None without one. Raises DecodeError, IndexError."""
    found = part_entries(sections.message_annotations, frozenset((_DESTINATION,))).found.get(_DESTINATION)
    value = None if found is None else decode(found)[0]
    return str(value) if isinstance(value, str) else None


def park_again(payload: bytes) -> bytes:
    """Return the message to park again in its backlog queue, in place of one that could not be transferred.

    Its time to live and scheduled time become aliases, as in parking; a syphon restores them in full. Raises
    DestinationUnknownError when it carries no destination, DecodeError or IndexError when it is malformed.
    """
    sections = split(payload)
    path = destination_of(sections)
    if path is None:
        raise DestinationUnknownError(f"it carries no {names.ANNOTATION_DESTINATION}")
    aliases = {names.PATH: path, names.VERSION: names.ENVELOPE_VERSION}
    annotations = part_entries(sections.message_annotations, _MOVED)
    scheduled = _number(annotations.found.get(SCHEDULED_ANNOTATION, NULL))
    if scheduled is not None:
        aliases[names.SCHEDULED] = format_instant(scheduled)
    header = split_fields(sections.header) if sections.header else []
    properties = _without_lifetime(header, sections.properties, aliases)
    carried = part_entries(sections.application_properties, RESERVED | DEAD_LETTER_PROPERTIES)
    entries = b"".join(encode(name) + encode(value) for name, value in aliases.items())
    return b"".join(
        (
            join_fields(Section.HEADER, header[: PRIORITY + 1]),
            map_section(Section.MESSAGE_ANNOTATIONS, annotations.kept, annotations.kept_values),
            properties,
            map_section(
                Section.APPLICATION_PROPERTIES,
                carried.kept + entries,
                carried.kept_values + 2 * len(aliases),
                is_needlessly_wide(sections.application_properties),
            ),
            sections.body,
            sections.footer,
        )
    )


def _without_lifetime(header: list[bytes], section: bytes, aliases: dict[str, str]) -> bytes:
    """Return the properties without absolute expiry time; add the aliases of the lifetime to ``aliases``."""
    fields = split_fields(section) if section else []
    span = _number(header[TTL]) if len(header) > TTL else None
    expires = _number(fields[ABSOLUTE_EXPIRY_TIME]) if len(fields) > ABSOLUTE_EXPIRY_TIME else None
    created = _number(fields[CREATION_TIME]) if len(fields) > CREATION_TIME else None
    if span == MAX_HEADER_TTL and None not in (expires, created):
        span = expires - created  # type: ignore[operator]  # a header cannot hold a longer span
    if span is not None:
        aliases[names.TIME_TO_LIVE] = format_duration(max(span, 0))
    elif expires is not None:
        aliases[names.ABSOLUTE_EXPIRY] = format_instant(expires)
    if expires is None:
        return section
    fields[ABSOLUTE_EXPIRY_TIME] = NULL
    return join_fields(Section.PROPERTIES, fields, is_needlessly_wide(section))


def _number(raw: bytes) -> int | None:
    value = decode(raw)[0]
    return int(value) if isinstance(value, int) and not isinstance(value, bool) else None
