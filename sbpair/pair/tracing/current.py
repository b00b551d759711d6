"""The tracing of this process, and the choice of SDK spans in the current thread or task.

``active`` is None until tracing is switched on, so that checking it is the only cost. Imports nothing of OpenTelemetry.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from contextlib import AbstractContextManager, contextmanager
from contextvars import Context, ContextVar, copy_context
from enum import Enum
from typing import TYPE_CHECKING, Any, NamedTuple, Protocol

if TYPE_CHECKING:
    from azure.servicebus.amqp import AmqpAnnotatedMessage

Attributes = Mapping[str, str | int | float | bool]
CONTEXT_NAMES = ("traceparent", "Diagnostic-Id", "tracestate")
"""The application properties that hold the context in which a message was created."""


class SdkSpans(Enum):
    """Which spans the SDK makes."""

    ALL = "all"
    ATTEMPTS = "those of sends, since the messages already have the context of their creation"
    NONE = "none: housekeeping"


class TracedOperation:
    """An operation in progress; fill it in before it ends."""

    __slots__ = ("messages", "stored_in")

    def __init__(self) -> None:
        self.stored_in = ""
        self.messages = 0


class Processing(NamedTuple):
    """The attributes of a handler's span that describe its message."""

    path: str
    side: str
    message_id: str
    delivery_count: int
    enqueued_at: float | None
    """Seconds since the epoch."""
    headers: Mapping[str, str]
    """The creation context; see :func:`headers_of`."""


class MetricsSource(Protocol):
    """Metrics in a registry of prometheus_client."""

    @property
    def registry(self) -> Any: ...  # noqa: ANN401 -- imported only where metrics are


class Tracing(Protocol):
    """Traces and measures operations, with the attributes of OpenTelemetry's conventions for messaging."""

    def create(self, message: AmqpAnnotatedMessage, path: str) -> None:
        """Give the message the context of a producer span, unless it has one."""

    def operation(self, name: str, path: str, host: str) -> AbstractContextManager[TracedOperation]:
        """Measure an operation of a sender, during which the SDK makes only the spans of its attempts."""

    def note(self, name: str, attributes: Attributes) -> None:
        """Add an event to the caller's span."""

    def processing(self, message: Processing) -> AbstractContextManager[object]:
        """Open the span of a handler, a child of the message's creation span and linked to it."""

    def forwarded(
        self, headers: Mapping[str, str], attributes: Attributes, path: str, seconds: float, refusal: str
    ) -> None:
        """Record the span of a message that a syphon delivered in ``seconds``, or dead-lettered with ``refusal``."""

    def ids(self) -> tuple[str, str] | None:
        """Return the trace id and span id of the current span in hexadecimal; None without one."""

    def export(self, metrics: MetricsSource, *, is_last: bool = False) -> None:
        """Export these metrics too, while they exist; with ``is_last``, until the last export of the process."""


active: Tracing | None = None
_wanted: ContextVar[SdkSpans] = ContextVar("sbpair_sdk_spans", default=SdkSpans.ALL)


def wanted_spans() -> SdkSpans:
    """Return which spans the SDK makes in this thread or task."""
    return _wanted.get()


@contextmanager
def only(spans: SdkSpans) -> Iterator[None]:
    """Let the SDK make only these spans within the block."""
    token = _wanted.set(spans)
    try:
        yield
    finally:
        _wanted.reset(token)


def want(spans: SdkSpans) -> None:
    """Let the SDK make only these spans in this thread or task from now on."""
    if active is not None:
        _wanted.set(spans)


def background() -> Context | None:
    """Return the context for a background task; None, meaning a copy of the current one, if tracing is off."""
    if active is None:
        return None
    context = copy_context()
    context.run(_wanted.set, SdkSpans.NONE)
    return context


def headers_of(properties: Mapping[Any, object]) -> dict[str, str]:
    """Return the creation context in application properties as W3C headers; empty without a usable one."""
    found: dict[str, str] = {}
    for name in CONTEXT_NAMES:
        value = properties.get(name) or properties.get(name.encode())
        text = value.decode("ascii", "replace") if isinstance(value, bytes) else value
        if isinstance(text, str):
            found.setdefault("tracestate" if name == "tracestate" else "traceparent", text)
    return found if "traceparent" in found else {}
