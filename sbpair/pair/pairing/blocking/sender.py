"""The blocking paired sender. pair.py decides where a message goes; runtime.py carries it out."""

from __future__ import annotations

import time
from collections.abc import Callable, Iterable
from datetime import datetime
from types import TracebackType
from typing import Self

from azure.servicebus import ServiceBusMessage, ServiceBusMessageBatch
from azure.servicebus.exceptions import ServiceBusError

from sbpair.pair.envelope.copies import message_id_of
from sbpair.pair.tracing import current

from ..decide.health import EntityState
from ..decide.pair import Result
from ..decide.steps import is_accepted
from ..outcome import SendReceipt, Stored, StoredIn, at_primary
from ..request.request import (
    PairedMessageBatch,
    SendRequest,
    cancellation,
    freeze,
    in_session,
    prepare,
    schedule_request,
)
from ..shared.address import LinkSettings
from ..shared.base_runtime import ACCEPTED
from ..shared.base_sender import (
    MAX_REQUEST_SECONDS,
    STANDARD_BATCH,
    BaseSender,
    OneMessage,
    empty_batch,
    receipt,
    timeout_seconds,
)
from ..shared.turns import Turn
from .runtime import Runtime
from .sender_pool import PooledSender


class PairedServiceBusSender(BaseSender):
    """Sends to one queue or topic of the primary, or parks on the secondary. Safe for several threads.

    Made by :meth:`PairedServiceBusClient.get_queue_sender` and ``get_topic_sender``.
    """

    _runtime: Runtime

    def __init__(
        self,
        runtime: Runtime,
        entity_name: str,
        namespace: str,
        closed: Callable[[str], None],
        links: LinkSettings,
    ) -> None:
        super().__init__(runtime, entity_name, namespace, links)
        self._closed = closed
        self._turns = runtime.turns_of(self._key)

    def send_messages(
        self,
        message: OneMessage | Iterable[OneMessage] | ServiceBusMessageBatch,
        *,
        timeout: float | None = None,
    ) -> SendReceipt:
        """Send, and return once every message was accepted by a broker or written to the spool on disk.

        ``timeout`` is the total budget in seconds, by default ``operation_timeout``; the call returns at most 1.5 s
        after it. Several messages are sent as one batch; when parked, they may be split.

        Raises the exceptions of the SDK's sender; BacklogUnavailableError or SpoolFullError when no message was stored;
        ReservedPropertyError, ParkedMessageTooLargeError, PairFaultedError; ValueError on a closed sender.
        """
        tracing = current.active
        if tracing is None:
            return self._send_messages(message, timeout)
        with tracing.operation("send", self.entity_name, self.fully_qualified_namespace) as operation:
            sent = self._send_messages(message, timeout)
            operation.stored_in, operation.messages = sent.stored_in.value, len(sent.message_ids)
            return sent

    def _send_messages(
        self, message: OneMessage | Iterable[OneMessage] | ServiceBusMessageBatch, timeout: float | None
    ) -> SendReceipt:
        self._check_open()
        if self._keeps_order:
            return self._send_in_order(message, timeout)
        runtime = self._runtime
        first: Result | None = None
        started = time.monotonic()
        outgoing = self._fast_message(message)
        if outgoing is not None:
            message = outgoing
            first = runtime.send_fast(
                self._key, outgoing, started, self._fast_seconds(timeout, outgoing), self._patience
            )
            if first is ACCEPTED:
                if self._health.is_calm:
                    return self._report(at_primary(message_id_of(outgoing)), (outgoing,))
                first = Result(time.monotonic())  # the health changed during the send: let the flow record it
        budget = timeout_seconds(timeout, runtime.options)
        request = freeze(message, self.entity_name)
        if not request:
            return SendReceipt(StoredIn.PRIMARY, None, ())
        return self._report(receipt(self._send(request, budget, first, started), request), request.messages)

    def schedule_messages(
        self,
        messages: OneMessage | Iterable[OneMessage],
        schedule_time_utc: datetime,
        *,
        timeout: float | None = None,
    ) -> list[int]:
        """Schedule messages for the given time. Returns a sequence number for each, with which it can be cancelled.

        A message that is parked keeps its time and gets -1 in place of a number. Raises as
        :meth:`send_messages` does.
        """
        tracing = current.active
        if tracing is None:
            return self._schedule_messages(messages, schedule_time_utc, timeout)
        with tracing.operation("schedule", self.entity_name, self.fully_qualified_namespace) as operation:
            numbers = self._schedule_messages(messages, schedule_time_utc, timeout)
            operation.messages = len(numbers)
            return numbers

    def _schedule_messages(
        self, messages: OneMessage | Iterable[OneMessage], schedule_time_utc: datetime, timeout: float | None
    ) -> list[int]:
        self._check_open()
        budget = timeout_seconds(timeout, self._runtime.options)
        request = schedule_request(messages, schedule_time_utc, self.entity_name)
        if not request:
            return []
        started = time.monotonic()
        session = self._session_of(request) if self._keeps_order else None
        turn = Turn()
        try:
            if session is not None:
                self._wait_for_turn(session, turn, budget, started)
            in_session(request, session)
            return request.sequence_numbers(self._send(request, budget, started=started))
        finally:
            if session is not None:
                try:
                    self._turns.leave(session, turn)
                except BaseException:  # a signal's: the turn must be left all the same
                    self._turns.leave(session, turn)
                    raise

    def cancel_scheduled_messages(
        self, sequence_numbers: int | Iterable[int], *, timeout: float | None = None
    ) -> None:
        """Cancel scheduled messages on the primary, even while the entity is failed over.

        Raises ParkedScheduleError when one of the numbers is -1, and the exceptions of the SDK.
        """
        self._check_open()
        budget = timeout_seconds(timeout, self._runtime.options)
        request = cancellation(self.entity_name, sequence_numbers)
        if request.numbers:
            self._send(request, budget)

    def create_message_batch(
        self, max_size_in_bytes: int | None = None, *, timeout: float | None = None
    ) -> PairedMessageBatch:
        """Return an empty batch that can be parked. Raises ValueError when the size exceeds the link's limit.

        The limit is that of a link to the primary, for which the call waits up to ``timeout`` seconds, at most 5.
        Without a link it is the last known limit, or 256 KiB.
        """
        self._check_open()
        budget = timeout_seconds(timeout, self._runtime.options)
        return empty_batch(max_size_in_bytes, self._limit(min(budget, MAX_REQUEST_SECONDS)), self.entity_name)

    def close(self) -> None:
        """Close the sender; the links of the entity are closed with its last sender."""
        if not self._is_closed:
            self._is_closed = True
            self._closed(self.entity_name)

    def __enter__(self) -> Self:
        self._check_open()
        self._runtime.enter(self.entity_name)
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.close()

    def _send_in_order(
        self, message: OneMessage | Iterable[OneMessage] | ServiceBusMessageBatch, timeout: float | None
    ) -> SendReceipt:
        """Wait for the turn of the message's session, then send and report the receipt."""
        started, runtime = time.monotonic(), self._runtime
        is_one, path = isinstance(message, ServiceBusMessage), self.entity_name
        given = prepare(message, path) if is_one else freeze(message, path)
        session = self._session_of(given)
        turn = Turn()
        try:
            if session is not None and not self._turns.take(session, turn):
                self._wait_for_turn(session, turn, timeout_seconds(timeout, runtime.options), started)
            first: Result | None = None
            if self._may_go_fast(given, session):
                first = runtime.send_fast(
                    self._key, given, started, self._fast_seconds(timeout, given), self._patience
                )
                if first is ACCEPTED:
                    if self._health.is_calm:
                        return self._report(at_primary(message_id_of(given)), (given,))
                    first = Result(time.monotonic())
            budget = timeout_seconds(timeout, runtime.options)
            request = in_session(given, session)
            if not request:
                return SendReceipt(StoredIn.PRIMARY, None, ())
            return self._report(
                receipt(self._send(request, budget, first, started), request), request.messages
            )
        finally:
            if session is not None:
                try:
                    self._turns.leave(session, turn)
                except BaseException:  # a signal's: the turn must be left all the same
                    self._turns.leave(session, turn)
                    raise

    def _wait_for_turn(self, session: str, turn: Turn, budget: float, started: float) -> None:
        """Wait for the turn of a session. Raises OperationTimeoutError if it does not come within the budget."""
        if not self._turns.wait(session, turn, started + budget - time.monotonic()):
            raise self._too_late(session)

    def _send(
        self, request: SendRequest, budget: float, first: Result | None = None, started: float | None = None
    ) -> Stored:
        started = time.monotonic() if started is None else started
        outcome = self._runtime.drive(self.entity_name, request, self._choice, budget, first, started)
        if not isinstance(outcome, Stored):
            self._runtime.warm_backlog(self.entity_name, self._choice)
        if not (request.is_for_primary_only or is_accepted(first)):
            self._runtime.send_times.ended(outcome, time.monotonic() - started)
        return self._check(outcome, request)

    def _limit(self, seconds: float) -> int:
        if self._runtime.pair.state_of(self.entity_name) is EntityState.FAILED_OVER:
            return self._batch_limit or STANDARD_BATCH
        pool = self._runtime.primary_pool(self.entity_name)
        held: list[PooledSender] = []
        try:
            pooled = pool.try_acquire(held)
            if pooled is None and self._batch_limit is not None:
                pool.warm()
                return self._batch_limit
            try:
                pooled = pooled or pool.acquire(time.monotonic() + seconds, held)
            except ServiceBusError as error:
                return self._limit_without_link(error)
            self._batch_limit = pooled.sender.create_message_batch().max_size_in_bytes
            pool.release(pooled)
        except BaseException:
            self._runtime.discard_held(pool, held)
            raise
        return self._batch_limit
