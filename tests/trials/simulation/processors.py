"""The processors of a run: the unmodified ones, over in-memory connections.

A process reads each of its entities with one processor, on both sides. Its handlers take time and sometimes fail. It is
killed between any two steps: its connections are gone, and its handlers end where they are.
"""

from __future__ import annotations

import asyncio
from collections.abc import Mapping
from contextlib import AsyncExitStack
from datetime import timedelta
from random import Random
from typing import TYPE_CHECKING

from sbpair.pair.auth.connection_string import NamespaceAccess, parse
from sbpair.pair.ground.side import Side
from sbpair.pair.processor.aio import PairedServiceBusProcessor
from sbpair.processor import LockEnded, ProcessorEvent, ProcessorOptions, ReceivedMessage
from tests.pair.runtimes import runtime_of

from .history import Handled
from .network import HOST
from .plan import HEALED, PRIMARY, SECONDARY
from .virtual_loop import EPOCH

if TYPE_CHECKING:
    from .world import World

SIDES = {Side.PRIMARY: PRIMARY, Side.SECONDARY: SECONDARY}
LOCK = 60.0  # seconds that a lock lasts
FAILING, SLOW = 0.1, 0.05  # of the handlers, while faults last


class ProcessorProcess:
    """One process from its start to its death, or to the end of the run."""

    def __init__(self, world: World, name: str, ends: Mapping[Side, str], rng: Random) -> None:
        self.is_dead = False
        self._world, self._name = world, name
        self._rng = Random(rng.getrandbits(32))
        self._returned: dict[tuple[str, str], float] = {}  # by path and message id, when its handler last did
        self._running: set[tuple[str, str]] = set()  # by path and message id, or session
        addresses = {role: parse(end) for role, end in ends.items()}
        self._processors = [self._processor(path, addresses) for path in world.processed]
        self._over = asyncio.Event()
        HOST.set(name)
        self._task = asyncio.ensure_future(self._run())
        HOST.set("")

    def _processor(self, path: str, addresses: Mapping[Side, NamespaceAccess]) -> PairedServiceBusProcessor:
        window, rng = self._world.shape.deduplicate, self._rng

        async def handle(message: ReceivedMessage) -> None:
            await self._handle(path, message)

        options = ProcessorOptions(
            max_concurrent_calls=rng.randint(1, 4),
            max_concurrent_sessions=rng.randint(1, 3) if path.endswith("ordered") else None,
            session_idle_timeout=timedelta(seconds=rng.choice((0.5, 10.0))),
            deduplicate=None if window is None else timedelta(seconds=window),
        )
        processor = PairedServiceBusProcessor(path, handle, addresses, options)
        processor.on_event(self._on_event)
        return processor

    async def _run(self) -> None:
        async with AsyncExitStack() as stack:
            for processor in self._processors:
                await stack.enter_async_context(processor)
            await self._over.wait()

    @property
    def is_busy(self) -> bool:
        """Whether a message is in hand, or a settlement without its confirmation."""
        cores = (runtime_of(each) for each in self._processors)
        return any(link.unsettled for core in cores if core is not None for link in core.links.values())

    def has_handled(self, path: str, message_id: str) -> bool:
        """Whether a copy of a message may be completed without its handler (C-15)."""
        return self._world.shape.deduplicate is not None and (path, message_id) in self._returned

    async def stop(self) -> None:
        """Stop in good order (C-17)."""
        self._over.set()
        await self._task

    def kill(self) -> asyncio.Future[None]:
        """Die at once; what is returned is done when the loop has forgotten the process."""
        self.is_dead = True
        for pipe in self._world.network.pipes(self._name):
            pipe.cut()
        cores = [runtime_of(each) for each in self._processors if runtime_of(each) is not None]
        for core in cores:
            core.dispatcher.cancel_running(Exception("the process is dead"))
        return asyncio.ensure_future(self._forget(cores))

    async def _forget(self, cores) -> None:
        await asyncio.gather(*(core.abort() for core in cores))
        await self.stop()

    async def _handle(self, path: str, message: ReceivedMessage) -> None:
        """A handler: it takes a moment or longer than a lock, and may fail."""
        if self.is_dead:
            raise asyncio.CancelledError
        history, name, began = self._world.history, str(message.message_id), self._world.now
        history.note(began, self._name, "handling", name, f"{path} of {SIDES[message.side]}")
        key = path, name
        ends = message.locked_until_utc  # its link can be gone before its handler begins
        locked_at = began if ends is None else ends.timestamp() - EPOCH - LOCK
        session = f"session {message.session_id}" if path.endswith("ordered") else name
        self._check_new(key, (path, session), began)
        self._running |= {key, (path, session)}
        try:
            await asyncio.sleep(self._drawn_span(began))
            if began < HEALED and self._rng.random() < FAILING:
                history.reached["handler failed"] += 1
                raise ValueError("the handler failed")
        finally:
            self._running -= {key, (path, session)}
        now = self._returned[key] = self._world.now
        history.note(now, self._name, "handled", name, path)
        self._count(
            message,
            now - began,
            is_again=any((each.path, each.message_id) == key for each in history.handled),
        )
        history.handled.append(Handled(self._name, path, name, min(locked_at, began), now))
        if message.session_id is not None:
            self._world.sessions.setdefault(message.session_id, []).append(name)

    def _drawn_span(self, now: float) -> float:
        if now < HEALED and self._rng.random() < SLOW:
            return self._rng.uniform(LOCK, 1.5 * LOCK)
        return self._rng.choice((0.0, self._rng.uniform(0.0, 0.5), self._rng.uniform(0.5, 5.0)))

    def _check_new(self, key: tuple[str, str], session: tuple[str, str], now: float) -> None:
        """C-15: within the window no message has a second handler in this process. C-16: nor has a session."""
        window, returned = self._world.shape.deduplicate, self._returned.get(key)
        if session != key and session in self._running:
            self._world.history.wrong(f"C-16: {self._name} has two handlers in {session} at a time")
        if window is None:
            return
        if key in self._running:
            self._world.history.wrong(f"C-15: {self._name} handles {key} twice at a time")
        if returned is not None and now - returned < window:
            self._world.history.wrong(f"C-15: {self._name} handles {key} again after {now - returned:g} s")

    def _count(self, message: ReceivedMessage, took: float, *, is_again: bool) -> None:
        reached = self._world.history.reached
        reached["handled"] += 1
        reached["handled on the secondary"] += message.side is Side.SECONDARY
        reached["handled for longer than a lock"] += took > LOCK
        reached["handled again"] += is_again

    def _on_event(self, event: ProcessorEvent) -> None:
        if isinstance(event, LockEnded):
            self._world.history.reached["processor's lock lost"] += 1
