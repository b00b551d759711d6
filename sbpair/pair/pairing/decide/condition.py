"""The degraded parts of a primary entity, for the metrics and pages of a client."""

from __future__ import annotations

from typing import NamedTuple

from .health import EntityState


class EntityCondition(NamedTuple):
    """The degraded parts of one entity.

    ``failed_share``: the share of attempts that failed within the interval, 0.0 if too few failed to judge.
    ``is_returning``: the entity is failed over, and a growing part of its sends tries the primary. ``keys_aside``: the
    number of session ids and partition keys that are set aside.
    """

    state: EntityState
    is_returning: bool
    failed_share: float
    keys_aside: int
