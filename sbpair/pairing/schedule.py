"""What do the scheduling calls carry to the primary, and what comes back? (decision "Scheduling")

A message that is parked keeps its time; its place on the primary has no number yet, so the number that is
returned for it is -1 (:data:`PARKED`). No I/O.
"""

from __future__ import annotations

from collections.abc import Iterable
from datetime import datetime
from typing import cast

from azure.servicebus import ServiceBusMessageBatch
from azure.servicebus.amqp import AmqpAnnotatedMessage

from . import aliases, envelope
from .batch import Cargo, PrimarySender, freeze
from .errors import ParkedScheduleError
from .pair import Rested

PARKED = -1
"""In place of a sequence number: the message waits elsewhere, with its time."""


class ScheduledCargo(Cargo):
    """Messages to be enqueued at a given time."""

    __slots__ = ("at",)

    def __init__(self, outgoing: list[envelope.Message], at: datetime) -> None:
        super().__init__(outgoing, outgoing)
        self.at = at

    def hand_over(self, sender: PrimarySender, timeout: float) -> object:
        # Copies: the SDK writes into what it schedules.
        copies = [envelope.snapshot(message) for message in self.messages]
        return sender.schedule_messages(copies, self.at, timeout=timeout)

    def sequence_numbers(self, landing: Rested) -> list[int]:
        """One for each message: the primary's, or PARKED."""
        if landing.backlog is None and not landing.is_spooled:
            return list(cast("Iterable[int]", self.answer))
        return [PARKED] * len(self)


class Cancellation(Cargo):
    """Sequence numbers to be cancelled on the primary; nothing of it can be parked."""

    __slots__ = ("numbers",)

    is_for_primary_only = True

    def __init__(self, numbers: list[int]) -> None:
        super().__init__([], [])
        self.numbers = numbers

    def hand_over(self, sender: PrimarySender, timeout: float) -> object:
        return sender.cancel_scheduled_messages(self.numbers, timeout=timeout)


def scheduled(given: object, at: datetime) -> ScheduledCargo:
    """The messages with this time, frozen; the caller's stay as they are.

    Raises TypeError for what is no message or no time, ReservedPropertyError.
    """
    if not isinstance(at, datetime):
        raise TypeError(f"schedule_time_utc must be a datetime, not {at!r}")
    if isinstance(given, ServiceBusMessageBatch):
        raise TypeError("a batch cannot be scheduled; give its messages as a list")
    return ScheduledCargo([_at(message, at) for message in freeze(given).messages], at)


def cancellation(path: str, given: int | Iterable[int]) -> Cancellation:
    """Raises ParkedScheduleError when a number stands for a parked message: then none is cancelled."""
    numbers = [given] if isinstance(given, int) else list(given)
    if wrong := next((each for each in numbers if isinstance(each, bool) or not isinstance(each, int)), None):
        raise TypeError(f"a sequence number must be a whole number, not {wrong!r}")
    if PARKED in numbers:
        raise ParkedScheduleError(path)
    return Cancellation(numbers)


def _at(message: envelope.Message, at: datetime) -> AmqpAnnotatedMessage:
    twin = envelope.snapshot(message)
    kept = dict(twin.annotations or {})
    kept.pop(aliases.ANNOTATION_SCHEDULED, None)
    kept[aliases.ANNOTATION_SCHEDULED.encode()] = at
    twin.annotations = kept
    return twin
