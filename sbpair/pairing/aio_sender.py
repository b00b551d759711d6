"""The sender that users hold: the asyncio skin of sender.py, where the same words are explained."""

from __future__ import annotations

import time
from collections.abc import Callable, Iterable
from datetime import datetime
from types import TracebackType
from typing import Self

from azure.servicebus import ServiceBusMessageBatch
from azure.servicebus.exceptions import ServiceBusError

from .aio_runtime import AsyncRuntime
from .batch import Cargo, PairedMessageBatch, freeze
from .core import ACCEPTED
from .failure import Failure
from .health import EntityState
from .options import timeout_seconds
from .outcome import Phase
from .pair import Rested, Result
from .receipt import Rest, SendReceipt, at_primary
from .schedule import cancellation, scheduled
from .sender_surface import STANDARD_BATCH, OneMessage, SenderSurface, empty_batch, receipt


class PairedServiceBusSender(SenderSurface):
    """Sends to one queue or topic of the primary, or parks on the secondary. For any tasks of one loop.

    Made by ``get_queue_sender`` and ``get_topic_sender`` of the paired client in ``sbpair.aio``.
    """

    def __init__(
        self, runtime: AsyncRuntime, entity_name: str, namespace: str, closed: Callable[[str], None]
    ) -> None:
        super().__init__(runtime, entity_name, namespace)
        self._runtime = runtime
        self._closed = closed

    async def send_messages(
        self,
        message: OneMessage | Iterable[OneMessage] | ServiceBusMessageBatch,
        *,
        timeout: float | None = None,
    ) -> SendReceipt:
        """Send, and return once a broker has accepted every message, or the spool has it on the disk.

        ``timeout`` is the whole budget in seconds (``operation_timeout`` by default); the call returns at
        most 0.5 s after it. A call that is cancelled may have been stored all the same. Raises as the
        blocking sender does; RuntimeError in another loop than before.
        """
        self._check_open()
        runtime = self._runtime
        first: Result | None = None
        started = time.monotonic()
        straight = self._straightly(message)
        if straight is not None:
            message, message_id = straight
            first = await runtime.send_straight(self._key, message, started, self._straight_seconds(timeout))
            if first is ACCEPTED:
                if self._health.is_calm:
                    return self._told(at_primary(message_id))
                first = Result(time.monotonic())  # something happened meanwhile: the flow shall know
        budget = timeout_seconds(timeout, runtime.options)
        cargo = freeze(message)
        if not cargo:
            return SendReceipt(Rest.PRIMARY, None, ())
        return self._told(receipt(await self._sent(cargo, budget, first, started), cargo))

    async def schedule_messages(
        self,
        messages: OneMessage | Iterable[OneMessage],
        schedule_time_utc: datetime,
        *,
        timeout: float | None = None,
    ) -> list[int]:
        """Have messages enqueued at that time; a sequence number for each, -1 for one that is parked."""
        self._check_open()
        budget = timeout_seconds(timeout, self._runtime.options)
        cargo = scheduled(messages, schedule_time_utc)
        return cargo.sequence_numbers(await self._sent(cargo, budget)) if cargo else []

    async def cancel_scheduled_messages(
        self, sequence_numbers: int | Iterable[int], *, timeout: float | None = None
    ) -> None:
        """Cancel scheduled messages on the primary. Raises ParkedScheduleError when a number is -1."""
        self._check_open()
        budget = timeout_seconds(timeout, self._runtime.options)
        cargo = cancellation(self.entity_name, sequence_numbers)
        if cargo.numbers:
            await self._sent(cargo, budget)

    async def create_message_batch(self, max_size_in_bytes: int | None = None) -> PairedMessageBatch:
        """An empty batch that can be parked. Raises ValueError when the size exceeds the link's limit."""
        self._check_open()
        self._runtime.bind()
        return empty_batch(max_size_in_bytes, await self._batch_limit())

    async def close(self) -> None:
        """Close; the links of the entity go with its last sender."""
        if not self._is_closed:
            self._is_closed = True
            self._closed(self.entity_name)

    async def __aenter__(self) -> Self:
        self._check_open()
        return self

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        await self.close()

    async def _sent(
        self, cargo: Cargo, budget: float, first: Result | None = None, started: float | None = None
    ) -> Rested:
        started = time.monotonic() if started is None else started
        landing = await self._runtime.drive(self.entity_name, cargo, self._choice, budget, first, started)
        if not isinstance(landing, Rested):
            self._runtime.warm_backlog(self.entity_name, self._choice)
        return self._rested(landing, cargo)

    async def _batch_limit(self) -> int:
        runtime = self._runtime
        if runtime.pair.state_of(self.entity_name) is EntityState.FAILED_OVER:
            return STANDARD_BATCH
        lanes = runtime.primary_lanes(self.entity_name)
        until = time.monotonic() + runtime.options.operation_timeout.total_seconds()
        try:
            lane = await lanes.take(until)
        except ServiceBusError as error:
            if self._runtime.judge(error, Phase.OPENING).failure is not Failure.UNAVAILABLE:
                raise
            return STANDARD_BATCH
        try:
            return (await lane.run(lane.sender.create_message_batch(), until)).max_size_in_bytes
        finally:
            lanes.give(lane)
