"""Base of the asyncio and the blocking processor: the entity, its options, events and counters."""

from __future__ import annotations

import logging
from collections.abc import Callable, Mapping

from azure.servicebus.exceptions import MessageLockLostError, SessionLockLostError

from sbpair.pair.auth.connection_string import NamespaceAccess
from sbpair.pair.ground.emitter import Emitter
from sbpair.pair.ground.side import Side

from .delivery import Delivery
from .errors import SettlementRefusedError, SettlementUnknownError
from .events import LINES, ProcessorEvent
from .message import ReceivedMessage
from .options import ProcessorOptions
from .processor import Processor
from .session_link import SessionLink
from .settlement import Answer
from .status import ProcessorCounters

logger = logging.getLogger("sbpair.processor")


class BaseProcessor:
    """Shared part of both processors: everything that does not wait."""

    def __init__(
        self, path: str, addresses: Mapping[Side, NamespaceAccess], options: ProcessorOptions
    ) -> None:
        self.path = path
        """The entity: a queue, or ``topic/Subscriptions/subscription``."""
        self.options = options
        self._addresses = addresses
        self._counters = ProcessorCounters()
        self._events = Emitter(logger, LINES)
        self._runtime: Processor | None = None
        self.reports_messages = False
        """Whether to emit MessagesReceived for handled messages; a journal needs it."""

    @property
    def counters(self) -> ProcessorCounters:
        """A copy of the counters."""
        return self._counters.snapshot()

    def on_event(self, callback: Callable[[ProcessorEvent], object]) -> Callable[[], None]:
        """Call ``callback`` with each event, in the processor's loop; return a function that unsubscribes it."""
        return self._events.subscribe(callback)

    def __repr__(self) -> str:
        state = "stopped" if self._runtime is None else "running"
        return f"<{type(self).__name__} {self.path}, {state}>"

    def _delivery(self, message: ReceivedMessage) -> Delivery:
        """Return the delivery of a message. Raises MessageLockLostError when it is settled or its lock is lost."""
        found = None if self._runtime is None else self._runtime.find(message)
        if found is None:
            raise MessageLockLostError(message="The message is settled, or its lock is lost.")
        return found

    def _session(self, message: ReceivedMessage) -> SessionLink:
        """Return the session of a message. Raises SessionLockLostError when it is no longer held."""
        if self._runtime is None:
            raise SessionLockLostError(message="The processor is stopped and holds no session.")
        return self._runtime.session_of(message)


def check_answer(delivery: Delivery, answer: Answer | None) -> None:
    """Raise MessageLockLostError, SettlementUnknownError or SettlementRefusedError unless ``answer`` confirms."""
    match answer:
        case Answer.CONFIRMED:
            return
        case Answer.LOCK_LOST:
            raise MessageLockLostError(message="The lock of the message was lost before it was settled.")
        case None:
            raise SettlementUnknownError(delivery.verb.value)
        case _:
            raise SettlementRefusedError(delivery.verb.value)
