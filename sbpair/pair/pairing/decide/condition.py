"""What is half down about an entity of the primary, for the metrics and the pages of a client."""

from __future__ import annotations

from dataclasses import dataclass

from .health import EntityState


@dataclass(frozen=True, slots=True)
class EntityCondition:
    """One entity; ``failed_share`` of its attempts failed within the interval, 0.0 unless enough did to judge.

    ``is_returning``: it is failed over, and more and more of its sends try the primary. ``keys_aside`` is the number of
    session ids and partition keys that are set aside.
    """

    state: EntityState
    is_returning: bool
    failed_share: float
    keys_aside: int
