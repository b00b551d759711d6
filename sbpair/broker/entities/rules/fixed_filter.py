"""The filters that ask nothing of a message."""

from __future__ import annotations

from dataclasses import dataclass

from .message_properties import Reading


@dataclass(frozen=True, slots=True)
class TrueFilter:
    """Takes every message."""

    def matches(self, reading: Reading) -> bool:
        """True."""
        return True


@dataclass(frozen=True, slots=True)
class FalseFilter:
    """Takes no message."""

    def matches(self, reading: Reading) -> bool:
        """False."""
        return False
