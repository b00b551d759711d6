"""A processor: calls a handler for each message of an entity, on both namespaces of a pair.

    processor = client.get_queue_processor("orders", handler, options=ProcessorOptions(max_concurrent_calls=32))
    await processor.run()          # until processor.request_stop(), or: async with processor: ...

A handler receives a :class:`ReceivedMessage`, which is completed when the handler returns. To choose another outcome,
raise :class:`DeadLetter`, :class:`Defer` or :class:`Abandon`; any other error abandons the message.
``processor.on_event(callback)`` reports :mod:`sbpair.pair.processor.events`, and ``processor.counters`` has totals.
"""

from .pair.processor.errors import SettlementRefusedError, SettlementUnknownError
from .pair.processor.events import (
    DuplicatesCompleted,
    EntityMissing,
    HandlerFailed,
    LinkSilent,
    LockEnded,
    MessagesReceived,
    ProcessorEvent,
    ReceivingLost,
    ReceivingStarted,
    SessionAccepted,
    SessionReleased,
    SettlementRefused,
    SettlementUnknown,
)
from .pair.processor.message import ReceivedMessage
from .pair.processor.options import ProcessorOptions
from .pair.processor.settlement import Abandon, DeadLetter, Defer
from .pair.processor.status import ProcessorCounters

__all__ = [
    "Abandon",
    "DeadLetter",
    "Defer",
    "DuplicatesCompleted",
    "EntityMissing",
    "HandlerFailed",
    "LinkSilent",
    "LockEnded",
    "MessagesReceived",
    "ProcessorCounters",
    "ProcessorEvent",
    "ProcessorOptions",
    "ReceivedMessage",
    "ReceivingLost",
    "ReceivingStarted",
    "SessionAccepted",
    "SessionReleased",
    "SettlementRefused",
    "SettlementRefusedError",
    "SettlementUnknown",
    "SettlementUnknownError",
]
