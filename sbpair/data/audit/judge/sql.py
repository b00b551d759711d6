"""Conditions in SQL, evaluated by SQLite for a row of values."""

from __future__ import annotations

import sqlite3
import threading
from collections.abc import Mapping
from typing import Any

_OF_THREAD = threading.local()


def first_row(query: str, values: Mapping[str, str | int | None]) -> tuple[Any, ...]:
    """Return the first row of ``query``.

    Thread-safe: each thread has its own database, which keeps the parsed query.
    """
    database: sqlite3.Connection | None = getattr(_OF_THREAD, "database", None)
    if database is None:
        database = _OF_THREAD.database = sqlite3.connect(":memory:")
    row: tuple[Any, ...] = database.execute(query, values).fetchone()
    return row
