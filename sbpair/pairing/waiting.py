"""Errors and progress of a call that waits for a link or a thread of this process.

Such a wait says nothing about a broker: it neither counts as a failure of the entity nor withdraws a backlog queue
(R-5). Performs no I/O.
"""

from __future__ import annotations

import copy
from collections.abc import Callable
from typing import TypeVar

from azure.servicebus.exceptions import OperationTimeoutError

ErrorT = TypeVar("ErrorT", bound=BaseException)

OVERDUE = 1.0
"""Seconds without a sign of life after which a late opening counts as a failure of the peer."""

MAX_OPENING_SECONDS = 30.0
"""Seconds after which an opening is given up; it outlives the call that started it (R-8)."""


MAX_LATE_OPENINGS = 2
"""Openings whose call gave up on a silent peer and which continue nevertheless; a slow peer may answer them yet."""


class StillWaiting(OperationTimeoutError):
    """The call got no link in time, or its entity changed state, so that its flow must decide again."""


class SignsOfLife:
    """The signs of life of the peer during an opening, which distinguish a slow peer from a dead one (R-8).

    ``sign`` returns a value that changes whenever the peer responds.
    """

    def __init__(self, now: float, sign: Callable[[], object]) -> None:
        self._sign = sign
        self._last: object = sign()
        self._changed_at = now

    def late(self, now: float) -> OperationTimeoutError:
        """The error of a call that timed out: StillWaiting unless the peer has been silent for OVERDUE seconds."""
        self.look(now)
        text = "The link was not opened in time."
        is_overdue = now - self._changed_at >= OVERDUE
        return OperationTimeoutError(message=text) if is_overdue else StillWaiting(message=text)

    def look(self, now: float) -> None:
        """Check for a new sign of life."""
        sign = self._sign()
        if sign != self._last:
            self._last, self._changed_at = sign, now


def own_copy(error: ErrorT) -> ErrorT:
    """A copy of an error that several calls raise, so that each raises its own object.

    Returns ``error`` itself if it cannot be copied.
    """
    try:
        copied = copy.copy(error)
    except Exception:  # of any type: the class belongs to another library
        try:  # without its constructor, which takes other arguments
            copied = type(error).__new__(type(error), *error.args)
            vars(copied).update(vars(error))
        except Exception:
            return error
    copied.__cause__, copied.__context__ = error.__cause__, error.__context__
    copied.__suppress_context__ = error.__suppress_context__
    return copied


def unchain(error: BaseException, handled: BaseException | None) -> None:
    """Cut ``handled``, the exception that a caller is handling, out of the contexts of an error and all it wraps.

    Python chains it to each error raised meanwhile. Other calls that raise the same error must not take it for a cause.
    """
    if handled is None:
        return
    seen: set[int] = {id(handled)}
    reached: list[object] = [error]
    while reached:
        each = reached.pop()
        if not isinstance(each, BaseException) or id(each) in seen:
            continue
        seen.add(id(each))
        if each.__context__ is handled:
            each.__context__ = None
        reached += [each.__context__, each.__cause__, getattr(each, "inner_error", None)]
