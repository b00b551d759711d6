"""Is sbpair switched off from outside?

``SBPAIR_DISABLE=1`` in the environment makes a paired client a plain one: its senders use the primary as the
SDK alone would, and there is no failover, no ping and no backlog. For whoever must rule sbpair out at night,
without a change of code. Pure: the environment is an argument.
"""

from __future__ import annotations

from collections.abc import Mapping

VARIABLE = "SBPAIR_DISABLE"
_ON, _OFF = frozenset({"1", "true", "yes", "on"}), frozenset({"", "0", "false", "no", "off"})


def is_disabled(environment: Mapping[str, str]) -> bool:
    """Whether the switch is set. Raises ValueError for a value that says neither yes nor no."""
    value = environment.get(VARIABLE, "").strip().casefold()
    if value not in _ON | _OFF:
        raise ValueError(f"the environment variable {VARIABLE} must be 1 or 0, not {value[:32]!r}")
    return value in _ON
