"""The sender that users hold: the blocking skin.

What happens to a message is decided in pair.py and carried out in runtime.py.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Iterable, Mapping
from types import TracebackType
from typing import Any, Self

from azure.servicebus import ServiceBusMessage, ServiceBusMessageBatch
from azure.servicebus.amqp import AmqpAnnotatedMessage
from azure.servicebus.exceptions import ServiceBusError

from .batch import PairedMessageBatch, freeze
from .envelope import message_id_of, prepare
from .errors import BacklogUnavailableError, ParkedMessageTooLargeError
from .failure import Failure
from .health import EntityState
from .options import timeout_seconds
from .outcome import Phase, judge
from .pair import Refused, Rested, Result, Stranded
from .receipt import Rest, SendReceipt
from .rotation import Choice
from .runtime import ACCEPTED, Runtime

STANDARD_BATCH = 256 * 1024
"""Bytes in a batch where no link can be asked: the Standard tier's limit."""

_HEALTHY = EntityState.HEALTHY
OneMessage = ServiceBusMessage | AmqpAnnotatedMessage | Mapping[str, Any]


class PairedServiceBusSender:
    """Sends to one queue of the primary, or parks on the secondary. Safe for several threads.

    Made by :meth:`PairedServiceBusClient.get_queue_sender`.
    """

    def __init__(self, runtime: Runtime, entity_name: str, closed: Callable[[str], None]) -> None:
        self.entity_name = entity_name
        self._runtime = runtime
        self._choice = Choice()  # P-7: each sender picks its own
        self._closed = closed
        self._is_closed = False
        budget = runtime.options.operation_timeout.total_seconds()
        with runtime.lock:
            self._health, self._straight = runtime.pair.straight(entity_name, budget)

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
        ReservedPropertyError, ParkedMessageTooLargeError; ValueError on a closed sender.
        """
        runtime = self._runtime
        if self._is_closed or runtime.is_closed:
            raise ValueError("the sender is closed; get another from an open paired client")
        first: Result | None = None
        started = time.monotonic()
        is_straight = self._health.state is _HEALTHY and not runtime.is_spooling(self.entity_name)
        if is_straight and isinstance(message, ServiceBusMessage):
            message = prepare(message)
            first = runtime.send_straight(self.entity_name, message, self._straight_seconds(timeout))
            if first is ACCEPTED:
                if self._health.state is _HEALTHY:
                    return SendReceipt(Rest.PRIMARY, None, (message_id_of(message),))
                first = Result(time.monotonic())  # something happened meanwhile: the flow shall know
        return self._send(message, timeout, first, started)

    def _send(
        self, message: object, timeout: float | None, first: Result | None, started: float
    ) -> SendReceipt:
        budget = timeout_seconds(timeout, self._runtime.options)
        cargo = freeze(message)
        if not cargo:
            return SendReceipt(Rest.PRIMARY, None, ())
        landing = self._runtime.drive(self.entity_name, cargo, self._choice, budget, first, started)
        if isinstance(landing, Rested):
            return SendReceipt(_rest(landing), landing.backlog, cargo.message_ids(), landing.is_ambiguous)
        self._runtime.warm_backlog(self.entity_name, self._choice)
        raise self._error(landing)

    def create_message_batch(self, max_size_in_bytes: int | None = None) -> PairedMessageBatch:
        """An empty batch that can be parked. Raises ValueError when the size exceeds the link's limit.

        While the primary cannot be asked for its limit, 256 KiB is assumed.
        """
        if self._is_closed:
            raise ValueError("the sender is closed; get another from an open paired client")
        limit = self._batch_limit()
        if max_size_in_bytes is not None and max_size_in_bytes > limit:
            raise ValueError(f"max_size_in_bytes must be at most {limit}, not {max_size_in_bytes}")
        return PairedMessageBatch(max_size_in_bytes or limit)

    def close(self) -> None:
        """Close; the links of the entity go with its last sender."""
        if not self._is_closed:
            self._is_closed = True
            self._closed(self.entity_name)

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.close()

    def _straight_seconds(self, timeout: float | None) -> float:
        if timeout is None:
            return self._straight
        runtime = self._runtime
        return runtime.pair.straight(self.entity_name, timeout_seconds(timeout, runtime.options))[1]

    def _batch_limit(self) -> int:
        if self._runtime.pair.state_of(self.entity_name) is EntityState.FAILED_OVER:
            return STANDARD_BATCH
        lanes = self._runtime.primary_lanes(self.entity_name)
        try:
            lane = lanes.take(time.monotonic() + self._runtime.options.operation_timeout.total_seconds())
        except ServiceBusError as error:
            if judge(error, Phase.OPENING).failure is not Failure.UNAVAILABLE:
                raise
            return STANDARD_BATCH
        limit = lane.sender.create_message_batch().max_size_in_bytes
        lanes.give(lane)
        return limit

    def _error(self, landing: Refused | Stranded) -> Exception:
        if isinstance(landing, Stranded):
            stranded = landing.spool_error or BacklogUnavailableError(self.entity_name, landing.causes)
            stranded.__cause__ = landing.causes[0] if landing.causes else None
            return stranded
        if landing.is_parked and landing.is_too_large:
            too_large = ParkedMessageTooLargeError(self.entity_name, landing.error)
            too_large.__cause__ = landing.error
            return too_large
        return landing.error


def _rest(landing: Rested) -> Rest:
    if landing.is_spooled:
        return Rest.SPOOL
    return Rest.PRIMARY if landing.backlog is None else Rest.BACKLOG
