"""Results of failed attempts: the meaning of the SDK's error, and whether the link may be used again."""

from __future__ import annotations

import time
from collections.abc import Callable, Sequence

from azure.servicebus.exceptions import OperationTimeoutError

from ..decide.pair import CaughtUpError, Result
from ..errors import SpoolError, unencodable
from ..events import ClassifierFailed, PairingEvent
from ..outcome import Classification, Failure
from ..request.classify import Phase, classify, overrule
from ..request.request import SendRequest
from .base_pool import KEPT, Pool, PooledT
from .sides import Sides


class Failures:
    """Converts the errors of one client's attempts into results.

    ``classifier`` is that of the options. With ``keeps_order``, a link must not deliver anything more after an attempt
    of unknown outcome.
    """

    def __init__(
        self,
        classifier: Callable[[Exception], Failure | None] | None,
        sides: Sides,
        emit: Callable[[Sequence[PairingEvent]], object],
        *,
        keeps_order: bool,
    ) -> None:
        self._classifier, self._sides, self._emit = classifier, sides, emit
        self._keeps_order = keeps_order

    def classify(
        self, error: Exception, phase: Phase, handled: BaseException | None = None
    ) -> Classification:
        """Classify an error by the classifier of the options, or else by the tables of classify.py."""
        classification = classify(error, phase, handled)
        if self._classifier is None:
            return classification
        try:
            said = self._classifier(error)
            return classification if said is None else overrule(classification, Failure(said))
        except Exception as wrong:  # a failing classifier must not fail the send
            self._emit([ClassifierFailed(time.monotonic(), "", f"{type(wrong).__name__}: {wrong}")])
            return classification

    def of_attempt(
        self,
        pool: Pool[PooledT],
        pooled: PooledT | None,
        error: Exception,
        phase: Phase,
        handled: BaseException | None,
        request: SendRequest,
        began: float,
    ) -> Result:
        """Return the result of an attempt that raised; its pooled sender is kept if it may still be usable."""
        if pooled is None:
            return Result(time.monotonic(), *self._of_request(error, phase, handled, request))
        if pooled.has_overrun:  # the SDK's error only reflects that the watch shut the socket
            late = OperationTimeoutError(message="The send did not end by its deadline.", error=error)
            late.__cause__ = error
            error = late
        error, classification = self._of_request(error, phase, handled, request)
        if classification.failure is Failure.UNAVAILABLE and not pooled.has_overrun:
            error, classification = self._of_deletion(pooled.deletion(), error, classification, handled)
        if classification.failure in KEPT and pooled.is_open:
            pool.release(pooled)
        else:
            if classification.is_ambiguous and self._keeps_order:
                pooled.cut()
            pool.discard(pooled)
        return Result(time.monotonic(), error, classification, pooled.opened_at < began)

    def discard_cut(self, pool: Pool[PooledT], pooled: PooledT) -> None:
        """Discard the sender of a call that was cancelled or interrupted: its outcome is unknown."""
        if self._keeps_order:
            pooled.cut()
        pool.abandon(pooled)

    def _of_deletion(
        self,
        deletion: Exception | None,
        error: Exception,
        classification: Classification,
        handled: BaseException | None,
    ) -> tuple[Exception, Classification]:
        """Return the error and classification of a send whose entity was deleted meanwhile; otherwise those given."""
        if deletion is None:
            return error, classification
        deletion.__cause__ = error
        is_ambiguous = classification.is_ambiguous
        return deletion, self.classify(deletion, Phase.SENDING, handled)._replace(is_ambiguous=is_ambiguous)

    def _of_request(
        self, error: Exception, phase: Phase, handled: BaseException | None, request: SendRequest
    ) -> tuple[Exception, Classification]:
        """Return the error of an attempt, and its classification.

        A message that cannot be encoded is the caller's fault, even if the attempt failed in another way. Encoding does
        not depend on the service, so it is checked only after a failure that may hide it. If the attempt failed because
        the client was closed, the error says so, and does not count against a broker.
        """
        classification = self.classify(error, phase, handled)
        if self._sides.is_closed and self._sides.state.fault is None:
            why = "the client was closed meanwhile"
            return error, classification._replace(
                failure=Failure.CALLER, why=why, is_local=True, is_own=False
            )
        if phase is Phase.ENCODING:
            return unencodable(error), classification
        if classification.failure is not Failure.UNAVAILABLE:
            return error, classification
        fault = request.encoding_fault()
        if fault is None:
            return error, classification
        is_it = type(fault) in (type(error), type(getattr(error, "inner_exception", None)))
        return unencodable(error if is_it else fault), classify(fault, Phase.ENCODING)


def closed_result(error: Exception) -> Result:
    """Return the result of an attempt on a side that was closed during the send."""
    return Result(
        time.monotonic(),
        error,
        Classification(Failure.CALLER, "the client, or this side of it, is closed", is_local=True),
    )


def not_created_in_time() -> OperationTimeoutError:
    """Return the error for the creation of a backlog queue that did not end in time."""
    return OperationTimeoutError(message="The backlog queue was not created in time.")


def not_written(error: Exception) -> Result:
    """Return the result of a write to the spool that raised: caught up, full, not writable, or not encodable."""
    return Result(time.monotonic(), error if isinstance(error, CaughtUpError) else unencodable(error))


def not_written_in_time(*, is_withdrawn: bool) -> Result:
    """Return the result when the disk does not answer; unless withdrawn, the message may still get into the spool."""
    if is_withdrawn:
        return Result(time.monotonic(), SpoolError("the spool did not answer in time; nothing was written"))
    error = SpoolError("the spool did not answer in time; the message may be in it nevertheless")
    return Result(
        time.monotonic(), error, Classification(Failure.UNAVAILABLE, "the disk stalls", is_ambiguous=True)
    )
