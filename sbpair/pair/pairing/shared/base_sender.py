"""Base of the blocking and the asyncio sender: checks before a send, receipt or error after it; it never waits."""

from __future__ import annotations

import math
import time
import uuid
from collections.abc import Mapping, Sequence
from typing import Any, TypeGuard

from azure.servicebus import ServiceBusMessage
from azure.servicebus.amqp import AmqpAnnotatedMessage
from azure.servicebus.exceptions import OperationTimeoutError, ServiceBusError

from sbpair.pair.envelope.copies import Message, session_of
from sbpair.pair.envelope.names import path_key

from ..decide.patience import MIN_WAITING, transfer_seconds
from ..decide.steps import Choice
from ..errors import BacklogUnavailableError, ParkedMessageTooLargeError, PartlyParkedError
from ..options import PairedNamespaceOptions
from ..outcome import Failure, Location, Outcome, Refused, SendReceipt, Stored, StoredIn, Stranded
from ..request.classify import Phase
from ..request.request import PairedMessageBatch, SendRequest, one_session, prepare
from ..request.sdk import body_size, explain_refused_token, is_smaller
from .address import LinkSettings
from .base_runtime import BaseRuntime

STANDARD_BATCH = 256 * 1024
"""Bytes in a batch if no link has reported a limit: that of the Standard tier."""

SMALL = 16 * 1024
"""Bytes of a message that need no time of their own."""

MAX_REQUEST_SECONDS = 5.0
"""Maximum seconds that creating a batch waits for a link, which knows the size limit."""

MAX_TIMEOUT_SECONDS = 1e9
"""31 years: longer budgets are cut to this, which no clock overflows."""

OneMessage = ServiceBusMessage | AmqpAnnotatedMessage | Mapping[str, Any]


class BaseSender:
    """A sender for one entity of the primary, a queue or a topic."""

    def __init__(self, runtime: BaseRuntime, entity_name: str, namespace: str, links: LinkSettings) -> None:
        self.entity_name = entity_name
        self._key = path_key(entity_name)
        budget = runtime.options.operation_timeout.total_seconds()
        with runtime.exclusive():
            self._health, seconds = runtime.pair.fast_path(entity_name, budget)
            self._is_bounded = runtime.pair.redirects_suspects
            if links != LinkSettings():
                runtime.links[self._key] = links
        self._fast_budget = runtime.limit_attempt(seconds)
        self._patience = self._health.breaker.patience
        self.fully_qualified_namespace = namespace
        self._runtime = runtime
        self._batch_limit: int | None = None  # the last one a link reported
        self._choice = Choice()  # each sender picks its own
        self._keeps_order = runtime.keeps_order
        self._fence = None if runtime.pair.ordered is None else runtime.pair.ordered.fence
        self._is_closed = False
        self._name = links.client_identifier or f"SBSender-{uuid.uuid4()}"  # as the SDK makes it

    @property
    def client_identifier(self) -> str:
        """The identifier of this sender, as on the SDK's sender."""
        return self._name

    def __str__(self) -> str:
        return f"Sender client id: {self.client_identifier}, entity: {self.entity_name}"

    def _check_open(self) -> None:
        if self._is_closed or self._runtime.sides.is_closed:
            if self._runtime.sides.state.fault is not None:
                raise self._runtime.sides.closed_error()
            raise ValueError("the sender is closed; get another from an open paired client")

    def _fast_message(self, message: object) -> AmqpAnnotatedMessage | None:
        """Prepare a message for the fast path; return None if it must go through the flow.

        This runs for nearly every message, so it does little. Raises as :func:`prepare` does.
        """
        runtime = self._runtime
        if not (self._health.is_calm and isinstance(message, ServiceBusMessage)):
            return None
        if len(self._patience.waiting) >= MIN_WAITING and self._patience.is_silent(time.monotonic()):
            return None
        spool = runtime.spool.flow
        if spool is not None and spool.takes_first(self.entity_name, None):
            return None
        outgoing = prepare(message, self.entity_name)
        headroom = runtime.headroom
        # A message that may be too large to park goes through the flow, which checks its size.
        return outgoing if headroom is None or is_smaller(outgoing, headroom.roomy) else None

    def _session_of(self, given: AmqpAnnotatedMessage | SendRequest) -> str | None:
        """Return the session whose order is kept, None without one.

        Raises MixedSessionsError when there are several.
        """
        if isinstance(given, SendRequest):
            return one_session(self.entity_name, given.messages)
        properties = given.properties  # short, since nearly every message passes here
        found = None if properties is None else properties.group_id
        return found if found is None or found.__class__ is str else session_of(given)

    def _may_go_fast(
        self, given: AmqpAnnotatedMessage | SendRequest, session: str | None
    ) -> TypeGuard[AmqpAnnotatedMessage]:
        """Whether the fast path may send this message of an ordered session; its turn has come."""
        fence, runtime = self._fence, self._runtime
        if fence is None or session is None or isinstance(given, SendRequest):
            return False
        if not (fence.is_open and self._health.is_calm):
            return False
        spool = runtime.spool.flow
        if spool is not None and spool.takes_first(self.entity_name, session):
            return False
        headroom = runtime.headroom
        return headroom is None or is_smaller(given, headroom.roomy)

    def _too_late(self, session: str) -> ServiceBusError:
        """Return the error of a send whose turn did not come in time; nothing was sent."""
        text = f"Earlier messages of session {session!r} were still being sent when no time was left."
        return OperationTimeoutError(message=text)

    def _fast_seconds(self, timeout: float | None, message: AmqpAnnotatedMessage) -> float:
        """Return the time limit of a fast attempt in seconds: the remaining budget, but at most the patience."""
        seconds, runtime = self._fast_budget, self._runtime
        if timeout is not None:
            budget = timeout_seconds(timeout, runtime.options)
            seconds = runtime.limit_attempt(runtime.pair.fast_path(self.entity_name, budget)[1])
        if not self._is_bounded:
            return seconds
        patience = self._patience.seconds
        if not is_smaller(message, SMALL):
            patience += transfer_seconds(body_size(message))
        return patience if patience < seconds else seconds

    def _limit_without_link(self, error: ServiceBusError) -> int:
        """Return the size limit of a batch while no link to the primary can be opened; record ``error`` as a failure.

        Raises ``error`` if it is not an outage.
        """
        runtime = self._runtime
        if runtime.failures.classify(error, Phase.OPENING).failure is not Failure.UNAVAILABLE:
            raise error
        runtime.opening_failed(self.entity_name, error)
        if self._batch_limit is None:
            self._batch_limit = STANDARD_BATCH  # the next batch does not wait for a link
        return self._batch_limit

    def _report(self, receipt: SendReceipt, messages: Sequence[Message]) -> SendReceipt:
        """Return the receipt of these messages, after the observer has seen it."""
        if self._runtime.on_receipt is not None:
            self._runtime.on_receipt(self.entity_name, receipt, messages)
        return receipt

    def _check(self, outcome: Outcome, request: SendRequest) -> Stored:
        """Return the outcome if every message was stored; otherwise raise the error for the caller."""
        if isinstance(outcome, Stored):
            return outcome
        error = _error(self.entity_name, outcome, self._runtime.backlogs_missing_because)
        if self._runtime.sides.state.fault is not None:  # the fault is what ended the call
            wrapped = self._runtime.sides.closed_error()
            wrapped.__cause__ = error
            error = wrapped
        if request.parked:
            unaccepted = request.message_ids()[request.parked :]
            raise PartlyParkedError(self.entity_name, request.locations(), unaccepted, error) from error
        raise error


def timeout_seconds(timeout: float | None, options: PairedNamespaceOptions) -> float:
    """Return the time budget of one call in seconds: ``timeout``, or by default ``operation_timeout``.

    Raises TypeError unless ``timeout`` is a number, and ValueError unless it is finite and greater than 0.
    """
    if timeout is None:
        return options.operation_timeout.total_seconds()
    if isinstance(timeout, bool) or not isinstance(timeout, (int, float)):
        raise TypeError(f"timeout must be a number of seconds, not {timeout!r}")
    if not math.isfinite(timeout) or timeout <= 0:
        raise ValueError(f"timeout must be a finite number of seconds greater than 0, not {timeout}")
    return min(float(timeout), MAX_TIMEOUT_SECONDS)


def receipt(outcome: Stored, request: SendRequest) -> SendReceipt:
    """Return the receipt of one call."""
    stored_in = StoredIn.PRIMARY if outcome.backlog is None else StoredIn.BACKLOG
    if outcome.is_spooled:
        stored_in = StoredIn.SPOOL
    ids, locations = request.message_ids(), request.locations()
    if outcome.is_spooled and locations:
        locations += (Location(StoredIn.SPOOL, None, ids[request.parked :]),)
    return SendReceipt(
        stored_in, outcome.backlog, ids, outcome.is_ambiguous, locations if len(locations) > 1 else ()
    )


def empty_batch(max_size_in_bytes: int | None, limit: int, path: str = "") -> PairedMessageBatch:
    """Return a batch for the entity ``path``. Raises ValueError when the size exceeds the limit."""
    if max_size_in_bytes is not None and max_size_in_bytes > limit:
        raise ValueError(f"max_size_in_bytes must be at most {limit}, not {max_size_in_bytes}")
    return PairedMessageBatch(max_size_in_bytes or limit, path)


def _error(path: str, outcome: Refused | Stranded, missing_because: str) -> Exception:
    for cause in outcome.causes if isinstance(outcome, Stranded) else (outcome.error,):
        explain_refused_token(cause)
    if isinstance(outcome, Stranded):
        stranded = outcome.spool_error or BacklogUnavailableError(path, outcome.causes, missing_because)
        stranded.__cause__ = outcome.causes[0] if outcome.causes else None
        return stranded
    if outcome.is_parked and outcome.is_too_large:
        too_large = ParkedMessageTooLargeError(path, outcome.error)
        too_large.__cause__ = outcome.error
        return too_large
    return outcome.error
