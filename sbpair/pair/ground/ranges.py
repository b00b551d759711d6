"""Checks of option values. An error names the option, the accepted values, and the given one.

Each raises TypeError for a value of another type, and ValueError for one out of range.
"""

from __future__ import annotations

from datetime import timedelta


def check_whole(name: str, value: object, least: int, most: int | None = None) -> None:
    """Check that a whole number is at least ``least`` and at most ``most``, if given."""
    takes = f"a whole number, {least} or more" if most is None else f"a whole number from {least} to {most}"
    if isinstance(value, bool) or not isinstance(value, int):
        raise TypeError(f"{name} must be {takes}, not {value!r}")
    if value < least or (most is not None and value > most):
        raise ValueError(f"{name} must be {takes}, not {value}")


def check_span(name: str, value: object, least: float, most: float) -> None:
    """Check that a timedelta is at least ``least`` and at most ``most`` seconds."""
    first, last = timedelta(seconds=least), timedelta(seconds=most)
    if not isinstance(value, timedelta):
        raise TypeError(f"{name} must be a timedelta from {first} to {last}, not {value!r}")
    if not first <= value <= last:
        raise ValueError(f"{name} must be from {first} to {last}, not {value}")


def check_choice(name: str, value: object, choices: tuple[str, ...]) -> None:
    """Check that a word is one of ``choices``. Raises ValueError for any other value."""
    if value not in choices:
        raise ValueError(f"{name} must be {' or '.join(map(repr, choices))}, not {value!r}")
