"""Prometheus metrics.

Counters are updated by events; those of a syphon or a processor are read at each scrape. The tables below list every
metric, and docs/reference/metrics.md shows them. Label values are entity paths, backlog numbers or members of a fixed
list, never text from a message, so that messages cannot create time series.
"""

from __future__ import annotations

import threading
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass
from enum import Enum
from typing import TYPE_CHECKING, Any, Protocol

from sbpair import __version__
from sbpair.pair.amqp.build import build
from sbpair.pair.ground.extras import require

from .record import event_name, own_fields
from .sinks import EntityStates, ObservedState

if TYPE_CHECKING:
    from prometheus_client import CollectorRegistry, Counter, Gauge
    from prometheus_client.core import CounterMetricFamily, GaugeMetricFamily, HistogramMetricFamily
    from prometheus_client.metrics_core import Metric as Family


CONTENT_TYPE = "text/plain; version=0.0.4; charset=utf-8"
MAX_PATHS = 200  # with a label of their own
OTHERS = "(others)"  # no entity has this name


@dataclass(frozen=True, slots=True)
class Metric:
    """The definition of a metric: a counter if the name ends in ``_total``, otherwise a gauge."""

    name: str
    labels: tuple[str, ...]
    help: str


BUILD_INFO = Metric(
    "sbpair_build_info", ("version", "build"), "always 1: the version of sbpair, and its build"
)

METRICS = (
    Metric("sbpair_entity_state", ("path", "state"), "1 for the state an entity is in, 0 for the others"),
    Metric("sbpair_suspicions_total", ("path",), "failures that started the failover interval"),
    Metric("sbpair_failovers_total", ("path",), "times an entity failed over"),
    Metric(
        "sbpair_returns_aborted_total", ("path",), "returns to the primary that a failed trial send ended"
    ),
    Metric("sbpair_slow_sends_total", ("path",), "sends that the primary accepted after slow_after or later"),
    Metric("sbpair_keys_set_aside_total", ("path",), "times a session id or partition key was set aside"),
    Metric("sbpair_failbacks_total", ("path",), "times an entity returned to the primary"),
    Metric(
        "sbpair_parked_messages_total",
        ("path", "backlog", "reason"),
        "messages that a backlog queue accepted; before the entity failed over if the reason is not failed_over",
    ),
    Metric(
        "sbpair_raised_sends_total",
        ("path", "cause"),
        "sends that raised to their caller, by the class of the last error",
    ),
    Metric("sbpair_pings_total", ("path",), "pings sent, billed as messages"),
    Metric("sbpair_ping_failures_total", ("path",), "pings that were not accepted"),
    Metric("sbpair_backlog_withdrawals_total", ("backlog",), "times a backlog queue left the rotation"),
    Metric("sbpair_backlog_withdrawn", ("backlog",), "1 while a backlog queue rests after a failure"),
    Metric("sbpair_backlogs_created_total", (), "backlog queues created"),
    Metric("sbpair_backlog_creation_failures_total", (), "failed attempts to ensure the backlog queues"),
    Metric("sbpair_side_state", ("side", "state"), "1 for the state a namespace is in, 0 for the others"),
    Metric(
        "sbpair_side_refusals_total", ("side",), "times a namespace began to refuse the client as a whole"
    ),
    Metric(
        "sbpair_fence_opened_sessions_total",
        ("path",),
        "ordered sessions that use the primary again, since their backlog was seen empty",
    ),
    Metric("sbpair_fence_unproved_total", ("path",), "times an ordered backlog queue could not be peeked"),
    Metric("sbpair_spooled_messages_total", ("path",), "messages written to the spool"),
    Metric(
        "sbpair_spool_replayed_messages_total", ("path",), "messages from the spool that a broker accepted"
    ),
    Metric(
        "sbpair_spool_refused_messages_total",
        ("path",),
        "messages refused and kept in the spool: the primary refused their content",
    ),
    Metric("sbpair_syphon_connects_total", (), "times both sides were reached"),
    Metric("sbpair_syphon_disconnects_total", (), "times a side was lost or could not be reached"),
    Metric("sbpair_syphon_set_aside_total", ("reason",), "messages dead-lettered on their backlog queue"),
    Metric("sbpair_syphon_sessions_held_total", ("reason",), "sessions held until an operator acts"),
    Metric("sbpair_syphon_backlog_detaches_total", ("backlog",), "links to a backlog queue refused or lost"),
    Metric("sbpair_syphon_backlogs_missing_total", ("backlog",), "backlog queues found not to exist"),
    Metric(
        "sbpair_syphon_landings_total",
        ("path",),
        "times messages of an entity began to land on the secondary",
    ),
    Metric(
        "sbpair_syphon_landing",
        ("path",),
        "1 while messages of an entity land on the secondary, else 0; beyond 200 paths their number",
    ),
    Metric(
        "sbpair_processor_link_losses_total", ("path", "side"), "times an entity could not be received from"
    ),
    Metric("sbpair_processor_handler_failures_total", ("path", "side"), "handlers that raised an error"),
    Metric(
        "sbpair_processor_locks_lost_total",
        ("path", "side"),
        "messages whose lock ended before they were settled",
    ),
    Metric(
        "sbpair_processor_settlements_unknown_total",
        ("path", "side"),
        "settlements whose confirmation was lost with their link",
    ),
    Metric("sbpair_processor_duplicates_total", ("path", "side"), "messages completed without their handler"),
    Metric(
        "sbpair_processor_silent_links_total",
        ("path", "side"),
        "links replaced because they delivered nothing although messages waited",
    ),
    Metric("sbpair_syphon_destinations_held", (), "destinations that cannot accept messages now"),
)

# Metrics with one label, read from a syphon or the processors of a client at each scrape.
READ = (
    Metric("sbpair_processor_messages_handled_total", ("path",), "messages whose handler ended"),
    Metric("sbpair_processor_handler_seconds_total", ("path",), "time that handlers took, in seconds"),
    Metric(
        "sbpair_processor_in_flight", ("path",), "messages in flight: waiting for a handler, or being handled"
    ),
    Metric(
        "sbpair_failed_share",
        ("path",),
        "share of the attempts at the primary that failed within the failover interval, 0 for fewer than five",
    ),
    Metric("sbpair_keys_aside", ("path",), "session ids and partition keys that skip the primary now"),
    Metric(
        "sbpair_secondary_silent",
        ("side",),
        "1 while the secondary fails as a whole and is asked once a second, else 0",
    ),
    Metric(
        "sbpair_backlogs_missing",
        ("side",),
        "1 while this client could not make sure that its backlog queues exist, for whatever reason, else 0",
    ),
    Metric(
        "sbpair_backlog_bytes",
        ("backlog", "source"),
        "bytes in a backlog queue: source is service where it tells, else parked, by this process in this outage",
    ),
    Metric("sbpair_backlog_limit_bytes", ("backlog",), "the size limit of a backlog queue"),
    Metric(
        "sbpair_backlog_messages",
        ("backlog",),
        "messages in a backlog queue, without a ceiling, by the service",
    ),
    Metric(
        "sbpair_spool_messages", ("path",), "messages that wait in the spool: the 200 entities with the most"
    ),
    Metric("sbpair_spool_writable", (), "1 while the spool can be written, 0 on a full or unwritable disk"),
    Metric("sbpair_syphon_side_refused", ("side",), "1 while a side refuses the syphon, else 0"),
    Metric("sbpair_syphon_backlog_depth", ("backlog",), "messages that wait, counted up to 1000"),
    Metric(
        "sbpair_syphon_backlog_oldest_seconds", ("backlog",), "waiting time of the oldest message in seconds"
    ),
    Metric("sbpair_syphon_backlog_missing", ("backlog",), "1 while a backlog queue does not exist, else 0"),
    Metric("sbpair_syphon_backlog_dead_letters", ("backlog",), "dead letters of a backlog queue"),
    Metric(
        "sbpair_syphon_backlog_stranded",
        ("backlog",),
        "1 for a backlog queue beyond the count that holds messages",
    ),
    Metric(
        "sbpair_syphon_backlog_untransferred",
        ("backlog",),
        "messages that landed and were refused after all, in the backlog's transfer dead-letter queue",
    ),
    Metric(
        "sbpair_syphon_pace",
        ("path", "side"),
        "messages a second that a destination is sent at most: the 200 slowest of those that are paced",
    ),
)

MAX_SPOOL_PATHS = 200
SEND_SECONDS = Metric(
    "sbpair_send_seconds",
    ("side", "outcome"),
    "duration of sends: where their messages were stored, or what refused them last; accepted or raised",
)

Values = Mapping[str, float] | Mapping[tuple[str, ...], float]
"""Values by label, or by several labels in their order."""

# event: (metric, the fields that are its labels, the field that holds the amount, or "")
_COUNTED: dict[str, tuple[str, tuple[str, ...], str]] = {
    "entity_suspected": ("sbpair_suspicions_total", ("path",), ""),
    "return_aborted": ("sbpair_returns_aborted_total", ("path",), ""),
    "primary_slow": ("sbpair_slow_sends_total", ("path",), ""),
    "key_set_aside": ("sbpair_keys_set_aside_total", ("path",), ""),
    "message_parked": ("sbpair_parked_messages_total", ("path", "backlog", "reason"), "count"),
    "send_raised": ("sbpair_raised_sends_total", ("path", "cause"), ""),
    "ping_sent": ("sbpair_pings_total", ("path",), ""),
    "ping_failed": ("sbpair_ping_failures_total", ("path",), ""),
    "backlog_withdrawn": ("sbpair_backlog_withdrawals_total", ("backlog",), ""),
    "backlogs_created": ("sbpair_backlogs_created_total", (), "created"),
    "backlogs_not_created": ("sbpair_backlog_creation_failures_total", (), ""),
    "side_faulted": ("sbpair_side_refusals_total", ("side",), ""),
    "fence_opened": ("sbpair_fence_opened_sessions_total", ("path",), "sessions"),
    "fence_unproved": ("sbpair_fence_unproved_total", ("path",), ""),
    "session_held": ("sbpair_syphon_sessions_held_total", ("reason",), ""),
    "message_spooled": ("sbpair_spooled_messages_total", ("path",), "count"),
    "spool_replayed": ("sbpair_spool_replayed_messages_total", ("path",), "count"),
    "spooled_message_refused": ("sbpair_spool_refused_messages_total", ("path",), ""),
    "syphon_connected": ("sbpair_syphon_connects_total", (), ""),
    "syphon_disconnected": ("sbpair_syphon_disconnects_total", (), ""),
    "message_set_aside": ("sbpair_syphon_set_aside_total", ("reason",), ""),
    "backlog_detached": ("sbpair_syphon_backlog_detaches_total", ("backlog",), ""),
    "receiving_lost": ("sbpair_processor_link_losses_total", ("path", "side"), ""),
    "handler_failed": ("sbpair_processor_handler_failures_total", ("path", "side"), ""),
    "lock_ended": ("sbpair_processor_locks_lost_total", ("path", "side"), ""),
    "settlement_unknown": ("sbpair_processor_settlements_unknown_total", ("path", "side"), "message_ids"),
    "duplicates_completed": ("sbpair_processor_duplicates_total", ("path", "side"), "message_ids"),
    "link_silent": ("sbpair_processor_silent_links_total", ("path", "side"), ""),
    "backlog_missing": ("sbpair_syphon_backlogs_missing_total", ("backlog",), ""),
}
_AWAY = frozenset({ObservedState.FAILED_OVER, ObservedState.RETURNING})
_WITHDRAWN = frozenset({"backlog_withdrawn", "backlog_returned"})
_LANDINGS = frozenset({"landing_began", "landing_ended", "landing_refused"})
_SIDE_STATES = {"side_closed": "closed", "side_faulted": "refused", "side_recovered": "open"}
_GAUGES_OF_COUNTERS = frozenset({"pending"})  # the only syphon counter that can decrease


class _WithoutCreated:
    """A collector of a registry's metrics, without the series that say when each was created."""

    def __init__(self, registry: CollectorRegistry) -> None:
        self._registry = registry

    def collect(self) -> Iterator[Family]:
        for family in self._registry.collect():
            family.samples = [each for each in family.samples if each.name != f"{family.name}_created"]
            yield family


class Metrics:
    """A sink that counts events in its own registry. Thread-safe."""

    def __init__(self) -> None:
        require("observe", "Metrics")
        from prometheus_client import CollectorRegistry, Counter, Gauge

        self.registry: CollectorRegistry = CollectorRegistry()
        self._counters: dict[str, Counter] = {}
        self._gauges: dict[str, Gauge] = {}
        for metric in METRICS:
            if metric.name.endswith("_total"):
                self._counters[metric.name] = Counter(
                    metric.name, metric.help, metric.labels, registry=self.registry
                )
            else:
                self._gauges[metric.name] = Gauge(
                    metric.name, metric.help, metric.labels, registry=self.registry
                )
        info = Gauge(BUILD_INFO.name, BUILD_INFO.help, BUILD_INFO.labels, registry=self.registry)
        info.labels(version=__version__, build=build()).set(1)
        self._states = EntityStates()
        self._lock = threading.Lock()
        self._held: set[str] = set()
        self._landing_labels = PathLabels()
        self._landing: set[str] = set()  # those without a label of their own

    def write(self, event: object) -> None:
        """Count an event. Events without a metric are ignored."""
        name = event_name(type(event))
        fields = own_fields(event)
        if name in _LANDINGS:
            with self._lock:
                self._land(name, str(fields["path"]))
        elif name in _COUNTED:
            metric, labels, amount = _COUNTED[name]
            self._count(metric, {label: str(fields[label]) for label in labels}, fields.get(amount, 1))
        if name in _WITHDRAWN:
            labels_of = self._gauges["sbpair_backlog_withdrawn"].labels(backlog=str(fields["backlog"]))
            labels_of.set_function(_left_of(event))
        if name in _SIDE_STATES:
            self._side_changed(str(fields["side"]), _SIDE_STATES[name])
        if name in ("destination_held", "destination_resumed"):
            self._hold(str(fields["path"]), is_held=name == "destination_held")
        if name in ("syphon_connected", "syphon_disconnected"):
            self._hold_nothing()  # holds end with the connection and are reported again
        if change := self._states.apply(event):
            self._changed(*change)

    def read_counters(self, prefix: str, read: Callable[[], object]) -> None:
        """Export the integer fields of the dataclass that ``read`` returns at each scrape.

        ``read_counters("sbpair_syphon", lambda: syphon.counters)`` exports ``sbpair_syphon_forwarded_total``
        and so on; ``pending`` is a gauge.
        """
        self.registry.register(_CountersRead(prefix, read))

    def read_state(self, name: str, read: Callable[[], Enum]) -> None:
        """Export a gauge with a label ``state``: 1 for the member that ``read`` returns, 0 for the others."""
        self.registry.register(_StateRead(name, read))

    def read_gauge(self, name: str, read: Callable[[], Values]) -> None:
        """Export a metric of :data:`READ`: ``read`` returns its values by label at each scrape."""
        metric = next(each for each in READ if each.name == name)
        self.registry.register(_GaugeRead(metric, read))

    def read_sends(self, read: Callable[[], Sends]) -> None:
        """Export how long sends take, as ``read`` returns it at each scrape."""
        self.registry.register(_SendsRead(read))

    def exposition(self) -> bytes:
        """Return all metrics in Prometheus text format (:data:`CONTENT_TYPE`).

        When a counter was created is left out: this format has no place for it but a gauge of its own.
        """
        from prometheus_client import CollectorRegistry, generate_latest

        exposed = CollectorRegistry(auto_describe=False)
        exposed.register(_WithoutCreated(self.registry))
        return generate_latest(exposed)

    def _count(self, metric: str, labels: dict[str, str], amount: object) -> None:
        counter = self._counters[metric]
        by = len(amount) if isinstance(amount, tuple) else amount
        if isinstance(by, int):
            (counter.labels(**labels) if labels else counter).inc(by)

    def _land(self, name: str, path: str) -> None:
        gauge, counter = self._gauges["sbpair_syphon_landing"], self._counters["sbpair_syphon_landings_total"]
        if name == "landing_refused" and self._landing_labels.forget(path):
            for metric in (gauge, counter):  # the path names no entity, and its sender chose it
                with suppress(KeyError):
                    metric.remove(path)
            return
        began = name == "landing_began"
        label = OTHERS if path in self._landing else self._landing_labels.of(path)
        if began:
            counter.labels(path=label).inc()
        if label == OTHERS:
            (self._landing.add if began else self._landing.discard)(path)
            gauge.labels(path=label).set(len(self._landing))
        else:
            gauge.labels(path=label).set(int(began))

    def _hold(self, path: str, *, is_held: bool) -> None:
        with self._lock:
            (self._held.add if is_held else self._held.discard)(path)
            self._gauges["sbpair_syphon_destinations_held"].set(len(self._held))

    def _hold_nothing(self) -> None:
        with self._lock:
            self._held.clear()
            self._gauges["sbpair_syphon_destinations_held"].set(0)

    def _side_changed(self, side: str, now: str) -> None:
        for state in _SIDE_STATES.values():
            self._gauges["sbpair_side_state"].labels(side=side, state=state).set(int(state == now))

    def _changed(self, path: str, before: ObservedState, after: ObservedState) -> None:
        gauge = self._gauges["sbpair_entity_state"]
        for state in ObservedState:
            gauge.labels(path=path, state=state.value).set(int(state is after))
        if after is ObservedState.FAILED_OVER and before is not ObservedState.RETURNING:
            self._counters["sbpair_failovers_total"].labels(path=path).inc()
        if before in _AWAY and after is ObservedState.HEALTHY:
            self._counters["sbpair_failbacks_total"].labels(path=path).inc()


class Durations(Protocol):
    """The durations of some sends."""

    @property
    def total(self) -> float: ...

    def cumulative_counts(self) -> Sequence[int]:
        """Return how many sends ended within each bound, and last the total number."""


class Sends(Protocol):
    """The durations of the sends of a client; ``bounds`` in seconds."""

    @property
    def bounds(self) -> Sequence[float]: ...

    def by_side(self) -> Mapping[tuple[str, str], Durations]:
        """Return the durations by side and outcome."""


class Condition(Protocol):
    """The degraded parts of an entity."""

    @property
    def failed_share(self) -> float: ...

    @property
    def keys_aside(self) -> int: ...


class BacklogFill(Protocol):
    """How full a backlog queue is, in bytes; ``messages`` is None unless the service counted it."""

    @property
    def size(self) -> int: ...

    @property
    def limit(self) -> int: ...

    @property
    def messages(self) -> int | None: ...


class _StateRead:
    """Collector for :meth:`Metrics.read_state`."""

    def __init__(self, name: str, read: Callable[[], Enum]) -> None:
        self._name = name
        self._read = read

    def collect(self) -> Iterator[GaugeMetricFamily]:
        from prometheus_client.core import GaugeMetricFamily

        now = self._read()
        family = GaugeMetricFamily(self._name, "1 for the state it is in, 0 for the others", labels=["state"])
        for state in type(now):
            family.add_metric([str(state.value)], int(state is now))
        yield family


class _GaugeRead:
    """Collector for :meth:`Metrics.read_gauge`."""

    def __init__(self, metric: Metric, read: Callable[[], Values]) -> None:
        self._metric = metric
        self._read = read

    def collect(self) -> Iterator[GaugeMetricFamily | CounterMetricFamily]:
        from prometheus_client.core import CounterMetricFamily, GaugeMetricFamily

        kind = CounterMetricFamily if self._metric.name.endswith("_total") else GaugeMetricFamily
        family = kind(self._metric.name, self._metric.help, labels=self._metric.labels)
        for label, value in self._read().items():
            family.add_metric([label] if isinstance(label, str) else list(label), value)
        yield family


class _SendsRead:
    """Collector for :meth:`Metrics.read_sends`."""

    def __init__(self, read: Callable[[], Sends]) -> None:
        self._read = read

    def collect(self) -> Iterator[HistogramMetricFamily]:
        from prometheus_client.core import HistogramMetricFamily

        sends = self._read()
        bounds = [*(f"{bound:g}" for bound in sends.bounds), "+Inf"]
        family = HistogramMetricFamily(SEND_SECONDS.name, SEND_SECONDS.help, labels=SEND_SECONDS.labels)
        for (side, outcome), times in sends.by_side().items():
            buckets = zip(bounds, map(float, times.cumulative_counts()), strict=True)
            family.add_metric([side, outcome], list(buckets), times.total)
        yield family


class _CountersRead:
    """Collector for :meth:`Metrics.read_counters`."""

    def __init__(self, prefix: str, read: Callable[[], object]) -> None:
        self._prefix = prefix
        self._read = read

    def collect(self) -> Iterator[CounterMetricFamily | GaugeMetricFamily]:
        from prometheus_client.core import CounterMetricFamily, GaugeMetricFamily

        for name, value in own_fields(self._read()).items():
            if not isinstance(value, int) or isinstance(value, bool):
                continue
            if name in _GAUGES_OF_COUNTERS:
                yield GaugeMetricFamily(f"{self._prefix}_{name}", f"{name}, now", value=value)
            else:
                yield CounterMetricFamily(f"{self._prefix}_{name}", f"{name}, so far", value=value)


def _left_of(event: object) -> Callable[[], float]:
    """Return a function that is 1 until the event's ``until`` has passed, then 0; always 0 without ``until``."""
    at, until = getattr(event, "at", 0.0), getattr(event, "until", None)
    ends = None if until is None else time.monotonic() + until - at
    return lambda: float(ends is not None and time.monotonic() < ends)


def show_conditions(
    metrics: Metrics, read: Callable[[], Mapping[str, Condition]], is_silent: Callable[[], bool]
) -> None:
    """Add gauges for the parts that are degraded: of each entity, and of the secondary."""

    def shares() -> dict[str, float]:
        return {path: each.failed_share for path, each in read().items()}

    def keys() -> dict[str, float]:
        return {path: each.keys_aside for path, each in read().items()}

    metrics.read_gauge("sbpair_failed_share", shares)
    metrics.read_gauge("sbpair_keys_aside", keys)
    metrics.read_gauge("sbpair_secondary_silent", lambda: {"secondary": float(is_silent())})


def show_backlogs(metrics: Metrics, is_missing: Callable[[], bool]) -> None:
    """Add the gauge of backlog queues that a client could not create or verify."""
    metrics.read_gauge("sbpair_backlogs_missing", lambda: {"secondary": float(is_missing())})


def show_spool(
    metrics: Metrics, depth: Callable[[], Mapping[str, float]], is_writable: Callable[[], bool | None]
) -> None:
    """Add gauges for the spool of a client, if it has one."""

    def most() -> dict[str, float]:
        return dict(sorted(depth().items(), key=lambda each: -each[1])[:MAX_SPOOL_PATHS])

    def writable() -> dict[tuple[str, ...], float]:
        found = is_writable()
        return {} if found is None else {(): float(found)}

    metrics.read_gauge("sbpair_spool_messages", most)
    metrics.read_gauge("sbpair_spool_writable", writable)


def show_room(metrics: Metrics, levels: Callable[[], Mapping[int, BacklogFill]]) -> None:
    """Add gauges for the fill level of the backlog queues that a client parks in."""

    def sizes() -> dict[tuple[str, ...], float]:
        return {
            (str(backlog), "parked" if each.messages is None else "service"): each.size
            for backlog, each in levels().items()
        }

    def limits() -> dict[str, float]:
        return {str(backlog): each.limit for backlog, each in levels().items()}

    def messages() -> dict[str, float]:
        return {
            str(backlog): each.messages for backlog, each in levels().items() if each.messages is not None
        }

    metrics.read_gauge("sbpair_backlog_bytes", sizes)
    metrics.read_gauge("sbpair_backlog_limit_bytes", limits)
    metrics.read_gauge("sbpair_backlog_messages", messages)


class Handling(Protocol):
    """The counters of a processor, as shown by the metrics."""

    @property
    def messages_handled(self) -> int: ...

    @property
    def handler_seconds(self) -> float: ...

    @property
    def in_flight(self) -> int: ...


class Handlers(Protocol):
    """The processors of a client."""

    def by_path(self, read: Callable[[Any], float], /) -> Mapping[str, float]: ...


def show_processors(metrics: Metrics, processors: Handlers) -> None:
    """Add metrics for the counters of ``processors``, labelled by entity."""

    def messages_handled_by(counters: Handling) -> float:
        return counters.messages_handled

    def seconds(counters: Handling) -> float:
        return counters.handler_seconds

    def in_flight(counters: Handling) -> float:
        return counters.in_flight

    metrics.read_gauge(
        "sbpair_processor_messages_handled_total", lambda: processors.by_path(messages_handled_by)
    )
    metrics.read_gauge("sbpair_processor_handler_seconds_total", lambda: processors.by_path(seconds))
    metrics.read_gauge("sbpair_processor_in_flight", lambda: processors.by_path(in_flight))


class PathLabels:
    """The label of each path: the path itself, or :data:`OTHERS` for those beyond ``MAX_PATHS``."""

    def __init__(self) -> None:
        self._paths: set[str] = set()

    def of(self, path: str) -> str:
        """Return the label of ``path``."""
        if path not in self._paths and len(self._paths) >= MAX_PATHS:
            return OTHERS
        self._paths.add(path)
        return path

    def forget(self, path: str) -> bool:
        """Forget a path that names no entity; return whether it had a label of its own."""
        had_one = path in self._paths
        self._paths.discard(path)
        return had_one
