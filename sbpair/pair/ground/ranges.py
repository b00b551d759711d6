"""Checks of the values of options. An error names the option, what it takes, and what it was given.

Each raises TypeError for a value of another type, and ValueError for one out of range.
"""

from __future__ import annotations

from datetime import timedelta


def check_whole(name: str, value: object, least: int, most: int | None = None) -> None:
    """Check a whole number from ``least`` to ``most``, or without an end."""
    takes = f"a whole number, {least} or more" if most is None else f"a whole number from {least} to {most}"
    if isinstance(value, bool) or not isinstance(value, int):
        raise TypeError(f"{name} must be {takes}, not {value!r}")
    if value < least or (most is not None and value > most):
        raise ValueError(f"{name} must be {takes}, not {value}")


def check_span(name: str, value: object, least: float, most: float) -> None:
    """Check a duration from ``least`` to ``most``, in seconds."""
    first, last = timedelta(seconds=least), timedelta(seconds=most)
    if not isinstance(value, timedelta):
        raise TypeError(f"{name} must be a timedelta from {first} to {last}, not {value!r}")
    if not first <= value <= last:
        raise ValueError(f"{name} must be from {first} to {last}, not {value}")


def check_choice(name: str, value: object, choices: tuple[str, ...]) -> None:
    """Check a word that is one of ``choices``; any other value is out of range."""
    if value not in choices:
        raise ValueError(f"{name} must be {' or '.join(map(repr, choices))}, not {value!r}")
