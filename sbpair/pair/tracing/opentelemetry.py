"""Spans and metrics of OpenTelemetry, by its conventions for messaging. The only module that imports it.

    caller's span  ── create orders (producer) ··link·· forward orders (syphon) ··link·· process orders (handler)
      events:          its context travels in the message: Diagnostic-Id, traceparent, tracestate
      sbpair.failover
      sbpair.parked
      └─ ServiceBus.send, the SDK's own: one for each attempt, linked to the created messages

The SDK makes a producer span whenever a message passes one of its senders, and would make another one for each attempt,
and for the parked copy. ``PairedSpan`` replaces the SDK's span class: within a send of a paired client it leaves those
out, and in housekeeping all spans.
"""

from __future__ import annotations

import threading
import time
import weakref
from collections.abc import Callable, Iterable, Iterator, Mapping
from contextlib import contextmanager
from functools import cache
from typing import TYPE_CHECKING, Any

from azure.core.settings import settings
from azure.core.tracing import SpanKind as SdkSpanKind
from azure.core.tracing.ext.opentelemetry_span import OpenTelemetrySpan
from opentelemetry import metrics, trace
from opentelemetry.metrics import CallbackOptions, Observation
from opentelemetry.trace import Link, SpanKind, Status, StatusCode
from opentelemetry.trace.propagation.tracecontext import TraceContextTextMapPropagator

from .current import (
    CONTEXT_NAMES,
    Attributes,
    MetricsSource,
    Processing,
    SdkSpans,
    TracedOperation,
    only,
    wanted_spans,
)

if TYPE_CHECKING:
    from azure.servicebus.amqp import AmqpAnnotatedMessage

NAME = "sbpair"
SYSTEM = {"messaging.system": "servicebus"}
BOUNDARIES = (0.005, 0.01, 0.025, 0.05, 0.075, 0.1, 0.25, 0.5, 0.75, 1, 2.5, 5, 7.5, 10)
"""Bounds in seconds, as the conventions advise for durations."""
OUTCOMES = {"DeadLetter": "dead_letter", "Defer": "defer", "Abandon": "abandon"}
"""Exceptions by which a handler chooses an outcome; they do not count as errors."""

_propagator = TraceContextTextMapPropagator()


class PairedSpan(OpenTelemetrySpan):
    """The span class of the SDK, changed to make only the wanted spans."""

    def __new__(cls, *arguments: Any, **keywords: Any) -> Any:  # noqa: ANN401 -- another class, at times
        spans = wanted_spans()
        is_producer = keywords.get("kind") is SdkSpanKind.PRODUCER
        if spans is SdkSpans.NONE or (spans is SdkSpans.ATTEMPTS and is_producer):
            return UNMADE
        return super().__new__(cls)


class _Unmade:
    """A span that is not made: it accepts the SDK's calls and does nothing."""

    span_instance = trace.INVALID_SPAN
    kind = None

    def __enter__(self) -> _Unmade:
        return self

    def __exit__(self, *_: object) -> None: ...

    def start(self) -> None: ...

    def finish(self) -> None: ...

    def to_header(self) -> dict[str, str]:
        return {}

    def add_attribute(self, key: str, value: object) -> None: ...

    def set_http_attributes(self, *_: object, **__: object) -> None: ...


UNMADE = _Unmade()


class OpenTelemetry:
    """The spans and instruments; see :class:`sbpair.pair.tracing.current.Tracing`."""

    def __init__(self) -> None:
        self._tracer = trace.get_tracer(NAME)
        meter = metrics.get_meter(NAME)
        self._operations = meter.create_histogram(
            "messaging.client.operation.duration",
            unit="s",
            description="Duration of sends, with failover and retries",
            explicit_bucket_boundaries_advisory=BOUNDARIES,
        )
        self._sent = meter.create_counter(
            "messaging.client.sent.messages", unit="{message}", description="Messages that were stored"
        )
        self._handled = meter.create_histogram(
            "messaging.process.duration",
            unit="s",
            description="Duration of handlers",
            explicit_bucket_boundaries_advisory=BOUNDARIES,
        )
        self._exported = _exported_metrics()

    def switch_on(self) -> None:
        """Let the SDK make its spans."""
        settings.tracing_implementation.set_value(PairedSpan)

    def switch_off(self) -> None:
        """Restore the SDK's tracing setting from the environment."""
        settings.tracing_implementation.unset_value()

    def create(self, message: AmqpAnnotatedMessage, path: str) -> None:
        carried: Mapping[Any, Any] = message.application_properties or {}
        if any(name in carried or name.encode() in carried for name in CONTEXT_NAMES):
            return  # of the application's own making: the conventions ask to keep it
        attributes = {**SYSTEM, **_attributes_of("create", "create", path)}
        properties = message.properties
        if properties is not None and isinstance(properties.message_id, str):
            attributes["messaging.message.id"] = properties.message_id
        span = self._tracer.start_span(_title("create", path), kind=SpanKind.PRODUCER, attributes=attributes)
        headers: dict[str, str] = {}
        _propagator.inject(headers, trace.set_span_in_context(span))
        span.end()
        if "traceparent" not in headers:
            return  # no provider is set
        context = {"Diagnostic-Id": headers["traceparent"], **headers}
        message.application_properties = {
            **carried,
            **{name.encode(): value for name, value in context.items()},
        }

    @contextmanager
    def operation(self, name: str, path: str, host: str) -> Iterator[TracedOperation]:
        began, operation = time.perf_counter(), TracedOperation()
        attributes: dict[str, Any] = {**SYSTEM, **_attributes_of("send", name, path), "server.address": host}
        try:
            with only(SdkSpans.ATTEMPTS):
                yield operation
        except BaseException as error:
            attributes["error.type"] = type(error).__qualname__
            raise
        finally:
            if operation.stored_in:
                attributes["sbpair.stored_in"] = operation.stored_in
            self._operations.record(time.perf_counter() - began, attributes)
            if operation.messages:
                self._sent.add(operation.messages, attributes)

    def note(self, name: str, attributes: Attributes) -> None:
        trace.get_current_span().add_event(name, attributes)

    @contextmanager
    def processing(self, message: Processing) -> Iterator[None]:
        attributes: dict[str, Any] = {
            **SYSTEM,
            **_attributes_of("process", "process", message.path),
            "messaging.message.id": message.message_id,
            "messaging.servicebus.message.delivery_count": message.delivery_count,
            "sbpair.side": message.side,
        }
        if message.enqueued_at is not None:
            attributes["messaging.servicebus.message.enqueued_time"] = int(message.enqueued_at)
        context, links = _origin(message.headers)
        span = self._tracer.start_span(
            _title("process", message.path),
            context=context,
            kind=SpanKind.CONSUMER,
            attributes=attributes,
            links=links,
        )
        measured = {
            **SYSTEM,
            **_attributes_of("process", "process", message.path),
            "sbpair.side": message.side,
        }
        began = time.perf_counter()
        outcome = "complete"
        try:
            with trace.use_span(
                span, end_on_exit=False, record_exception=False, set_status_on_exception=False
            ):
                yield
        except BaseException as error:
            kind = type(error)
            outcome = OUTCOMES.get(kind.__name__, "abandon")
            if kind.__name__ not in OUTCOMES:
                measured["error.type"] = kind.__qualname__
                span.set_attribute("error.type", kind.__qualname__)
                span.record_exception(error)
                span.set_status(Status(StatusCode.ERROR, kind.__qualname__))
            raise
        finally:
            span.set_attribute("messaging.servicebus.disposition_status", outcome)
            span.end()
            self._handled.record(time.perf_counter() - began, measured)

    def forwarded(
        self, headers: Mapping[str, str], attributes: Attributes, path: str, seconds: float, refusal: str
    ) -> None:
        context, links = _origin(headers)
        if not links:
            return
        now = time.time_ns()
        span = self._tracer.start_span(
            _title("forward", path),
            context=context,
            kind=SpanKind.CLIENT,
            attributes={**SYSTEM, **_attributes_of("send", "forward", path), **attributes},
            links=links,
            start_time=now - round(seconds * 1e9),
        )
        if refusal:
            span.set_attribute("error.type", refusal)
            span.set_status(Status(StatusCode.ERROR, refusal))
        span.end(now)

    def ids(self) -> tuple[str, str] | None:
        context = trace.get_current_span().get_span_context()
        if not context.is_valid:
            return None
        return trace.format_trace_id(context.trace_id), trace.format_span_id(context.span_id)

    def export(self, metrics: MetricsSource, *, is_last: bool = False) -> None:
        self._exported.add(metrics, is_last)


def _attributes_of(kind: str, name: str, path: str) -> dict[str, str]:
    found = {"messaging.operation.type": kind, "messaging.operation.name": name}
    return {**found, "messaging.destination.name": path} if path else found


def _title(name: str, path: str) -> str:
    return f"{name} {path}" if path else name


def _origin(headers: Mapping[str, str]) -> tuple[Any, list[Link]]:
    """Return the creation context as the parent, and a link to it; neither if the headers are malformed."""
    if not headers:
        return None, []
    context = _propagator.extract(headers)
    span = trace.get_current_span(context).get_span_context()
    return (context, [Link(span)]) if span.is_valid else (None, [])


class _ExportedMetrics:
    """The metrics of clients and syphons as instruments of OpenTelemetry, read when these are collected.

    ``sbpair_parked_messages_total`` is ``sbpair.parked_messages``. Counters of several clients with the same labels are
    added up; of their gauges the largest is exported.
    """

    def __init__(self, meter: metrics.Meter) -> None:
        self._meter = meter
        self._sources: weakref.WeakSet[MetricsSource] = weakref.WeakSet()
        self._kept: list[MetricsSource] = []
        self._made: set[str] = set()
        self._lock = threading.Lock()

    def add(self, source: MetricsSource, is_kept: bool) -> None:
        with self._lock:
            self._sources.add(source)
            if is_kept:
                self._kept.append(source)
            for family in source.registry.collect():
                if family.name not in self._made:
                    self._made.add(family.name)
                    self._make(family.name, family.documentation, is_counter=family.type == "counter")

    def _make(self, name: str, description: str, *, is_counter: bool) -> None:
        make = self._meter.create_observable_counter if is_counter else self._meter.create_observable_gauge
        make(name.replace("sbpair_", "sbpair.", 1), [self._reader(name, is_counter)], description=description)

    def _reader(self, name: str, is_counter: bool) -> Callable[[CallbackOptions], Iterable[Observation]]:
        def read(_: CallbackOptions) -> list[Observation]:
            values: dict[tuple[tuple[str, str], ...], float] = {}
            with self._lock:
                sources = list(self._sources)
            for source in sources:
                for sample in _samples(source, name):
                    key = tuple(sorted(sample.labels.items()))
                    before = values.get(key, 0.0)
                    values[key] = before + sample.value if is_counter else max(before, sample.value)
            return [Observation(value, dict(key)) for key, value in values.items()]

        return read


@cache
def _exported_metrics() -> _ExportedMetrics:
    """Return the only instance for the process: OpenTelemetry uses only the first callback of an instrument."""
    return _ExportedMetrics(metrics.get_meter(NAME))


def _samples(source: MetricsSource, name: str) -> Iterator[Any]:
    for family in source.registry.collect():
        if family.name == name:
            yield from (each for each in family.samples if not each.name.endswith("_created"))
