"""What do the blocking and the asyncio client have in common? (all but how they wait)

The pair and the spool of one client, the flows it carries out, and how an SDK error becomes a result. A
skin drives the flows over SDK senders of its own kind.
"""

from __future__ import annotations

import logging
import random
import time
from collections.abc import Callable
from contextlib import AbstractContextManager
from datetime import timedelta
from typing import TYPE_CHECKING, Protocol, TypeVar

from azure.servicebus.exceptions import MessagingEntityNotFoundError, OperationTimeoutError

from .backlog import Backlogs
from .batch import Cargo
from .errors import SpoolError
from .events import BacklogsCreated, BacklogsNotCreated, ClassifierFailed, PairingEvent
from .failure import Failure, Judgement
from .health import EntityState
from .hub import Hub
from .options import PairedNamespaceOptions
from .outcome import Phase, judge, overruled
from .pair import Attempt, Pair, Result, SendFlow, SpoolUse, primary_flow
from .probe import LinkProbe, ping
from .rotation import Choice

if TYPE_CHECKING:
    from azure.servicebus.management import ServiceBusAdministrationClient

    from .spooling import Spooling

LONGEST_PING = 30.0  # seconds for one ping, opening its link included
CLOSING = 5.0  # seconds that close() waits for what is under way
REASSIGNMENT = timedelta(seconds=15)  # the longest the service takes to reassign a message
KEPT = frozenset({Failure.CALLER, Failure.FULL, Failure.BUSY})  # after these a link can still be good

logger = logging.getLogger("sbpair")


class Lane(Protocol):
    """One SDK sender, of either kind."""

    has_overrun: bool
    was_reused: bool

    @property
    def is_open(self) -> bool: ...


LaneT = TypeVar("LaneT", bound=Lane, contravariant=True)


class Lanes(Protocol[LaneT]):
    """Where it comes from."""

    def give(self, lane: LaneT) -> None: ...

    def drop(self, lane: LaneT) -> None: ...


class Core:
    """The state of one paired client, whichever its skin."""

    _spooling: Spooling | None

    def __init__(
        self,
        label: str,
        options: PairedNamespaceOptions,
        administration: Callable[[], ServiceBusAdministrationClient],
        rng: random.Random | None,
    ) -> None:
        self.hub = Hub()
        self.is_closed = False
        self.options = options
        self._rng = rng or random.Random()
        self.pair = Pair(
            failover_interval=options.failover_interval.total_seconds(),
            ping_interval=options.ping_primary_interval.total_seconds(),
            backlog_count=options.backlog_queue_count,
            redirects_suspects=options.suspect_policy == "redirect",
            spills_on_quota=options.spill_on_quota,
            busy_limit=_seconds(options.failover_on_busy_after),
            rng=self._rng,
        )
        self._backlogs = Backlogs(label, options.backlog_queue_count, administration)
        if options.operation_timeout <= REASSIGNMENT:
            logger.warning(
                "operation_timeout is %s: reassigning a message to another partition can take the service "
                "%s, so a send may fail that would have succeeded",
                options.operation_timeout,
                REASSIGNMENT,
            )

    def exclusive(self) -> AbstractContextManager[object]:
        """What stands around the pure state while it is used."""
        raise NotImplementedError

    def publish(self) -> None:
        """Tell what happened; the timers may have changed with it."""
        raise NotImplementedError

    def judge(self, error: Exception, phase: Phase, handled: BaseException | None = None) -> Judgement:
        """What an error means: what the classifier of the options says, else what the table says."""
        judgement = judge(error, phase, handled)
        if self.options.classifier is None:
            return judgement
        try:
            said = self.options.classifier(error)
            return judgement if said is None else overruled(judgement, Failure(said))
        except Exception as wrong:  # the application's code; its fault must not become the message's
            self.hub.tell([ClassifierFailed(time.monotonic(), "", f"{type(wrong).__name__}: {wrong}")])
            return judgement

    def _failed(
        self,
        lanes: Lanes[LaneT],
        lane: LaneT | None,
        error: Exception,
        phase: Phase,
        handled: BaseException | None,
    ) -> Result:
        """The result of an attempt that raised; the lane is kept if it can still be good."""
        if lane is None:
            return Result(time.monotonic(), error, self.judge(error, phase, handled))
        if lane.has_overrun:  # what the SDK says of the shut socket is our doing
            late = OperationTimeoutError(message="The send did not end by its deadline.", error=error)
            late.__cause__ = error
            error = late
        judgement = self.judge(error, phase, handled)
        if judgement.failure in KEPT and lane.is_open:
            lanes.give(lane)
        else:
            lanes.drop(lane)
        return Result(time.monotonic(), error, judgement, lane.was_reused)

    def is_spooling(self, path: str) -> bool:
        """Whether messages of this entity wait in the spool: then newer ones go behind them."""
        return self._spooling is not None and self._spooling.waiting(path) > 0

    def spooled(self, path: str | None) -> int:
        """How many messages wait in the spool, for this entity or for all."""
        return 0 if self._spooling is None else self._spooling.waiting(path)

    def _flow(
        self, path: str, cargo: Cargo, choice: Choice, started: float, budget: float, first: Result | None
    ) -> SendFlow:
        """The flow of one send, or of what only the primary can do."""
        deadline = started + budget
        if cargo.is_for_primary_only:
            return primary_flow(started, deadline)
        spool = SpoolUse.NEVER
        if self._spooling is not None:
            spool = SpoolUse.AT_ONCE if self._spooling.waiting(path) else SpoolUse.LAST_RESORT
        return self.pair.send_flow(
            path,
            len(cargo),
            choice,
            now=started,
            deadline=deadline,
            first=first,
            spool=spool,
            message_ids=cargo.message_ids,
        )

    def _flow_again(self, path: str, cargo: Cargo, choice: Choice) -> SendFlow:
        """For messages from the spool: the same way, but not back into it."""
        now = time.monotonic()
        deadline = now + self.options.operation_timeout.total_seconds()
        return self.pair.send_flow(
            path, len(cargo), choice, now=now, deadline=deadline, message_ids=cargo.message_ids
        )

    def _write(self, path: str, cargo: Cargo) -> Exception | None:
        """Into the spool; why not, if not. Blocking."""
        if self._spooling is None:
            return SpoolError("the spool belongs to the process that this one was forked from")
        try:
            self._spooling.keep(path, cargo)
        except Exception as error:  # full, not writable, or a message that cannot be encoded
            return error
        return None

    def _must_exist(self, backlog: int) -> Exception | None:
        """Why a missing backlog queue may not be created, if so."""
        if not self.options.assume_backlogs_exist:
            return None
        name = self._backlogs.name(backlog)
        return MessagingEntityNotFoundError(message=f"Backlog queue {name} does not exist.")

    def _ping_attempt(self, path: str) -> tuple[Attempt, Cargo]:
        """What finds out now whether the primary entity is back: a ping, or opening a link."""
        now = time.monotonic()
        is_message = self.options.probe == "message"
        self.pair.ping_left(path, now, is_billed=is_message)
        until = now + min(LONGEST_PING, self.options.operation_timeout.total_seconds())
        return Attempt(None, until, is_fresh=True), ping() if is_message else LinkProbe()

    def _backlog_to_warm(self, path: str, choice: Choice) -> int | None:
        """While an entity is suspect: the backlog its messages may need."""
        if self.pair.state_of(path) is not EntityState.SUSPECT:
            return None
        return self.pair.rotation.pick(choice, time.monotonic())


def _seconds(span: timedelta | None) -> float | None:
    return None if span is None else span.total_seconds()


def backlogs_event(created: tuple[str, ...] | Exception) -> PairingEvent:
    """What became of making sure of the backlog queues."""
    now = time.monotonic()
    if isinstance(created, Exception):
        cause = f"{type(created).__name__}: {judge(created, Phase.OPENING).why}"
        return BacklogsNotCreated(now, "", cause)
    return BacklogsCreated(now, "", created)


def time_left(until: float) -> float:
    """Seconds until then. Raises OperationTimeoutError when there are none."""
    left = until - time.monotonic()
    if left <= 0:
        raise OperationTimeoutError(message="No time was left for this attempt.")
    return left
