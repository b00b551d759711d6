"""The dispatcher: passes messages to handlers in turn, and settles them when the handlers end.

    arrives --> WAITING --> RUNNING --> SETTLING --> GONE
       |           |           '-- its lock is lost: the handler is cancelled or notified --> GONE
       |           '-- half of the lock duration has passed: given back --> GONE
       '-- its id was handled before: completed without a handler --> SETTLING

At most ``max_concurrent_calls`` handlers run at a time, over all links.
"""

from __future__ import annotations

import asyncio
import logging
from collections import deque
from collections.abc import Callable
from typing import Protocol

from .credit import PATIENT_PART, ProcessorWindow
from .deduplication import Deduplication, Sighting
from .delivery import Delivery, DeliveryPhase, message_id_of
from .settlement import Settle, Verb, outcome_of
from .status import ProcessorCounters

SETTLED_WITHIN = 10.0  # seconds after which unsettled messages that leave no room are logged

_logger = logging.getLogger("sbpair.processor")


class Invoker(Protocol):
    """Calls handlers, in tasks of the loop or in threads."""

    def start(self, delivery: Delivery, finished: Callable[[Delivery, BaseException | None], None]) -> None:
        """Call the handler; ``finished`` is called in the loop with the error it raised, or None."""

    def cancel(self, delivery: Delivery, why: Exception) -> None:
        """Notify a running handler that the lock of its message is lost."""


class Dispatcher:
    """The messages in flight of one processor."""

    def __init__(
        self,
        invoker: Invoker,
        *,
        calls: int,
        autosettle: bool,
        memory: Deduplication | None,
        counters: ProcessorCounters,
        failed: Callable[[Delivery, Exception], None],
        duplicate: Callable[[Delivery], None],
        changed: Callable[[], None],
    ) -> None:
        """Create a dispatcher without messages.

        ``failed`` is called with an error of a handler that does not choose an outcome, ``duplicate`` with a message
        that is completed without its handler, and ``changed`` when there is room again.
        """
        self.window = ProcessorWindow(calls)
        self.in_hand = 0
        self._invoker = invoker
        self._calls = calls
        self._autosettle = autosettle
        self._memory = memory
        self._counters = counters
        self._failed = failed
        self._duplicate = duplicate
        self._changed = changed
        self._loop = asyncio.get_running_loop()
        self._running: dict[Delivery, None] = {}
        self._waiting: deque[Delivery] = deque()
        self._twins: dict[str, list[Delivery]] = {}  # wait for the outcome of a message with the same id
        self._is_stuck = False
        self.is_idle = asyncio.Event()
        """Set while no handler is running."""
        self.is_idle.set()

    @property
    def running(self) -> int:
        """The number of running handlers."""
        return len(self._running)

    def is_running(self, delivery: Delivery) -> bool:
        """Whether the handler of a message is running."""
        return delivery in self._running

    def take(self, delivery: Delivery) -> None:
        """Pass a new message to a handler, now or in its turn."""
        self.in_hand += 1
        if self._memory is not None and not self._is_first(delivery, self._memory):
            return
        if len(self._running) < self._calls:
            self._start(delivery)
        else:
            self._waiting.append(delivery)

    def _is_first(self, delivery: Delivery, memory: Deduplication) -> bool:
        """Return whether to call a handler. A duplicate is completed, or waits for the first copy's outcome."""
        name = message_id_of(delivery.message)
        if not name:
            return True
        sighting = memory.begin(name, self._loop.time())
        if sighting is Sighting.NEW:
            delivery.name = name
        elif sighting is Sighting.RUNNING:
            self._twins.setdefault(name, []).append(delivery)
        else:
            self._counters.duplicates += 1
            self._duplicate(delivery)
            delivery.link.settle(delivery, *outcome_of(None))
        return sighting is Sighting.NEW

    def _start(self, delivery: Delivery) -> None:
        delivery.phase = DeliveryPhase.RUNNING
        self._running[delivery] = None
        if len(self._running) == 1:
            self.is_idle.clear()
        self._invoker.start(delivery, self._finished)

    def _finished(self, delivery: Delivery, error: BaseException | None) -> None:
        """Settle the message of a handler that has ended, and start the next."""
        took = delivery.seconds
        del self._running[delivery]
        delivery.is_returned = True
        counters = self._counters
        counters.messages_handled += 1
        counters.handler_seconds += took
        self.window.handled(took, len(delivery.message.payload))
        try:
            verb, state = outcome_of(error)
        except ValueError as unsendable:  # it would cost the settlements of all other messages too
            error = unsendable
            verb, state = outcome_of(error)
        if verb is Verb.ABANDON and not isinstance(error, Settle) and isinstance(error, Exception):
            counters.handlers_failed += 1
            self._failed(delivery, error)
        if self._autosettle:
            delivery.is_handled = delivery.is_handled or error is None
            delivery.link.settle(delivery, verb, state)
        if delivery.name is not None and not delivery.is_open:
            self._conclude(delivery)
        self._start_waiting()
        delivery.link.returned(delivery)
        if not self._running:
            self.is_idle.set()
            if self._is_full_of_unsettled() and not self._is_stuck:
                self._is_stuck = True
                self._loop.call_later(SETTLED_WITHIN, self._tell_of_unsettled)
        self._changed()

    def _is_full_of_unsettled(self) -> bool:
        return not self._autosettle and not self._running and self.in_hand >= self.window.limit

    def _tell_of_unsettled(self) -> None:
        """Log once that nothing more is received until the caller settles messages."""
        self._is_stuck = self._is_full_of_unsettled()
        if self._is_stuck:
            _logger.warning(
                "nothing more is received: %d messages whose handlers have returned are not settled; settle them, "
                "or let the processor do it (autosettle)",
                self.in_hand,
            )

    def _start_waiting(self) -> None:
        waiting = self._waiting
        while waiting and len(self._running) < self._calls:
            delivery = waiting.popleft()
            if delivery.phase is DeliveryPhase.WAITING:
                self._start(delivery)

    def left(self, delivery: Delivery) -> None:
        """Record that a message is no longer in flight: it is being settled, or is gone."""
        self.in_hand -= 1
        self._is_stuck = False
        if delivery.name is not None and delivery not in self._running:
            self._conclude(delivery)

    def _conclude(self, delivery: Delivery) -> None:
        """Remember the id of a handled message and release its waiting duplicates."""
        name, delivery.name = delivery.name, None
        if name is None or self._memory is None:
            return
        self._memory.end(name, self._loop.time(), is_handled=delivery.is_handled)
        for twin in self._twins.pop(name, ()):
            if twin.phase is DeliveryPhase.WAITING:
                self.in_hand -= 1
                self.take(twin)

    def withdraw(self, delivery: Delivery, why: Exception) -> None:
        """Notify the handler of a message, if it is running, that the lock is lost with the error ``why``."""
        if delivery in self._running:
            self._invoker.cancel(delivery, why)

    def handle_timer(self, now: float) -> None:
        """Give back messages that have waited too long, and account for handlers slower than the mean."""
        self.give_back_waiting(now)
        if len(self._running) == self._calls:
            latest = next(reversed(self._running))
            self.window.running_for(now - (latest.started or now))

    def give_back_waiting(self, now: float | None = None) -> None:
        """Give back waiting messages; with ``now``, those that waited for half of the lock duration."""
        oldest = None if now is None else now - self.window.lock_span * PATIENT_PART
        waiting, kept = self._waiting, list[Delivery]()
        while waiting:
            delivery = waiting.popleft()
            if delivery.phase is not DeliveryPhase.WAITING:
                continue
            if oldest is None or delivery.arrived <= oldest:
                delivery.link.give_back(delivery)  # may add its duplicates to those that wait
            else:
                kept.append(delivery)
        waiting.extend(kept)
        for twin in [each for twins in self._twins.values() for each in twins]:
            if twin.phase is DeliveryPhase.WAITING and (oldest is None or twin.arrived <= oldest):
                twin.link.give_back(twin)

    def cancel_running(self, why: Exception) -> None:
        """Interrupt all running handlers, and give their messages back."""
        for delivery in list(self._running):
            self._invoker.cancel(delivery, why)
            delivery.link.give_back(delivery)
