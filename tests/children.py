"""A forked child, and how it ended."""

from __future__ import annotations

import os
import signal
import threading
import time

PATIENCE = 30.0  # seconds


def exit_code_of(child: int) -> int:
    """Wait for a forked child, within a bound: one that hangs is killed, and its exit code says so."""
    until, pause = time.monotonic() + PATIENCE, threading.Event()
    while not (ended := os.waitpid(child, os.WNOHANG))[0]:
        if time.monotonic() > until:
            os.kill(child, signal.SIGKILL)
            ended = os.waitpid(child, 0)
            break
        pause.wait(0.01)
    return os.waitstatus_to_exitcode(ended[1])
