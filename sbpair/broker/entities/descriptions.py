"""Descriptions of queues, topics and subscriptions: their settings, defaults and validation.

The fields are those of Service Bus's QueueDescription, TopicDescription and SubscriptionDescription.
Durations are whole milliseconds; ``None`` means never, or the maximum.

Paths come from peers that are not yet authenticated, with or without the address of a namespace in front: the Python
SDK writes ``sb://host/orders`` where the JavaScript SDK and sbpair write ``orders``. Their length is checked first, and
parsing is linear.
"""

from __future__ import annotations

import math
import re
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, field, fields, replace
from typing import TypedDict, TypeVar

from sbpair.pair.ground.entity_settings import (
    DAY,
    DELETE_WHEN_IDLE,
    LARGEST_MEGABYTES,
    LOCK_DURATION,
    MINUTE,
    PARTITIONING,
    SECOND,
    SETTINGS,
    STATUSES,
    TARGETS,
    TIME_TO_LIVE,
    EntitySetting,
    ValueKind,
)

from ..errors import (
    FieldOutOfRangeError,
    FixedAtCreationError,
    ForwardingSessionsError,
    InvalidDescriptionError,
    InvalidNameError,
    NotSupportedError,
)

MAX_PATH = 260  # characters of an entity path
MAX_ADDRESS = 2_048
"""Characters of an address or audience: a percent-encoded path with scheme, host and query."""

MAX_NAME = 50  # characters of a subscription name
_PATH = re.compile(r"[A-Za-z0-9](?:[A-Za-z0-9._~/-]*[A-Za-z0-9])?")
_SUBSCRIPTION_NAME = re.compile(r"[A-Za-z0-9](?:[A-Za-z0-9._-]*[A-Za-z0-9])?")
_SCHEME = re.compile(r"[A-Za-z][A-Za-z0-9+.-]{0,31}")


def split_address(text: str) -> tuple[str | None, str]:
    """Split an address into its authority, None without a scheme, and the path after it."""
    scheme, separator, rest = text.partition("://")
    if not separator or not _SCHEME.fullmatch(scheme):
        return None, text
    authority, _, path = rest.partition("/")
    return authority, path


_ASCII_FOLD = {upper: upper + 32 for upper in range(ord("A"), ord("Z") + 1)}


def fold(path: str) -> str:
    """Return the path with ASCII letters in lower case, by which entities are compared."""
    return path.lower() if path.isascii() else path.translate(_ASCII_FOLD)


_OLD_ALIAS = re.compile(
    r"(.*/subscriptions/([^/]+)/\$deadletterqueue)/subscriptions/\2", re.IGNORECASE | re.DOTALL
)


def path_of(text: str) -> str:
    """Return the path of an address or audience, without scheme, authority and outer slashes."""
    return split_address(text)[1].strip("/")


def without_alias(path: str) -> str:
    """Return the path of a subscription's dead letters in its usual form; any other path is returned unchanged.

    SDKs of generation 1 write ``news/Subscriptions/all/$DeadLetterQueue/Subscriptions/all``.
    """
    if "$" not in path or (alias := _OLD_ALIAS.fullmatch(path)) is None:
        return path
    return alias[1]


def validated_path(path: str) -> str:
    """Return ``path`` if it is valid for a queue or topic. Raises InvalidDescriptionError if not."""
    if len(path) > MAX_PATH:
        raise InvalidDescriptionError(
            f"The entity path is {len(path)} characters long: at most {MAX_PATH} are allowed."
        )
    segments = path.split("/")
    if any(segment.casefold() == "subscriptions" for segment in segments[1:]):
        raise InvalidNameError(
            f"The entity path {path!r} is not allowed: 'Subscriptions' as a later segment is reserved for "
            "the subscriptions of a topic."
        )
    if not _PATH.fullmatch(path) or any(segment in ("", ".", "..") for segment in segments):
        raise InvalidNameError(
            f"The entity path {path!r} is not allowed: use letters, digits, '.', '-', '_', '~' and single "
            "'/' between segments, beginning and ending with a letter or digit."
        )
    return path


def validated_name(name: str) -> str:
    """Return ``name`` if it is valid for a subscription. Raises InvalidDescriptionError if not."""
    if len(name) > MAX_NAME or not _SUBSCRIPTION_NAME.fullmatch(name):
        kind = InvalidDescriptionError if len(name) == 0 or len(name) > MAX_NAME else InvalidNameError
        raise kind(
            f"The subscription name {name[:100]!r} is not allowed: use 1 to {MAX_NAME} letters, digits, '.', "
            "'-' and '_', beginning and ending with a letter or digit."
        )
    return name


RIGHTS = ("Manage", "Send", "Listen")
MAX_RULES = 12
MAX_RULE_NAME, MAX_KEY = 256, 256


@dataclass(frozen=True, slots=True)
class AccessRule:
    """A named pair of keys with some of the rights Manage, Send and Listen; its repr shows neither key."""

    name: str
    rights: tuple[str, ...]
    primary_key: str = field(repr=False)
    secondary_key: str = field(repr=False)


def check_access_rules(rules: object) -> None:
    """Raise InvalidDescriptionError unless ``rules`` are valid authorization rules of an entity."""
    if not isinstance(rules, tuple) or not all(isinstance(rule, AccessRule) for rule in rules):
        raise InvalidDescriptionError(
            f"authorization_rules is a {type(rules).__name__}: use a tuple of AccessRule."
        )
    if len(rules) > MAX_RULES:
        raise InvalidDescriptionError(
            f"An entity has at most {MAX_RULES} authorization rules, not {len(rules)}."
        )
    names: Sequence[str] = [rule.name.casefold() for rule in rules]
    for rule in rules:
        if not 0 < len(rule.name) <= MAX_RULE_NAME or names.count(rule.name.casefold()) > 1:
            raise InvalidDescriptionError(
                f"The authorization rule name {rule.name[:100]!r} is empty, too long or used twice."
            )
        if not all(0 < len(key) <= MAX_KEY for key in (rule.primary_key, rule.secondary_key)):
            raise InvalidDescriptionError(
                f"A key of the authorization rule '{rule.name}' is empty or too long."
            )
        check_rights(rule.name, rule.rights)


def check_rights(name: str, rights: Iterable[str]) -> None:
    """Raise InvalidDescriptionError unless ``rights`` are valid for the rule or policy ``name``."""
    given = set(rights)
    if not given or not given <= set(RIGHTS):
        raise InvalidDescriptionError(
            f"The authorization rule '{name}' needs at least one right of {', '.join(RIGHTS)}, and no others."
        )
    if "Manage" in given and given != set(RIGHTS):
        raise InvalidDescriptionError(
            f"The authorization rule '{name}' has Manage, which should also include Send and Listen."
        )


@dataclass(frozen=True, slots=True)
class Leftover:
    """An element of a client's description that is kept as text and returned, but has no effect.

    ``name``: the setting, if the element came too late to be read; "" for an unknown element. ``after``: the last
    element that was read before it, "" at the start. ``markup``: the whole element.
    """

    name: str
    after: str
    markup: str


@dataclass(frozen=True, slots=True)
class KeptText:
    """Text of a client's description that the administration API returns besides the effective values.

    ``texts``: of elements whose text is more precise than the broker's value, such as a time span with a fraction of a
    millisecond.
    """

    leftovers: tuple[Leftover, ...] = ()
    texts: tuple[tuple[str, str], ...] = ()

    def text_of(self, element: str) -> str | None:
        """Return the text that was sent for an element, if it is kept."""
        return dict(self.texts).get(element)

    @property
    def late(self) -> tuple[Leftover, ...]:
        """The elements that are ignored because they come after one that should follow them."""
        return tuple(each for each in self.leftovers if each.name)


MAX_SPAN = 922_337_203_685_477
"""Milliseconds in the largest signed 64-bit tick count; stored as ``None``, as are larger values."""

MEGABYTE = 1024 * 1024
USUAL_MESSAGE = 256  # kilobytes
STANDARD_SIZES = (1024, 2048, 3072, 4096, 5120)  # megabytes
PREMIUM_SIZES = (*STANDARD_SIZES, 10240, 20480, 40960, LARGEST_MEGABYTES)


@dataclass(frozen=True, slots=True)
class QueueDescription:
    """A queue's settings; the defaults are the service's.

    Units and ranges, checked by :meth:`normalize`:

    * ``lock_duration``: ms, 5 s to 5 min.
    * ``max_size_in_megabytes``: 1 to 5120 (Premium: 81920). The administration API, as the service's, accepts
      1024, 2048 … 5120 (Premium: also 10240 … 81920). Partitioning multiplies it by 16.
    * ``default_message_time_to_live``: ms, at least 1 s; None for never.
    * ``duplicate_detection_history_time_window``: ms, 20 s to 7 d.
    * ``max_delivery_count``: 1 to 2^31-1.
    * ``auto_delete_on_idle``: ms, at least 5 min; None for never, as for every entity that forwards.
    * ``max_message_size_in_kilobytes``: 1 to 256 (Premium: 102400); None for 256 (Premium: 1024).
    * ``enable_partitioning``, ``requires_session``, ``requires_duplicate_detection``: fixed at creation.
    * ``status``: Active, Disabled, SendDisabled or ReceiveDisabled.
    * ``forward_to``, ``forward_dead_lettered_messages_to``: path of a queue or topic, or None.
    * ``user_metadata``: up to 1024 characters.
    * ``authorization_rules``: at most 12 rules, valid for this entity only.
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

    def normalize(self) -> QueueDescription:
        """Return this description with maximum durations replaced by None.

        Raises InvalidDescriptionError when a field is out of range.
        """
        resolved = replace(
            self,
            default_message_time_to_live=_none_if_max(self.default_message_time_to_live),
            auto_delete_on_idle=_none_if_max(self.auto_delete_on_idle),
            forward_to=canonical_target(self.forward_to),
            forward_dead_lettered_messages_to=canonical_target(self.forward_dead_lettered_messages_to),
        )
        check_ranges(resolved)
        check_access_rules(resolved.authorization_rules)
        if resolved.forward_to is not None and resolved.requires_session:
            raise ForwardingSessionsError
        if resolved.forward_to is not None:  # it is never idle: the service switches the deletion off
            resolved = replace(resolved, auto_delete_on_idle=None)
        return resolved

    def check_successor_of(self, current: QueueDescription, kind: str = "Queue") -> None:
        """Raise InvalidDescriptionError if a setting that is fixed at creation differs from ``current``.

        ``kind`` of entity, in the service's text.
        """
        for fixed in _FIXED_AT_CREATION:
            if fixed.value_in(self) != fixed.value_in(current):
                raise FixedAtCreationError(
                    f"Partitioning cannot be changed for {kind}. "
                    if fixed is PARTITIONING
                    else f"The value for the {fixed.element} property of an existing {kind} cannot be changed."
                )

    @property
    def quota_in_bytes(self) -> int:
        """The maximum bytes of the queue and its dead-letter queues together."""
        return self.max_size_in_megabytes * MEGABYTE

    @property
    def max_message_size(self) -> int:
        """The maximum size of a message, in bytes."""
        return (self.max_message_size_in_kilobytes or USUAL_MESSAGE) * 1024

    @property
    def max_batch_size(self) -> int:
        """The maximum size of a batch, in bytes: at most one megabyte, even where a message may be larger."""
        return min(self.max_message_size, MEGABYTE)


_FIXED_AT_CREATION = tuple(each for each in SETTINGS.values() if each.is_fixed_at_creation)


def canonical_target(name: str | None) -> str | None:
    """Return a forwarding target with its scheme and host, if any, in lower case; None for an empty one."""
    if not name or not isinstance(name, str):
        return name or None
    path = split_address(name)[1]
    return name[: len(name) - len(path)].lower() + path


def _none_if_max(span: int | None) -> int | None:
    return None if span is None or span >= MAX_SPAN else span


def range_of(setting: EntitySetting, value: object) -> str | None:
    """Return the range of a setting if ``value`` is outside of it, else None; of a span in milliseconds too."""
    return None if _is_within(setting, value) else _expected(setting)


def _is_within(setting: EntitySetting, value: object) -> bool:
    if value is None:
        return setting.is_optional
    match setting.kind:
        case ValueKind.FLAG:
            return isinstance(value, bool)
        case ValueKind.WHOLE | ValueKind.SPAN:
            return type(value) is int and setting.low <= value <= setting.high
        case ValueKind.WORD:
            return value in STATUSES
        case ValueKind.TEXT:
            return isinstance(value, str) and len(value) <= setting.high
        case ValueKind.TARGET:
            return isinstance(value, str) and bool(path_of(value))


def _expected(setting: EntitySetting) -> str:
    """Return the range of a setting in words."""
    words = (
        setting.expected
        or {
            ValueKind.FLAG: "True or False",
            ValueKind.WHOLE: f"a whole number from {setting.low} to {setting.high}",
            ValueKind.WORD: f"one of {', '.join(STATUSES)}",
            ValueKind.TEXT: f"text of at most {setting.high} characters",
            ValueKind.TARGET: "the path of a queue or topic",
        }[setting.kind]
    )
    return f"{words}, or None" if setting.is_optional and not setting.expected else words


def settings_of(
    kind: type[QueueDescription] | type[TopicDescription] | type[SubscriptionDescription],
) -> list[EntitySetting]:
    """Return the settings that a class of descriptions has, in its order.

    Its authorization rules are none: they contain keys, so no file has them.
    """
    return [SETTINGS[each.name] for each in fields(kind) if each.name in SETTINGS]


def check_ranges(described: QueueDescription | TopicDescription | SubscriptionDescription) -> None:
    """Raise FieldOutOfRangeError for the first setting of a description that is out of range."""
    for setting in settings_of(type(described)):
        value = setting.value_in(described)
        if expected := range_of(setting, value):
            told = _told(setting, value, expected)
            raise FieldOutOfRangeError(setting.name, value, expected, told, _written(setting, value))


_LONGEST = "10675199.02:48:05.4775807"
_LOCK_TOO_LONG = (
    "The supplied lock time exceeds the allowed maximum of '5' minutes. "
    "To know more visit https://aka.ms/sbResourceMgrExceptions. "
)


def _told(setting: EntitySetting, value: object, expected: str) -> str:
    """Return the words of the administration API about a setting that is out of range.

    Those of the lock and of duplicate detection were seen, the others are inferred.
    """
    if setting is LOCK_DURATION and (value is None or (type(value) is int and value > setting.high)):
        return _LOCK_TOO_LONG
    match setting.kind:
        case ValueKind.SPAN:
            last = None if setting.high == math.inf else int(setting.high)
            return f"The value supplied must be between {_written(setting, setting.low)} and {_written(setting, last)}."
        case ValueKind.TEXT:
            return f"The value supplied must have at most {setting.high} characters."
        case ValueKind.TARGET:
            return "The value supplied must be the path of a queue or topic."
        case _:
            return f"The value supplied must be {expected}."


def _written(setting: EntitySetting, value: object) -> str:
    """Return a value as the administration API writes it in errors: a time span as 25.00:00:00."""
    if setting.kind is ValueKind.SPAN and value is None:
        return _LONGEST
    if setting.kind is not ValueKind.SPAN or type(value) is not int:
        return str(value)
    seconds, part = divmod(value, SECOND)
    days, rest = divmod(seconds, DAY // SECOND)
    clock = f"{rest // 3600:02}:{rest // 60 % 60:02}:{rest % 60:02}" + (f".{part:03}" if part else "")
    return f"{days}.{clock}" if days else clock


@dataclass(frozen=True, slots=True)
class TopicDescription:
    """A topic's settings; units, ranges and defaults are those of QueueDescription.

    ``max_size_in_megabytes`` limits the topic and all of its subscriptions together. ``support_ordering`` and
    ``enable_subscription_partitioning`` have no effect: messages are always ordered, and a subscription is
    partitioned as its topic is.
    """

    default_message_time_to_live: int | None = None
    max_size_in_megabytes: int = 1024
    requires_duplicate_detection: bool = False
    duplicate_detection_history_time_window: int = 10 * MINUTE
    enable_batched_operations: bool = True
    filtering_messages_before_publishing: bool = False
    status: str = "Active"
    support_ordering: bool = True
    auto_delete_on_idle: int | None = None
    enable_partitioning: bool = False
    enable_subscription_partitioning: bool = False
    enable_express: bool = False
    user_metadata: str | None = None
    max_message_size_in_kilobytes: int | None = None
    authorization_rules: tuple[AccessRule, ...] = ()

    def normalize(self) -> TopicDescription:
        """Return this description with maximum durations replaced by None.

        Raises NotSupportedError for features that the broker does not implement, InvalidDescriptionError when a field
        is out of range.
        """
        if self.filtering_messages_before_publishing:
            raise NotSupportedError("filtering_messages_before_publishing")
        checked = self.as_queue().normalize()
        resolved = replace(self, **{name: getattr(checked, name) for name in _SPANS})
        check_ranges(resolved)
        return resolved

    def as_queue(self) -> QueueDescription:
        """Return the topic's own queue settings, for scheduled messages and duplicate detection."""
        return _queue_description(self, _TOPIC_FIELDS)


@dataclass(frozen=True, slots=True)
class SubscriptionDescription:
    """A subscription's settings; units, ranges and defaults are those of QueueDescription.

    ``dead_lettering_on_filter_evaluation_exceptions`` dead-letters the messages on which a rule fails.
    """

    lock_duration: int = MINUTE
    requires_session: bool = False
    default_message_time_to_live: int | None = None
    dead_lettering_on_message_expiration: bool = False
    dead_lettering_on_filter_evaluation_exceptions: bool = True
    max_delivery_count: int = 10
    enable_batched_operations: bool = True
    status: str = "Active"
    forward_to: str | None = None
    user_metadata: str | None = None
    forward_dead_lettered_messages_to: str | None = None
    auto_delete_on_idle: int | None = None

    def normalize(self) -> SubscriptionDescription:
        """Return this description with maximum durations replaced by None.

        Raises InvalidDescriptionError when a field is out of range.
        """
        checked = _queue_description(self, _SUBSCRIPTION_FIELDS).normalize()
        resolved = replace(self, **{name: getattr(checked, name) for name in (*_SPANS, *_TARGETS)})
        check_ranges(resolved)
        return resolved

    def under(self, topic: TopicDescription) -> QueueDescription:
        """Return the description in effect for a subscription of ``topic``."""
        spans = (self.default_message_time_to_live, topic.default_message_time_to_live)
        return replace(
            _queue_description(self, _SUBSCRIPTION_FIELDS),
            default_message_time_to_live=min((span for span in spans if span is not None), default=None),
            max_size_in_megabytes=topic.max_size_in_megabytes,
            max_message_size_in_kilobytes=topic.max_message_size_in_kilobytes,
            enable_partitioning=topic.enable_partitioning,
        )


Description = TypeVar("Description", QueueDescription, TopicDescription)
"""A description of a queue or of a topic."""

AnyDescription = TypeVar("AnyDescription", QueueDescription, TopicDescription, SubscriptionDescription)

_TARGETS = tuple(each.name for each in TARGETS)
_SPANS = (TIME_TO_LIVE.name, DELETE_WHEN_IDLE.name)
_QUEUE_FIELDS = {field.name for field in fields(QueueDescription)}
_TOPIC_FIELDS = tuple(field.name for field in fields(TopicDescription) if field.name in _QUEUE_FIELDS)
_SUBSCRIPTION_FIELDS = tuple(
    field.name for field in fields(SubscriptionDescription) if field.name in _QUEUE_FIELDS
)


def _queue_description(
    requested: TopicDescription | SubscriptionDescription, names: tuple[str, ...]
) -> QueueDescription:
    return QueueDescription(**{name: getattr(requested, name) for name in names})


# -- the same fields as keywords, for type checkers


class _FieldsOfAll(TypedDict, total=False):
    default_message_time_to_live: int | None
    enable_batched_operations: bool
    status: str
    user_metadata: str | None
    auto_delete_on_idle: int | None


class _FieldsOfStoring(_FieldsOfAll, total=False):
    max_size_in_megabytes: int
    max_message_size_in_kilobytes: int | None
    requires_duplicate_detection: bool
    duplicate_detection_history_time_window: int
    enable_partitioning: bool
    enable_express: bool
    authorization_rules: tuple[AccessRule, ...]


class _FieldsOfReceivedFrom(_FieldsOfAll, total=False):
    lock_duration: int
    max_delivery_count: int
    requires_session: bool
    dead_lettering_on_message_expiration: bool
    forward_to: str | None
    forward_dead_lettered_messages_to: str | None


class QueueFields(_FieldsOfStoring, _FieldsOfReceivedFrom, total=False):
    """The fields of a QueueDescription."""


class TopicFields(_FieldsOfStoring, total=False):
    """The fields of a TopicDescription."""

    support_ordering: bool
    filtering_messages_before_publishing: bool
    enable_subscription_partitioning: bool


class SubscriptionFields(_FieldsOfReceivedFrom, total=False):
    """The fields of a SubscriptionDescription."""

    dead_lettering_on_filter_evaluation_exceptions: bool
