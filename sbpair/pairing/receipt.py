"""Where do the messages of one send rest? Pure."""

from __future__ import annotations

from enum import Enum
from typing import NamedTuple


class Rest(Enum):
    """The place that accepted the messages."""

    PRIMARY = "primary"
    BACKLOG = "backlog"
    SPOOL = "spool"


class Place(NamedTuple):
    """Some messages of one call, and the one place that accepted them."""

    rests: Rest
    backlog: int | None
    message_ids: tuple[str, ...]


class SendReceipt(NamedTuple):
    """What ``send_messages`` returns once every message of the call was accepted by a broker,
    or is on the disk of the spool.

    ``backlog`` is the number of the backlog queue (the last one, if several were needed).
    ``ambiguous``: an earlier attempt of this call may have been stored too, so that a copy with the
    same message id can exist (duplicate detection on the entity removes it, G-6). ``places`` says, in order,
    which messages rest where when a call had to be split over several places; else it is empty.
    """

    rests: Rest
    backlog: int | None
    message_ids: tuple[str, ...]
    ambiguous: bool = False
    places: tuple[Place, ...] = ()


_PRIMARY = Rest.PRIMARY
_make = tuple.__new__  # past the wrapper of a named tuple, which costs as much again


def at_primary(message_id: str) -> SendReceipt:
    """The receipt of one message on the straight road."""
    return _make(SendReceipt, (_PRIMARY, None, (message_id,), False, ()))
