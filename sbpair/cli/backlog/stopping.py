"""How does a signal end a command that moves messages? After what is in its hands, and with its counts."""

from __future__ import annotations

import asyncio
import signal

SIGNALS = (signal.SIGTERM, signal.SIGINT)


def stop_on_signal() -> asyncio.Event:
    """An event of the running loop that SIGTERM and Ctrl-C set."""
    stop = asyncio.Event()
    loop = asyncio.get_running_loop()
    for number in SIGNALS:
        loop.add_signal_handler(number, stop.set)
    return stop
