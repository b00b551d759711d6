"""What do the blocking and the asyncio client have in common? (all but how they wait)

The pair and the spool of one client, the flows it carries out, and how an SDK error becomes a result. A
skin drives the flows over SDK senders of its own kind.
"""

from __future__ import annotations

import logging
import os
import random
import time
from collections.abc import Callable, Sequence
from contextlib import AbstractContextManager
from dataclasses import replace
from datetime import timedelta
from typing import TYPE_CHECKING, Protocol, TypeVar

from azure.servicebus.exceptions import (
    MessageSizeExceededError,
    MessagingEntityDisabledError,
    MessagingEntityNotFoundError,
    OperationTimeoutError,
)

from . import envelope, sdk
from .address import Side
from .backlog import Backlogs
from .batch import Cargo
from .bond import Bond, Role, SideChange, SideState
from .errors import PairFaultedError, ParkedMessageTooLargeError, SpoolError
from .events import (
    BacklogsCreated,
    BacklogsNotCreated,
    ClassifierFailed,
    HeadroomShort,
    PairFaulted,
    PairingDisabled,
    PairingEvent,
    SideClosed,
    SideFaulted,
    SideRecovered,
)
from .failure import Failure, Judgement
from .headroom import Headroom
from .health import EntityState
from .hub import Hub
from .options import PairedNamespaceOptions
from .outcome import Phase, judge, overruled
from .pair import Attempt, Pair, Result, SendFlow, SpoolUse, primary_flow
from .probe import LinkProbe, ping
from .rotation import Choice
from .spooling import SendAgain, Spooling
from .switch import VARIABLE, is_disabled

if TYPE_CHECKING:
    from azure.servicebus.management import ServiceBusAdministrationClient

    from .receipt import SendReceipt


LONGEST_LOOK = 3.0  # seconds for a look at a side that had refused us (P-50)
LONGEST_PING = 30.0  # seconds for one ping, opening its link included
CLOSING = 5.0  # seconds that close() waits for what is under way
REASSIGNMENT = timedelta(seconds=15)  # the longest the service takes to reassign a message
KEPT = frozenset({Failure.CALLER, Failure.FULL, Failure.BUSY})  # after these a link can still be good
ACCEPTED = Result(0.0)  # of a straight send

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
        primary: Side,
        secondary: Side,
        label: str,
        options: PairedNamespaceOptions,
        administration: Callable[[], ServiceBusAdministrationClient],
        rng: random.Random | None,
    ) -> None:
        self.hub = Hub()
        self.is_closed = False
        self.bond = Bond()
        self._is_faulting = False  # the fault has been noticed: it is acted on once
        self.label, self.sides = label, (primary, secondary)
        self.on_receipt: Callable[[str, SendReceipt], None] | None = None
        self._primary, self._secondary = primary, secondary
        self._side_news: list[PairingEvent] = []
        self.is_disabled = is_disabled(os.environ)
        self._is_announced = False
        is_off = self.is_disabled or options.headroom == "off"
        self.headroom = None if is_off else Headroom()
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

    def on_event(self, callback: Callable[[PairingEvent], object]) -> Callable[[], None]:
        """Call ``callback`` with every event; returns how to stop that."""
        return self.hub.subscribe(callback)

    def round_trip(self, seconds: float) -> None:
        """Open a link to where messages go: to the primary, or else the secondary. Blocking skin."""
        raise NotImplementedError

    async def round_trip_in_loop(self, seconds: float) -> None:
        """The same for asyncio."""
        raise NotImplementedError

    def publish(self) -> None:
        """Tell what happened; the timers may have changed with it."""
        raise NotImplementedError

    @property
    def retry_total(self) -> int | None:
        """How often the SDK itself tries again, None for as often as it does by default (G-4)."""
        return None if self.is_disabled else 0

    @property
    def creates_backlogs(self) -> bool:
        """Whether the backlog queues are made sure of in the background."""
        return not (self.options.assume_backlogs_exist or self.is_disabled)

    def _opened_spool(
        self, label: str, send_again: SendAgain, tell: Callable[[Sequence[PairingEvent]], object]
    ) -> Spooling | None:
        if self.is_disabled:  # what waits in the file waits on
            return None
        return Spooling.opened(self.options, label, send_again, tell, self._rng)

    def announce(self) -> None:
        """Say, once, that this client is switched off."""
        if self.is_disabled and not self._is_announced:
            self._is_announced = True
            self.hub.tell([PairingDisabled(time.monotonic(), "", f"{VARIABLE} is set in the environment")])

    def by_hand(self, act: Callable[[str, float], object], path: str) -> None:
        """What a person decides about an entity; nothing while this client is switched off."""
        if self.is_disabled:
            logger.warning("%s(%r) was ignored: %s is set", act.__name__, path, VARIABLE)
            return
        with self.exclusive():
            act(path, time.monotonic())
        self.publish()

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

    def _check_room(self, step: Attempt, path: str, cargo: Cargo, limit: int | None) -> None:
        """Look whether what goes to the primary could be parked as well; ``limit`` is that of its link.

        Raises ParkedMessageTooLargeError where the options refuse what could not (P-22).
        """
        headroom = self.headroom
        if headroom is None:
            return
        headroom.linked(limit, is_backlog=step.backlog is not None)
        if step.backlog is not None:
            return
        for message, deadline in cargo.unparked_until():
            if sdk.is_smaller(envelope.raw(message), headroom.roomy):
                continue
            if headroom.must_learn(time.monotonic()):
                self._learn_limit()
            short = headroom.shortage(message, path, deadline, limit)
            if short is None:
                continue
            if self.options.headroom == "refuse" and not cargo.is_promised:
                text = f"{short.size} bytes, where the smaller limit of the pair is {short.limit}"
                raise ParkedMessageTooLargeError(path, MessageSizeExceededError(message=text))
            now = time.monotonic()
            self.hub.tell([HeadroomShort(now, path, short.message_id, short.size, short.limit)])

    def _learn_limit(self) -> None:
        """Open a link to a backlog queue, beside the caller, to learn how large its messages may be."""
        raise NotImplementedError

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

    # -- the two sides (P-50)

    def closed_error(self) -> Exception:
        """What a call on a client that is closed, or whose pair is faulted, raises."""
        fault = self.bond.fault
        if fault is None:
            return ValueError("the paired client is closed")
        names = self._primary.info.endpoint, self._secondary.info.endpoint
        return PairFaultedError(*names, fault.role.value, str(fault))

    def _check_side(self, role: Role) -> None:
        """Raises ValueError for a side that was closed on its own, PairFaultedError in a faulted pair."""
        if self.is_closed:
            raise self.closed_error()
        if self.bond.state_of(role) is SideState.CLOSED:
            raise ValueError(f"the {role} side of the paired client is closed")

    def _hear(self, backlog: int | None, result: Result) -> None:
        """What came of an attempt says something of its side, too."""
        judgement = result.judgement
        if self.is_disabled or (judgement is None and self.bond.is_whole):
            return
        role = Role.PRIMARY if backlog is None else Role.SECONDARY
        now = time.monotonic()
        with self.exclusive():
            if judgement is None:
                self._note(self.bond.answered(role, now))
            elif judgement.is_of_namespace and judgement.failure is Failure.CONFIGURATION:
                self._note(self.bond.refused(role, judgement.why, now))
        if self._side_news:
            self.publish()

    def side_refused(self, role: Role, why: str) -> None:
        """Somebody else in this process was refused by a whole side."""
        with self.exclusive():
            self._note(self.bond.refused(role, why, time.monotonic()))
        self.publish()

    def side_accepted(self, role: Role) -> None:
        """Somebody else in this process was accepted by a side that had refused it."""
        with self.exclusive():
            self._note(self.bond.answered(role, time.monotonic()))
        self.publish()

    def _look_failed(self, role: Role, error: Exception) -> None:
        """A look at a side raised: whether the namespace answered all the same, if only of one entity."""
        judgement = self.judge(error, Phase.OPENING)
        is_of_entity = judgement.is_missing or isinstance(error, MessagingEntityDisabledError)
        if is_of_entity and not judgement.is_of_namespace:
            self.side_accepted(role)

    def _side_closed(self, role: Role) -> bool:
        """Somebody closed this side; whether that was the second one, which ends the pair."""
        with self.exclusive():
            self._note(self.bond.closed(role, time.monotonic()))
            is_over = self.bond.is_over
        self.publish()
        return is_over

    def _sides_tick(self, now: float) -> list[Role]:
        """Let time pass over the two sides, under the lock; the sides to look at now."""
        looks = self.bond.handle_timer(now)
        fault = self.bond.fault
        if fault is not None and not self.is_closed:
            self.is_closed = True  # from here on every call raises
            self._side_news.append(PairFaulted(now, "", fault.role.value, str(fault)))
        return looks

    def _note(self, changes: list[SideChange]) -> None:
        now = time.monotonic()
        self._side_news += [_SIDE_EVENT[each.after](now, "", each.role.value, each.cause) for each in changes]

    def _happened(self) -> list[PairingEvent]:
        """What is to be told, taken under the lock."""
        told, self._side_news = [*self.pair.events(), *self._side_news], []
        return told

    def _timer(self) -> float | None:
        """When the pair or its sides want to be asked again."""
        timers = (self.pair.next_timer(), self.bond.next_timer())
        return min((timer for timer in timers if timer is not None), default=None)

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
        if cargo.is_for_primary_only or self.is_disabled:
            return primary_flow(started, deadline, first)
        if self.options.ttl_policy == "deadline":
            cargo.fix_deadlines(wall_clock(started))
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


_SIDE_EVENT: dict[SideState, type[SideClosed | SideFaulted | SideRecovered]] = {
    SideState.OPEN: SideRecovered,
    SideState.CLOSED: SideClosed,
    SideState.FAULTED: SideFaulted,
}


def backlogs_event(created: tuple[str, ...] | Exception) -> PairingEvent:
    """What became of making sure of the backlog queues."""
    now = time.monotonic()
    if isinstance(created, Exception):
        cause = f"{type(created).__name__}: {judge(created, Phase.OPENING).why}"
        return BacklogsNotCreated(now, "", cause)
    return BacklogsCreated(now, "", created)


def closed(error: Exception) -> Result:
    """What comes of an attempt on a side that was closed meanwhile: the flow tells what rests where."""
    return Result(
        time.monotonic(), error, Judgement(Failure.CALLER, "the client, or this side of it, is closed")
    )


def not_written_in_time() -> Result:
    """What comes of a disk that does not answer: the message may be in the spool yet (G-7)."""
    error = SpoolError("the spool did not answer in time; the message may be in it nevertheless")
    return Result(
        time.monotonic(), error, Judgement(Failure.UNAVAILABLE, "the disk stalls", is_ambiguous=True)
    )


def counted(result: Result, accepted: int) -> Result:
    """The result, with how many messages a backlog queue accepted on the way to it."""
    return replace(result, accepted=accepted) if accepted else result


def wall_clock(instant: float) -> int:
    """An instant of the monotonic clock in milliseconds since the epoch, by the wall clock of now (F-88)."""
    return time.time_ns() // 1_000_000 - round((time.monotonic() - instant) * 1000)


def time_left(until: float) -> float:
    """Seconds until then. Raises OperationTimeoutError when there are none."""
    left = until - time.monotonic()
    if left <= 0:
        raise OperationTimeoutError(message="No time was left for this attempt.")
    return left


def role_of(lanes: str) -> Role:
    """Which namespace the lanes of this key lead to: no path of an entity begins with a slash."""
    return Role.SECONDARY if lanes.startswith("/") else Role.PRIMARY
