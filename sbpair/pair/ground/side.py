"""The two sides of a pair: primary and secondary."""

from __future__ import annotations

from enum import StrEnum


class Side(StrEnum):
    """One of the two namespaces of a pair."""

    PRIMARY = "primary"
    SECONDARY = "secondary"

    @property
    def partner(self) -> Side:
        return Side.SECONDARY if self is Side.PRIMARY else Side.PRIMARY
