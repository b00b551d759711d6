"""The sender that users hold: the blocking skin.

What happens to a message is decided in pair.py and carried out in runtime.py.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Iterable
from datetime import datetime
from types import TracebackType
from typing import Self

from azure.servicebus import ServiceBusMessageBatch
from azure.servicebus.exceptions import ServiceBusError

from .batch import Cargo, PairedMessageBatch, freeze
from .core import ACCEPTED
from .failure import Failure
from .health import EntityState
from .options import timeout_seconds
from .outcome import Phase
from .pair import Rested, Result
from .receipt import Rest, SendReceipt, at_primary
from .runtime import Runtime
from .schedule import cancellation, scheduled
from .sender_surface import STANDARD_BATCH, OneMessage, SenderSurface, empty_batch, receipt


class PairedServiceBusSender(SenderSurface):
    """Sends to one queue or topic of the primary, or parks on the secondary. Safe for several threads.

    Made by :meth:`PairedServiceBusClient.get_queue_sender` and ``get_topic_sender``.
    """

    def __init__(
        self, runtime: Runtime, entity_name: str, namespace: str, closed: Callable[[str], None]
    ) -> None:
        super().__init__(runtime, entity_name, namespace)
        self._runtime = runtime
        self._closed = closed

    def send_messages(
        self,
        message: OneMessage | Iterable[OneMessage] | ServiceBusMessageBatch,
        *,
        timeout: float | None = None,
    ) -> SendReceipt:
        """Send, and return once a broker has accepted every message, or the spool has it on the disk.

        ``timeout`` is the whole budget in seconds (``operation_timeout`` by default); the call returns at
        most 1.5 s after it. Several messages go as one batch; parked, they may be split.

        Raises what the SDK's sender raises, BacklogUnavailableError or SpoolFullError (it rests nowhere),
        ReservedPropertyError, ParkedMessageTooLargeError, PairFaultedError; ValueError on a closed sender.
        """
        self._check_open()
        runtime = self._runtime
        first: Result | None = None
        started = time.monotonic()
        straight = self._straightly(message)
        if straight is not None:
            message, message_id = straight
            first = runtime.send_straight(self._key, message, started, self._straight_seconds(timeout))
            if first is ACCEPTED:
                if self._health.is_calm:
                    return self._told(at_primary(message_id))
                first = Result(time.monotonic())  # something happened meanwhile: the flow shall know
        budget = timeout_seconds(timeout, runtime.options)
        cargo = freeze(message)
        if not cargo:
            return SendReceipt(Rest.PRIMARY, None, ())
        return self._told(receipt(self._sent(cargo, budget, first, started), cargo))

    def schedule_messages(
        self,
        messages: OneMessage | Iterable[OneMessage],
        schedule_time_utc: datetime,
        *,
        timeout: float | None = None,
    ) -> list[int]:
        """Have messages enqueued at that time; the sequence number of each, to cancel it by.

        A message that is parked keeps its time and gets -1 in place of a number. Raises as
        :meth:`send_messages` does.
        """
        self._check_open()
        budget = timeout_seconds(timeout, self._runtime.options)
        cargo = scheduled(messages, schedule_time_utc)
        return cargo.sequence_numbers(self._sent(cargo, budget)) if cargo else []

    def cancel_scheduled_messages(
        self, sequence_numbers: int | Iterable[int], *, timeout: float | None = None
    ) -> None:
        """Cancel scheduled messages on the primary, wherever the entity's messages go now.

        Raises ParkedScheduleError when one of the numbers is -1, and what the SDK raises.
        """
        self._check_open()
        budget = timeout_seconds(timeout, self._runtime.options)
        cargo = cancellation(self.entity_name, sequence_numbers)
        if cargo.numbers:
            self._sent(cargo, budget)

    def create_message_batch(self, max_size_in_bytes: int | None = None) -> PairedMessageBatch:
        """An empty batch that can be parked. Raises ValueError when the size exceeds the link's limit.

        While the primary cannot be asked for its limit, 256 KiB is assumed.
        """
        self._check_open()
        return empty_batch(max_size_in_bytes, self._batch_limit())

    def close(self) -> None:
        """Close; the links of the entity go with its last sender."""
        if not self._is_closed:
            self._is_closed = True
            self._closed(self.entity_name)

    def __enter__(self) -> Self:
        self._check_open()
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.close()

    def _sent(
        self, cargo: Cargo, budget: float, first: Result | None = None, started: float | None = None
    ) -> Rested:
        started = time.monotonic() if started is None else started
        landing = self._runtime.drive(self.entity_name, cargo, self._choice, budget, first, started)
        if not isinstance(landing, Rested):
            self._runtime.warm_backlog(self.entity_name, self._choice)
        return self._rested(landing, cargo)

    def _batch_limit(self) -> int:
        if self._runtime.pair.state_of(self.entity_name) is EntityState.FAILED_OVER:
            return STANDARD_BATCH
        lanes = self._runtime.primary_lanes(self.entity_name)
        try:
            lane = lanes.take(time.monotonic() + self._runtime.options.operation_timeout.total_seconds())
        except ServiceBusError as error:
            if self._runtime.judge(error, Phase.OPENING).failure is not Failure.UNAVAILABLE:
                raise
            return STANDARD_BATCH
        limit = lane.sender.create_message_batch().max_size_in_bytes
        lanes.give(lane)
        return limit
