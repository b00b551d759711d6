"""The options of ``format("sbpair")`` for reading."""

from __future__ import annotations

import difflib
import json
import re
from collections.abc import Mapping
from dataclasses import dataclass
from datetime import UTC, datetime

from sbpair.pair.envelope.names import backlog_queue_name

from .format_options import (
    PRIMARY,
    WIRE,
    ConnectionOptions,
    FormatOptions,
    NamespaceReference,
    namespace_reference,
    primary_name,
    wire_options,
)

FORM = "sbpair"
EARLIEST, LATEST = "earliest", "latest"
SUB_QUEUES = {
    "none": "",
    "deadletter": "/$DeadLetterQueue",
    "transferdeadletter": "/$Transfer/$DeadLetterQueue",
}
MANY = 2**31
KNOWN = (
    *PRIMARY,
    "queueName",
    "topicName",
    "subscriptionName",
    "subQueue",
    "backlogs",
    "primaryNamespaceName",
    "backlogQueueCount",
    "startingSequenceNumbers",
    "endingSequenceNumbers",
    "startingTimestamp",
    "endingTimestamp",
    "minMessagesPerTrigger",
    "maxTriggerDelay",
    "maxMessagesPerTrigger",
    "maxBytesPerTrigger",
    "minPartitions",
    "settlement",
    "settleTimeoutSeconds",
    "safetyLagMs",
    "minPollIntervalSeconds",
    "maxPollIntervalSeconds",
    "failOnDataLoss",
    "includeBody",
    "outageTimeout",
    *WIRE,
)


@dataclass(frozen=True, slots=True)
class SourceOptions:
    """The validated options of the message source; creating them opens no connection."""

    namespace: NamespaceReference
    wire: ConnectionOptions
    paths: tuple[str, ...]
    """The entities to read, including the sub-queue."""

    may_be_missing: bool
    """Whether an entity that does not exist counts as empty, as backlog queues do."""

    starting: str | Mapping[str, int] | datetime
    ending: str | Mapping[str, int] | datetime
    max_messages: int | None
    max_bytes: int | None
    """Encoded bytes per batch, approximately."""

    min_partitions: int
    settles: bool
    settle_timeout: float
    """Maximum duration in seconds of one settlement by a task or the driver."""

    safety_lag: float | None
    """Seconds for which a message waits before it is read; None for the default."""

    include_body: bool
    outage_timeout: float | None = None
    """Seconds of outage or throttling after which the read fails; None for the default."""

    min_poll_interval: float = 1.0
    """Seconds between two polls of a stream, at least."""

    max_poll_interval: float = 30.0
    """Seconds to which that interval grows while there is nothing to read."""

    min_messages: int = 0
    """Messages for which a stream waits before a batch; the first batch does not wait."""

    max_trigger_delay: float = 900.0
    """Seconds since the last batch after which it waits no longer for them."""

    fails_on_loss: bool = True
    """Whether a stream fails when an entity was recreated since its last read; else it starts again there."""

    @classmethod
    def of(cls, options: Mapping[str, str]) -> SourceOptions:
        """Parse the options. Raises ValueError that names an invalid one."""
        given = FormatOptions(FORM, options, KNOWN)
        if given.is_empty:
            raise given.wrong(
                "no option arrived. Spark hands those of CREATE TABLE to no source in Python: create a view, "
                "CREATE TEMPORARY VIEW orders USING sbpair OPTIONS (queueName 'orders', ...), or give them to a query, "
                "SELECT * FROM orders WITH ('queueName' = 'orders', ...)"
            )
        settles = given.choice("settlement", "none", ("none", "complete")) == "complete"
        starting = _numbers_or_time(given, "starting", EARLIEST, (EARLIEST, LATEST))
        if settles and starting != EARLIEST:
            raise given.wrong(
                "settlement=complete needs startingSequenceNumbers=earliest: messages before any other start, or time, "
                "would be completed without being read"
            )
        is_backlogs = given.flag("backlogs", default=False)
        paths = _backlogs(given) if is_backlogs else _entities(given)
        ending = _numbers_or_time(given, "ending", LATEST, (LATEST,))
        most, least = (
            given.whole("maxMessagesPerTrigger", 0, 1, MANY),
            given.whole("minMessagesPerTrigger", 0, 1, MANY),
        )
        if most and least > most:
            raise given.wrong(f"minMessagesPerTrigger ({least}) is more than maxMessagesPerTrigger ({most})")
        lag, fails_on_loss = given.text("safetyLagMs"), given.flag("failOnDataLoss", default=True)
        return cls(
            namespace_reference(given, PRIMARY),
            wire_options(given, 30.0),
            paths,
            is_backlogs or not fails_on_loss,
            _of_entities(given, "startingSequenceNumbers", starting, paths),
            _of_entities(given, "endingSequenceNumbers", ending, paths),
            most or None,
            given.whole("maxBytesPerTrigger", 0, 1, 2**40) or None,
            given.whole("minPartitions", 1, 1, 10_000),
            settles,
            given.seconds("settleTimeoutSeconds", 30.0, 1, 600),
            None if lag is None else given.whole("safetyLagMs", 0, 0, 600_000) / 1000,
            given.flag("includeBody", default=True),
            given.patience("outageTimeout"),
            given.seconds("minPollIntervalSeconds", 1.0, 0, 3600),
            given.seconds("maxPollIntervalSeconds", 30.0, 0, 3600),
            least,
            _delay(given),
            fails_on_loss,
        )


def _entities(given: FormatOptions) -> tuple[str, ...]:
    queues, topic, subscription = (
        given.several("queueName"),
        given.text("topicName"),
        given.text("subscriptionName"),
    )
    if (topic is None) is not (subscription is None):
        raise given.wrong("give both topicName and subscriptionName, or neither")
    if bool(queues) is (topic is not None):
        raise given.wrong("give one of queueName, topicName with subscriptionName, and backlogs=true")
    suffix = SUB_QUEUES[given.choice("subQueue", "none", tuple(SUB_QUEUES))]
    paths = queues or (f"{topic}/Subscriptions/{subscription}",)
    return tuple(dict.fromkeys(path.strip("/") + suffix for path in paths))


def _backlogs(given: FormatOptions) -> tuple[str, ...]:
    if given.text("queueName") or given.text("topicName"):
        raise given.wrong("backlogs=true cannot be combined with queueName or topicName")
    label = (primary_name(given) or given.require("primaryNamespaceName")).lower()
    suffix = SUB_QUEUES[given.choice("subQueue", "none", tuple(SUB_QUEUES))]
    count = given.whole("backlogQueueCount", 10, 1, 10_000)
    return tuple(backlog_queue_name(label, index) + suffix for index in range(count))


def _numbers_or_time(
    given: FormatOptions, side: str, default: str, words: tuple[str, ...]
) -> str | Mapping[str, int] | datetime:
    """Parse startingSequenceNumbers or startingTimestamp, or the two ending options; only one may be given."""
    time = given.text(f"{side}Timestamp")
    if time is None:
        return _numbers(given, f"{side}SequenceNumbers", default, words)
    if given.text(f"{side}SequenceNumbers") is not None:
        raise given.wrong(f"give {side}Timestamp or {side}SequenceNumbers, not both")
    try:
        if time.isascii() and time.isdigit():
            return datetime.fromtimestamp(int(time) / 1000, UTC)
        at: datetime | None = datetime.fromisoformat(time)
    except (ValueError, OverflowError, OSError):
        at = None
    if at is None or at.tzinfo is None:
        raise given.wrong(
            f"{side}Timestamp must be milliseconds since the epoch, or as 2026-11-21T02:00:00Z, not {time[:60]!r}"
        )
    return at


def _delay(given: FormatOptions) -> float:
    """The option ``maxTriggerDelay`` in seconds, as Kafka writes it: a number with ms, s, m or h."""
    text = given.text("maxTriggerDelay") or "15m"
    found = re.fullmatch(r"(\d+(?:\.\d+)?)\s*(ms|s|m|h)", text.strip().lower())
    if found is None:
        raise given.wrong(f"maxTriggerDelay must be a time such as 30s, 15m or 1h, not {text[:60]!r}")
    return float(found[1]) * {"ms": 0.001, "s": 1.0, "m": 60.0, "h": 3600.0}[found[2]]


def _numbers(
    given: FormatOptions, name: str, default: str, words: tuple[str, ...]
) -> str | Mapping[str, int]:
    """One of ``words``, or sequence numbers by entity as JSON."""
    text = given.text(name) or default
    if text.lower() in words:
        return text.lower()
    try:
        read = json.loads(text)
    except ValueError:
        read = None
    if not isinstance(read, dict) or not all(
        isinstance(each, int) and not isinstance(each, bool) and 0 <= each < 2**63 for each in read.values()
    ):
        shown = f'{" or ".join(words)} or JSON such as {{"orders": 41}}'
        raise given.wrong(f"{name} must be {shown}, not {text[:60]!r}")
    return {str(lane): int(number) for lane, number in read.items()}


def _of_entities(
    given: FormatOptions, name: str, read: str | Mapping[str, int] | datetime, paths: tuple[str, ...]
) -> str | Mapping[str, int] | datetime:
    """The sequence numbers by lane: entity paths as in ``paths``, whose case does not matter.

    Raises ValueError for an entity that is not read.
    """
    if not isinstance(read, Mapping):
        return read
    by_name = {path.lower(): path for path in paths}
    found = {}
    for lane, number in read.items():
        entity, mark, index = lane.strip("/").partition("#")
        path = by_name.get(entity.lower())
        if path is None:
            near = difflib.get_close_matches(entity.lower(), by_name, n=1, cutoff=0.5)
            hint = f"did you mean {by_name[near[0]]}?" if near else f"the entities are {', '.join(paths[:5])}"
            raise given.wrong(f"{name} names {entity!r}, which is not read; {hint}")
        if mark and not (index.isascii() and index.isdigit() and 0 < int(index) < 2**15):
            raise given.wrong(f"{name}: {lane!r} is not an entity, or an entity, # and a partition from 1")
        found[path + mark + index] = number
    return found
