"""Admission: known refusals of an entity, so that an accept-first send is refused at once.

Known are the service's fixed limits and the size limit that a link to the entity announced; and for a minute, after the
entity refused a message without session id, that it requires sessions. Any other refusal shows when the message leaves
the spool; the message is then kept there with the reason. Pure.
"""

from __future__ import annotations

from azure.servicebus.exceptions import MessageSizeExceededError, ServiceBusError

from sbpair.pair.envelope import copies
from sbpair.pair.envelope.names import path_key
from sbpair.pair.envelope.park import MAX_KEY

from ..errors import ParkedMessageTooLargeError
from ..request.headroom import SMALLEST_LIMIT, Headroom
from ..request.sdk import condition_of, is_smaller

REMEMBERED = 60.0  # seconds for which a refusal is taken for one of all messages of its kind
_NO_SESSION = "amqp:not-allowed"


class Admission:
    """Known refusals of the entities of one client. Times are seconds of a monotonic clock."""

    def __init__(self, headroom: Headroom, *, refuses_unparkable: bool) -> None:
        self._headroom = headroom
        self._refuses_unparkable = refuses_unparkable
        self._limits: dict[str, int] = {}
        self._sessions: dict[str, tuple[float, str]] = {}  # by entity: until when, and its words

    def linked(self, path: str, limit: int | None) -> None:
        """Record the message size limit that an opened link to the entity announced; None if it is unknown."""
        if limit is not None:
            self._limits[path_key(path)] = limit

    def refused(self, path: str, message: copies.Message, error: Exception, now: float) -> None:
        """Record that the entity refused a message for its content."""
        is_bare = copies.session_of(message) is None
        if is_bare and condition_of(error) == _NO_SESSION and "session" in str(error).casefold():
            self._sessions[path_key(path)] = now + REMEMBERED, str(error)

    def is_in_doubt(self, path: str, size: int) -> bool:
        """Whether only some tiers accept a message of this size, and the tier is still unknown."""
        return size > SMALLEST_LIMIT and path_key(path) not in self._limits

    def check(self, path: str, message: copies.Message, size: int, deadline: int | None, now: float) -> None:
        """Raise the error with which the entity would refuse this message of ``size`` bytes, if that is known."""
        name = copies.message_id_of(message)
        if len(name) > MAX_KEY:
            raise ValueError(f"a message id must have at most {MAX_KEY} characters, not {len(name)}")
        until, words = self._sessions.get(path_key(path), (0.0, ""))
        if now < until and copies.session_of(message) is None:
            raise ServiceBusError(f"{path!r} refused a message without a session id a moment ago: {words}")
        if is_smaller(copies.raw(message), self._headroom.roomy):
            return
        limit = self._limits.get(path_key(path), SMALLEST_LIMIT)
        if size > limit:
            raise MessageSizeExceededError(
                message=f"A message for {path!r} has {size} bytes, and its size limit is {limit}."
            )
        short = self._headroom.shortage(message, path, deadline, limit)
        if short is not None and short.is_header:
            raise MessageSizeExceededError(message=f"A message for {path!r} has {short}.")
        if short is not None and self._refuses_unparkable:
            raise ParkedMessageTooLargeError(path, MessageSizeExceededError(message=str(short)))
