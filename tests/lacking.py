"""Stand-ins for a system that has no thread, or no descriptor, left."""

from __future__ import annotations

import os
from errno import EMFILE
from typing import NoReturn

import pytest

THREAD = "threading.Thread.start"


def no_thread(_: object) -> NoReturn:
    """Fail as starting a thread does at the limit of threads."""
    raise RuntimeError("can't start new thread")


def no_descriptor() -> NoReturn:
    """Fail as creating an event loop does at the limit of descriptors."""
    raise OSError(EMFILE, os.strerror(EMFILE))


THREAD_OR_LOOP = pytest.mark.parametrize(
    ("lacking", "stand_in", "why"),
    [
        (THREAD, no_thread, "can't start new thread"),
        ("asyncio.events.new_event_loop", no_descriptor, "Too many open files"),
    ],
    ids=["thread", "loop"],
)
