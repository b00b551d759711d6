"""Which build of the AMQP engine is installed."""

from __future__ import annotations

from importlib.machinery import EXTENSION_SUFFIXES
from importlib.util import find_spec

ENGINE = "sbpair.pair.amqp.connection"  # its file shows the build


def build() -> str:
    """Return which build of the AMQP engine is imported: "compiled" or "pure Python"."""
    engine = find_spec(ENGINE)
    origin = engine.origin if engine is not None else None
    return "compiled" if origin is not None and origin.endswith(tuple(EXTENSION_SUFFIXES)) else "pure Python"
