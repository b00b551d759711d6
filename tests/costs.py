"""Measure what a call costs: functions called, lines run and processor time of this thread.

Garbage collection is disabled meanwhile: it would collect what other tests left behind and run their callbacks,
some of hypothesis's among them.
"""

from __future__ import annotations

import gc
import sys
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from types import FrameType
from typing import Any

TraceFunction = Callable[[FrameType, str, Any], Any]


def calls_of(act: Callable[[], object]) -> int:
    """Count the Python and C functions that ``act`` calls in this thread."""
    calls = 0

    def count(_frame: object, event: str, _argument: object) -> None:
        nonlocal calls
        calls += event in ("call", "c_call")

    before = sys.getprofile()
    with _nothing_collected():
        sys.setprofile(count)
        try:
            act()
        finally:
            sys.setprofile(before)
    return calls


def steps_of(act: Callable[[], object]) -> int:
    """Count the lines of Python that ``act`` runs in this thread: unlike calls_of, this also sees a bare loop."""
    steps = 0

    def count(_frame: FrameType, event: str, _argument: object) -> TraceFunction:
        nonlocal steps
        steps += event == "line"
        return count

    before = sys.gettrace()
    with _nothing_collected():
        sys.settrace(count)
        try:
            act()
        finally:
            sys.settrace(before)
    return steps


def cpu_of(act: Callable[[], object]) -> float:
    """Measure the processor time of ``act`` in this thread, in seconds; a busy machine doubles or triples it."""
    with _nothing_collected():
        began = time.thread_time()
        act()
        return time.thread_time() - began


@contextmanager
def _nothing_collected() -> Iterator[None]:
    was_enabled = gc.isenabled()
    gc.disable()
    try:
        yield
    finally:
        if was_enabled:
            gc.enable()
