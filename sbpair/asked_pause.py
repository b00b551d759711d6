"""The pause that a busy service asks for: it says so in its text only."""

from __future__ import annotations

import re

_PAUSE = re.compile(r"\bwait (\d{1,6}) seconds", re.IGNORECASE)


def asked_pause(text: str) -> float | None:
    """Return the seconds to wait that ``text`` names; None if it names none."""
    found = _PAUSE.search(text)
    return None if found is None else float(found[1])
