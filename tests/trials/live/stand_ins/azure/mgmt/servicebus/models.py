"""What the preparers say of the entities they want."""

from dataclasses import dataclass, field
from enum import Enum


class AccessRights(str, Enum):  # noqa: UP042 - as the tests know it
    """What a key allows."""

    manage = "Manage"
    send = "Send"
    listen = "Listen"


@dataclass
class SBAuthorizationRule:
    """Keys with these rights."""

    rights: list[AccessRights] = field(default_factory=list)


@dataclass
class SBQueue:
    """A queue; the lock duration as PT30S."""

    lock_duration: str = "PT30S"
    requires_duplicate_detection: bool = False
    dead_lettering_on_message_expiration: bool = False
    requires_session: bool = False
    enable_partitioning: bool = False


@dataclass
class SBSubscription:
    """A subscription; the lock duration as PT30S."""

    requires_session: bool = False
    lock_duration: str = "PT60S"
