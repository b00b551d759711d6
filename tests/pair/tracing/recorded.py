"""The spans and metrics of OpenTelemetry's in-memory exporters."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from opentelemetry import metrics, trace
from opentelemetry.sdk.metrics import MeterProvider
from opentelemetry.sdk.metrics.export import InMemoryMetricReader
from opentelemetry.sdk.trace import ReadableSpan, TracerProvider
from opentelemetry.sdk.trace.export import SimpleSpanProcessor
from opentelemetry.sdk.trace.export.in_memory_span_exporter import InMemorySpanExporter

_exporter = InMemorySpanExporter()
_reader = InMemoryMetricReader()
_providers: list[object] = []


class Recorded:
    """The spans and metrics since the test began; providers can be set only once per process."""

    def __init__(self) -> None:
        if not _providers:
            tracer_provider = TracerProvider(shutdown_on_exit=False)
            tracer_provider.add_span_processor(SimpleSpanProcessor(_exporter))
            meter_provider = MeterProvider([_reader], shutdown_on_exit=False)
            trace.set_tracer_provider(tracer_provider)
            metrics.set_meter_provider(meter_provider)
            _providers.extend((tracer_provider, meter_provider))
        _exporter.clear()

    def spans(self, *names: str) -> list[ReadableSpan]:
        """Return the ended spans with these names, or all."""
        return [span for span in _exporter.get_finished_spans() if not names or span.name in names]

    def names(self) -> list[str]:
        return sorted(span.name for span in self.spans())

    def metric(self, name: str) -> Sequence[Any]:
        """Return the data points of a metric."""
        data = _reader.get_metrics_data()
        found = [
            metric
            for resource in (data.resource_metrics if data is not None else ())
            for scope in resource.scope_metrics
            for metric in scope.metrics
            if metric.name == name
        ]
        return [point for metric in found for point in metric.data.data_points]


def is_linked(span: ReadableSpan, to: ReadableSpan) -> bool:
    """Whether a span is linked to another one."""
    return [link.context.span_id for link in span.links] == [to.context.span_id]


def events(span: ReadableSpan) -> dict[str, dict[str, Any]]:
    """Return the events of a span, by name."""
    return {event.name: dict(event.attributes or {}) for event in span.events}
