"""What was asked of a queue when it was made: the fields of Service Bus's QueueDescription.

Spans are whole milliseconds; ``None`` is never, or the largest.
"""

from __future__ import annotations

import math
import re
from collections.abc import Callable
from dataclasses import dataclass, replace

from ..errors import InvalidDescription
from .access_rule import AccessRule, check_rules
from .paths import path_of

SECOND = 1_000
MINUTE = 60 * SECOND
DAY = 24 * 60 * MINUTE
LARGEST_SPAN = 922_337_203_685_477
"""Milliseconds in the largest signed 64-bit tick count (T-8); this and more is ``None``."""

INT_MAX = 2**31 - 1
MEGABYTE = 1024 * 1024
USUAL_MESSAGE = 256  # kilobytes (3.9)
STANDARD_SIZES = (1024, 2048, 3072, 4096, 5120)  # megabytes
PREMIUM_SIZES = (*STANDARD_SIZES, 10240, 20480, 40960, 81920)
STATUSES = ("Active", "Disabled", "SendDisabled", "ReceiveDisabled")
LONGEST_PATH = 260
_PATH = re.compile(r"[A-Za-z0-9](?:[A-Za-z0-9._~/-]*[A-Za-z0-9])?")


@dataclass(frozen=True, slots=True)
class QueueDescription:
    """A queue's settings; the defaults are the service's.

    Units and ranges, checked by :meth:`validated`:
    ``lock_duration`` ms, 5 s to 5 min · ``max_size_in_megabytes`` 1 to 5120 (Premium: to 81920); the
    administration, as the service's, takes 1024, 2048 … 5120 (and 10240 … 81920) ·
    ``default_message_time_to_live`` ms, at least 1 s, None = never (T-6, T-8) ·
    ``duplicate_detection_history_time_window`` ms, 20 s to 7 d · ``max_delivery_count`` 1 to 2^31-1 ·
    ``auto_delete_on_idle`` ms, at least 5 min, None = never (T-20) ·
    ``max_message_size_in_kilobytes`` 1 to 256 (Premium: to 102400), None = 256 (Premium: 1024) ·
    ``enable_partitioning`` for ever (Q-3); it makes the size 16 times what is asked, from 1024 … 5120 ·
    ``status`` Active, Disabled, SendDisabled, ReceiveDisabled ·
    ``forward_to``, ``forward_dead_lettered_messages_to`` path of a queue or topic, or None (3.7) ·
    ``user_metadata`` up to 1024 characters ·
    ``authorization_rules`` keys to this entity alone, 12 at most.
    """

    lock_duration: int = MINUTE
    max_size_in_megabytes: int = 1024
    requires_duplicate_detection: bool = False
    requires_session: bool = False
    default_message_time_to_live: int | None = None
    dead_lettering_on_message_expiration: bool = False
    duplicate_detection_history_time_window: int = 10 * MINUTE
    max_delivery_count: int = 10
    enable_batched_operations: bool = True
    status: str = "Active"
    forward_to: str | None = None
    auto_delete_on_idle: int | None = None
    enable_partitioning: bool = False
    forward_dead_lettered_messages_to: str | None = None
    user_metadata: str | None = None
    enable_express: bool = False
    max_message_size_in_kilobytes: int | None = None
    authorization_rules: tuple[AccessRule, ...] = ()

    def validated(self) -> QueueDescription:
        """This description with the largest spans turned into None.

        Raises InvalidDescription for a field out of range.
        """
        settled = replace(
            self,
            default_message_time_to_live=_unless_largest(self.default_message_time_to_live),
            auto_delete_on_idle=_unless_largest(self.auto_delete_on_idle),
            forward_to=self.forward_to or None,
            forward_dead_lettered_messages_to=self.forward_dead_lettered_messages_to or None,
        )
        for field, holds, range_text in _RULES:
            value = getattr(settled, field)
            if not holds(value):
                raise InvalidDescription(f"{field} is {value!r}: {range_text}.")
        check_rules(settled.authorization_rules)
        return settled

    def check_successor_of(self, current: QueueDescription) -> None:
        """Raises InvalidDescription where a flag differs that is chosen at creation, for ever (3.6)."""
        for field in _FOR_EVER:
            if getattr(self, field) != getattr(current, field):
                raise InvalidDescription(
                    f"{field} of an existing queue cannot be changed: delete the queue and create it anew."
                )

    @property
    def quota_in_bytes(self) -> int:
        """What the queue and its dead-letter queue may hold together."""
        return self.max_size_in_megabytes * MEGABYTE

    @property
    def max_message_size(self) -> int:
        """The largest message or batch, in bytes."""
        return (self.max_message_size_in_kilobytes or USUAL_MESSAGE) * 1024


_FOR_EVER = ("requires_session", "requires_duplicate_detection", "enable_partitioning")


def _unless_largest(span: int | None) -> int | None:
    return None if span is None or span >= LARGEST_SPAN else span


def _whole(low: int, high: int) -> Callable[[object], bool]:
    return lambda value: type(value) is int and low <= value <= high


def _whole_or_none(low: int, high: float = math.inf) -> Callable[[object], bool]:
    return lambda value: value is None or (type(value) is int and low <= value <= high)


def _flag(value: object) -> bool:
    return isinstance(value, bool)


def _path_or_none(value: object) -> bool:
    return value is None or (isinstance(value, str) and bool(path_of(value)))


def _metadata(value: object) -> bool:
    return value is None or (isinstance(value, str) and len(value) <= 1024)


_RULES: tuple[tuple[str, Callable[[object], bool], str], ...] = (
    (
        "lock_duration",
        _whole(5 * SECOND, 5 * MINUTE),
        "milliseconds, from 5 seconds (5000) to the allowed maximum of '5' minutes (300000)",
    ),
    ("requires_duplicate_detection", _flag, "True or False"),
    ("requires_session", _flag, "True or False"),
    ("enable_partitioning", _flag, "True or False"),
    ("max_size_in_megabytes", _whole(1, PREMIUM_SIZES[-1]), f"a whole number from 1 to {PREMIUM_SIZES[-1]}"),
    ("default_message_time_to_live", _whole_or_none(SECOND), "milliseconds, at least 1000, or None"),
    ("dead_lettering_on_message_expiration", _flag, "True or False"),
    (
        "duplicate_detection_history_time_window",
        _whole(20 * SECOND, 7 * DAY),
        "milliseconds from 20 s to 7 days",
    ),
    ("max_delivery_count", _whole(1, INT_MAX), f"a whole number from 1 to {INT_MAX}"),
    ("enable_batched_operations", _flag, "True or False"),
    ("status", STATUSES.__contains__, f"one of {', '.join(STATUSES)}"),
    ("auto_delete_on_idle", _whole_or_none(5 * MINUTE), "milliseconds, at least 5 minutes (300000), or None"),
    ("forward_to", _path_or_none, "the path of a queue or topic, or None"),
    ("forward_dead_lettered_messages_to", _path_or_none, "the path of a queue or topic, or None"),
    ("user_metadata", _metadata, "text of at most 1024 characters, or None"),
    ("enable_express", _flag, "True or False"),
    ("max_message_size_in_kilobytes", _whole_or_none(1, 102_400), "a whole number from 1 to 102400, or None"),
)


def validated_path(path: str) -> str:
    """``path`` if a queue may have it. Raises InvalidDescription, with the reason, if not."""
    if len(path) > LONGEST_PATH:
        raise InvalidDescription(
            f"The entity path is {len(path)} characters long: at most {LONGEST_PATH} are allowed."
        )
    segments = path.split("/")
    if not _PATH.fullmatch(path) or any(segment in ("", ".", "..") for segment in segments):
        raise InvalidDescription(
            f"The entity path {path!r} is not allowed: letters, digits, '.', '-', '_', '~' and single '/' "
            f"between segments; it begins and ends with a letter or a digit."
        )
    return path
