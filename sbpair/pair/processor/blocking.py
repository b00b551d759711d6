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


@dataclass(eq=False)
class _AtFork:
    """What a fork needs of a processor."""

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
        self._lock = threading.Lock()
        self._at_fork = _AtFork(self._lock, self._stop_in_child)
        reopen_after_fork(self._at_fork)

    def run(self) -> None:
        """Receive until :meth:`request_stop` is called, or the wait is interrupted; then stop."""
        with self:
            self._stop_requests.get()

    def stop(self) -> None:
        """Stop receiving, let handlers finish within ``stop_timeout``, and give back the rest.

        Called in a message handler, which it would wait for, it returns at once: the stop goes on in a thread of its
        own. Must not be called from a signal handler: use :meth:`request_stop` there.
        """
        if self._invoker is not None and self._invoker.is_called_from_handler():
            self.request_stop()
            threading.Thread(target=self._stop, name=f"sbpair-stop-{self.path}", daemon=True).start()
        else:
            self._stop()

    def _stop(self) -> None:
        with self._lock:
            thread, loop, core, stopped = self._thread, self._loop, self._runtime, self._stopped
            self._thread = None
        if thread is None or loop is None or core is None:
            stopped.wait()  # another call may be stopping it
            return
        try:
            asyncio.run_coroutine_threadsafe(core.stop(), loop).result()
        finally:
            with self._lock:
                self._loop = self._runtime = self._invoker = None  # no call is passed to the loop any more
            loop.call_soon_threadsafe(loop.stop)
            thread.join()
            stopped.set()

    def request_stop(self) -> None:
        """Ask :meth:`run` to stop and return at once; for signal handlers and message handlers."""
        self._stop_requests.put(None)

    def _stop_in_child(self) -> None:
        """In a forked child: be stopped. The thread and its connections are the parent's, and run on there."""
        if self._loop is not None:
            leave_to_the_parent((self._loop, self._runtime))
        self._thread = self._loop = self._runtime = self._invoker = None
        self._stopped = _set_event()

    def __enter__(self) -> Self:
        if self._thread is None:
            self._stopped.wait()  # a handler may have asked for a stop that still goes on
        with self._lock:
            if self._thread is not None:
                raise ValueError(f"the processor of {self.path} is running")
            self._stop_requests = SimpleQueue()
            ready: SimpleQueue[BaseException | None] = SimpleQueue()
            self._thread = threading.Thread(
                target=self._serve, args=(ready,), name=f"sbpair-processor-{self.path}", daemon=True
            )
            try:
                self._thread.start()
            except BaseException:
                self._thread = None
                raise
            error = ready.get()
            if error is not None:
                self._thread = None
                raise error
            self._stopped = threading.Event()
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.stop()

    def _serve(self, ready: SimpleQueue[BaseException | None]) -> None:
        """Run the loop of the processor, in its thread."""
        try:
            loop = self._loop = asyncio.new_event_loop()
        except BaseException as error:  # no descriptor is left, for one
            ready.put(error)
            return

        async def begin() -> ThreadInvoker:
            invoker = self._invoker = ThreadInvoker(self._handler, spans(self.path))
            self._runtime = Processor(
                self.path,
                self._addresses,
                invoker,
                self.options,
                counters=self._counters,
                emit=self._events.emit,
                reports_messages=lambda: self.reports_messages,
            )
            self._runtime.start()
            return invoker

        try:
            try:
                invoker = loop.run_until_complete(begin())
            except BaseException as error:
                ready.put(error)
                return
            ready.put(None)
            loop.run_forever()
            invoker.close()
            loop.run_until_complete(_cancel_other_tasks())
            loop.run_until_complete(loop.shutdown_asyncgens())
        finally:
            loop.close()

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
