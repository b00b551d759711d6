"""Syphon options."""

from __future__ import annotations

from dataclasses import dataclass, field
from datetime import timedelta
from typing import Literal

from sbpair.pair.auth.route import Proxy, Route
from sbpair.pair.envelope.names import check_namespace_name, path_refusal
from sbpair.pair.ground.ranges import check_choice, check_span, check_whole

LAND = ("primary", "either")
WHOLES: dict[str, tuple[int, int]] = {
    "backlog_queue_count": (1, 10_000),
    "window": (1, 5000),
    "max_rate": (1, 1_000_000),
    "memory_budget": (1024 * 1024, 2**40),
    "max_concurrent_sessions": (1, 5000),
}
SPANS: dict[str, tuple[float, float]] = {
    "missing_backlog_interval": (1, 3600),
    "operation_timeout": (1, 600),
    "retry_backoff_max": (0.1, 600),
    "stop_timeout": (0, 600),
    "land_after": (0, 86_400),
    "overdue_after": (1, 604_800),
    "measure_every": (1, 3600),
}
CHOICES: dict[str, tuple[str, ...]] = {
    "land": LAND,
    "ordering": ("none", "session"),
    "on_poison": ("dead-letter", "hold"),
}
OPTIONAL = frozenset({"max_rate", "overdue_after", "measure_every"})
MAX_QUEUES = (
    2_000  # backlog queues of one syphon: each is a claim and a link of its connection to the secondary
)
MAX_LINKS = (
    4_900  # of that connection: each has an AMQP session of its own, of which the service allows 5,000
)


@dataclass(frozen=True, slots=True)
class SyphonOptions:
    """The options of a syphon. Raises ValueError for a value out of its range, TypeError for a wrong type."""

    backlog_queue_count: int = 10
    """The number of backlog queues, the same as for the senders; at least 1."""
    primary_namespace_name: str | None = None
    """The prefix of the backlog queues, if it differs from the primary's host name."""
    allowed_destinations: tuple[str, ...] | None = None
    """The destinations to deliver to, case-insensitive; by default all but reserved paths."""
    window: int = 2000
    """Maximum messages of one backlog forwarded at the same time; 1 to 5000."""
    max_rate: int | None = None
    """Maximum messages per second sent to each destination; 1 to 1,000,000. By default as fast as it takes them."""
    memory_budget: int = 256 * 1024 * 1024
    """Maximum bytes of messages in memory, over all backlogs; at least 1 MiB."""
    missing_backlog_interval: timedelta = timedelta(seconds=30)
    """How often to retry a backlog queue that does not exist; 1 s to 1 h."""
    operation_timeout: timedelta = timedelta(seconds=60)
    """How long a peer may take to answer, or be silent, before its connection counts as lost; 1 s to 10 min."""
    retry_backoff_max: timedelta = timedelta(seconds=30)
    """Maximum delay between attempts to reach a destination, or a side that accepts connections; 100 ms to 10 min."""
    stop_timeout: timedelta = timedelta(seconds=10)
    """How long messages in flight may take to finish when the syphon stops; 0 to 10 min."""
    report_forwards: bool = False
    """Emit MessagesForwarded and MessagesInDoubt, with the ids of messages; an audit journal needs it."""
    connection_verify: str | None = None
    """A PEM file of trusted certificates, instead of those of the system."""
    overdue_after: timedelta | None = None
    """Emit BacklogOverdue when a message has been parked for longer than this; 1 s to 7 d."""
    over_websocket: bool = False
    """Use AMQP over WebSocket on port 443, for firewalls that allow HTTPS only."""
    http_proxy: str | None = field(default=None, repr=False)
    """The URL of a proxy for the WebSocket, instead of HTTPS_PROXY."""
    only_backlogs: tuple[int, ...] | None = None
    """The numbers of the backlog queues to forward from, when several syphons share them; by default all."""
    primary_endpoint_address: str | None = None
    """``host:port`` to connect to for the primary; names and tokens remain those of the namespace."""
    secondary_endpoint_address: str | None = None
    """The same for the secondary."""
    measure_every: timedelta | None = None
    """How often to measure the depth of non-empty backlogs, with up to 10 peeks each; 1 s to 1 h."""
    land: Literal["primary", "either"] = "primary"
    """Deliver to the primary only, or also to the secondary while the primary is out of reach."""
    land_after: timedelta = timedelta(minutes=5)
    """How long a destination must be out of reach before its messages land on the secondary; 0 to 24 h."""
    ordering: Literal["none", "session"] = "none"
    """Also forward from the ordered backlog queues, each session in its order; the same as for the senders."""
    max_concurrent_sessions: int = 64
    """Maximum sessions forwarded at the same time, at least one per ordered backlog queue; 1 to 5000."""
    on_poison: Literal["dead-letter", "hold"] = "dead-letter"
    """For an undeliverable message of a session: dead-letter it and continue, or hold its session."""
    exit_on_refusal: bool = False
    """Stop once a side has refused for five seconds, instead of retrying until it accepts."""

    def __post_init__(self) -> None:
        for name, (least, most) in WHOLES.items():
            if self._is_set(name):
                check_whole(name, getattr(self, name), least, most)
        for name, (shortest, longest) in SPANS.items():
            if self._is_set(name):
                check_span(name, getattr(self, name), shortest, longest)
        for name, choices in CHOICES.items():
            check_choice(name, getattr(self, name), choices)
        check_namespace_name(self.primary_namespace_name)
        if self.allowed_destinations is not None:
            _paths("allowed_destinations", self.allowed_destinations)
        for number in self.only_backlogs or ():
            check_whole("only_backlogs", number, 0, self.backlog_queue_count - 1)
        self._check_links()
        if self.http_proxy is not None:
            _proxy(self.http_proxy, over_websocket=self.over_websocket)

    def _is_set(self, name: str) -> bool:
        return name not in OPTIONAL or getattr(self, name) is not None

    def _check_links(self) -> None:
        served = self.backlog_queue_count if self.only_backlogs is None else len(self.only_backlogs)
        is_ordered = self.ordering == "session"
        queues = 2 * served if is_ordered else served
        if queues > MAX_QUEUES:
            raise ValueError(
                f"a syphon serves at most {MAX_QUEUES} backlog queues, not {queues}: share them among several with "
                "only_backlogs"
            )
        links = queues + (self.max_concurrent_sessions if is_ordered else 0)
        if links > MAX_LINKS:
            raise ValueError(
                f"max_concurrent_sessions and the backlog queues must be at most {MAX_LINKS} together, not {links}"
            )

    @property
    def route(self) -> Route:
        """The routes to both sides."""
        return Route(self.connection_verify, self.over_websocket, self.http_proxy)


def _paths(name: str, paths: object) -> None:
    """Raise ValueError for an invalid entity path: if it were accepted, every message would be dead-lettered."""
    if not isinstance(paths, tuple) or not all(isinstance(path, str) for path in paths):
        raise ValueError(f"{name} must be a tuple of paths, not {paths!r}")
    if not paths:
        raise ValueError(f"{name} must contain a path; omit it to allow all paths")
    for path in paths:
        why = "list each path separately" if "," in path else path_refusal(path.strip("/"))
        if why is not None:
            raise ValueError(f"{name} cannot contain {path!r}: {why}")


def _proxy(url: str, *, over_websocket: bool) -> None:
    if not over_websocket:
        raise ValueError("http_proxy needs over_websocket: AMQP over TCP does not use a proxy")
    Proxy.of_url(url)
