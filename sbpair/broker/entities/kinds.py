"""Which classes is a kind of entity, plain or partitioned? For ``isinstance`` and for signatures."""

from __future__ import annotations

from .partitioned import PartitionedQueue
from .partitioned_topic import PartitionedSubscription, PartitionedTopic
from .queue import Queue
from .subscription import Subscription
from .topic import Topic

AnyQueue = Queue | PartitionedQueue
AnyTopic = Topic | PartitionedTopic
AnySubscription = Subscription | PartitionedSubscription
