"""Child processes: collect an exit code within a bound, and suspend a process with all of its threads."""

from __future__ import annotations

import os
import signal
import threading
import time
from pathlib import Path

from tests.waiting import PATIENCE


def exit_code_of(child: int) -> int:
    """Wait for a forked child and return its exit code; a child that hangs is killed, which its code shows."""
    until, pause = time.monotonic() + PATIENCE, threading.Event()
    while not (ended := os.waitpid(child, os.WNOHANG))[0]:
        if time.monotonic() > until:
            os.kill(child, signal.SIGKILL)
            ended = os.waitpid(child, 0)
            break
        pause.wait(0.01)
    return os.waitstatus_to_exitcode(ended[1])


def suspend(process: int) -> None:
    """Send SIGSTOP to a process and return once each of its threads has stopped.

    kill() returns earlier: the threads run on until one of them has handled the signal.
    """
    os.kill(process, signal.SIGSTOP)
    until, pause = time.monotonic() + PATIENCE, threading.Event()
    while not all(_has_stopped(thread) for thread in Path(f"/proc/{process}/task").iterdir()):
        if time.monotonic() > until:
            raise TimeoutError(f"process {process} did not stop within {PATIENCE:g} s")
        pause.wait(0.001)


def _has_stopped(thread: Path) -> bool:
    state = (thread / "stat").read_text().rpartition(")")[2].split()[0]
    return state in "TtZX"
