"""The blocking processor: an event loop in one thread, which calls handlers in other threads.

def handle(message):
    print(message.side, str(message))

with client.get_queue_processor("orders", handle):
    input("Press Enter to stop")
"""

from __future__ import annotations

import asyncio
import threading
from collections.abc import Callable, Coroutine, Mapping
from concurrent.futures import CancelledError
from contextlib import suppress
from dataclasses import dataclass
from queue import SimpleQueue
from types import TracebackType
from typing import Any, Self, TypeVar

from sbpair.pair.amqp.performatives import DeliveryState
from sbpair.pair.auth.connection_string import NamespaceAccess
from sbpair.pair.ground.fork import leave_to_the_parent, reopen_after_fork
from sbpair.pair.ground.side import Side

from .base import BaseProcessor, check_answer
from .delivery import Delivery
from .message import ReceivedMessage
from .options import ProcessorOptions
from .processor import Processor
from .settlement import Abandon, Answer, DeadLetter, Defer, Verb, outcome_of
from .threads import Handler, ThreadInvoker
from .tracing import spans

T = TypeVar("T")
ASKED_EVERY = 0.5  # seconds


@dataclass(eq=False)
class _AtFork:
    """The fork handlers of a processor."""

    lock: threading.Lock
    reopen_in_child: Callable[[], None]


class PairedServiceBusProcessor(BaseProcessor):
    """Calls a function for each message of an entity, on both namespaces. Created by a paired client.

    The function runs in one of ``max_concurrent_calls`` threads. A message is completed when its function returns. To
    choose another outcome, raise DeadLetter, Defer or Abandon; any other error abandons the message. When the lock of a
    message is lost, its ``auto_renew_error`` is set.
    """

    def __init__(
        self,
        path: str,
        handler: Handler,
        addresses: Mapping[Side, NamespaceAccess],
        options: ProcessorOptions,
    ) -> None:
        super().__init__(path, addresses, options)
        self._handler = handler
        self._stop_requests: SimpleQueue[None] = SimpleQueue()  # put() may be called in a signal handler
        self._loop: asyncio.AbstractEventLoop | None = None
        self._thread: threading.Thread | None = None
        self._invoker: ThreadInvoker | None = None
        self._stopped = _set_event()
        self._is_stopping = False
        self._asked_to_stop = asyncio.Event()  # of the loop
        self._stop_failed: BaseException | None = None
        self._lock = threading.Lock()
        self._at_fork = _AtFork(self._lock, self._stop_in_child)
        reopen_after_fork(self._at_fork)

    def run(self) -> None:
        """Receive until :meth:`request_stop` is called, or the wait is interrupted; then stop."""
        with self:
            self._stop_requests.get()

    def stop(self) -> None:
        """Stop receiving, let handlers finish within ``stop_timeout``, and give back the rest.

        When called in a message handler, it returns at once, because it would wait for this handler; the stop continues
        in another thread. Must not be called from a signal handler: use :meth:`request_stop` there.
        """
        if self._invoker is not None and self._invoker.is_called_from_handler():
            self.request_stop()
            threading.Thread(target=self._stop, name=f"sbpair-stop-{self.path}", daemon=True).start()
        else:
            self._stop()

    def _stop(self) -> None:
        """Let the loop's thread stop everything and end, and wait for it.

        Takes no lock, and leaves all changes to that thread, so an interrupted call can be repeated.
        """
        thread = self._thread
        while True:
            self._is_stopping, loop = True, self._loop
            if loop is not None:
                with suppress(RuntimeError):  # it has ended meanwhile
                    loop.call_soon_threadsafe(self._asked_to_stop.set)
            if self._stopped.wait(ASKED_EVERY):  # it may still begin
                break
        if thread is not None:
            thread.join()
        failed, self._stop_failed = self._stop_failed, None
        if failed is not None:
            raise failed

    def request_stop(self) -> None:
        """Ask :meth:`run` to stop and return at once; for signal handlers and message handlers."""
        self._stop_requests.put(None)

    def _stop_in_child(self) -> None:
        """In a forked child: count as stopped. The thread and its connections belong to the parent, and run on."""
        if self._loop is not None:
            leave_to_the_parent((self._loop, self._runtime))
        self._thread = self._loop = self._runtime = self._invoker = None
        self._is_stopping = False
        self._stopped = _set_event()

    def __enter__(self) -> Self:
        if self._is_stopping:  # a handler may have asked for a stop that still goes on
            self._stop()
        with self._lock:
            if self._thread is not None:
                raise ValueError(f"the processor of {self.path} is running")
            self._stop_requests = SimpleQueue()
            self._stopped, self._is_stopping = threading.Event(), False
            ready: SimpleQueue[BaseException | None] = SimpleQueue()
            self._thread = threading.Thread(
                target=self._serve, args=(ready,), name=f"sbpair-processor-{self.path}", daemon=True
            )
            try:
                self._thread.start()
            except BaseException:
                self._thread = None
                self._stopped.set()
                raise
            error = ready.get()
        if error is not None:
            self._stopped.wait()
            raise error
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.stop()

    def _serve(self, ready: SimpleQueue[BaseException | None]) -> None:
        """Run the loop of the processor, in its thread."""
        loop: asyncio.AbstractEventLoop | None = None
        try:
            loop = self._loop = asyncio.new_event_loop()
            invoker, core = loop.run_until_complete(self._begin())
        except BaseException as error:  # no descriptor is left, for one
            self._has_ended(loop)
            ready.put(error)
            return
        ready.put(None)
        try:
            loop.run_until_complete(self._asked_to_stop.wait())
            try:
                loop.run_until_complete(core.stop())
            except BaseException as error:
                self._stop_failed = error
            with self._lock:
                self._loop = self._runtime = self._invoker = None  # no call is passed to the loop any more
            invoker.close()
            loop.run_until_complete(_cancel_other_tasks())
            loop.run_until_complete(loop.shutdown_asyncgens())
        finally:
            self._has_ended(loop)

    async def _begin(self) -> tuple[ThreadInvoker, Processor]:
        self._asked_to_stop = asyncio.Event()
        invoker = self._invoker = ThreadInvoker(self._handler, spans(self.path))
        core = self._runtime = Processor(
            self.path,
            self._addresses,
            invoker,
            self.options,
            counters=self._counters,
            emit=self._events.emit,
            reports_messages=lambda: self.reports_messages,
        )
        core.start()
        return invoker, core

    def _has_ended(self, loop: asyncio.AbstractEventLoop | None) -> None:
        """Record in the loop's thread that the processor has stopped."""
        if loop is not None:
            loop.close()
        self._thread = self._loop = self._runtime = self._invoker = None
        self._is_stopping = False
        self._stopped.set()

    # Settling by hand

    def complete_message(self, message: ReceivedMessage) -> None:
        """Complete a message, and wait for the broker's confirmation.

        Raises MessageLockLostError, SettlementUnknownError or SettlementRefusedError. The other ways to settle raise
        ValueError too, for properties or texts that cannot be sent.
        """
        self._settle(message, *outcome_of(None))

    def abandon_message(
        self, message: ReceivedMessage, properties: Mapping[str, object] | None = None
    ) -> None:
        """Abandon a message, and change its application properties. Raises as :meth:`complete_message`."""
        self._settle(message, *outcome_of(Abandon(properties)))

    def defer_message(self, message: ReceivedMessage, properties: Mapping[str, object] | None = None) -> None:
        """Defer a message, and change its application properties. Raises as :meth:`complete_message`."""
        self._settle(message, *outcome_of(Defer(properties)))

    def dead_letter_message(
        self, message: ReceivedMessage, reason: str = "", error_description: str = ""
    ) -> None:
        """Move a message to the dead-letter queue. Raises as :meth:`complete_message`."""
        self._settle(message, *outcome_of(DeadLetter(reason, error_description)))

    # Sessions

    def get_session_state(self, message: ReceivedMessage) -> bytes | None:
        """Return the state of the session of a message, or None. Raises SessionLockLostError."""

        async def ask() -> bytes | None:
            return await self._session(message).state()

        return self._in_loop(ask())

    def set_session_state(self, message: ReceivedMessage, state: bytes | None) -> None:
        """Set the state of the session of a message; None clears it. Raises SessionLockLostError."""

        async def ask() -> None:
            await self._session(message).set_state(state)

        self._in_loop(ask())

    def _settle(self, message: ReceivedMessage, verb: Verb, state: DeliveryState) -> None:
        async def settle() -> tuple[Delivery, Answer | None]:
            delivery = self._delivery(message)
            return delivery, await delivery.settle_by_hand(verb, state)

        check_answer(*self._in_loop(settle()))

    def _in_loop(self, work: Coroutine[Any, Any, T]) -> T:
        with self._lock:
            loop = self._loop
            if loop is None or loop.is_closed():
                work.close()
                raise ValueError(f"the processor of {self.path} is stopped")
            called = asyncio.run_coroutine_threadsafe(work, loop)
        try:
            return called.result()
        except CancelledError:
            raise ValueError(f"the processor of {self.path} is stopped") from None


async def _cancel_other_tasks() -> None:
    """Cancel the tasks of the running loop but this one, and wait until they have ended."""
    tasks = asyncio.all_tasks() - {asyncio.current_task()}
    for task in tasks:
        task.cancel()
    await asyncio.gather(*tasks, return_exceptions=True)


def _set_event() -> threading.Event:
    event = threading.Event()
    event.set()
    return event
