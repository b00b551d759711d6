"""What does Prometheus see?

Events are counted as they are told; a syphon's own counters are read when somebody scrapes. Every metric is
in the table below, which docs/observing.md shows. Labels are names of yours (paths of your senders, backlog
numbers) or from a fixed list, never text from a message: a message must not be able to make time series.
"""

from __future__ import annotations

import threading
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from enum import Enum
from typing import TYPE_CHECKING

from .entities import EntityStates, Watched
from .record import event_name, own_fields

if TYPE_CHECKING:
    from prometheus_client import CollectorRegistry, Counter, Gauge
    from prometheus_client.core import CounterMetricFamily, GaugeMetricFamily

CONTENT_TYPE = "text/plain; version=0.0.4; charset=utf-8"


@dataclass(frozen=True, slots=True)
class Metric:
    """One metric: a counter when its name ends in ``_total``, else a gauge."""

    name: str
    labels: tuple[str, ...]
    help: str


METRICS = (
    Metric("sbpair_entity_state", ("path", "state"), "1 for the state an entity is in, 0 for the others"),
    Metric("sbpair_suspicions_total", ("path",), "failures that started the failover interval"),
    Metric("sbpair_failovers_total", ("path",), "times an entity failed over"),
    Metric("sbpair_failbacks_total", ("path",), "times it came back to the primary"),
    Metric("sbpair_parked_messages_total", ("path", "backlog"), "messages a backlog queue accepted"),
    Metric("sbpair_pings_total", ("path",), "pings sent, billed as messages"),
    Metric("sbpair_ping_failures_total", ("path",), "pings that were not accepted"),
    Metric("sbpair_backlog_withdrawals_total", ("backlog",), "times a backlog queue left the rotation"),
    Metric("sbpair_backlog_withdrawn", ("backlog",), "1 while a backlog queue has failed and not returned"),
    Metric("sbpair_backlogs_created_total", (), "backlog queues created"),
    Metric("sbpair_backlog_creation_failures_total", (), "times they could not be made sure of"),
    Metric("sbpair_spooled_messages_total", ("path",), "messages that went to the spool"),
    Metric("sbpair_spool_replayed_messages_total", ("path",), "messages a broker took from the spool"),
    Metric("sbpair_spool_refused_messages_total", ("path",), "messages set aside in the spool for good"),
    Metric("sbpair_syphon_connects_total", (), "times both sides were reached"),
    Metric("sbpair_syphon_disconnects_total", (), "times a side was lost or could not be reached"),
    Metric("sbpair_syphon_set_aside_total", ("reason",), "messages dead-lettered on their backlog queue"),
    Metric("sbpair_syphon_backlog_detaches_total", ("backlog",), "links to a backlog queue refused or lost"),
    Metric("sbpair_syphon_backlogs_missing_total", ("backlog",), "backlog queues found not to exist"),
    Metric("sbpair_syphon_destinations_held", (), "destinations that cannot take messages now"),
)

# event: (metric, the fields that are its labels, the field that holds how many, or "")
_COUNTED: dict[str, tuple[str, tuple[str, ...], str]] = {
    "entity_suspected": ("sbpair_suspicions_total", ("path",), ""),
    "message_parked": ("sbpair_parked_messages_total", ("path", "backlog"), "count"),
    "ping_sent": ("sbpair_pings_total", ("path",), ""),
    "ping_failed": ("sbpair_ping_failures_total", ("path",), ""),
    "backlog_withdrawn": ("sbpair_backlog_withdrawals_total", ("backlog",), ""),
    "backlogs_created": ("sbpair_backlogs_created_total", (), "created"),
    "backlogs_not_created": ("sbpair_backlog_creation_failures_total", (), ""),
    "message_spooled": ("sbpair_spooled_messages_total", ("path",), "count"),
    "spool_replayed": ("sbpair_spool_replayed_messages_total", ("path",), "count"),
    "spooled_message_refused": ("sbpair_spool_refused_messages_total", ("path",), ""),
    "syphon_connected": ("sbpair_syphon_connects_total", (), ""),
    "syphon_disconnected": ("sbpair_syphon_disconnects_total", (), ""),
    "message_set_aside": ("sbpair_syphon_set_aside_total", ("reason",), ""),
    "backlog_detached": ("sbpair_syphon_backlog_detaches_total", ("backlog",), ""),
    "backlog_missing": ("sbpair_syphon_backlogs_missing_total", ("backlog",), ""),
}
_WITHDRAWN = {"backlog_withdrawn": 1, "backlog_returned": 0}
_GAUGES_OF_COUNTERS = frozenset({"pending"})  # the one field of a syphon's counters that goes down too


class Metrics:
    """A sink that counts, with a registry of its own; for any thread."""

    def __init__(self) -> None:
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
        self._states = EntityStates()
        self._lock = threading.Lock()
        self._held: set[str] = set()

    def write(self, event: object) -> None:
        """Count an event; one that no metric is about is ignored."""
        name = event_name(type(event))
        fields = own_fields(event)
        if name in _COUNTED:
            metric, labels, amount = _COUNTED[name]
            self._count(metric, {label: str(fields[label]) for label in labels}, fields.get(amount, 1))
        if name in _WITHDRAWN:
            labels_of = self._gauges["sbpair_backlog_withdrawn"].labels(backlog=str(fields["backlog"]))
            labels_of.set(_WITHDRAWN[name])
        if name in ("destination_held", "destination_resumed"):
            self._hold(str(fields["path"]), is_held=name == "destination_held")
        if change := self._states.told(event):
            self._changed(*change)

    def read_counters(self, prefix: str, read: Callable[[], object]) -> None:
        """Show the whole numbers of the dataclass that ``read`` returns, asked at each scrape.

        ``read_counters("sbpair_syphon", lambda: syphon.counters)`` shows ``sbpair_syphon_forwarded_total``
        and the like; ``pending`` is a gauge.
        """
        self.registry.register(_CountersRead(prefix, read))

    def read_state(self, name: str, read: Callable[[], Enum]) -> None:
        """Show a gauge with a label ``state``: 1 for the member that ``read`` returns, 0 for the others."""
        self.registry.register(_StateRead(name, read))

    def exposition(self) -> bytes:
        """All metrics, as Prometheus scrapes them (:data:`CONTENT_TYPE`)."""
        from prometheus_client import generate_latest

        return generate_latest(self.registry)

    def _count(self, metric: str, labels: dict[str, str], amount: object) -> None:
        counter = self._counters[metric]
        by = len(amount) if isinstance(amount, tuple) else amount
        if isinstance(by, int):
            (counter.labels(**labels) if labels else counter).inc(by)

    def _hold(self, path: str, *, is_held: bool) -> None:
        with self._lock:
            (self._held.add if is_held else self._held.discard)(path)
            self._gauges["sbpair_syphon_destinations_held"].set(len(self._held))

    def _changed(self, path: str, before: Watched, after: Watched) -> None:
        gauge = self._gauges["sbpair_entity_state"]
        for state in Watched:
            gauge.labels(path=path, state=state.value).set(int(state is after))
        if after is Watched.FAILED_OVER:
            self._counters["sbpair_failovers_total"].labels(path=path).inc()
        if before is Watched.FAILED_OVER and after is Watched.HEALTHY:
            self._counters["sbpair_failbacks_total"].labels(path=path).inc()


class _StateRead:
    """A collector over somebody else's state."""

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


class _CountersRead:
    """A collector over somebody else's counters."""

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
