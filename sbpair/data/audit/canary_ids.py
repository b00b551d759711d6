"""The message ids of the canaries of `sbpair drill`.

An audit recognises them by these ids, since a drill keeps no journal.
"""

from __future__ import annotations

PREFIX = "sbpair-canary-"
PROBE = "probe"
MAX_CANARIES = 1000  # of one drill, beside its probe
PATTERN = rf"^{PREFIX}[0-9a-f]{{12}}-({PROBE}|0|[1-9][0-9]{{0,2}})$"


def canary_id(drill: str, which: int | str) -> str:
    """Return the message id of a canary, by its number, or of the probe of the drill with the id ``drill``."""
    return f"{PREFIX}{drill}-{which}"


def drill_of(message_id: str) -> str:
    """Return the id of the drill to which the canary ``message_id`` belongs."""
    return message_id.removeprefix(PREFIX).partition("-")[0]
