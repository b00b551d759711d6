"""The steps that a flow requests from its runtime, and the results that it receives.

Times are seconds of a monotonic clock. Pure.
"""

from __future__ import annotations

from collections.abc import Callable, Generator
from dataclasses import dataclass, field
from enum import Enum
from random import Random
from typing import NamedTuple

from ..outcome import Classification, Outcome, ParkReason
from .patience import Waiting
from .retry import RetryPolicy

MAX_RESERVE_SECONDS, RESERVE_SHARE = 5.0, 0.25  # seconds, and share of the timeout, reserved for the backlog
MAX_BUSY_SECONDS, BUSY_SHARE = (
    4.0,
    2 / 3,
)  # seconds, and share of the timeout, for which a busy primary is waited for
SPOOL_GRACE = 1.0  # minimum seconds for writing to the spool
LAST_SECONDS = 0.5  # for the answer over a link that opened at the last moment


class Attempt(NamedTuple):
    """Send the message by ``until``: to the primary entity if ``backlog`` is None, else to that backlog queue.

    ``is_fresh`` requests a new link, since the pooled one has just failed. ``open_by`` is the time by which a link that
    has to be opened must be open; the answer over it may then come later than ``until`` (:meth:`answer_by`).
    ``is_over_idle`` allows only a link that is open and idle: if there is none, one is opened in the background, and
    the result is an error of this client's own. ``waiting`` is to be paused while a link is opened.
    """

    backlog: int | None
    until: float
    is_fresh: bool = False
    open_by: float | None = None
    is_over_idle: bool = False
    waiting: Waiting | None = None

    @property
    def link_by(self) -> float:
        """The time by which the link must be open."""
        return self.until if self.open_by is None else max(self.until, self.open_by)

    def answer_by(self, opening: float) -> float:
        """Return the time by which the answer must have come, over a link whose opening took ``opening`` seconds."""
        if self.open_by is None:
            return self.until
        return max(self.until, min(self.until + opening, self.open_by + LAST_SECONDS))


class Pause(NamedTuple):
    """Wait until the given time before the next attempt."""

    until: float


class CreateBacklog(NamedTuple):
    """Create this backlog queue by ``until``; the result has an error if that fails."""

    backlog: int
    until: float


class SpoolMessages(NamedTuple):
    """Write the messages not yet accepted to the spool by ``until``; the result has an error if that fails.

    With ``is_first``, the step comes before any attempt, and the error may be CaughtUpError.
    """

    until: float
    is_first: bool = False


class Peek(NamedTuple):
    """Peek at an ordered backlog queue by ``until``: at this parked session, or at the whole queue.

    The result says whether any message was found, or has an error.
    """

    backlog: int
    parked_id: str | None
    until: float


class CaughtUpError(Exception):
    """The error of a first SpoolMessages step: no older message of the entity waits, so this one may be sent directly.

    Nothing was written. The cause is the SpoolError of a spool that has no room or cannot be written.
    """


class SpoolUse(Enum):
    """How one send may use the spool."""

    NEVER = "not configured"
    FROM_IT = "the message comes from it"
    LAST_RESORT = "if no backlog queue accepts the message"
    AT_ONCE = "first: by the options, or to keep the order behind older messages of the entity"


class Result(NamedTuple):
    """The result of a step.

    ``was_reused`` says that the attempt used a link that was open before the call; otherwise opening one took
    ``opening`` seconds, if it opened. ``accepted`` is the number of
    messages that were accepted before a failure; 0 for all or none. ``is_empty`` is the answer to a peek, and ``size``
    the number of bytes that a backlog queue accepted.
    """

    now: float
    error: Exception | None = None
    classification: Classification | None = None
    was_reused: bool = False
    accepted: int = 0
    is_empty: bool = False
    size: int = 0
    opening: float = 0.0


def is_accepted(result: Result | None) -> bool:
    """Whether this is the result of an attempt that a broker accepted."""
    return result is not None and result.classification is None


Step = Attempt | Pause | CreateBacklog | SpoolMessages | Peek
SendFlow = Generator[Step, Result, Outcome]


class Choice:
    """A sender's own backlog queue, None until it first needs one, and its substitute."""

    __slots__ = ("backlog", "stand_in")

    def __init__(self, backlog: int | None = None) -> None:
        self.backlog = backlog
        self.stand_in: int | None = None


@dataclass(slots=True, eq=False, repr=False)
class SendState:
    """The state of one send."""

    path: str
    count: int
    message_ids: Callable[[], tuple[str, ...]]  # called only when an event needs them
    checksums: Callable[[], tuple[int, ...]]  # of the bodies; as above
    choice: Choice
    deadline: float
    budget: float
    now: float
    session: str | None = None
    key: Callable[[], str | None] = lambda: None  # called only when an attempt failed, or keys are set aside
    size: Callable[[], int] = lambda: 0  # in bytes; called only after a slow attempt
    can_spool: bool = False
    is_waited_for: bool = False  # by a caller, for whom the spool can take the message meanwhile
    has_side_failed: bool = False  # the secondary, with an error that every queue would have
    reason: ParkReason = ParkReason.FAILED_OVER
    busy_until: float = 0.0  # the latest time until which a busy primary asked to wait
    is_rejected: bool = (
        False  # the primary answered the message with a failure, which may be the message's own
    )
    causes: list[Exception] = field(default_factory=list)
    has_failed: bool = False  # at the primary, as far as its key is concerned
    is_ambiguous: bool = False
    reported: int = 0  # leading messages whose location an event has reported

    @property
    def busy_limit(self) -> float:
        """The time until which a send waits for a busy primary if its message can be parked."""
        return self.deadline - self.budget + min(MAX_BUSY_SECONDS, BUSY_SHARE * self.budget)

    def spool_step(self, *, is_first: bool = False) -> SpoolMessages:
        """Return the step that writes to the spool, with at least SPOOL_GRACE even after the deadline."""
        return SpoolMessages(max(self.deadline, self.now + SPOOL_GRACE), is_first)

    def next_report(self, accepted: int = 0) -> tuple[int, tuple[str, ...], bool, str, tuple[int, ...]]:
        """Return the event data of the next ``accepted`` messages; 0 means all that remain.

        Their count, ids, ambiguity, session and checksums.
        """
        start = self.reported
        self.reported = start + accepted if accepted else self.count
        told = slice(start, self.reported)
        ids, checksums = self.message_ids()[told], self.checksums()[told]
        return self.reported - start, ids, self.is_ambiguous, self.session or "", checksums

    def failed(self, result: Result, classification: Classification) -> None:
        """Record a failed attempt."""
        self.now = result.now
        if result.error is not None:
            self.causes.append(result.error)
        self.doubt(classification)

    def doubt(self, classification: Classification) -> None:
        """Record an ambiguous failure: the message may have been stored although the attempt failed."""
        self.is_ambiguous = self.is_ambiguous or classification.is_ambiguous


class Retries:
    """The retries that one send has left."""

    __slots__ = ("_made", "_policy", "_rng")

    def __init__(self, policy: RetryPolicy, rng: Random) -> None:
        self._policy, self._rng = policy, rng
        self._made = 0

    def next_at(self, now: float, until: float, last: float | None = None) -> float | None:
        """Return the time of the next retry; None if no retries are left, or it would not be before ``until``.

        If it would not be before ``until``, ``last`` is returned instead, if given and still in the future.
        """
        pause = self._policy.spread(self._made + 1, self._rng)
        if pause is None:
            return None
        again = now + pause
        if again >= until:
            if last is None or last <= now:
                return None
            again = last
        self._made += 1
        return again


def may_be_stale(result: Result, classification: Classification, send: SendState, now: float) -> bool:
    """Whether a failure may only mean that its link died while idle, and there is time for another attempt."""
    return classification.is_link_in_doubt and result.was_reused and now < send.deadline


def last_cause(send: SendState) -> Exception:
    """Return the error of the last attempt."""
    return send.causes[-1] if send.causes else RuntimeError("an attempt failed without an error")


def reserve(budget: float) -> float:
    """Return how many seconds of a send's time are reserved for the backlog."""
    return min(MAX_RESERVE_SECONDS, RESERVE_SHARE * budget)
