"""What can be set about a pairing, and within which range?

Pure: the standard library only.
"""

from __future__ import annotations

import math
from collections.abc import Callable
from dataclasses import dataclass
from datetime import timedelta
from pathlib import Path
from typing import ClassVar, Literal

from .failure import Failure
from .names import check_namespace_name
from .observation import ObservationOptions


@dataclass(frozen=True, slots=True, kw_only=True)
class PairedNamespaceOptions:
    """The settings of one pairing; every sender of a client shares them.

    Raises ValueError (out of range; says the range) or TypeError (wrong type) when made.
    """

    backlog_queue_count: int = 10
    """How many backlog queues the senders use: 1 or more (P-10)."""

    failover_interval: timedelta = timedelta(seconds=60)
    """How long an entity must have failed before its messages are parked: 0 to 1 hour (P-3)."""

    ping_primary_interval: timedelta = timedelta(seconds=60)
    """How often a failed-over entity is pinged: 1 second to 30 minutes (P-32)."""

    operation_timeout: timedelta = timedelta(seconds=60)
    """How long one send may take in all, redirect included: more than 0, up to 1 day."""

    failover_on_busy_after: timedelta | None = None
    """How long a busy service may stay busy before that counts as an outage: 0 to 1 hour. None: never."""

    spill_on_quota: bool = False
    """Park a message for which the primary entity is full, instead of raising; the entity stays healthy."""

    classifier: Callable[[Exception], Failure | None] | None = None
    """Called with every error of a send or ping: its kind, or None for the built-in table's judgement."""

    headroom: Literal["warn", "refuse", "off"] = "warn"
    """What becomes of a message that is too large to be parked: sent with an event, or refused (P-22)."""

    ttl_policy: Literal["restart", "deadline"] = "restart"
    """A parked message's time to live starts again on the primary, or runs from the first attempt (G-15)."""

    probe: Literal["message", "link"] = "message"
    """How a failed-over entity is probed: with a ping message, or by opening a link only (P-30)."""

    suspect_policy: Literal["raise", "redirect"] = "raise"
    """What becomes of a send that fails within the failover interval: raise it, or redirect it (P-3)."""

    assume_backlogs_exist: bool = False
    """Never create backlog queues: Send rights on the secondary are then enough."""

    spool: str | Path | None = None
    """A file for what neither namespace takes: it is replayed later, in order. None: no spool."""

    spool_max_messages: int = 1_000_000
    """How many messages the spool holds at most: 1 or more."""

    spool_max_bytes: int = 268_435_456
    """How many bytes of messages the spool holds at most: 1 or more."""

    enable_syphon: bool = False
    """Run a syphon in this process, from the first sender until the client is closed (P-40)."""

    observation: ObservationOptions | None = None
    """What to write and serve about this client: journal, status pages, webhook. None: nothing."""

    primary_namespace_name: str | None = None
    """The prefix of the backlog queues' names where the primary's host name does not give it (P-10)."""

    RANGES: ClassVar[dict[str, tuple[timedelta, timedelta]]] = {
        "failover_interval": (timedelta(0), timedelta(hours=1)),
        "ping_primary_interval": (timedelta(seconds=1), timedelta(minutes=30)),
        "operation_timeout": (timedelta(milliseconds=1), timedelta(days=1)),
        "failover_on_busy_after": (timedelta(0), timedelta(hours=1)),
    }
    CHOICES: ClassVar[dict[str, tuple[str, ...]]] = {
        "suspect_policy": ("raise", "redirect"),
        "headroom": ("warn", "refuse", "off"),
        "ttl_policy": ("restart", "deadline"),
        "probe": ("message", "link"),
    }
    SWITCHES: ClassVar[tuple[str, ...]] = ("assume_backlogs_exist", "enable_syphon", "spill_on_quota")

    def __post_init__(self) -> None:
        for name in ("backlog_queue_count", "spool_max_messages", "spool_max_bytes"):
            _check_count(name, getattr(self, name))
        if self.spool is not None and not isinstance(self.spool, (str, Path)):
            raise TypeError(f"spool must be a path, not {self.spool!r}")
        if self.spool is not None and not str(self.spool).strip():
            raise ValueError("spool must not be empty; None is for no spool")
        for name, (least, most) in self.RANGES.items():
            if name != "failover_on_busy_after" or self.failover_on_busy_after is not None:
                _check_span(name, getattr(self, name), least, most)
        for name, choices in self.CHOICES.items():
            _check_choice(name, getattr(self, name), choices)
        for name in self.SWITCHES:
            if not isinstance(getattr(self, name), bool):
                raise TypeError(f"{name} must be True or False, not {getattr(self, name)!r}")
        if self.classifier is not None and not callable(self.classifier):
            raise TypeError(f"classifier must be callable with one error, not {self.classifier!r}")
        if not isinstance(self.observation, ObservationOptions | None):
            raise TypeError(f"observation must be ObservationOptions, not {self.observation!r}")
        check_namespace_name(self.primary_namespace_name)


def _check_count(name: str, value: object) -> None:
    if isinstance(value, bool) or not isinstance(value, int):
        raise TypeError(f"{name} must be a whole number, 1 or more, not {value!r}")
    if value < 1:
        raise ValueError(f"{name} must be 1 or more, not {value}")


def _check_span(name: str, value: object, least: timedelta, most: timedelta) -> None:
    if not isinstance(value, timedelta):
        raise TypeError(f"{name} must be a timedelta from {least} to {most}, not {value!r}")
    if not least <= value <= most:
        raise ValueError(f"{name} must be from {least} to {most}, not {value}")


def _check_choice(name: str, value: object, choices: tuple[str, ...]) -> None:
    if value not in choices:
        raise ValueError(f"{name} must be {' or '.join(map(repr, choices))}, not {value!r}")


LONGEST_TIMEOUT = 1e9  # seconds: 31 years, and no clock of the system overflows


def timeout_seconds(timeout: float | None, options: PairedNamespaceOptions) -> float:
    """The budget of one call in seconds: the caller's ``timeout``, or ``operation_timeout``.

    Raises ValueError unless it is a finite number greater than 0.
    """
    if timeout is None:
        return options.operation_timeout.total_seconds()
    if isinstance(timeout, bool) or not isinstance(timeout, (int, float)):
        raise TypeError(f"timeout must be a number of seconds, not {timeout!r}")
    if not math.isfinite(timeout) or timeout <= 0:
        raise ValueError(f"timeout must be a finite number of seconds greater than 0, not {timeout}")
    return min(float(timeout), LONGEST_TIMEOUT)
