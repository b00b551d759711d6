"""The entities of a namespace: in memory, without I/O, and passed the current time.

Start reading at ``namespace`` and ``queue``.
"""

from __future__ import annotations

from .descriptions import QueueDescription, SubscriptionDescription, TopicDescription
from .namespace import Namespace
from .queue import Queue
from .queue_partition import QueueCounts
from .stored_message import StoredMessage
from .topic import Subscription, Topic

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
