"""The entities of a namespace: pure, in memory, and told the time. See ``namespace`` and ``queue``."""

from __future__ import annotations

from .counts import QueueCounts
from .description import QueueDescription
from .namespace import Namespace
from .queue import Queue
from .stored_message import StoredMessage
from .subscription import Subscription
from .topic import Topic
from .topic_description import SubscriptionDescription, TopicDescription

__all__ = [
    "Namespace",
    "Queue",
    "QueueCounts",
    "QueueDescription",
    "StoredMessage",
    "Subscription",
    "SubscriptionDescription",
    "Topic",
    "TopicDescription",
]
