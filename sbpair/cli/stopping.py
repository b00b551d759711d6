"""How does a signal end a command that moves messages?

The first after what is in its hands, with its counts; the second at once: what was sent and not yet removed
is then there twice.
"""

from __future__ import annotations

import asyncio
import os
import signal

import click

from sbpair.cli.exit_codes import ExitCode

SIGNALS = (signal.SIGTERM, signal.SIGINT)


def stop_on_signal() -> asyncio.Event:
    """An event of the running loop that SIGTERM and Ctrl-C set."""
    stop = asyncio.Event()
    loop = asyncio.get_running_loop()

    def signalled() -> None:
        if stop.is_set():
            os._exit(ExitCode.FAILED)
        stop.set()
        click.echo("sbpair: stopping; once more to leave at once", err=True)

    for number in SIGNALS:
        loop.add_signal_handler(number, signalled)
    return stop
