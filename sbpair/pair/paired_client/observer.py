"""Observation of a client from its own process: audit journal, metrics and status pages.

Starts with the first sender and ends after the last event. A forked child has its own journals. Its status
pages start afresh; a fixed port stays with the parent.
"""

from __future__ import annotations

import asyncio
import threading
import time
from collections.abc import Mapping, Sequence
from contextlib import ExitStack
from typing import TYPE_CHECKING, Any

from sbpair.pair.ground.side import Side
from sbpair.pair.observation.journal import Journal
from sbpair.pair.observation.messages import send_accepted
from sbpair.pair.observation.metrics import (
    Metrics,
    show_backlogs,
    show_conditions,
    show_processors,
    show_room,
    show_spool,
)
from sbpair.pair.observation.record import PairLabels, WriterRole
from sbpair.pair.observation.sinks import EntityStates, EventSource, ObservedState, Sink, attach
from sbpair.pair.observation.status import PROBE_TIMEOUT, Status, StatusThread
from sbpair.pair.observation.syphon_gauges import show_syphon
from sbpair.pair.pairing.decide.health import EntityCondition
from sbpair.pair.pairing.decide.pair_state import SideState
from sbpair.pair.pairing.options import shown_options
from sbpair.pair.tracing import current

from .processors import Processors

if TYPE_CHECKING:
    from sbpair.pair.pairing.options import ObservationOptions
    from sbpair.pair.pairing.shared.base_runtime import BaseRuntime

    from ..pairing.outcome import SendReceipt
    from .hosted_syphon import HostedSyphon


class Observer:
    """The observers of a blocking client and of the syphon it hosts."""

    def __init__(
        self, runtime: BaseRuntime, syphon: HostedSyphon | None, processors: Processors[Any] | None = None
    ) -> None:
        assert runtime.options.observation is not None  # noqa: S101  (an observer exists only with these options)
        self._options: ObservationOptions = runtime.options.observation
        self._runtime, self._syphon = runtime, syphon
        self._processors = Processors[Any]() if processors is None else processors
        self._processors.on_added = self._watch_processors
        self._are_processors_watched = False
        primary, secondary = runtime.namespaces
        self._pair = PairLabels(runtime.label, secondary.info.label)
        self._endpoints = {side.role: side.info.endpoint for side in (primary, secondary)}
        self._metrics, self._states = Metrics(), EntityStates()
        self._journal: Journal | None = None
        self._status: StatusThread | None = None
        self._open: ExitStack | None = None
        self._lock = threading.Lock()

    @property
    def port(self) -> int | None:
        """The port of the status pages."""
        return None if self._status is None else self._status.port

    def start(self) -> None:
        """Start all observers. Raises JournalError, StatusError or ValueError naming the one that cannot start."""
        with self._lock:
            if self._open is None:
                # a start that failed left some behind
                self._metrics, self._states = Metrics(), EntityStates()
                with ExitStack() as stack:
                    self._watch(stack, self._runtime, WriterRole.SENDER)
                    if self._syphon is not None:
                        self._watch(stack, self._syphon, WriterRole.SYPHON)
                    self._open = stack.pop_all()
                if current.active is not None:
                    current.active.export(self._metrics)
                self._are_processors_watched = False
            if self._processors.alive():
                self._begin_processors(self._open)
            if self._options.status is not None and self._status is None:
                host, port = self._options.status
                self._status = StatusThread(self._pages(), host=host, port=port).start()

    def abort(self) -> None:
        """Do nothing: a faulted pair is observed until its client is closed."""

    def close(self) -> None:
        """Stop the pages, and write the journal's closing record."""
        with self._lock:
            status, self._status = self._status, None
            stack, self._open = self._open, None
        if status is not None:
            status.close()
        if stack is not None:
            stack.close()

    def reset_in_child(self) -> None:
        """In a forked child: leave the pages to the parent."""
        self._lock = threading.Lock()
        self._status = None

    def _watch_processors(self) -> None:
        """Watch the processors once the first one is created."""
        with self._lock:
            if self._open is not None:
                self._begin_processors(self._open)

    def _begin_processors(self, stack: ExitStack) -> None:
        if not self._are_processors_watched:
            with ExitStack() as own:  # one that fails leaves nothing behind, and is tried again
                self._watch(own, self._processors, WriterRole.RECEIVER)
                stack.push(own.pop_all())
            self._are_processors_watched = True
            show_processors(self._metrics, self._processors)
            self._processors.are_journaled = self._options.journal is not None
            for processor in self._processors.alive():
                processor.reports_messages = self._processors.are_journaled

    def _watch(self, stack: ExitStack, source: EventSource, writer: WriterRole) -> None:
        sinks: list[Sink] = [self._metrics]
        if writer is WriterRole.SENDER:
            sinks.append(self._states)
            show_room(self._metrics, self._runtime.pair.room.levels)
            show_conditions(self._metrics, self._conditions, self._is_secondary_silent)
            show_backlogs(self._metrics, lambda: bool(self._runtime.backlogs_missing_because))
            show_spool(self._metrics, self._runtime.spool.depth, self._runtime.spool.takes_messages)
            self._metrics.read_sends(lambda: self._runtime.send_times)
        if self._options.journal is not None:
            journal = stack.enter_context(Journal(self._options.journal, role=writer, pair=self._pair))
            sinks.append(journal)
            if writer is WriterRole.SENDER:
                self._journal = journal
                self._metrics.read_counters("sbpair_journal", lambda: journal.counters)
        if writer is WriterRole.SYPHON and self._syphon is not None:
            syphon = self._syphon
            self._metrics.read_counters("sbpair_syphon", lambda: syphon.counters)
            self._metrics.read_state("sbpair_syphon_state", lambda: syphon.status.state)
            show_syphon(self._metrics, syphon)
        stack.callback(attach(source, *sinks))
        if self._options.journal_sends and writer is WriterRole.SENDER:
            self._runtime.on_receipt = self._sent
            stack.callback(lambda: setattr(self._runtime, "on_receipt", None))

    def _sent(self, path: str, receipt: SendReceipt, messages: Sequence[object]) -> None:
        if self._journal is not None:
            self._journal.write(send_accepted(path, receipt, messages))

    def _is_ready(self) -> bool:
        """Whether sends can succeed: those to a primary that refuses the client raise, unless they are redirected."""
        is_refused = self._runtime.sides.state.state_of(Side.PRIMARY) is SideState.REFUSED
        away = {ObservedState.FAILED_OVER.value, ObservedState.RETURNING.value}
        redirects = not away.isdisjoint(self._states.snapshot().values())
        return not self._runtime.sides.is_closed and (redirects or not is_refused)

    def _is_secondary_silent(self) -> bool:
        return self._runtime.pair.is_secondary_silent(time.monotonic())

    def _conditions(self) -> dict[str, EntityCondition]:
        return self._runtime.pair.conditions(time.monotonic())

    def _pages(self) -> Status:
        return Status(
            probe=self._probe,
            is_ready=self._is_ready,
            state=self._state,
            metrics=self._metrics.exposition,
            pulse=self._pulse,
        )

    async def _pulse(self) -> None:
        """Do nothing: the pages answer from a thread of the sending process."""

    async def _probe(self) -> None:
        """Probe from the thread of the pages."""
        await asyncio.to_thread(self._runtime.round_trip, PROBE_TIMEOUT)

    def _state(self) -> Mapping[str, object]:
        runtime, syphon = self._runtime, self._syphon
        return {
            "role": "sender",
            "pair": self._pair,
            "sides": {
                role: {
                    "endpoint": endpoint,
                    "state": runtime.sides.state.state_of(role).value,
                    "reason": runtime.sides.state.cause_of(role) or None,
                }
                for role, endpoint in self._endpoints.items()
            },
            "fault": runtime.sides.state.fault and str(runtime.sides.state.fault),
            "entities": self._states.snapshot(),
            "conditions": self._conditions(),
            "secondary_silent": self._is_secondary_silent(),
            "backlogs_missing": runtime.backlogs_missing_because or None,
            "options": shown_options(runtime.options),
            "backlogs": {str(number): level for number, level in runtime.pair.room.levels().items()},
            "spooled": runtime.spool.waiting(None),
            "spool_writable": runtime.spool.takes_messages(),
            "pings_sent": runtime.pair.pings_sent,
            "journal": self._journal and self._journal.counters,
            "syphon": syphon
            and {
                "state": syphon.status.state,
                "reason": syphon.status.reason,
                "refused": syphon.refusals,
                "landing": syphon.landing,
                "untransferred": syphon.untransferred,
                "counters": syphon.counters,
            },
        }


class AsyncObserver:
    """The observers of an asyncio client; blocking work runs in a thread."""

    def __init__(
        self, runtime: BaseRuntime, syphon: HostedSyphon | None, processors: Processors[Any] | None = None
    ) -> None:
        self._observer = _LoopObserver(runtime, syphon, processors)

    @property
    def port(self) -> int | None:
        """The port of the status pages."""
        return self._observer.port

    async def start(self) -> None:
        self._observer.loop = asyncio.get_running_loop()
        await asyncio.to_thread(self._observer.start)

    def abort(self) -> None:
        self._observer.abort()

    async def close(self) -> None:
        await asyncio.to_thread(self._observer.close)

    def reset_in_child(self) -> None:
        self._observer.reset_in_child()


class _LoopObserver(Observer):
    """Probes in the client's loop, from the thread of the pages, so that a stuck loop is noticed."""

    loop: asyncio.AbstractEventLoop | None = None

    async def _pulse(self) -> None:
        if self.loop is not None:
            await asyncio.wrap_future(asyncio.run_coroutine_threadsafe(asyncio.sleep(0), self.loop))

    async def _probe(self) -> None:
        if self.loop is None:
            raise RuntimeError("the client is not in use yet")
        asked = asyncio.run_coroutine_threadsafe(self._runtime.round_trip_in_loop(PROBE_TIMEOUT), self.loop)
        await asyncio.wrap_future(asked)
