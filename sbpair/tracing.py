"""Traces and metrics by OpenTelemetry, from one end of an outage to the other.

    undo = use_opentelemetry()      # after the providers of OpenTelemetry are set

Off by default: without this call nothing of OpenTelemetry is imported.
"""

from __future__ import annotations

from .pair.tracing.switch import MissingExtraError, use_opentelemetry

__all__ = ["MissingExtraError", "use_opentelemetry"]
