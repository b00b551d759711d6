"""Webhook notices: their body, their signature, and their delivery with retries.

    2xx                                     delivered
    no response, 408, 429, 5xx              retried after a random, growing pause
    any other response (4xx, redirects)     refused: retrying would not help

A notice is a journal record preceded by ``kind`` and ``id``; ``id`` is the same in every attempt. Its ``ordinal``
counts the notices of one webhook, so a receiver can detect a missing one. Every attempt is signed again, so
that a slow delivery does not look like a replay:

    X-Sbpair-Signature: t=1795242840,v1=5257a869e7...

``v1`` is the HMAC-SHA256 of ``<t>.<body>`` with the shared secret, in hex; ``t`` is the time of the attempt in
seconds since the epoch.
"""

from __future__ import annotations

import asyncio
import hashlib
import hmac
import json
from collections.abc import Callable
from dataclasses import dataclass, field
from enum import Enum
from typing import TYPE_CHECKING

from .record import Instant, Origin, event_name, to_record
from .sinks import EntityStates, ObservedState

if TYPE_CHECKING:
    import httpx


HEADER_NAME = "X-Sbpair-Signature"
TOLERANCE = 300.0  # seconds between signing and arrival


class SignatureRefusedError(ValueError):
    """The signature of a webhook request is malformed, wrong or too old."""


def sign(body: bytes, secret: str, now: float) -> str:
    """Return the value of the signature header for a body sent at ``now`` (seconds since the epoch)."""
    seconds = int(now)
    return f"t={seconds},v1={_digest(body, secret, seconds)}"


def verify(header: str, body: bytes, secret: str, now: float, *, tolerance: float = TOLERANCE) -> None:
    """Check the signature ``header`` of a request ``body``.

    ``now`` is in seconds since the epoch, ``tolerance`` in seconds. Raises SignatureRefusedError unless ``secret``
    signed this body within ``tolerance`` of ``now``.
    """
    parts = dict(part.strip().partition("=")[::2] for part in header.split(","))
    stamp = parts.get("t", "")
    if not (stamp.isascii() and stamp.isdigit() and len(stamp) <= 12) or "v1" not in parts:
        raise SignatureRefusedError(f"{HEADER_NAME} is not of the form t=...,v1=...")
    if not hmac.compare_digest(parts["v1"].encode(), _digest(body, secret, int(stamp)).encode()):
        raise SignatureRefusedError("the signature does not match the body and the secret")
    if abs(now - int(stamp)) > tolerance:
        raise SignatureRefusedError(
            f"the signature differs from the current time by {abs(now - int(stamp)):.0f} s"
        )


def _digest(body: bytes, secret: str, seconds: int) -> str:
    return hmac.new(secret.encode(), b"%d." % seconds + body, hashlib.sha256).hexdigest()


class WebhookKind(Enum):
    """The kinds of notices that a webhook can subscribe to."""

    FAILOVER = "failover"  # an entity's messages are now parked
    FAILBACK = "failback"  # they go to the primary again
    DEAD_LETTER = "dead-letter"  # the syphon dead-lettered a parked message
    LANDING = "landing"  # an entity's messages land on the secondary, no longer do so, or are refused there
    AUDIT = "audit"  # a daily audit is not green; only `sbpair audit --state` sends it
    BACKLOG_AGE = "backlog-age"  # a parked message has waited too long, or none has any longer


_KIND_OF = {
    "message_set_aside": WebhookKind.DEAD_LETTER,
    "landing_began": WebhookKind.LANDING,
    "landing_ended": WebhookKind.LANDING,
    "landing_refused": WebhookKind.LANDING,
    "messages_untransferred": WebhookKind.LANDING,
    "backlog_overdue": WebhookKind.BACKLOG_AGE,
    "backlog_caught_up": WebhookKind.BACKLOG_AGE,
}


class Kinds:
    """Classifies events. Tracks the entities' states, since the end of a false alarm is not a failback."""

    def __init__(self) -> None:
        self._states = EntityStates()

    def of(self, event: object) -> WebhookKind | None:
        """Return the kind of an event, or None if webhooks do not report it."""
        change = self._states.apply(event)
        if change is None:
            return _KIND_OF.get(event_name(type(event)))
        _, before, after = change
        if after is ObservedState.FAILED_OVER:
            return WebhookKind.FAILOVER
        came_back = before is ObservedState.FAILED_OVER and after is ObservedState.HEALTHY
        return WebhookKind.FAILBACK if came_back else None


@dataclass(frozen=True, slots=True)
class Notice:
    """A notice ready to post. The body is bytes because the signature covers bytes."""

    kind: WebhookKind
    id: str
    body: bytes


def to_notice(kind: WebhookKind, event: object, origin: Origin, number: int, now: Instant) -> Notice:
    """Return the notice of an event: its journal record with ``kind`` and ``id`` in front.

    Raises TypeError or ValueError as :func:`sbpair.observation.record.to_record` does.
    """
    identity = f"{origin.writer}-{number}"
    content = {"kind": kind.value, "id": identity, **to_record(event, origin, number, now)}
    return Notice(kind, identity, json.dumps(content, separators=(",", ":")).encode("ascii"))


_TRANSIENT_STATUS = frozenset({408, 429})  # besides 5xx


class NotDeliveredError(Exception):
    """The receiver refused a notice or could not be reached; the text omits the URL."""


class _TransientError(NotDeliveredError):
    """A later attempt may succeed."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Patience:
    """Timeouts of webhook deliveries, in seconds. Raises ValueError unless each is above 0 and at most a day.

    ``request_timeout`` limits one request, ``give_up_after`` all attempts for one notice. The pauses between attempts
    grow from ``first_wait`` to ``longest_wait``.
    """

    request_timeout: float = 10.0
    give_up_after: float = 300.0
    first_wait: float = 0.5
    longest_wait: float = 30.0

    def __post_init__(self) -> None:
        for name in ("request_timeout", "give_up_after", "first_wait", "longest_wait"):
            if not 0 < getattr(self, name) <= 86_400:
                raise ValueError(f"{name} must be above 0 s and at most a day, not {getattr(self, name)!r}")


@dataclass(frozen=True, slots=True)
class WebhookReceiver:
    """The receiver of the notices: its URL, the shared secret, and the timeouts."""

    url: str = field(repr=False)  # it may hold a token
    secret: str = field(repr=False)
    patience: Patience

    async def deliver(
        self,
        client: httpx.AsyncClient,
        notice: Notice,
        epoch: Callable[[], float],
        on_attempt: Callable[[], None],
    ) -> None:
        """Post a notice until it is accepted. Raises NotDeliveredError when it is refused or time runs out."""
        from tenacity import AsyncRetrying, retry_if_exception_type, stop_after_delay, wait_random_exponential

        patience = self.patience
        retrying = AsyncRetrying(
            retry=retry_if_exception_type(_TransientError),
            wait=wait_random_exponential(multiplier=patience.first_wait, max=patience.longest_wait),
            stop=stop_after_delay(patience.give_up_after),
            reraise=True,
        )

        async def attempt() -> None:
            on_attempt()
            await self._post(client, notice, epoch())

        await retrying(attempt)

    async def _post(self, client: httpx.AsyncClient, notice: Notice, now: float) -> None:
        import httpx

        headers = {
            "Content-Type": "application/json",
            "X-Sbpair-Event": notice.kind.value,
            "X-Sbpair-Delivery": notice.id,
            HEADER_NAME: sign(notice.body, self.secret, now),
        }
        within = self.patience.request_timeout
        try:
            async with (
                asyncio.timeout(within),  # for the whole request: httpx limits single reads only
                client.stream("POST", self.url, content=notice.body, headers=headers) as answer,
            ):
                pass  # the response body is irrelevant and may be endless
        except TimeoutError as error:
            raise _TransientError(f"no answer within {within:g} s") from error
        except httpx.TransportError as error:
            raise _TransientError(type(error).__name__) from error
        except httpx.HTTPError as error:
            raise NotDeliveredError(type(error).__name__) from error
        if answer.is_success:
            return
        is_transient = answer.is_server_error or answer.status_code in _TRANSIENT_STATUS
        raise (_TransientError if is_transient else NotDeliveredError)(f"HTTP status {answer.status_code}")
