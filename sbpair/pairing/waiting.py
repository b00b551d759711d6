"""Errors and progress of a call that waits for a link or a thread of this process.

Such a wait is no evidence about a broker: it neither counts as a failure of the entity nor takes a backlog
queue out of the rotation (R-5). No I/O.
"""

from __future__ import annotations

import copy
from collections.abc import Callable
from typing import TypeVar

from azure.servicebus.exceptions import OperationTimeoutError

ErrorT = TypeVar("ErrorT", bound=BaseException)

OVERDUE = 1.0
"""Seconds without a sign of life from the peer, after which an opening that is late counts against it."""

LONGEST_OPENING = 30.0
"""Seconds after which an opening is given up. It does not end with the call that began it (R-8)."""


class StillWaiting(OperationTimeoutError):
    """The call got no link in its time, or was called back to look again where its message goes."""


class Progress:
    """How far an opening has come. A peer that answers is slow; one that does not may be gone (R-8)."""

    def __init__(self, now: float, sign: Callable[[], object]) -> None:
        self._sign = sign
        self._last: object = sign()
        self._changed_at = now

    def late(self, now: float) -> OperationTimeoutError:
        """What a call raises whose time ends before the link is open."""
        self.look(now)
        text = "The link was not opened in time."
        is_overdue = now - self._changed_at >= OVERDUE
        return OperationTimeoutError(message=text) if is_overdue else StillWaiting(message=text)

    def look(self, now: float) -> None:
        """Note whether there is a new sign of life."""
        sign = self._sign()
        if sign != self._last:
            self._last, self._changed_at = sign, now


def own_copy(error: ErrorT) -> ErrorT:
    """The same error for one of several who are told of it: each raises an object of its own."""
    try:
        copied = copy.copy(error)
    except Exception:  # an exception of a foreign library that cannot be made again
        return error
    copied.__cause__, copied.__context__ = error.__cause__, error.__context__
    copied.__suppress_context__ = error.__suppress_context__
    return copied
