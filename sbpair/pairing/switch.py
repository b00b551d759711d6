"""The switch that turns pairing off for a process: the environment variable SBPAIR_DISABLE (G-4)."""

from __future__ import annotations

from collections.abc import Mapping

VARIABLE = "SBPAIR_DISABLE"
_ON, _OFF = frozenset({"1", "true", "yes", "on"}), frozenset({"", "0", "false", "no", "off"})


def is_disabled(environment: Mapping[str, str]) -> bool:
    """Whether SBPAIR_DISABLE is set to a true value. Raises ValueError for a value that is not a boolean."""
    value = environment.get(VARIABLE, "").strip().casefold()
    if value not in _ON | _OFF:
        raise ValueError(f"the environment variable {VARIABLE} must be 1 or 0, not {value[:32]!r}")
    return value in _ON
