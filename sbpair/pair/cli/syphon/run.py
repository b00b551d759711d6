"""One run of `sbpair syphon` in a process: signals, progress lines, and the exit code.

                  daemon                                       --drain
first signal      finish in-flight messages, exit 0            the same, exit 1: not known to be empty
second signal     exit at once with 1                          the same
a refusal         retried; --exit-on-refusal: exit 4           exit 4 (3 for a certificate)
unreachable       retried without end                          exit 5 after --patience
"""

from __future__ import annotations

import asyncio
import os
import signal
import sys
from collections.abc import Callable
from types import FrameType
from typing import TYPE_CHECKING

from sbpair.pair.cli.errors import CommandError, ExitCode, with_step
from sbpair.pair.cli.output import notice
from sbpair.pair.cli.signals import SIGNALS
from sbpair.pair.client.errors import NamespaceUnusableError
from sbpair.pair.syphon.events import (
    BacklogDetached,
    DestinationHeld,
    DestinationResumed,
    LandingBegan,
    LandingRefused,
    SyphonConnected,
    SyphonDisconnected,
)
from sbpair.pair.syphon.status import NO_BACKLOGS

if TYPE_CHECKING:
    from sbpair.pair.syphon.daemon import Syphon
    from sbpair.pair.syphon.events import SyphonEvent

COMMAND = "syphon"
UNAUTHORIZED = "amqp:unauthorized-access"
PROGRESS_ON_TERMINAL, PROGRESS_IN_LOG = 1.0, 10.0  # seconds between two progress lines


class SyphonRun:
    """One run of a syphon, from the first connection to its exit code."""

    def __init__(self, syphon: Syphon, *, patience: float | None) -> None:
        self._syphon = syphon
        self._patience = patience
        """Seconds that a side may be unreachable during a drain; None runs until a signal."""
        self._shutdown = asyncio.Event()
        self._over: asyncio.Future[None] | None = None
        self._giving_up: asyncio.TimerHandle | None = None
        self._last_problem = ""
        self._last_line = ""
        self._completed_before = 0

    async def until_done(self) -> int:
        """Run to the end. Returns the exit code; raises CommandError when refused or unreachable too long."""
        loop = asyncio.get_running_loop()
        self._over = loop.create_future()
        self._syphon.on_event(self._on_event)
        before = {number: signal.signal(number, self._signal_handler(loop)) for number in SIGNALS}
        progress = asyncio.ensure_future(self._report_progress())
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
            self._shutdown.set()  # release in-flight messages before reporting
        try:
            await work
        except NamespaceUnusableError as error:
            raise refusal_error(str(error), None if drains else ExitCode.AUTHORIZATION) from error
        finally:
            if self._over.done():
                self._over.result()

    async def _drain(self) -> None:
        """Drain until every backlog is empty or a signal arrives; the syphon closes in an orderly way.

        Raises CommandError when it ended before every backlog was found empty.
        """
        drained = asyncio.ensure_future(self._syphon.drain())
        stopped = asyncio.ensure_future(self._shutdown.wait())
        try:
            await asyncio.wait([drained, stopped], return_when=asyncio.FIRST_COMPLETED)
        finally:
            for task in (drained, stopped):
                task.cancel()
            await asyncio.gather(drained, stopped, return_exceptions=True)
        if drained.cancelled():
            text = "stopped before every backlog was found empty: messages may be left; drain again"
            raise CommandError(text, ExitCode.FAILED)
        drained.result()
        self._check_names()

    def _check_names(self) -> None:
        """Check that the backlogs exist: with a wrong name, none would be found, and messages would stay behind.

        Raises CommandError when no backlog exists, or one beyond the count holds messages.
        """
        if len(self._syphon.missing_backlogs) == len(self._syphon.backlogs):
            raise CommandError(NO_BACKLOGS.format(self._syphon.backlogs[0]), ExitCode.CONFIGURATION)
        holding = [backlog for backlog, holds in self._syphon.stranded.items() if holds]
        if holding:
            text = (
                f"messages are left in {', '.join(holding)}, beyond --backlogs {len(self._syphon.backlogs)}"
            )
            raise CommandError(f"{text}; drain again with the senders' backlog count", ExitCode.FAILED)

    def check_dead_letters(self) -> None:
        """Raise CommandError if this drain dead-lettered messages, which therefore did not come home."""
        count = self._syphon.counters.dead_lettered
        if count and self._patience is not None:
            text = f"every backlog is empty, but messages were dead-lettered and did not come home: {count}"
            hint = "see why with sbpair backlog peek --dead-letter, mend it, then run sbpair backlog redrive"
            raise CommandError(f"{text}; {hint}, and drain again", ExitCode.DEAD_LETTERED)

    # Signals.

    def _signal_handler(self, loop: asyncio.AbstractEventLoop) -> Callable[[int, FrameType | None], None]:
        def stop() -> None:
            if not self._shutdown.is_set():
                self._shutdown.set()
                say("stopping; a second signal exits at once")

        def handler(number: int, frame: FrameType | None) -> None:
            if self._shutdown.is_set():
                os._exit(ExitCode.FAILED)  # the second signal: at once, without closing
            loop.call_soon_threadsafe(stop)  # a line from here would fail if it met another half written

        return handler

    # Events.

    def _on_event(self, event: SyphonEvent) -> None:
        match event:
            case SyphonConnected() | DestinationResumed() | LandingBegan():
                self._on_relief()
            case (
                SyphonDisconnected(reason=reason)
                | DestinationHeld(reason=reason)
                | LandingRefused(reason=reason)
                | BacklogDetached(reason=reason)
            ):
                self._on_problem(reason)

    def _on_relief(self) -> None:
        if self._giving_up is not None:
            self._giving_up.cancel()
            self._giving_up = None

    def _on_problem(self, reason: str) -> None:
        self._last_problem = reason
        if self._patience is not None and self._giving_up is None:
            self._completed_before = self._syphon.counters.completed
            loop = asyncio.get_running_loop()
            self._giving_up = loop.call_later(self._patience, self._give_up)

    def _give_up(self) -> None:
        if self._syphon.counters.completed > self._completed_before and not self._syphon.refusals:
            self._giving_up = None  # messages move: the problem is over, or will be reported again
            return
        if UNAUTHORIZED in self._last_problem:
            self._end(refusal_error(self._last_problem))
            return
        problem = f"gave up after {self._patience:g} s: {self._last_problem}"
        self._end(CommandError(f"{problem}; no message is lost, drain again later", ExitCode.UNAVAILABLE))

    def _end(self, error: CommandError) -> None:
        if self._over is not None and not self._over.done():
            self._over.set_exception(error)

    # Progress.

    async def _report_progress(self) -> None:
        on_terminal = sys.stderr.isatty()
        while True:
            await asyncio.sleep(PROGRESS_ON_TERMINAL if on_terminal else PROGRESS_IN_LOG)
            line = progress_line(self._syphon)
            if line != self._last_line:
                self._last_line = line
                say(line)


def progress_line(syphon: Syphon) -> str:
    counters = syphon.counters
    landed = f" ({counters.landed} landed)" if counters.landed else ""
    return (
        f"{syphon.status.state.value}: received {counters.received}, forwarded {counters.forwarded}{landed}, "
        f"completed {counters.completed}, dead-lettered {counters.dead_lettered}, in flight {counters.pending}"
    )


def refusal_error(reason: str, code: ExitCode | None = None) -> CommandError:
    """Return the error for a refusal, with ``code``; by default 4 for a credential, 3 for a certificate or address."""
    is_key = UNAUTHORIZED in reason
    kind = code or (ExitCode.AUTHORIZATION if is_key else ExitCode.CONFIGURATION)
    step = (
        "check the keys: Listen on the secondary, Send on the primary"
        if is_key
        else "check the address and --ca-file"
    )
    return CommandError(with_step(Exception(reason), step), kind)


def say(line: str) -> None:
    """Log progress or a signal for which no event exists."""
    notice(line, COMMAND)
