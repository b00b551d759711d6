"""Results of steps that a runtime makes itself, because no broker answered."""

from __future__ import annotations

import time
from typing import TYPE_CHECKING

from azure.servicebus.exceptions import OperationTimeoutError

from ..decide.steps import Result
from ..errors import SpoolError
from ..outcome import Classification, Failure

if TYPE_CHECKING:
    from ..request.request import SendRequest

ACCEPTED = Result(0.0)
"""A success, for the state of a side."""


def closed_result(error: Exception) -> Result:
    """The result of an attempt on a side that was closed during the send."""
    return Result(
        time.monotonic(),
        error,
        Classification(Failure.CALLER, "the client, or this side of it, is closed", is_local=True),
    )


def not_created_in_time() -> OperationTimeoutError:
    """The error of a creation of a backlog queue that did not end in time."""
    return OperationTimeoutError(message="The backlog queue was not created in time.")


def not_written_in_time(*, is_withdrawn: bool) -> Result:
    """The result when the disk does not answer: unless withdrawn, the message may still be in the spool."""
    if is_withdrawn:
        return Result(time.monotonic(), SpoolError("the spool did not answer in time; nothing was written"))
    error = SpoolError("the spool did not answer in time; the message may be in it nevertheless")
    return Result(
        time.monotonic(), error, Classification(Failure.UNAVAILABLE, "the disk stalls", is_ambiguous=True)
    )


def with_count(result: Result, request: SendRequest, messages: int, size: int) -> Result:
    """The result, with what a backlog queue accepted during the attempt: more than ``messages`` and ``size`` bytes."""
    accepted, taken = request.parked - messages, request.parked_bytes - size
    if not accepted:
        return result
    return Result(
        result.now, result.error, result.classification, result.was_reused, accepted, result.is_empty, taken
    )


def time_left(until: float) -> float:
    """The seconds left until ``until``. Raises OperationTimeoutError when there are none."""
    left = until - time.monotonic()
    if left <= 0:
        raise OperationTimeoutError(message="No time was left for this attempt.")
    return left
