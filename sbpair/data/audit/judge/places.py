"""Where messages wait: which entity, which backlog queue, or which writer's spool."""

from __future__ import annotations

from enum import IntEnum

import numpy as np

from ..read.mentions import BACKLOGS
from .evidence import Evidence
from .fold import Messages
from .grouping import NULL, Bools, Ints, combine, ranks


class Place(IntEnum):
    """The kind of a place."""

    ENTITY = 0
    BACKLOG = 1
    SPOOL = 2
    LANDED = 3


def name_places(messages: Messages, kind: Ints, evidence: Evidence) -> tuple[Ints, list[str]]:
    """Return where each message waits, as an index into names, and the names.

    The index is NULL where ``kind`` is NULL or not a Place.
    """
    found = np.full(len(messages), NULL)
    rows = np.flatnonzero(kind != NULL)
    if not len(rows):
        return found, []
    kinds = kind[rows]
    columns = [  # only the values that determine a place of this kind
        (kinds, len(Place)),
        _column(messages.entity[rows], kinds != Place.SPOOL),
        *(
            _column(each[rows], which)
            for each, which in (
                (messages.secondary, (kinds == Place.BACKLOG) | (kinds == Place.LANDED)),
                (messages.numbers["backlog"], kinds == Place.BACKLOG),
            )
        ),
        _column(messages.sender[rows], kinds == Place.SPOOL),
    ]
    _, first, inverse = np.unique(combine(columns), return_index=True, return_inverse=True)
    rank, names = ranks([_name(messages, int(rows[each]), Place(kinds[each]), evidence) for each in first])
    found[rows] = rank[inverse]
    return found, names


def _column(values: Ints, which: Bools) -> tuple[Ints, int]:
    known = np.where(which & (values != NULL), values + 1, 0)
    return known, int(known.max(initial=0)) + 1


def _name(messages: Messages, row: int, place: Place, evidence: Evidence) -> str:
    primary, _ = messages.entities[messages.entity[row]]
    match place:
        case Place.ENTITY:
            return f"the entity {messages.paths[messages.path[row]]} on {primary}"
        case Place.LANDED:
            secondary = messages.secondary[row]
            there = "the secondary" if secondary == NULL else messages.secondaries[secondary]
            return f"the entity {messages.paths[messages.path[row]]} on {there}"
        case Place.BACKLOG:
            number, secondary = messages.numbers["backlog"][row], messages.secondary[row]
            queue = "a backlog queue" if number == NULL else f"the backlog queue {primary}{BACKLOGS}{number}"
            return queue + ("" if secondary == NULL else f" on {messages.secondaries[secondary]}")
        case Place.SPOOL:
            sender = messages.sender[row]
            if sender == NULL:
                return f"the spool of one of several senders of {primary}"
            writer = messages.senders[sender]
            return f"the spool of the sender {writer}, whose journal is {evidence.file_of(writer)}"
