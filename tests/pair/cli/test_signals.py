"""A command that waits for a signal ends, wherever the signal interrupts it."""

from __future__ import annotations

import subprocess
import sys

import pytest

PROGRAM = """
import os, signal, sys, threading
from {module} import {kind}

stop, left = {kind}(), {line}
signal.signal(signal.SIGTERM, lambda *_: stop.set())

def trace(frame, event, argument):
    global left
    if event == "line":
        left -= 1
        if left == 0:
            os.kill(os.getpid(), signal.SIGTERM)
    return trace

late = threading.Timer(1, os.kill, (os.getpid(), signal.SIGTERM))
late.daemon = True
late.start()
sys.settrace(trace)
stop.wait()
"""


def ends(module: str, kind: str, line: int, within: float) -> bool:
    """Whether a process ends when signalled at this line of its wait, or after a second if it has fewer lines."""
    program = PROGRAM.format(module=module, kind=kind, line=line)
    try:
        return subprocess.run([sys.executable, "-c", program], timeout=within).returncode == 0
    except subprocess.TimeoutExpired:
        return False


@pytest.mark.slow
@pytest.mark.spec("R-63")
def test_a_signal_at_any_line_of_the_wait_ends_the_wait() -> None:
    assert all(ends("sbpair.pair.cli.signals", "StopRequest", line, within=30) for line in range(1, 4))


@pytest.mark.slow
def test_threading_event_would_wait_forever() -> None:
    assert not all(ends("threading", "Event", line, within=3) for line in range(1, 6))
