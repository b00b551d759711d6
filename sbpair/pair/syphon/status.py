"""The status of a syphon: its state, its counters, and the sides and backlogs that it cannot use."""

from __future__ import annotations

import asyncio
import logging
import time
from collections.abc import Callable, Mapping
from dataclasses import asdict, dataclass
from enum import Enum

from sbpair.pair.ground.side import Side

from .events import BacklogDetached, BacklogMissing, SideAccepted, SideRefused, SyphonEvent

logger = logging.getLogger("sbpair.syphon")

NO_BACKLOGS = (
    "no backlog queue exists on the secondary, not even {}: no sender has made them yet "
    "(`sbpair backlog create` does), or the namespaces are swapped, or --primary-namespace-name is not the senders'"
)
SHOWN = 5  # names in a log line
GRACE = 5.0  # seconds that a refusal must last to be reported, and for :meth:`SideRefusals.wait_refused`


class SyphonState(Enum):
    """The states of a syphon."""

    IDLE = "idle"  # not started, or stopped
    CONNECTING = "connecting"  # a side or an existing backlog queue is not connected; retried
    LANDING = "landing"  # the primary is out of reach: messages go to the secondary; the primary is retried
    RUNNING = "running"  # both sides are connected, and every existing backlog queue is attached
    NO_BACKLOGS = "no_backlogs"  # both sides are connected, but no backlog queue exists; checked again
    DRAINING = "draining"  # until the backlogs are empty, or in-flight messages are done at shutdown
    REFUSED = "refused"  # a side refuses the syphon, see ``SyphonStatus.reason``; retried


@dataclass(frozen=True, slots=True)
class SyphonStatus:
    """The state, and the reason for CONNECTING, NO_BACKLOGS and REFUSED."""

    state: SyphonState
    reason: str | None = None


@dataclass(slots=True)
class SyphonCounters:
    """Counts of messages since the syphon was created, except ``receives`` and ``pending``."""

    received: int = 0  # deliveries from a backlog
    forwarded: int = 0  # accepted by their destination
    landed: int = 0  # of these, by the entity of the same path on the secondary
    completed: int = 0  # removed from their backlog, confirmed by its broker
    dead_lettered: int = 0  # dead-lettered on their backlog, confirmed by its broker
    released: int = 0  # released to their backlog
    lock_lost: int = 0  # forwarded, but not removed from their backlog: they will be forwarded again
    receives: int = 0  # long polls started: the billed operations of an idle backlog
    pending: int = 0  # received and not settled yet

    def snapshot(self) -> SyphonCounters:
        """Return a copy."""
        return SyphonCounters(**asdict(self))


@dataclass(frozen=True, slots=True)
class SideRefusal:
    """The reason why a side refuses the syphon, and since when (monotonic seconds)."""

    cause: str
    since: float


class SideRefusals:
    """The sides that refuse the syphon as a whole.

    A side refuses the syphon when ``$cbs`` refuses it, when no token is issued for it, when the side's certificate is
    not trusted, and when a right is missing for all of its links. The side is retried continuously; an accepted claim
    or link ends the refusal. A refusal by one queue while others accept concerns only that queue, and the refusal of a
    path that the side never accepted concerns only that path (:mod:`~sbpair.pair.syphon.watch.claims`).
    """

    def __init__(self, emit: Callable[[SyphonEvent], None]) -> None:
        self._emit = emit
        self._refusals: dict[Side, SideRefusal] = {}
        self._told: set[Side] = set()
        self._changed = asyncio.Event()

    @property
    def current(self) -> Mapping[Side, SideRefusal]:
        """The current refusals, by side; a copy, because other threads may read it."""
        return dict(self._refusals)

    @property
    def reason(self) -> str | None:
        """The current refusals as text, or None."""
        causes = [
            f"the {role} refuses the syphon: {each.cause}" for role, each in sorted(self.current.items())
        ]
        return "; ".join(causes) or None

    def refused(self, role: Side, cause: str) -> None:
        """Record that a side refuses the syphon; if it still does after GRACE seconds, SideRefused is emitted.

        An expired token is refused too, but the next one is accepted: nobody has to act on that.
        """
        now = time.monotonic()
        known = self._refusals.setdefault(role, SideRefusal(cause, now))
        self._changed.set()
        if role not in self._told and now - known.since >= GRACE:
            self._told.add(role)
            self._emit(SideRefused(time.time(), role.value, cause))

    def accepted(self, role: Side) -> None:
        """Record that a side accepted a claim or a link; emits SideAccepted after a SideRefused."""
        if self._refusals.pop(role, None) is not None:
            self._changed.set()
        if role in self._told:
            self._told.discard(role)
            self._emit(SideAccepted(time.time(), role.value, "it accepts again"))

    async def wait_refused(self) -> str:
        """Wait until a side has refused for GRACE seconds without interruption; return the reason."""
        began = time.monotonic()
        while True:
            self._changed.clear()
            now = time.monotonic()
            left = [max(each.since, began) + GRACE - now for each in self._refusals.values()]
            if self.reason is not None and min(left) <= 0:
                return self.reason
            try:
                async with asyncio.timeout(min(left, default=None)):
                    await self._changed.wait()
            except TimeoutError:
                pass


class BacklogLinks:
    """The backlog queues that are missing, or exist but have no link."""

    def __init__(self, emit: Callable[[SyphonEvent], None], backlogs: tuple[str, ...] = ()) -> None:
        """Create the state of ``backlogs``, all queues that the syphon reads."""
        self._emit = emit
        self._backlogs = backlogs
        self.missing: set[str] = set()
        """The queues that did not exist at the last attempt to attach."""
        self.detached: dict[str, SyphonStatus] = {}
        """The status of the syphon for each existing queue without a link."""
        self.refusal: asyncio.Future[str] | None = None
        """Set by a drain; resolves with the reason when a backlog refuses its link."""
        self._unknown = set(backlogs)  # of which it is not known yet whether they exist
        self._told: set[str] = set()  # of those that are missing

    @property
    def status(self) -> SyphonStatus | None:
        """Return the status of a connected syphon, or None when every existing queue has its link."""
        if self._backlogs and self.missing.issuperset(self._backlogs):
            return SyphonStatus(SyphonState.NO_BACKLOGS, NO_BACKLOGS.format(self._backlogs[0]))
        return next(iter(self.detached.copy().values()), None)

    def note_attached(self, backlog: str) -> None:
        """Record that a link is attached."""
        was_told = backlog in self._told
        self.missing.discard(backlog)
        self._told.discard(backlog)
        self.detached.pop(backlog, None)
        self._is_known(backlog)
        if was_told and not self.missing:
            logger.warning("all %d backlog queues exist now", len(self._backlogs))

    def note_missing(self, backlog: str) -> None:
        """Record that a queue does not exist; emits BacklogMissing, the first time."""
        self.detached.pop(backlog, None)
        if backlog not in self.missing:
            self.missing.add(backlog)
            self._emit(BacklogMissing(time.time(), backlog))
        self._is_known(backlog)

    def _is_known(self, backlog: str) -> None:
        """Record whether a queue exists; once all are known, log the missing ones together, each only once."""
        self._unknown.discard(backlog)
        news = sorted(self.missing - self._told)
        if self._unknown or not news:
            return
        self._told = set(self.missing)
        status = self.status
        if status is not None and status.state is SyphonState.NO_BACKLOGS:
            logger.error("%s", status.reason)
        else:
            some, count = ", ".join(news[:SHOWN]), len(self._backlogs)
            logger.warning(
                "%d of %d backlog queues do not exist: %s; checked again", len(self.missing), count, some
            )

    def note_detached(self, backlog: str, reason: str, *, is_refusal: bool = False) -> None:
        """Record that a link was lost or refused; emits BacklogDetached."""
        self._emit(BacklogDetached(time.time(), backlog, reason))
        self._is_known(backlog)
        state = SyphonState.REFUSED if is_refusal else SyphonState.CONNECTING
        self.detached[backlog] = SyphonStatus(state, f"{backlog} is not attached: {reason}")
        if is_refusal and self.refusal is not None and not self.refusal.done():
            self.refusal.set_result(reason)
