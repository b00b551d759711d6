"""The options of a paired client, with their ranges, and the variable that turns pairing off.

No I/O.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from datetime import timedelta
from pathlib import Path
from typing import ClassVar, Literal

from sbpair.pair.envelope.names import check_namespace_name
from sbpair.pair.ground.ranges import check_choice, check_span, check_whole

from .decide.health import DEFAULT_RETURN_SECONDS, HealthPolicy
from .outcome import Failure

VARIABLE = "SBPAIR_DISABLE"
_ON, _OFF = frozenset({"1", "true", "yes", "on"}), frozenset({"", "0", "false", "no", "off"})


@dataclass(frozen=True, slots=True, kw_only=True)
class ObservationOptions:
    """The journal and status pages of a client; all off by default.

    They start with the first sender, start again in a forked child, and end with the client. Raises ValueError or
    TypeError for invalid values.
    """

    journal: str | Path | None = None
    """A directory for the journal, which records every event."""

    journal_sends: bool = False
    """Record every send that a broker accepted, healthy ones included."""

    status: tuple[str, int] | None = None
    """Host and port for /live, /ready, /health, /metrics and /state; port 0 picks a free one."""

    def __post_init__(self) -> None:
        if self.journal is not None and not (isinstance(self.journal, (str, Path)) and str(self.journal)):
            raise TypeError(f"journal must be the path of a directory, not {self.journal!r}")
        if not isinstance(self.journal_sends, bool):
            raise TypeError(f"journal_sends must be True or False, not {self.journal_sends!r}")
        if self.journal_sends and self.journal is None:
            raise ValueError("journal_sends needs a journal")
        if self.status is not None:
            _check_address(self.status)


def _check_address(address: object) -> None:
    match address:
        case (str() as host, int() as port) if host and not isinstance(port, bool) and 0 <= port <= 65535:
            return
    raise ValueError(
        f'status must be a host and a port from 0 to 65535, such as ("127.0.0.1", 0), not {address!r}'
    )


@dataclass(frozen=True, slots=True, kw_only=True)
class PairedNamespaceOptions:
    """The options of one pairing, shared by all senders of a client.

    Raises ValueError, naming the range, for a value out of range, and TypeError for a wrong type.
    """

    backlog_queue_count: int = 10
    """Number of backlog queues: 1 or more."""

    failover_interval: timedelta = timedelta(seconds=60)
    """How long an entity must have failed before its messages are parked: 0 to 1 hour."""

    ping_primary_interval: timedelta = timedelta(seconds=60)
    """How often a failed-over entity is pinged: 1 second to 30 minutes."""

    operation_timeout: timedelta = timedelta(seconds=60)
    """How long one send may take in total, including a redirect: more than 0, up to 1 day."""

    failover_on_busy_after: timedelta | None = None
    """How long the service may stay busy before that counts as an outage: 0 to 1 hour. None: never."""

    spill_on_quota: bool = False
    """Park messages while the primary entity is full, instead of raising; the entity stays healthy."""

    classifier: Callable[[Exception], Failure | None] | None = None
    """Called with every error of a send or ping; returns its Failure, or None for the built-in classification."""

    headroom: Literal["warn", "refuse", "off"] = "warn"
    """Messages too large to be parked: send them and emit an event, refuse them, or do not check."""

    ttl_policy: Literal["restart", "deadline"] = "restart"
    """A parked message's time to live starts again on the primary, or runs from the first attempt."""

    probe: Literal["message", "link"] = "message"
    """How to probe a failed-over entity: with a ping message, or by opening a link only."""

    suspect_policy: Literal["raise", "redirect"] = "redirect"
    """Park a send that the primary does not accept, also before the entity fails over; or raise, as the old SDK did."""

    failover_share: float = 0.5
    """The share of failed attempts at which an entity fails over after an interval: above 0 to 1.

    1: only when no attempt succeeded in the interval, as the articles have it."""

    slow_after: timedelta = timedelta(seconds=10)
    """An attempt that takes longer counts as failed for the share, though its send succeeds: 1 s to 1 hour."""

    attempt_timeout: timedelta = timedelta(seconds=4)
    """How long an attempt at the primary may take where the send can be parked: 100 ms to 1 hour.

    It is the limit of what is learned: an entity that answers fast is waited for half a second."""

    return_over: timedelta | None = None
    """How long an entity takes to return, while more and more of its sends try the primary: 0 to 1 hour.

    None: 30 seconds after a failover by share or a relapse, at once after a plain outage."""

    assume_backlogs_exist: bool = False
    """Never create backlog queues; Send rights on the secondary then suffice."""

    ordering: Literal["none", "session"] = "none"
    """Keep the order of each session through an outage, in ordered backlog queues; needs Listen there too."""

    spool: str | Path | None = None
    """A file on this machine's disk for messages, sent from there in order. None: no spool."""

    spool_policy: Literal["last_resort", "always"] = "last_resort"
    """Spool what neither namespace accepts, or always: a send returns when its messages are on disk."""

    spool_max_messages: int = 1_000_000
    """Maximum number of messages in the spool: 1 or more."""

    spool_max_bytes: int = 268_435_456
    """Maximum bytes of messages in the spool: 1 or more."""

    enable_syphon: bool = False
    """Run a syphon in this process, from the first sender until the client is closed."""

    land: Literal["primary", "either"] = "primary"
    """Destinations of the syphon of this process: the primary only, or the secondary too in a long outage."""

    land_after: timedelta = timedelta(minutes=5)
    """How long an entity must be out of reach before its messages land on the secondary: 0 to 24 hours."""

    observation: ObservationOptions | None = None
    """Journal and status pages of this client. None: off."""

    fault_pair_on_refusal: bool = False
    """Fault the whole pair when one namespace has refused the client for five seconds."""

    primary_namespace_name: str | None = None
    """The prefix of the backlog queue names, if it cannot be derived from the primary's host name."""

    RANGES: ClassVar[dict[str, tuple[timedelta, timedelta]]] = {
        "failover_interval": (timedelta(0), timedelta(hours=1)),
        "ping_primary_interval": (timedelta(seconds=1), timedelta(minutes=30)),
        "operation_timeout": (timedelta(milliseconds=1), timedelta(days=1)),
        "failover_on_busy_after": (timedelta(0), timedelta(hours=1)),
        "slow_after": (timedelta(seconds=1), timedelta(hours=1)),
        "attempt_timeout": (timedelta(milliseconds=100), timedelta(hours=1)),
        "return_over": (timedelta(0), timedelta(hours=1)),
        "land_after": (timedelta(0), timedelta(hours=24)),
    }
    CHOICES: ClassVar[dict[str, tuple[str, ...]]] = {
        "suspect_policy": ("raise", "redirect"),
        "headroom": ("warn", "refuse", "off"),
        "ttl_policy": ("restart", "deadline"),
        "probe": ("message", "link"),
        "land": ("primary", "either"),
        "ordering": ("none", "session"),
        "spool_policy": ("last_resort", "always"),
    }
    OPTIONAL: ClassVar[frozenset[str]] = frozenset({"failover_on_busy_after", "return_over"})
    SWITCHES: ClassVar[tuple[str, ...]] = (
        "assume_backlogs_exist",
        "enable_syphon",
        "fault_pair_on_refusal",
        "spill_on_quota",
    )

    def __post_init__(self) -> None:
        for name in ("backlog_queue_count", "spool_max_messages", "spool_max_bytes"):
            check_whole(name, getattr(self, name), 1)
        if self.spool is not None and not isinstance(self.spool, (str, Path)):
            raise TypeError(f"spool must be a path, not {self.spool!r}")
        if self.spool is not None and not str(self.spool).strip():
            raise ValueError("spool must not be empty; use None for no spool")
        if self.spool_policy == "always" and self.spool is None:
            raise ValueError('spool_policy="always" needs a spool: the path of its file')
        for name, (least, most) in self.RANGES.items():
            if name not in self.OPTIONAL or getattr(self, name) is not None:
                check_span(name, getattr(self, name), least.total_seconds(), most.total_seconds())
        _check_share("failover_share", self.failover_share)
        for name, choices in self.CHOICES.items():
            check_choice(name, getattr(self, name), choices)
        for name in self.SWITCHES:
            if not isinstance(getattr(self, name), bool):
                raise TypeError(f"{name} must be True or False, not {getattr(self, name)!r}")
        if self.classifier is not None and not callable(self.classifier):
            raise TypeError(f"classifier must be a callable that takes one error, not {self.classifier!r}")
        if not isinstance(self.observation, ObservationOptions | None):
            raise TypeError(f"observation must be ObservationOptions, not {self.observation!r}")
        check_namespace_name(self.primary_namespace_name)

    def busy_limit(self) -> float | None:
        """``failover_on_busy_after`` in seconds."""
        return None if self.failover_on_busy_after is None else self.failover_on_busy_after.total_seconds()

    def health_policy(self) -> HealthPolicy:
        """The policy by which the health of an entity is judged."""
        given = self.return_over
        return HealthPolicy(
            self.failover_share,
            self.slow_after.total_seconds(),
            DEFAULT_RETURN_SECONDS if given is None else given.total_seconds(),
            returns_always=given is not None,
        )


def _check_share(name: str, value: object) -> None:
    if isinstance(value, bool) or not isinstance(value, (int, float)):
        raise TypeError(f"{name} must be a number above 0 and up to 1, not {value!r}")
    if not 0 < value <= 1:
        raise ValueError(f"{name} must be above 0 and up to 1, not {value}")


def is_disabled(environment: Mapping[str, str]) -> bool:
    """Whether SBPAIR_DISABLE is set to a true value. Raises ValueError for a value that is not a boolean."""
    value = environment.get(VARIABLE, "").strip().casefold()
    if value not in _ON | _OFF:
        raise ValueError(f"the environment variable {VARIABLE} must be 1 or 0, not {value[:32]!r}")
    return value in _ON


SHOWN = (
    "backlog_queue_count",
    "failover_interval",
    "ping_primary_interval",
    "operation_timeout",
    "suspect_policy",
    "failover_share",
    "slow_after",
    "attempt_timeout",
    "return_over",
    "assume_backlogs_exist",
    "ordering",
)
"""The options that the page of a client shows: those that decide what an outage costs, none with a secret."""


def shown_options(options: PairedNamespaceOptions) -> dict[str, object]:
    """Return the values of SHOWN, with times in seconds."""
    values = {name: getattr(options, name) for name in SHOWN}
    return {
        name: value.total_seconds() if isinstance(value, timedelta) else value
        for name, value in values.items()
    }
