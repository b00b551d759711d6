"""Errors and progress of a call that waits for a link or a thread of this process.

Such a wait says nothing about a broker: it neither counts as a failure of the entity nor withdraws a backlog queue.
 Performs no I/O.
"""

from __future__ import annotations

from collections.abc import Callable

from azure.servicebus.exceptions import OperationTimeoutError

OVERDUE = 1.0
"""Seconds without a sign of life after which a late opening counts as a failure of the peer."""

MAX_OPENING_SECONDS = 30.0
"""Seconds after which an opening is given up; it outlives the call that started it."""


NO_LINK_YET = "The entity is in doubt, and no link to it is open yet."

MAX_LATE_OPENINGS = 2
"""Openings whose call gave up on a silent peer and which continue nevertheless; a slow peer may answer them yet."""


class StillWaitingError(OperationTimeoutError):
    """The call got no link in time, or its entity changed state, so that its flow must decide again."""


class SignsOfLife:
    """The signs of life of the peer while a link is opened, which distinguish a slow peer from a dead one.

    ``sign`` returns a value that changes whenever the peer responds.
    """

    def __init__(self, now: float, sign: Callable[[], object]) -> None:
        self._sign = sign
        self._last: object = sign()
        self._changed_at = now

    def late(self, now: float) -> OperationTimeoutError:
        """Return the error of a late call: StillWaitingError unless the peer has been silent for OVERDUE seconds."""
        self.probe(now)
        text = "The link was not opened in time."
        is_overdue = now - self._changed_at >= OVERDUE
        return OperationTimeoutError(message=text) if is_overdue else StillWaitingError(message=text)

    def probe(self, now: float) -> None:
        """Check for a new sign of life."""
        sign = self._sign()
        if sign != self._last:
            self._last, self._changed_at = sign, now


def unchain(error: BaseException, handled: BaseException | None) -> None:
    """Remove ``handled``, the exception that a caller is handling, from the context of an error and of all it wraps.

    Python chains it to each error raised meanwhile. Other calls that raise the same error must not show it as a cause.
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
