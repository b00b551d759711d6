"""The pause that a busy service asks for: it says so in its text only.

Whoever answers in the name of a service can write any number there: 0 would make a client ask without end, a million
would silence it for days. A pause is therefore at least LEAST and at most MOST seconds, wherever it comes from.
"""

from __future__ import annotations

import logging
import re
from functools import cache

logger = logging.getLogger("sbpair")

LEAST, MOST = 0.1, 300.0  # seconds

_PAUSE = re.compile(r"\bwait (\d+) seconds", re.IGNORECASE)


def asked_pause(text: str) -> float | None:
    """Return the seconds to wait that ``text`` names, within bounds; None if it names none."""
    found = _PAUSE.search(text)
    return None if found is None else bounded(float(found[1][:10]))


def bounded(seconds: float) -> float:
    """Return ``seconds``, at least LEAST and at most MOST; a longer pause is logged, once in a process."""
    if seconds > MOST:
        _tell_longer()
    return min(MOST, max(LEAST, seconds))


@cache
def _tell_longer() -> None:
    """Log, once, that a service asks for longer pauses than are kept."""
    logger.warning("a busy service asks to wait for longer than %g s: it is asked again after that", MOST)
