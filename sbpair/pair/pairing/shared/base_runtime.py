"""Base of the blocking and the asyncio runtime: all state and decisions, without waiting.

Holds the pair and the spool of one client, creates the flows that a runtime drives, and converts SDK errors into
results.
"""

from __future__ import annotations

import logging
import math
import os
import random
import secrets
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import AbstractContextManager
from dataclasses import replace
from datetime import timedelta
from typing import TYPE_CHECKING, Any

from azure.servicebus.exceptions import (
    MessageSizeExceededError,
    MessagingEntityDisabledError,
    MessagingEntityNotFoundError,
    OperationTimeoutError,
    ServiceBusError,
)

from sbpair.pair.envelope import copies
from sbpair.pair.envelope.names import path_key
from sbpair.pair.envelope.ordering import Numbering
from sbpair.pair.ground.side import Side
from sbpair.pair.tracing import current

from ..decide.health import EntityState, transfer_seconds
from ..decide.pair import Attempt, Pair, Result, SendFlow, SpoolMessages, SpoolUse, primary_flow
from ..decide.pair_state import PairState, SideChange, SideState
from ..decide.patience import Patience
from ..decide.retry import NO_RETRIES
from ..decide.room import BacklogSize
from ..decide.rotation import Choice
from ..errors import PairFaultedError, ParkedMessageTooLargeError, SpoolError
from ..events import (
    ClassifierFailed,
    HeadroomShort,
    MessageParked,
    MessageSpooled,
    PairFaulted,
    PairingDisabled,
    PairingEvent,
    SideClosed,
    SideFaulted,
    SideRecovered,
)
from ..options import VARIABLE, PairedNamespaceOptions, is_disabled
from ..outcome import Classification, Failure, SendReceipt, SendTimes, Stranded
from ..request import sdk
from ..request.classify import Phase, classify, overrule
from ..request.headroom import Headroom
from ..request.request import LinkProbe, ParkedOrder, SendRequest, one_session, ping
from ..spool.replay import SendAgain, Spooling
from ..spool.writer import Writing
from .address import LinkSettings, SdkNamespace
from .backlog import Backlogs, first_moment
from .base_pool import KEPT, Pool, PooledT
from .dispatcher import EventDispatcher, note
from .time_limits import MAX_PING_SECONDS

if TYPE_CHECKING:
    from azure.servicebus.management import ServiceBusAdministrationClient

    from ..request.request import SendRequest


REPLAY_SECONDS = 10.0  # for one send from the spool, and more for a large one
REASSIGNMENT = timedelta(seconds=15)  # maximum time the service takes to reassign a message

logger = logging.getLogger("sbpair")
ACCEPTED = Result(0.0)
"""A success, for the state of a side."""


_STORED: frozenset[type[PairingEvent]] = frozenset({MessageParked, MessageSpooled})


class BaseRuntime:
    """The state of one paired client, blocking or asyncio."""

    _spooling: Spooling | None = None
    _pools: Mapping[str, Pool[Any]]

    def __init__(
        self,
        primary: SdkNamespace,
        secondary: SdkNamespace,
        label: str,
        options: PairedNamespaceOptions,
        administration: Callable[[], ServiceBusAdministrationClient],
        rng: random.Random | None,
    ) -> None:
        self.dispatcher = EventDispatcher()
        self.pair_state = PairState(faults_on_refusal=options.fault_pair_on_refusal)
        self._slow_after = options.slow_after.total_seconds()
        self.is_closed = self._is_faulting = False  # the fault is acted on once
        self.label, self.sides = label, (primary, secondary)
        self.on_receipt: Callable[[str, SendReceipt], None] | None = None
        self.send_times = SendTimes()
        self._primary, self._secondary = primary, secondary
        self._try_timeout = primary.settings.try_timeout  # seconds for one attempt; None for no limit
        self._has_left_spool = False  # in a fork, not logged yet
        self.links: dict[str, LinkSettings] = {}  # by entity, where its senders were given some
        self._side_news: list[PairingEvent] = []
        self.is_disabled = is_disabled(os.environ)
        self._is_announced = False
        self._due = math.inf  # when the timers are looked at next; infinity too while they are
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
            busy_limit=options.busy_limit(),
            retry=primary.retry,
            rng=self._rng,
            keeps_order=self.keeps_order,
            policy=options.health_policy(),
            attempt_timeout=options.attempt_timeout.total_seconds(),
        )
        self._backlogs = Backlogs(
            label, options.backlog_queue_count, administration, is_ordered=self.keeps_order
        )
        self._begin_order()
        if options.operation_timeout <= REASSIGNMENT:
            logger.warning(
                "operation_timeout is %s: reassigning a message to another partition can take the service "
                "%s, so a send may fail that would have succeeded",
                options.operation_timeout,
                REASSIGNMENT,
            )

    @property
    def keeps_order(self) -> bool:
        """Whether the order of each session is kept through an outage."""
        return self.options.ordering == "session" and not self.is_disabled

    def _begin_order(self) -> None:
        """Number what this process parks from 1, under a name that no other process has."""
        self._numbering = Numbering(secrets.token_hex(8), wall_clock(time.monotonic()))

    def _keep_order(self, path: str, request: SendRequest) -> None:
        """Have the parked copies of an ordered session carry its parked id and stamps."""
        ordered = self.pair.ordered
        if ordered is not None and request.session is not None:
            parked_id = ordered.place(path, request.session).parked_id
            request.parked_order = ParkedOrder(parked_id, self._numbering)

    def _acceptance(self, seconds: float, patience: Patience) -> Result:
        """The result of a fast attempt: ACCEPTED, or another that a slow one has the flow record."""
        self.send_times.primary.add(seconds)
        patience.answered(seconds, time.monotonic())
        return ACCEPTED if seconds < self._slow_after else Result(time.monotonic())

    def exclusive(self) -> AbstractContextManager[object]:
        """The context in which the pure state may be used."""
        raise NotImplementedError

    def on_event(self, callback: Callable[[PairingEvent], object]) -> Callable[[], None]:
        """Call ``callback`` with every event. Returns a function that unsubscribes it."""
        return self.dispatcher.subscribe(callback)

    def round_trip(self, seconds: float) -> None:
        """Open a link to the primary, or else to the secondary. Blocking runtime only."""
        raise NotImplementedError

    async def round_trip_in_loop(self, seconds: float) -> None:
        """The asyncio twin of :meth:`round_trip`."""
        raise NotImplementedError

    def publish(self) -> None:
        """Dispatch the pending events; timers may have changed with them."""
        raise NotImplementedError

    def _timers_changed(self) -> None:
        """Check the timers again, after a change on any thread."""
        raise NotImplementedError

    @property
    def retry_total(self) -> int | None:
        """The retries of the SDK itself: 0, or None for its default while sbpair is disabled."""
        return None if self.is_disabled else 0

    @property
    def creates_backlogs(self) -> bool:
        """Whether the backlog queues are created in the background."""
        return not (self.options.assume_backlogs_exist or self.is_disabled)

    def _first_moment(self) -> float:
        """The seconds after which this client makes sure of its backlog queues."""
        return first_moment(self._rng, self.options.failover_interval.total_seconds())

    def _opened_spool(
        self,
        label: str,
        send_again: SendAgain,
        emit: Callable[[Sequence[PairingEvent]], object],
        *,
        is_read_later: bool = False,
    ) -> Spooling | None:
        if self.is_disabled:  # messages in the file keep waiting
            return None
        return Spooling.open(
            self.options,
            label,
            send_again,
            emit,
            self._rng,
            headroom=self.headroom,
            is_read_later=is_read_later,
            wake=self._timers_changed,
        )

    def announce(self) -> None:
        """Emit PairingDisabled, once, when this client is switched off."""
        if self.is_disabled and not self._is_announced:
            self._is_announced = True
            self.dispatcher.emit(
                [PairingDisabled(time.monotonic(), "", f"{VARIABLE} is set in the environment")]
            )

    def by_hand(self, act: Callable[[str, float], object], path: str) -> None:
        """Apply an operator's decision about an entity; ignored while this client is switched off."""
        if self.is_disabled:
            logger.warning("%s(%r) was ignored: %s is set", act.__name__, path, VARIABLE)
            return
        with self.exclusive():
            act(path, time.monotonic())
        self.publish()

    def mark_healthy(self, path: str) -> None:
        """Return an entity to healthy; no send waits for a link whose opening began before."""
        pool = self._pools.get(path_key(path))
        if pool is not None:
            pool.renew()
        self.by_hand(self.pair.mark_healthy, path)
        if pool is not None:
            pool.recall()

    def classify(
        self, error: Exception, phase: Phase, handled: BaseException | None = None
    ) -> Classification:
        """Classify an error by the classifier of the options, or else by the tables of classify.py."""
        classification = classify(error, phase, handled)
        if self.options.classifier is None:
            return classification
        try:
            said = self.options.classifier(error)
            return classification if said is None else overrule(classification, Failure(said))
        except Exception as wrong:  # a failing classifier must not fail the send
            self.dispatcher.emit([ClassifierFailed(time.monotonic(), "", f"{type(wrong).__name__}: {wrong}")])
            return classification

    def _check_room(self, step: Attempt, path: str, request: SendRequest, limit: int | None) -> None:
        """Check that messages sent to the primary could also be parked; ``limit`` is the size limit of its link.

        Raises ParkedMessageTooLargeError when it could not and ``headroom`` is "refuse".
        """
        headroom = self.headroom
        if self._spooling is not None and step.backlog is None:
            self._spooling.linked(path, limit)
        if headroom is None:
            return
        headroom.linked(limit, is_backlog=step.backlog is not None)
        if step.backlog is not None or request.is_smaller(headroom.roomy):
            return
        for message, deadline in request.unstored_messages():
            if sdk.is_smaller(copies.raw(message), headroom.roomy):
                continue
            if headroom.must_learn(time.monotonic()):
                self._learn_limit()
            short = headroom.shortage(message, path, deadline, limit)
            if short is None:
                continue
            if self.options.headroom == "refuse" and not request.is_promised:
                raise ParkedMessageTooLargeError(path, MessageSizeExceededError(message=str(short)))
            now = time.monotonic()
            self.dispatcher.emit([HeadroomShort(now, path, short.message_id, short.size, short.limit)])

    def _learn_limit(self) -> None:
        """Open a link to a backlog queue in the background, to learn its size limit."""
        raise NotImplementedError

    def _failure(
        self,
        pool: Pool[PooledT],
        pooled: PooledT | None,
        error: Exception,
        phase: Phase,
        handled: BaseException | None,
        request: SendRequest,
        began: float,
    ) -> Result:
        """The result of an attempt that raised; the pooled sender is kept if it may still be good."""
        if pooled is None:
            return Result(time.monotonic(), *self._classify(error, phase, handled, request))
        if pooled.has_overrun:  # the SDK's error only reflects that the watch shut the socket
            late = OperationTimeoutError(message="The send did not end by its deadline.", error=error)
            late.__cause__ = error
            error = late
        error, classification = self._classify(error, phase, handled, request)
        if classification.failure is Failure.UNAVAILABLE and not pooled.has_overrun:
            error, classification = self._disclose(pooled.deletion(), error, classification, handled)
        if classification.failure in KEPT and pooled.is_open:
            pool.release(pooled)
        else:
            if classification.is_ambiguous and self.keeps_order:
                pooled.cut()
            pool.discard(pooled)
        return Result(time.monotonic(), error, classification, pooled.opened_at < began)

    def _disclose(
        self,
        deletion: Exception | None,
        error: Exception,
        classification: Classification,
        handled: BaseException | None,
    ) -> tuple[Exception, Classification]:
        """The error of a send whose entity was deleted meanwhile, and its classification; those given for any other."""
        if deletion is None:
            return error, classification
        deletion.__cause__ = error
        is_ambiguous = classification.is_ambiguous
        return deletion, replace(self.classify(deletion, Phase.SENDING, handled), is_ambiguous=is_ambiguous)

    def _discard_cut(self, pool: Pool[PooledT], pooled: PooledT) -> None:
        """Discard the sender of a call that was cancelled or interrupted: its outcome is unknown."""
        if self.keeps_order:
            pooled.cut()
        pool.abandon(pooled)

    def _classify(
        self, error: Exception, phase: Phase, handled: BaseException | None, request: SendRequest
    ) -> tuple[Exception, Classification]:
        """The error of an attempt, and its classification.

        A message that cannot be encoded is the caller's fault, however the attempt failed. Encoding does
        not depend on the service, so it is checked only after a failure that may hide it. An attempt that the
        closing of the client ended says nothing of a broker, and its error is that of the call.
        """
        classification = self.classify(error, phase, handled)
        if self.is_closed and self.pair_state.fault is None:
            why = "the client was closed meanwhile"
            return error, replace(
                classification, failure=Failure.CALLER, why=why, is_local=True, is_own=False
            )
        if phase is Phase.ENCODING or classification.failure is not Failure.UNAVAILABLE:
            return error, classification
        fault = request.encoding_fault()
        if fault is None:
            return error, classification
        if type(fault) not in (type(error), type(getattr(error, "inner_exception", None))):
            error = ServiceBusError(f"The message cannot be encoded: {fault}.", error=fault)
            error.__cause__ = fault
        return error, classify(fault, Phase.ENCODING)

    def opening_failed(self, path: str, error: Exception) -> None:
        """Record that a link to the primary failed to open while no send waited for it."""
        classification = self.classify(error, Phase.OPENING)
        result = Result(time.monotonic(), error, classification)
        self._hear(None, result)
        if self.is_disabled:
            return
        with self.exclusive():
            self.pair.opening_failed(path, classification, result.now)
        if self.pair.has_events:
            self.publish()

    # -- the two sides

    def closed_error(self) -> Exception:
        """The error that calls raise on a closed client or a faulted pair."""
        fault = self.pair_state.fault
        if fault is None:
            return ValueError("the paired client is closed")
        names = self._primary.info.endpoint, self._secondary.info.endpoint
        return PairFaultedError(*names, fault.role.value, str(fault))

    def _check_side(self, role: Side) -> None:
        """Raises ValueError for a side that was closed on its own, PairFaultedError in a faulted pair."""
        if self.is_closed:
            raise self.closed_error()
        if self.pair_state.state_of(role) is SideState.CLOSED:
            raise ValueError(f"the {role} side of the paired client is closed")

    def _hear(self, backlog: int | None, result: Result) -> None:
        """Update the state of the side from the result of an attempt."""
        classification = result.classification
        if self.is_disabled or (classification is None and self.pair_state.is_whole):
            return
        role = Side.PRIMARY if backlog is None else Side.SECONDARY
        now = time.monotonic()
        with self.exclusive():
            if classification is None:
                self._note(self.pair_state.answered(role, now))
            elif classification.is_of_namespace and classification.failure is Failure.CONFIGURATION:
                self._note(self.pair_state.refused(role, classification.why, now))
        if self._side_news:
            self.publish()

    def side_refused(self, role: Side, why: str) -> None:
        """A side refused another part of this process, the hosted syphon."""
        with self.exclusive():
            self._note(self.pair_state.refused(role, why, time.monotonic()))
        self.publish()

    def side_accepted(self, role: Side) -> None:
        """A side that had refused another part of this process accepts it again."""
        with self.exclusive():
            self._note(self.pair_state.answered(role, time.monotonic()))
        self.publish()

    def _look_failed(self, role: Side, error: Exception) -> None:
        """A probe of a side failed; an error about one entity still shows that the namespace answers."""
        classification = self.classify(error, Phase.OPENING)
        is_of_entity = classification.is_missing or isinstance(error, MessagingEntityDisabledError)
        if is_of_entity and not classification.is_of_namespace:
            self.side_accepted(role)

    def _side_closed(self, role: Side) -> bool:
        """Record that this side was closed. Returns whether both are now, which ends the pair."""
        with self.exclusive():
            self._note(self.pair_state.closed(role, time.monotonic()))
            is_over = self.pair_state.is_over
        self.publish()
        return is_over

    def _sides_tick(self, now: float) -> list[Side]:
        """Advance the two sides, under the lock. Returns the sides to probe now."""
        looks = self.pair_state.handle_timer(now)
        fault = self.pair_state.fault
        if fault is not None and not self.is_closed:
            self.is_closed = True  # from here on every call raises
            self._side_news.append(PairFaulted(now, "", fault.role.value, str(fault)))
        return looks

    def _note(self, changes: list[SideChange]) -> None:
        now = time.monotonic()
        if any(each.role is Side.SECONDARY and each.after is SideState.OPEN for each in changes):
            self.pair.secondary_answered(now)
        self._side_news += [_SIDE_EVENT[each.after](now, "", each.role.value, each.cause) for each in changes]

    def _happened(self) -> list[PairingEvent]:
        """Pass the pending events to the dispatcher, under the lock; return them."""
        pending = [*self.pair.pass_to(self.dispatcher.take), *self._side_news]
        self.dispatcher.take(self._side_news)
        return pending

    def _is_timer_earlier(self, happened: Sequence[PairingEvent]) -> bool:
        """Whether a timer may be due before the timers are looked at next, after what these events tell.

        A stored message, as nearly all events of an outage are, moves those of the room and of the spool only.
        """
        if not happened or not {event.__class__ for event in happened} <= _STORED:
            return True
        sizes, spool = self._sizes_timer(), None if self._spooling is None else self._spooling.next_timer()
        return (sizes is not None and sizes < self._due) or (spool is not None and spool < self._due)

    def _timer(self) -> float | None:
        """When the pair or its sides need the timer next."""
        timers = (self.pair.next_timer(), self.pair_state.next_timer(), self._sizes_timer())
        return min((timer for timer in timers if timer is not None), default=None)

    def _sizes_timer(self) -> float | None:
        """When to ask for the sizes of the backlog queues, where the key may have Manage."""
        return self.pair.room.next_timer() if self.creates_backlogs else None

    def _sizes_due(self, now: float) -> Sequence[int]:
        """The backlog queues whose sizes to ask for now, where the key may have Manage."""
        return self.pair.room.due(now) if self.creates_backlogs else ()

    def _sized(self, found: Mapping[int, BacklogSize] | None) -> None:
        """Record the sizes of backlog queues; None when the key may not see them."""
        with self.exclusive():
            self.pair.sized(found, time.monotonic())
        self.publish()

    def limit_attempt(self, seconds: float) -> float:
        """The seconds one attempt may take: at most the SDK's ``try_timeout``."""
        return seconds if self._try_timeout is None else min(seconds, self._try_timeout)

    def _limit(self, step: Attempt) -> Attempt:
        if self._try_timeout is None:
            return step
        now = time.monotonic()
        until = now + self.limit_attempt(step.until - now)
        by = None if step.open_by is None else now + self.limit_attempt(step.open_by - now)
        return replace(step, until=until, open_by=by)

    def _link_keywords(self, key: str) -> dict[str, Any]:
        """Keyword arguments for the SDK's senders of this pool."""
        links = self.links.get(key)
        return {} if links is None else links.keywords()

    def _leave_spool(self) -> None:
        """In a forked child: the spool is the parent's."""
        if self._spooling is not None:
            self._spooling.disown()
            self._spooling, self._has_left_spool = None, True

    def is_spooling(self, path: str, session: str | None = None) -> bool:
        """Whether a message of this entity goes to the spool first: always by the options, or behind older ones.

        ``session`` is the session whose order is kept.
        """
        return self._spooling is not None and self._spooling.takes_first(path, session)

    def count_spooled(self, path: str | None) -> int:
        """The number of messages in the spool, for this entity or for all."""
        return 0 if self._spooling is None else self._spooling.waiting(path)

    def spool_depth(self) -> dict[str, float]:
        """The number of messages in the spool by entity, 0 for those that have left it."""
        return {} if self._spooling is None else self._spooling.depth()

    def spool_takes_messages(self) -> bool | None:
        """Whether the spool can be written, as far as is known; None without a spool."""
        return None if self._spooling is None else self._spooling.takes_messages

    def _flow(
        self,
        path: str,
        request: SendRequest,
        choice: Choice,
        started: float,
        budget: float,
        first: Result | None,
    ) -> SendFlow:
        """The flow of one send, or of an operation only the primary offers."""
        deadline = started + budget
        if request.is_for_primary_only or self.is_disabled:
            # With pairing disabled, the SDK itself retries.
            retry = NO_RETRIES if self.is_disabled else self._primary.retry
            return primary_flow(started, deadline, first, retry)
        self._keep_order(path, request)
        if self.options.ttl_policy == "deadline":
            request.fix_deadlines(wall_clock(started))
        spool = SpoolUse.NEVER
        if self._has_left_spool:
            self._has_left_spool = False
            logger.warning(
                "the spool %s stays with the process that this one was forked from: here, what neither "
                "namespace takes is raised; a client that is made after the fork can have a spool of its own",
                self.options.spool,
            )
        if self._spooling is not None:
            is_first = self._spooling.takes_first(path, request.session, wants_numbers=request.wants_numbers)
            spool = SpoolUse.AT_ONCE if is_first else SpoolUse.LAST_RESORT
        flow = self.pair.send_flow(
            path,
            len(request),
            choice,
            now=started,
            deadline=deadline,
            first=first,
            spool=spool,
            message_ids=request.message_ids,
            session=request.session,
            key=request.key,
            size=request.size,
        )
        return flow if current.active is None else note(flow, self.pair, current.active)

    def _flow_again(self, path: str, request: SendRequest, choice: Choice) -> SendFlow:
        """The flow of messages from the spool, which never writes to the spool."""
        now = time.monotonic()
        patience = REPLAY_SECONDS + transfer_seconds(request.size())
        deadline = now + min(self.options.operation_timeout.total_seconds(), patience)
        if request.is_for_primary_only:
            is_away = self.pair.state_of(path) is EntityState.FAILED_OVER
            return _nowhere() if is_away else primary_flow(now, deadline)
        if self.keeps_order:
            request.session = one_session(path, request.messages)
        self._keep_order(path, request)
        return self.pair.send_flow(
            path,
            len(request),
            choice,
            now=now,
            deadline=deadline,
            spool=SpoolUse.FROM_IT,
            message_ids=request.message_ids,
            session=request.session,
            size=request.size,
        )

    def _writes(self, path: str, request: SendRequest, step: SpoolMessages) -> Iterator[Writing | None]:
        """The writes to the spool for one step, as :meth:`Spooling.keep`."""
        if self._spooling is None:
            raise SpoolError("the spool belongs to the process that this one was forked from")
        request.carry_trace()
        return self._spooling.keep(path, request, is_first=step.is_first)

    def _creation_result(self, error: Exception | None) -> Result:
        """The result of creating a backlog queue."""
        return Result(time.monotonic(), error, None if error is None else self.classify(error, Phase.OPENING))

    def _must_exist(self, backlog: int) -> Exception | None:
        """The error when a missing backlog queue may not be created, else None."""
        if not self.options.assume_backlogs_exist:
            return None
        name = self._backlogs.name(backlog)
        return MessagingEntityNotFoundError(message=f"Backlog queue {name} does not exist.")

    def _ping_attempt(self, path: str) -> tuple[Attempt, SendRequest]:
        """The attempt that probes the primary entity: a ping, or opening a link."""
        now = time.monotonic()
        is_message = self.options.probe == "message"
        self.pair.ping_left(path, now, is_billed=is_message)
        until = now + min(MAX_PING_SECONDS, self.options.operation_timeout.total_seconds())
        return Attempt(None, until, is_fresh=True), ping() if is_message else LinkProbe()

    def _ping_ended(self, path: str, result: Result | None) -> None:
        """Record the result of a ping, under the lock; None after one that raised."""
        if result is None:
            self.pair.ping_lost(path)
        else:
            self.pair.ping_finished(path, result.classification, result.now)

    def _opened_for_next(self, step: Attempt) -> None:
        """Record that a link opened for which an attempt did not wait: the next send uses it."""
        if step.backlog is not None:
            with self.exclusive():
                self.pair.secondary_answered(time.monotonic())

    def _backlog_to_warm(self, path: str, choice: Choice) -> int | None:
        """The backlog queue to open a link to while an entity is suspect; None if there is no need."""
        if self.pair.state_of(path) is not EntityState.SUSPECT:
            return None
        return self.pair.rotation.pick(choice, time.monotonic())


def _nowhere() -> SendFlow:
    """The flow of an operation that only the primary can perform, while its entity is failed over."""
    return Stranded(())
    yield  # makes this a generator, like every flow


_SIDE_EVENT: dict[SideState, type[SideClosed | SideFaulted | SideRecovered]] = {
    SideState.OPEN: SideRecovered,
    SideState.CLOSED: SideClosed,
    SideState.REFUSED: SideFaulted,
}


def wall_clock(instant: float) -> int:
    """Convert a monotonic time to milliseconds since the epoch, by the current wall clock."""
    return time.time_ns() // 1_000_000 - round((time.monotonic() - instant) * 1000)


def closed_result(error: Exception) -> Result:
    """The result of an attempt on a side that was closed during the send."""
    return Result(
        time.monotonic(),
        error,
        Classification(Failure.CALLER, "the client, or this side of it, is closed", is_local=True),
    )


def not_created_in_time() -> OperationTimeoutError:
    """The error of a creation of a backlog queue that did not end in time."""
    return OperationTimeoutError(message="The backlog queue was not created in time.")


def not_written_in_time(*, is_withdrawn: bool) -> Result:
    """The result when the disk does not answer: unless withdrawn, the message may still be in the spool."""
    if is_withdrawn:
        return Result(time.monotonic(), SpoolError("the spool did not answer in time; nothing was written"))
    error = SpoolError("the spool did not answer in time; the message may be in it nevertheless")
    return Result(
        time.monotonic(), error, Classification(Failure.UNAVAILABLE, "the disk stalls", is_ambiguous=True)
    )


def with_count(result: Result, request: SendRequest, messages: int, size: int) -> Result:
    """The result, with what a backlog queue accepted during the attempt: more than ``messages`` and ``size`` bytes."""
    accepted, taken = request.parked - messages, request.parked_bytes - size
    if not accepted:
        return result
    return Result(
        result.now, result.error, result.classification, result.was_reused, accepted, result.is_empty, taken
    )


def time_left(until: float) -> float:
    """The seconds left until ``until``. Raises OperationTimeoutError when there are none."""
    left = until - time.monotonic()
    if left <= 0:
        raise OperationTimeoutError(message="No time was left for this attempt.")
    return left
