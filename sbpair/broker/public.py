"""The public names of the broker, which `sbpair.broker` loads on first use."""

from __future__ import annotations

from .clock import ManualClock, ShiftedClock, SystemClock
from .entities.descriptions import QueueDescription, SubscriptionDescription, TopicDescription
from .entities.queue_context import OperationCounts
from .entities.queue_partition import QueueCounts
from .errors import BrokerError
from .faults import (
    ActiveFault,
    AnswerModified,
    AnswerReleased,
    CloseConnection,
    Conflict,
    CutAfter,
    Delay,
    DetachLink,
    Disabled,
    Down,
    Effect,
    FaultRule,
    Full,
    LateVisibility,
    Lose,
    LoseLock,
    NoCredit,
    PartitionDown,
    RejectWith,
    SilenceLink,
    Throttle,
    TwoFieldError,
    Withhold,
)
from .server import Broker, NamespaceControl

__all__ = [
    "ActiveFault",
    "AnswerModified",
    "AnswerReleased",
    "Broker",
    "BrokerError",
    "CloseConnection",
    "Conflict",
    "CutAfter",
    "Delay",
    "DetachLink",
    "Disabled",
    "Down",
    "Effect",
    "FaultRule",
    "Full",
    "LateVisibility",
    "Lose",
    "LoseLock",
    "ManualClock",
    "NamespaceControl",
    "NoCredit",
    "OperationCounts",
    "PartitionDown",
    "QueueCounts",
    "QueueDescription",
    "RejectWith",
    "ShiftedClock",
    "SilenceLink",
    "SubscriptionDescription",
    "SystemClock",
    "Throttle",
    "TopicDescription",
    "TwoFieldError",
    "Withhold",
]
