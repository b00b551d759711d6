"""What does it cost us? Calls that are counted, and processor time that is this thread's own.

The collector stands still meanwhile: what other tests left behind is collected when it likes, and calls functions
of its own, some of hypothesis among them.
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
    """How many functions it calls, of Python and of C, in this thread."""
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
    """How many lines of Python it runs in this thread, each round of a loop anew: a walk without a call shows too."""
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
    """Seconds of this thread's processor that it takes. A busy machine makes them more, twice or thrice."""
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
