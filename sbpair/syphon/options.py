"""What can be said about a syphon."""

from __future__ import annotations

from dataclasses import dataclass, field
from datetime import timedelta
from urllib.parse import urlsplit

from sbpair.pairing.names import check_namespace_name

from .destination_path import path_refusal
from .route import Route


@dataclass(frozen=True, slots=True)
class SyphonOptions:
    """The settings of a syphon; each is checked on construction, and a ValueError says the range."""

    backlog_queue_count: int = 10
    """How many backlog queues there are, as the senders were told (P-10); at least 1."""
    primary_namespace_name: str | None = None
    """The prefix of the backlog queues, where the primary's host does not give it."""
    allowed_destinations: tuple[str, ...] | None = None
    """The paths to deliver to, whatever their case; left out: all but the reserved ones."""
    window: int = 500
    """The most messages of one backlog that are being forwarded at once; 1 to 5000."""
    missing_backlog_interval: timedelta = timedelta(seconds=30)
    """How often to look for a backlog queue that does not exist; 1 s to 1 h."""
    operation_timeout: timedelta = timedelta(seconds=60)
    """How long the peer may take to answer before its connection counts as lost; 1 s to 10 min."""
    retry_backoff_max: timedelta = timedelta(seconds=30)
    """The most between two attempts to reach a side or a destination; 100 ms to 10 min."""
    stop_timeout: timedelta = timedelta(seconds=10)
    """How long what is in flight may take to finish when the syphon is stopped; 0 to 10 min."""
    tell_forwards: bool = False
    """Tell a MessagesForwarded for what each destination accepted; a journal to be audited needs it."""
    connection_verify: str | None = None
    """A file of trusted certificates (PEM) instead of the system's."""
    overdue_after: timedelta | None = None
    """Tell when a parked message has waited longer than this, and when none does; 1 s to 7 d."""
    over_websocket: bool = False
    """Speak AMQP over WebSocket, at port 443, where a firewall lets only HTTPS out."""
    http_proxy: str | None = field(default=None, repr=False)
    """The URL of a proxy for the WebSocket instead of the one HTTPS_PROXY names."""
    only_backlogs: tuple[int, ...] | None = None
    """The numbers of the backlog queues to work on, where several syphons share them; left out: all."""
    primary_endpoint_address: str | None = None
    """``host:port`` to dial for the primary instead of its own; names and tokens stay the namespace's."""
    secondary_endpoint_address: str | None = None
    """The same for the secondary."""

    def __post_init__(self) -> None:
        _within("backlog_queue_count", self.backlog_queue_count, 1, 10_000)
        check_namespace_name(self.primary_namespace_name)
        _within("window", self.window, 1, 5000)
        _span("missing_backlog_interval", self.missing_backlog_interval, 1, 3600)
        _span("operation_timeout", self.operation_timeout, 1, 600)
        _span("retry_backoff_max", self.retry_backoff_max, 0.1, 600)
        _span("stop_timeout", self.stop_timeout, 0, 600)
        if self.allowed_destinations is not None:
            _paths("allowed_destinations", self.allowed_destinations)
        for number in self.only_backlogs or ():
            _within("only_backlogs", number, 0, self.backlog_queue_count - 1)
        if self.overdue_after is not None:
            _span("overdue_after", self.overdue_after, 1, 604_800)
        if self.http_proxy is not None:
            _proxy(self.http_proxy, over_websocket=self.over_websocket)

    @property
    def route(self) -> Route:
        """How both sides are reached."""
        return Route(self.connection_verify, self.over_websocket, self.http_proxy)


def _within(name: str, value: int, least: int, most: int) -> None:
    if isinstance(value, bool) or not isinstance(value, int) or not least <= value <= most:
        raise ValueError(f"{name} must be a whole number from {least} to {most}, not {value!r}")


def _span(name: str, value: timedelta, least: float, most: float) -> None:
    if not isinstance(value, timedelta) or not least <= value.total_seconds() <= most:
        raise ValueError(f"{name} must be a timedelta from {least:g} s to {most:g} s, not {value!r}")


def _paths(name: str, paths: object) -> None:
    """A name that no message can have would have every message set aside."""
    if not isinstance(paths, tuple) or not all(isinstance(path, str) for path in paths):
        raise ValueError(f"{name} must be a tuple of paths, not {paths!r}")
    if not paths:
        raise ValueError(f"{name} must name a path; leave it out to allow all")
    for path in paths:
        why = "give each path on its own" if "," in path else path_refusal(path.strip("/"))
        if why is not None:
            raise ValueError(f"{name} cannot hold {path!r}: {why}")


def _proxy(url: str, *, over_websocket: bool) -> None:
    if not over_websocket:
        raise ValueError("http_proxy is for over_websocket only: AMQP itself does not go through a proxy")
    try:
        split = urlsplit(url)
        is_usable = split.scheme in ("http", "https") and bool(split.hostname) and split.port != 0
    except ValueError:
        is_usable = False
    if not is_usable:
        raise ValueError("http_proxy must be http:// or https:// and a host")  # it may hold a password
