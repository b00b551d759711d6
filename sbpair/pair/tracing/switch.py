"""The switch for OpenTelemetry."""

from __future__ import annotations

from collections.abc import Callable

from sbpair.pair.ground.extras import install_line

from . import current

__all__ = ["MissingExtraError", "use_opentelemetry"]


class MissingExtraError(ImportError):
    """OpenTelemetry is not installed: ``pip install 'sbpair[otel]'``."""


def use_opentelemetry() -> Callable[[], None]:
    """Trace every client, processor and syphon of this process; returns an undo function.

    Spans and metrics go to the global providers of OpenTelemetry, which the application sets. The SDK's own tracing is
    switched on as well, as ``azure.core.settings.tracing_implementation = "opentelemetry"`` does. Call it before
    processors are started. A second call changes nothing. Raises MissingExtraError without the extra ``otel``.
    """
    if current.active is not None:
        return _nothing
    try:
        from .opentelemetry import OpenTelemetry
    except ImportError as error:
        raise MissingExtraError(
            f"OpenTelemetry is not installed ({error}): {install_line('otel')}"
        ) from error

    tracing = OpenTelemetry()
    tracing.switch_on()
    current.active = tracing

    def undo() -> None:
        if current.active is tracing:
            current.active = None
            tracing.switch_off()

    return undo


def _nothing() -> None:
    """Do nothing: an earlier call switched tracing on."""
