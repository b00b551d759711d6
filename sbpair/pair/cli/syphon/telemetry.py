"""Exports the command's traces and metrics by OTLP, configured by OpenTelemetry's environment variables."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import ExitStack, contextmanager

from sbpair.pair.cli.errors import ConfigurationError
from sbpair.pair.ground.extras import install_line
from sbpair.pair.tracing.switch import MissingExtraError, use_opentelemetry

SERVICE = "sbpair-syphon"


@contextmanager
def exported_telemetry(is_wanted: bool) -> Iterator[None]:
    """Export spans and metrics until the block ends, which waits for the last ones. Does nothing unless wanted.

    Raises ConfigurationError without the extra ``otel``.
    """
    if not is_wanted:
        yield
        return
    try:
        undo = use_opentelemetry()
        from opentelemetry import metrics, trace
        from opentelemetry.exporter.otlp.proto.http.metric_exporter import OTLPMetricExporter
        from opentelemetry.exporter.otlp.proto.http.trace_exporter import OTLPSpanExporter
        from opentelemetry.sdk.metrics import MeterProvider
        from opentelemetry.sdk.metrics.export import PeriodicExportingMetricReader
        from opentelemetry.sdk.resources import SERVICE_NAME, OTELResourceDetector, Resource
        from opentelemetry.sdk.trace import TracerProvider
        from opentelemetry.sdk.trace.export import BatchSpanProcessor
    except MissingExtraError as error:
        raise ConfigurationError(f"--otel: {error}") from error
    except ImportError as error:
        raise ConfigurationError(f"--otel: {error}; {install_line('otel')}") from error

    resource = Resource.create({SERVICE_NAME: SERVICE}).merge(OTELResourceDetector().detect())
    with ExitStack() as stack:
        stack.callback(undo)
        meters = MeterProvider(
            [PeriodicExportingMetricReader(OTLPMetricExporter())], resource, shutdown_on_exit=False
        )
        stack.callback(meters.shutdown)
        tracers = TracerProvider(resource=resource, shutdown_on_exit=False)
        stack.callback(tracers.shutdown)
        tracers.add_span_processor(BatchSpanProcessor(OTLPSpanExporter()))
        metrics.set_meter_provider(meters)
        trace.set_tracer_provider(tracers)
        yield
