"""Webhooks for failover, failback, dead letters, landing and backlog age.

    event --write()--> [ bounded queue ] --background thread--> signed POST
                        full: drops the oldest                   one at a time, in order

:meth:`Webhook.write` never waits for the network. The thread starts with the first notice, and again with the next one
if it could not deliver.
"""

from __future__ import annotations

import asyncio
import logging
import threading
from collections import deque
from collections.abc import Callable, Iterable
from dataclasses import dataclass
from types import TracebackType
from typing import TYPE_CHECKING, Self
from urllib.parse import urlsplit
from uuid import uuid4

from sbpair.extras import require

from .journal import system_instant
from .record import Instant, Origin, PairLabels, WriterRole
from .sinks import renew_in_children
from .webhook_delivery import (
    Kinds,
    NotDeliveredError,
    Notice,
    Patience,
    WebhookKind,
    WebhookReceiver,
    to_notice,
)

if TYPE_CHECKING:
    import httpx

CAPACITY = 1000  # waiting notices
MIN_SECRET_LENGTH = 16  # characters
THREAD_NAME = "sbpair-webhook"
STOP_TIMEOUT = 2.0  # seconds for the thread to end after its last notice

logger = logging.getLogger("sbpair.webhook")


@dataclass(slots=True)
class WebhookCounters:
    """Totals since the webhook was created."""

    delivered: int = 0  # answered with 2xx
    dropped: int = 0  # displaced from a full queue, or undelivered when the webhook was closed
    failed: int = 0  # refused by the receiver, or given up on after all attempts
    attempts: int = 0  # requests made


@dataclass(frozen=True, slots=True)
class _Signals:
    """Thread-safe access to the events of the webhook's loop."""

    loop: asyncio.AbstractEventLoop
    news: asyncio.Event
    closing: asyncio.Event

    def set(self, event: asyncio.Event) -> None:
        self.loop.call_soon_threadsafe(event.set)


class Webhook:
    """A sink that POSTs events of the kinds ``on`` to ``url``, signed with ``secret``. Thread-safe.

    At most ``capacity`` notices wait (1 or more); beyond that, the oldest is dropped. ``patience``: the timeouts of
    deliveries. After a fork, the child's copy starts empty, and the parent delivers the waiting notices.

    Raises ValueError if the URL is not http or https, the secret is shorter than 16 characters, or ``capacity``
    is out of range.
    """

    def __init__(
        self,
        url: str,
        secret: str,
        *,
        role: WriterRole,
        pair: PairLabels,
        on: Iterable[WebhookKind] = tuple(WebhookKind),
        capacity: int = CAPACITY,
        patience: Patience | None = None,
        clock: Callable[[], Instant] = system_instant,
    ) -> None:
        self.name = _host_of(url)
        if len(secret) < MIN_SECRET_LENGTH:
            raise ValueError(f"the webhook secret must have at least {MIN_SECRET_LENGTH} characters")
        if capacity < 1:
            raise ValueError(f"capacity must be at least 1, not {capacity!r}")
        self._receiver = WebhookReceiver(url, secret, patience or Patience())
        self._role, self._pair = role, pair
        require("observe", "Webhook")
        self._on = frozenset(on)
        self._capacity = capacity
        self._clock = clock
        self._within: float | None = None  # seconds left for delivery; set by close
        self._begin()
        renew_in_children(self)

    def _begin(self) -> None:
        self.counters = WebhookCounters()
        self._origin = Origin(str(uuid4()), self._role, self._pair)
        self._number = 0
        self._kinds = Kinds()
        self._lock = threading.Lock()
        self._waiting: deque[Notice] = deque()
        self._thread: threading.Thread | None = None
        self._signals: _Signals | None = None  # while the thread's loop runs

    def renew(self) -> None:
        """Start over in a forked child, where the thread does not exist."""
        self._begin()

    def write(self, event: object) -> None:
        """Queue the notice of an event if its kind is subscribed to."""
        kind = self._kinds.of(event)
        if kind is None or kind not in self._on:
            return
        with self._lock:
            if self._within is not None:
                self.counters.dropped += 1
                return
            self._waiting.append(to_notice(kind, event, self._origin, self._number, self._clock()))
            self._number += 1
            if len(self._waiting) > self._capacity:
                self._drop_oldest()
            self._wake()

    def close(self, within: float = 5.0) -> None:
        """Deliver waiting notices for up to ``within`` seconds, drop the rest, and end the thread."""
        with self._lock:
            self._within = within if self._within is None else self._within
            if self._signals is not None:
                self._signals.set(self._signals.closing)
            thread = self._thread
            if thread is None:
                self._drop_all()
        if thread is not None:
            thread.join(within + STOP_TIMEOUT)
            if thread.is_alive():
                logger.error("the thread of the webhook for %s did not end", self.name)

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.close()

    # Under the lock.

    def _drop_oldest(self) -> None:
        self._waiting.popleft()  # the newest matter most
        self.counters.dropped += 1
        if self.counters.dropped == 1:
            logger.warning("the queue of the webhook for %s is full; dropping the oldest notices", self.name)

    def _drop_all(self) -> None:
        self.counters.dropped += len(self._waiting)
        self._waiting.clear()

    def _wake(self) -> None:
        if self._thread is None:
            thread = threading.Thread(target=self._run, name=THREAD_NAME, daemon=True)
            thread.start()  # may fail; the next notice tries again
            self._thread = thread
        elif self._signals is not None:
            self._signals.set(self._signals.news)

    # In the webhook's own thread.

    def _run(self) -> None:
        logging.getLogger("httpx").addFilter(_is_not_ours)
        try:
            asyncio.run(self._serve())
        except Exception as error:  # no descriptor for a loop, no usable certificates or proxy for a client
            logger.error(
                "the webhook for %s cannot deliver (%s); the next notice tries again",
                self.name,
                type(error).__name__,
            )
        finally:
            with self._lock:
                if self._within is None:
                    self._thread = None
                else:
                    self._drop_all()

    async def _serve(self) -> None:
        import httpx

        signals = _Signals(asyncio.get_running_loop(), asyncio.Event(), asyncio.Event())
        with self._lock:
            self._signals = signals
            if self._within is not None:
                signals.closing.set()
        timeout = self._receiver.patience.request_timeout
        try:
            async with httpx.AsyncClient(timeout=timeout, follow_redirects=False) as client:
                await self._deliver_until_closed(client, signals)
        finally:
            with self._lock:
                self._signals = None

    async def _deliver_until_closed(self, client: httpx.AsyncClient, signals: _Signals) -> None:
        delivering = asyncio.ensure_future(self._deliver_all(client, signals))
        try:
            await signals.closing.wait()
            signals.news.set()
            await asyncio.wait([delivering], timeout=self._within)
        finally:
            delivering.cancel()
            await asyncio.gather(delivering, return_exceptions=True)

    async def _deliver_all(self, client: httpx.AsyncClient, signals: _Signals) -> None:
        while True:
            signals.news.clear()
            with self._lock:
                notice = self._waiting.popleft() if self._waiting else None
            if notice is not None:
                await self._deliver(client, notice)
            elif signals.closing.is_set():
                return
            else:
                await signals.news.wait()

    async def _deliver(self, client: httpx.AsyncClient, notice: Notice) -> None:
        try:
            await self._receiver.deliver(client, notice, lambda: self._clock().epoch, self._attempted)
            self.counters.delivered += 1
        except NotDeliveredError as error:
            self.counters.failed += 1
            logger.error("%s did not accept a notice (%s): %s", self.name, notice.kind.value, error)
        except asyncio.CancelledError:
            self.counters.dropped += 1
            raise
        except Exception as error:  # one failing notice must not end the thread
            self.counters.failed += 1
            logger.error("a notice for %s failed: %s", self.name, type(error).__name__)

    def _attempted(self) -> None:
        self.counters.attempts += 1


def _host_of(url: str) -> str:
    """Return scheme and host, which may be logged; the rest of the URL may contain a token."""
    try:
        split = urlsplit(url)
        host = split.hostname
    except ValueError:
        host = None
    if not host or split.scheme not in ("http", "https"):
        raise ValueError("the webhook URL must be http:// or https:// followed by a host")
    return f"{split.scheme}://{host}"


def _is_not_ours(record: logging.LogRecord) -> bool:
    """Suppress httpx's request log for the webhook, since it contains whole URLs, which may contain a token."""
    return record.threadName != THREAD_NAME
