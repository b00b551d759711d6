"""How is a moment in the past said to people?"""

from __future__ import annotations

from datetime import UTC, datetime

UNITS = ((86_400, "d"), (3600, "h"), (60, "min"), (1, "s"))


def age_seconds(since: int | None, now: int) -> float | None:
    """From ``since`` to ``now``, milliseconds since the epoch; 0 where a clock is behind."""
    return None if since is None else max(now - since, 0) / 1000


def age_text(seconds: float | None) -> str:
    """``3 h 12 min``: the two largest units."""
    if seconds is None:
        return "-"
    rest = int(seconds)
    words: list[str] = []
    for size, unit in UNITS:
        number, rest = divmod(rest, size)
        if number or words:
            words.append(f"{number} {unit}")
    return " ".join(words[:2]) or "0 s"


def instant_text(milliseconds: int | None) -> str:
    """``2026-11-21 07:00:00Z``."""
    if milliseconds is None:
        return "-"
    return datetime.fromtimestamp(milliseconds / 1000, UTC).strftime("%Y-%m-%d %H:%M:%SZ")
