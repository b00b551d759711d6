"""Signals that stop a command, and the orderly stop of one that moves messages.

The first signal lets in-flight messages finish and prints the counts. A second one exits at once: a message
that was sent but not yet removed then exists twice.
"""

from __future__ import annotations

import asyncio
import os
import signal
import threading
from collections.abc import Callable
from contextlib import suppress
from queue import SimpleQueue

import click

from sbpair.pair.cli.errors import ExitCode

SIGNALS = tuple(  # SIGHUP: a closed terminal; Windows has no such signal
    getattr(signal, name) for name in ("SIGTERM", "SIGINT", "SIGHUP") if hasattr(signal, name)
)


class StopRequest:
    """An event for the main thread of a command, set by a signal or by another thread.

    threading.Event cannot be used: a signal that interrupts its wait() while it holds its lock makes the
    handler's set() wait for that lock, forever.
    """

    def __init__(self) -> None:
        self._requests: SimpleQueue[None] = SimpleQueue()  # put() may be called in a signal handler

    def set(self, *_: object) -> None:
        """Let :meth:`wait` return. The arguments are those of a signal handler."""
        self._requests.put(None)

    def wait(self) -> None:
        """Return once :meth:`set` was called, before or meanwhile."""
        self._requests.get()


def stop_with_stdin(stop: StopRequest) -> None:
    """Set ``stop`` when standard input ends, as it does when the process at its other end is killed."""
    threading.Thread(target=_read_to_end, args=(stop,), name="sbpair-stdin", daemon=True).start()


def _read_to_end(stop: StopRequest) -> None:
    with suppress(OSError):  # it was closed from the start
        while os.read(0, 65536):  # not sys.stdin, whose lock an exiting interpreter waits for
            pass
    stop.set()


def stop_on_signal() -> asyncio.Event:
    """Return an event of the running loop, set by the first of SIGNALS; a second one exits with code 1."""
    stop = asyncio.Event()
    on_first_signal(stop.set, ExitCode.FAILED)
    return stop


def on_first_signal(act: Callable[[], object], code: int) -> None:
    """Let the running loop call ``act`` at the first of SIGNALS; a second one exits with this code."""
    loop = asyncio.get_running_loop()
    seen: list[bool] = []

    def on_signal() -> None:
        if seen:
            os._exit(code)
        seen.append(True)
        act()
        click.echo("sbpair: stopping; a second signal exits at once", err=True)

    for number in SIGNALS:
        try:
            loop.add_signal_handler(number, on_signal)
        except NotImplementedError:  # the loops of Windows
            signal.signal(number, lambda *_: loop.call_soon_threadsafe(on_signal))
