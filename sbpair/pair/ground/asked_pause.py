"""The pause that a busy service requests in the text of its error.

A peer can write any number into that text: 0 would make a client retry without end, a million would silence it for
days. Therefore a pause is always between LEAST and MOST seconds.
"""

from __future__ import annotations

import logging
import re
from functools import cache

logger = logging.getLogger("sbpair")

LEAST, MOST = 0.1, 300.0  # seconds

_PAUSE = re.compile(r"\bwait (\d+) seconds", re.IGNORECASE)


def asked_pause(text: str) -> float | None:
    """Return the seconds to wait that ``text`` asks for, within bounds; None if it asks for none."""
    found = _PAUSE.search(text)
    return None if found is None else bounded(float(found[1][:10]))


def bounded(seconds: float) -> float:
    """Return ``seconds`` limited to LEAST and MOST. A longer pause is logged, once in a process."""
    if seconds > MOST:
        _tell_longer()
    return min(MOST, max(LEAST, seconds))


@cache
def _tell_longer() -> None:
    """Log, once, that a service asks for pauses longer than MOST."""
    logger.warning("a busy service asks to wait for longer than %g s: it is asked again after that", MOST)
