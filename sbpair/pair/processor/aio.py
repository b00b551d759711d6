"""The asyncio processor.

async def handle(message):
    print(message.side, str(message))

async with client.get_queue_processor("orders", handle):
    await asyncio.Event().wait()
"""

from __future__ import annotations

import asyncio
from collections.abc import Mapping
from types import TracebackType
from typing import Self

from sbpair.pair.amqp.performatives import DeliveryState
from sbpair.pair.auth.connection_string import NamespaceAccess
from sbpair.pair.ground.shared_task import result_of, share
from sbpair.pair.ground.side import Side

from .base import BaseProcessor, check_answer
from .message import ReceivedMessage
from .options import ProcessorOptions
from .processor import Processor
from .settlement import Abandon, DeadLetter, Defer, Verb, outcome_of
from .tasks import AsyncHandler, TaskInvoker
from .tracing import spans


class PairedServiceBusProcessor(BaseProcessor):
    """Calls a coroutine function for each message of an entity, on both namespaces. Created by a paired client.

    A message is completed when its coroutine returns. To choose another outcome, raise DeadLetter, Defer or Abandon;
    any other error abandons the message. When the lock of a message is lost, its coroutine is cancelled.
    """

    def __init__(
        self,
        path: str,
        handler: AsyncHandler,
        addresses: Mapping[Side, NamespaceAccess],
        options: ProcessorOptions,
    ) -> None:
        super().__init__(path, addresses, options)
        self._handler = handler
        self._is_stopping = asyncio.Event()
        self._stopping: asyncio.Task[None] | None = None
        self._invoker: TaskInvoker | None = None

    async def run(self) -> None:
        """Receive until :meth:`stop` or :meth:`request_stop` is called, or this call is cancelled; then stop."""
        async with self:
            await self._is_stopping.wait()

    async def stop(self) -> None:
        """Stop receiving, let handlers finish within ``stop_timeout``, and give back the rest.

        When called in a message handler, it returns at once, because it would wait for this handler; the stop continues
        in the background.
        """
        self.request_stop()
        if self._runtime is None:
            return
        if self._stopping is None:
            self._stopping = share(self._stop(self._runtime))
        if self._invoker is None or not self._invoker.is_called_from_handler():
            await result_of(self._stopping)

    def request_stop(self) -> None:
        """Ask :meth:`run` to stop and return at once; for signal handlers."""
        self._is_stopping.set()

    async def _stop(self, core: Processor) -> None:
        try:
            await core.stop()
        finally:
            self._runtime = self._stopping = self._invoker = None

    async def __aenter__(self) -> Self:
        if self._runtime is not None:
            raise ValueError(f"the processor of {self.path} is running")
        self._is_stopping.clear()
        self._invoker = TaskInvoker(self._handler, spans(self.path))
        self._runtime = Processor(
            self.path,
            self._addresses,
            self._invoker,
            self.options,
            counters=self._counters,
            emit=self._events.emit,
            reports_messages=lambda: self.reports_messages,
        )
        self._runtime.start()
        return self

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        await self.stop()

    # Settling by hand

    async def complete_message(self, message: ReceivedMessage) -> None:
        """Complete a message, and wait for the broker's confirmation.

        Raises MessageLockLostError, SettlementUnknownError or SettlementRefusedError. The other ways to settle raise
        ValueError too, for properties or texts that cannot be sent.
        """
        await self._settle(message, *outcome_of(None))

    async def abandon_message(
        self, message: ReceivedMessage, properties: Mapping[str, object] | None = None
    ) -> None:
        """Abandon a message, and change its application properties. Raises as :meth:`complete_message`."""
        await self._settle(message, *outcome_of(Abandon(properties)))

    async def defer_message(
        self, message: ReceivedMessage, properties: Mapping[str, object] | None = None
    ) -> None:
        """Defer a message, and change its application properties. Raises as :meth:`complete_message`."""
        await self._settle(message, *outcome_of(Defer(properties)))

    async def dead_letter_message(
        self, message: ReceivedMessage, reason: str = "", error_description: str = ""
    ) -> None:
        """Move a message to the dead-letter queue. Raises as :meth:`complete_message`."""
        await self._settle(message, *outcome_of(DeadLetter(reason, error_description)))

    # Sessions

    async def get_session_state(self, message: ReceivedMessage) -> bytes | None:
        """Return the state of the session of a message, or None. Raises SessionLockLostError."""
        return await self._session(message).state()

    async def set_session_state(self, message: ReceivedMessage, state: bytes | None) -> None:
        """Set the state of the session of a message; None clears it. Raises SessionLockLostError."""
        await self._session(message).set_state(state)

    async def _settle(self, message: ReceivedMessage, verb: Verb, state: DeliveryState) -> None:
        delivery = self._delivery(message)
        check_answer(delivery, await delivery.settle_by_hand(verb, state))
