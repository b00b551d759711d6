"""How does the syphon live in a process: signals, progress, and when is it time to give up?

signal, first     finish what is in flight, exit 0
signal, second    leave at once, exit 1
a refusal         exit 4 (or 3) while nothing was received yet; later when it lasts five seconds (P-50)
out of reach      waited out; with a patience (--drain) it ends in exit 5
"""

from __future__ import annotations

import asyncio
import logging
import os
import signal
import sys
from collections.abc import Callable
from types import FrameType
from typing import TYPE_CHECKING

import click

from sbpair.cli.errors import CommandError, one_line
from sbpair.cli.exit_codes import ExitCode
from sbpair.cli.redaction import redact
from sbpair.syphon import SyphonFaulted, SyphonState
from sbpair.syphon.events import (
    BacklogCaughtUp,
    BacklogDetached,
    BacklogMissing,
    BacklogOverdue,
    BacklogStranded,
    ClockDiffers,
    DestinationHeld,
    DestinationResumed,
    MessageSetAside,
    SyphonConnected,
    SyphonDisconnected,
)

if TYPE_CHECKING:
    from sbpair.syphon import Syphon
    from sbpair.syphon.events import SyphonEvent

LOGGER = logging.getLogger("sbpair.command.syphon")
UNAUTHORIZED = "amqp:unauthorized-access"
PROGRESS_ON_TERMINAL, PROGRESS_IN_LOG = 1.0, 10.0  # seconds between two progress lines
SIGNALS = (signal.SIGTERM, signal.SIGINT)


class SyphonRun:
    """One run of a syphon, from the first connection to its exit code."""

    def __init__(self, syphon: Syphon, *, patience: float | None) -> None:
        self._syphon = syphon
        self._patience = patience  # None: run until a signal; else drain, and wait this many seconds at most
        self._shutdown = asyncio.Event()
        self._over: asyncio.Future[None] | None = None
        self._giving_up: asyncio.TimerHandle | None = None
        self._last_trouble = ""
        self._said = ""
        self._missing: set[str] = set()
        self._stranded: dict[str, bool] = {}  # beyond our count; does it hold messages?

    async def until_done(self) -> int:
        """Run, and return the exit code. Raises CommandError when refused or out of reach for too long."""
        loop = asyncio.get_running_loop()
        self._over = loop.create_future()
        self._syphon.on_event(self._noted)
        before = {number: signal.signal(number, self._signalled(loop)) for number in SIGNALS}
        progress = asyncio.ensure_future(self._tell_progress())
        try:
            await self._work()
        finally:
            progress.cancel()
            for number, handler in before.items():
                signal.signal(number, handler)
        return ExitCode.OK

    async def _work(self) -> None:
        assert self._over is not None  # noqa: S101  (made by until_done)
        drains = self._patience is not None
        work = asyncio.ensure_future(self._drain() if drains else self._syphon.run(self._shutdown))
        await asyncio.wait([work, self._over], return_when=asyncio.FIRST_COMPLETED)
        if not work.done():
            self._shutdown.set()  # what is in hand goes back before we report
            if drains:
                work.cancel()
        try:
            await work
        except asyncio.CancelledError:
            pass
        except SyphonFaulted as error:
            raise refused(str(error)) from error
        if self._over.done():
            self._over.result()

    async def _drain(self) -> None:
        """Drain until empty or told to stop; stopping cancels, and the syphon closes in an orderly way."""
        drained = asyncio.ensure_future(self._syphon.drain())
        stopped = asyncio.ensure_future(self._shutdown.wait())
        try:
            await asyncio.wait([drained, stopped], return_when=asyncio.FIRST_COMPLETED)
            if drained.done():
                await drained
                self._check_names()
        finally:
            for task in (drained, stopped):
                task.cancel()
            await asyncio.gather(drained, stopped, return_exceptions=True)

    def _check_names(self) -> None:
        """Found empty and not found at all must not look the same: a wrong name strands messages."""
        if len(self._missing) == len(self._syphon.backlogs):
            text = f"no backlog queue exists on the secondary, not even {self._syphon.backlogs[0]}"
            raise CommandError(f"{text}; check --primary-namespace-name", ExitCode.CONFIGURATION)
        holding = [backlog for backlog, holds in self._stranded.items() if holds]
        if holding:
            text = (
                f"messages are left in {', '.join(holding)}, beyond --backlogs {len(self._syphon.backlogs)}"
            )
            raise CommandError(f"{text}; drain again with as many as the senders have", ExitCode.FAILED)

    # Signals.

    def _signalled(self, loop: asyncio.AbstractEventLoop) -> Callable[[int, FrameType | None], None]:
        def handler(number: int, frame: FrameType | None) -> None:
            if self._shutdown.is_set():
                os._exit(ExitCode.FAILED)  # the second one: now, without the goodbyes
            loop.call_soon_threadsafe(self._shutdown.set)
            say("stopping; once more to leave at once")

        return handler

    # What the syphon reports.

    def _noted(self, event: SyphonEvent) -> None:
        match event:
            case SyphonConnected():
                self._relieved()
                first, count = self._syphon.backlogs[0], len(self._syphon.backlogs)
                say(f"connected; {count} backlog queues from {first} on")
            case DestinationResumed():
                self._relieved()
            case SyphonDisconnected(reason=reason, retry_in=wait):
                self._troubled(f"{reason}; again in {wait:.1f} s", reason)
            case DestinationHeld(path=path, reason=reason, retry_in=wait):
                self._troubled(f"{path} is held: {reason}; again in {wait:.1f} s", reason)
            case BacklogMissing(backlog=backlog):
                self._missing.add(backlog)
                say(f"{backlog} does not exist on the secondary; looked for again")
            case BacklogDetached(backlog=backlog, reason=reason):
                say(f"{backlog}: {reason}")
            case BacklogStranded(backlog=backlog, holds_messages=holds):
                self._stranded[backlog] = holds
                say(stranded_line(backlog, holds, len(self._syphon.backlogs)))
            case ClockDiffers(ahead=ahead):
                side = "ahead of" if ahead > 0 else "behind"
                say(f"the secondary's clock is about {abs(ahead):.0f} s {side} ours: set this machine's")
            case BacklogOverdue(backlog=backlog, age=age, threshold=threshold):
                say(f"{backlog}: its oldest message has waited {age:.0f} s, longer than {threshold:g} s")
            case BacklogCaughtUp(backlog=backlog):
                say(f"{backlog}: no message waits too long any more")
            case MessageSetAside(backlog=backlog, path=path, reason=reason):
                say(f"{backlog}: a message for {path or 'no usable path'} was dead-lettered: {reason}")
        faulted = self._syphon.status.state is SyphonState.FAULTED
        if faulted and self._syphon.counters.received == 0:
            self._end(refused(self._syphon.status.reason or ""))

    def _relieved(self) -> None:
        if self._giving_up is not None:
            self._giving_up.cancel()
            self._giving_up = None

    def _troubled(self, line: str, reason: str) -> None:
        say(line)
        self._last_trouble = reason
        if self._patience is not None and self._giving_up is None:
            loop = asyncio.get_running_loop()
            self._giving_up = loop.call_later(self._patience, self._give_up)

    def _give_up(self) -> None:
        if UNAUTHORIZED in self._last_trouble:
            self._end(refused(self._last_trouble))
            return
        trouble = f"gave up after {self._patience:g} s: {self._last_trouble}"
        self._end(CommandError(f"{trouble}; nothing is lost, drain again later", ExitCode.UNAVAILABLE))

    def _end(self, error: CommandError) -> None:
        if self._over is not None and not self._over.done():
            self._over.set_exception(error)

    # Progress.

    async def _tell_progress(self) -> None:
        on_terminal = sys.stderr.isatty()
        while True:
            await asyncio.sleep(PROGRESS_ON_TERMINAL if on_terminal else PROGRESS_IN_LOG)
            line = progress_line(self._syphon)
            if line != self._said:
                self._said = line
                say(line)


def progress_line(syphon: Syphon) -> str:
    counters = syphon.counters
    return (
        f"{syphon.status.state.value}: received {counters.received}, forwarded {counters.forwarded}, "
        f"completed {counters.completed}, dead-lettered {counters.dead_lettered}, in hand {counters.pending}"
    )


def stranded_line(backlog: str, holds_messages: bool, count: int) -> str:
    what = "holds messages nobody brings home" if holds_messages else "exists"
    return f"warning: {backlog} {what}, and --backlogs is {count}; give as many as the senders have"


def refused(reason: str) -> CommandError:
    """A side will not have us: a credential (4), or a certificate or an address (3)."""
    if UNAUTHORIZED in reason:
        step = "check the keys: Listen on the secondary, Send on the primary"
        return CommandError(f"{one_line(Exception(reason))}; {step}", ExitCode.AUTHORIZATION)
    return CommandError(
        f"{one_line(Exception(reason))}; check the address and --ca-file", ExitCode.CONFIGURATION
    )


def log_as_json() -> None:
    """From now on what happens is on stderr as JSON lines: events with their fields, and what `say` says."""
    from sbpair.observation.logs import use_json_logs

    use_json_logs()
    global _tell
    _tell = LOGGER.info


def say(line: str) -> None:
    _tell(redact(line))


def _echo(line: str) -> None:
    click.echo(f"sbpair syphon: {line}", err=True)


_tell: Callable[[str], object] = _echo
