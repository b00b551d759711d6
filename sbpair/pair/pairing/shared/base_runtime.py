"""Base of the blocking and the asyncio runtime: all state and decisions, without waiting.

Holds the pair of one client, creates the flows that a runtime drives, passes on events and timers, and counts how long
sends take. The states of the sides are in sides.py, the meaning of errors in failures.py, and the spool in
client_spool.py.
"""

from __future__ import annotations

import logging
import math
import os
import random
import time
from bisect import bisect_left
from collections.abc import Callable, Mapping, Sequence
from contextlib import AbstractContextManager
from datetime import timedelta
from itertools import accumulate
from typing import TYPE_CHECKING, Any

from azure.servicebus.exceptions import (
    MessageSizeExceededError,
    MessagingEntityDisabledError,
    MessagingEntityNotFoundError,
    OperationTimeoutError,
)

from sbpair.pair.envelope import copies
from sbpair.pair.envelope.names import path_key
from sbpair.pair.ground.side import Side
from sbpair.pair.tracing import current

from ..decide.backlogs import BacklogSize
from ..decide.health import EntityState
from ..decide.pair import Attempt, Pair, Result, SendFlow, SpoolUse, primary_flow
from ..decide.patience import Patience, transfer_seconds
from ..decide.retry import NO_RETRIES
from ..decide.steps import Choice
from ..errors import ParkedMessageTooLargeError
from ..events import (
    EntityFailedOver,
    EntitySuspected,
    HeadroomShort,
    MessageParked,
    MessageSpooled,
    PairingDisabled,
    PairingEvent,
)
from ..options import VARIABLE, PairedNamespaceOptions, is_disabled
from ..outcome import Outcome, Refused, SendReceipt, Stored, Stranded
from ..request import sdk
from ..request.classify import Phase
from ..request.headroom import Headroom, large_property
from ..request.request import LinkProbe, ParkedOrder, SendRequest, one_session, ping
from .address import LinkSettings, SdkNamespace
from .backlog import Backlogs, first_moment
from .base_pool import Pool
from .client_spool import ClientSpool
from .dispatcher import EventDispatcher, note
from .failures import Failures
from .sides import Sides
from .time_limits import MAX_PING_SECONDS

if TYPE_CHECKING:
    from azure.servicebus.management import ServiceBusAdministrationClient

    from sbpair.pair.envelope.ordering import Numbering

    from ..request.request import SendRequest


REPLAY_SECONDS = 10.0  # for one send from the spool, and more for a large one
REASSIGNMENT = timedelta(seconds=15)  # maximum time the service takes to reassign a message
BOUNDS = (0.001, 0.0025, 0.005, 0.01, 0.025, 0.05, 0.1, 0.25, 0.5, 1.0, 2.5, 5.0, 10.0, 30.0, 60.0)
"""The upper bounds of the buckets of send times, in seconds; one more has no bound."""
BY_PRIMARY = ("primary", "accepted")

logger = logging.getLogger("sbpair")
ACCEPTED = Result(0.0)
"""A success, for the state of a side."""


_STORED: frozenset[type[PairingEvent]] = frozenset({MessageParked, MessageSpooled})


class BaseRuntime:
    """The state of one paired client, blocking or asyncio."""

    _pools: Mapping[str, Pool[Any]]
    _numbering: Numbering  # where order is kept

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
        self._slow_after = options.slow_after.total_seconds()
        self._is_faulting = False  # the fault is acted on once
        self.label, self.namespaces = label, (primary, secondary)
        self.on_receipt: Callable[[str, SendReceipt, Sequence[copies.Message]], None] | None = None
        self.send_times = SendTimes()
        self._primary, self._secondary = primary, secondary
        self._try_timeout = primary.settings.try_timeout  # seconds for one attempt; None for no limit
        self.links: dict[str, LinkSettings] = {}  # by entity, where its senders were given some
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
        self.sides = Sides(
            (primary.info.endpoint, secondary.info.endpoint),
            self.exclusive,
            self.publish,
            self.pair.secondary_answered,
            faults_on_refusal=options.fault_pair_on_refusal,
        )
        self.failures = Failures(
            options.classifier, self.sides, self.dispatcher.emit, keeps_order=self.keeps_order
        )
        self.spool = ClientSpool(options, is_disabled=self.is_disabled)
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
        """Start numbering the messages that this process parks, from 1, under a name that no other process has."""
        if self.keeps_order:
            from sbpair.pair.envelope.ordering import Numbering  # late: most clients keep no order

            self._numbering = Numbering(os.urandom(8).hex(), wall_clock(time.monotonic()))

    def _keep_order(self, path: str, request: SendRequest) -> None:
        """Let the parked copies of an ordered session carry its parked id and their stamps."""
        ordered = self.pair.ordered
        if ordered is not None and request.session is not None:
            parked_id = ordered.place(path, request.session).parked_id
            request.parked_order = ParkedOrder(parked_id, self._numbering)

    def _acceptance(self, seconds: float, patience: Patience) -> Result:
        """Return the result of a fast attempt: ACCEPTED, or for a slow one a result that the flow must record."""
        self.send_times.primary.add(seconds)
        patience.answered(seconds, time.monotonic())
        return ACCEPTED if seconds < self._slow_after else Result(time.monotonic())

    def exclusive(self) -> AbstractContextManager[object]:
        """Return the context in which the pure state may be used."""
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
        """Dispatch the pending events, then check the timers, which may have changed too."""
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
        """Return after how many seconds this client checks its backlog queues."""
        return first_moment(self._rng, self.options.failover_interval.total_seconds())

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
        """Mark an entity as healthy; end the waits for links whose opening began before."""
        pool = self._pools.get(path_key(path))
        if pool is not None:
            pool.renew()
        self.by_hand(self.pair.mark_healthy, path)
        if pool is not None:
            pool.recall()

    def _check_room(self, step: Attempt, path: str, request: SendRequest, limit: int | None) -> None:
        """Check that messages sent to the primary could also be parked; ``limit`` is the size limit of its link.

        Raises ParkedMessageTooLargeError when it could not and ``headroom`` is "refuse".
        """
        headroom = self.headroom
        if self.spool.flow is not None and step.backlog is None:
            self.spool.flow.linked(path, limit)
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

    def opening_failed(self, path: str, error: Exception) -> None:
        """Record that a link to the primary failed to open while no send waited for it."""
        classification = self.failures.classify(error, Phase.OPENING)
        result = Result(time.monotonic(), error, classification)
        self._hear(None, result)
        if self.is_disabled:
            return
        with self.exclusive():
            self.pair.opening_failed(path, classification, result.now)
        if self.pair.has_events:
            self.publish()

    def _hear(self, backlog: int | None, result: Result) -> None:
        """Update the state of the side from the result of an attempt."""
        if not self.is_disabled and not (result.classification is None and self.sides.state.is_whole):
            self.sides.hear(backlog, result)

    def _look_failed(self, role: Side, error: Exception) -> None:
        """Record that the probe of a side failed; an error about one entity still shows that the namespace answers."""
        classification = self.failures.classify(error, Phase.OPENING)
        is_of_entity = classification.is_missing or isinstance(error, MessagingEntityDisabledError)
        if is_of_entity and not classification.is_of_namespace:
            self.sides.accepted(role)

    def _happened(self) -> list[PairingEvent]:
        """Pass the pending events to the dispatcher, under the lock; return them."""
        news = self.sides.news
        pending = [*self.pair.pass_to(self.dispatcher.take), *news]
        self.dispatcher.take(news)
        return pending

    def _recall_doubtful(self, happened: Sequence[PairingEvent]) -> None:
        """End the waits for links to entities that, according to these events, are no longer tried."""
        for event in happened:
            if isinstance(event, (EntityFailedOver, EntitySuspected)):
                pool = self._pools.get(path_key(event.path))
                if pool is not None and self.pair.parks_at_once(event.path, time.monotonic()):
                    pool.recall()

    def _is_timer_earlier(self, happened: Sequence[PairingEvent]) -> bool:
        """Whether these events may have set a timer due before the next check of the timers.

        The event of a stored message, as nearly all events in an outage are, changes only the timers of the room and
        the spool.
        """
        if not happened or not {event.__class__ for event in happened} <= _STORED:
            return True
        sizes, spool = self._sizes_timer(), None if self.spool.flow is None else self.spool.flow.next_timer()
        return (sizes is not None and sizes < self._due) or (spool is not None and spool < self._due)

    def _timer(self) -> float | None:
        """Return when the pair or its sides need the timer next."""
        timers = (self.pair.next_timer(), self.sides.state.next_timer(), self._sizes_timer())
        return min((timer for timer in timers if timer is not None), default=None)

    def _sizes_timer(self) -> float | None:
        """Return when to ask for the sizes of the backlog queues, if the key may read them; None for never."""
        return self.pair.room.next_timer() if self.creates_backlogs else None

    def _sizes_due(self, now: float) -> Sequence[int]:
        """Return the backlog queues whose sizes to ask for now, if the key may read them."""
        return self.pair.room.due(now) if self.creates_backlogs else ()

    def _sized(self, found: Mapping[int, BacklogSize] | None) -> None:
        """Record the sizes of backlog queues; None when the key may not read them."""
        with self.exclusive():
            self.pair.sized(found, time.monotonic())
        self.publish()

    def limit_attempt(self, seconds: float) -> float:
        """Return the seconds that one attempt may take: at most the SDK's ``try_timeout``."""
        return seconds if self._try_timeout is None else min(seconds, self._try_timeout)

    def _limit(self, step: Attempt) -> Attempt:
        if self._try_timeout is None:
            return step
        now = time.monotonic()
        until = now + self.limit_attempt(step.until - now)
        by = None if step.open_by is None else now + self.limit_attempt(step.open_by - now)
        return step._replace(until=until, open_by=by)

    def _link_keywords(self, key: str) -> dict[str, Any]:
        """Return the keyword arguments for the SDK's senders of this pool."""
        links = self.links.get(key)
        return {} if links is None else links.keywords()

    def _flow(
        self,
        path: str,
        request: SendRequest,
        choice: Choice,
        started: float,
        budget: float,
        first: Result | None,
    ) -> SendFlow:
        """Return the flow of one send, or of an operation that only the primary offers.

        Raises MessageSizeExceededError for a property that the service never accepts, unless ``headroom`` is "off".
        """
        if self.headroom is not None:
            for message in request.messages:
                if (large := large_property(message)) is not None:
                    raise large
        deadline = started + budget
        if request.is_for_primary_only or self.is_disabled:
            # With pairing disabled, the SDK itself retries.
            retry = NO_RETRIES if self.is_disabled else self._primary.retry
            return primary_flow(started, deadline, self._rng, first, retry)
        self._keep_order(path, request)
        if self.options.ttl_policy == "deadline":
            request.fix_deadlines(wall_clock(started))
        spool = SpoolUse.NEVER
        if self.spool.flow is not None or self.spool.has_left:
            spool = self.spool.use(path, request)
        flow = self.pair.send_flow(
            path,
            len(request),
            choice,
            now=started,
            deadline=deadline,
            first=first,
            spool=spool,
            message_ids=request.message_ids,
            checksums=request.checksums,
            session=request.session,
            key=request.key,
            size=request.size,
        )
        return flow if current.active is None else note(flow, self.pair, current.active)

    def _flow_again(self, path: str, request: SendRequest, choice: Choice) -> SendFlow:
        """Return the flow for messages from the spool, which never writes to the spool."""
        now = time.monotonic()
        patience = REPLAY_SECONDS + transfer_seconds(request.size())
        deadline = now + min(self.options.operation_timeout.total_seconds(), patience)
        if request.is_for_primary_only:
            is_away = self.pair.state_of(path) is EntityState.FAILED_OVER
            return _nowhere() if is_away else primary_flow(now, deadline, self._rng)
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
            checksums=request.checksums,
            session=request.session,
            size=request.size,
        )

    def _creation_result(self, error: Exception | None) -> Result:
        """Return the result of creating a backlog queue."""
        return Result(
            time.monotonic(), error, None if error is None else self.failures.classify(error, Phase.OPENING)
        )

    @property
    def backlogs_missing_because(self) -> str:
        """Why the backlog queues could not be verified or created; "" if they were, or need not be."""
        return self._backlogs.missing_because or ""

    def _must_exist(self, backlog: int) -> Exception | None:
        """Return an error when this backlog queue is missing and may not be created, else None."""
        if not self.options.assume_backlogs_exist:
            return None
        name = self._backlogs.name(backlog)
        return MessagingEntityNotFoundError(message=f"Backlog queue {name} does not exist.")

    def _ping_attempt(self, path: str) -> tuple[Attempt, SendRequest]:
        """Return the attempt that probes the primary entity, by a ping or by opening a link, and its request."""
        now = time.monotonic()
        is_message = self.options.probe == "message"
        self.pair.ping_left(path, now, is_billed=is_message)
        until = now + min(MAX_PING_SECONDS, self.options.operation_timeout.total_seconds())
        return Attempt(None, until, is_fresh=True), ping() if is_message else LinkProbe()

    def _ping_ended(self, path: str, result: Result | None) -> None:
        """Record the result of a ping, under the lock; None if the ping raised."""
        if result is None:
            self.pair.ping_lost(path)
        else:
            self.pair.ping_finished(path, result.classification, result.now)

    def _opened_for_next(self, step: Attempt) -> None:
        """Record that a link is open that the attempt did not wait for; the next send can use it."""
        if step.backlog is not None:
            with self.exclusive():
                self.pair.secondary_answered(time.monotonic())

    def _backlog_to_warm(self, path: str, choice: Choice) -> int | None:
        """Return the backlog queue to open a link to while an entity is suspect; None if there is no need."""
        if self.pair.state_of(path) is not EntityState.SUSPECT:
            return None
        return self.pair.rotation.pick(choice, time.monotonic())


def _nowhere() -> SendFlow:
    """Return the flow of an operation that only the primary offers, while its entity is failed over."""
    return Stranded(())
    yield  # makes this a generator, like every flow


def wall_clock(instant: float) -> int:
    """Return a monotonic time in milliseconds since the epoch, by the current wall clock."""
    return time.time_ns() // 1_000_000 - round((time.monotonic() - instant) * 1000)


def with_count(result: Result, request: SendRequest, messages: int, size: int) -> Result:
    """Return the result with the number and size of messages that a backlog queue accepted during the attempt.

    ``messages`` and ``size``: how many messages and bytes had been parked before it.
    """
    accepted, taken = request.parked - messages, request.parked_bytes - size
    if not accepted:
        return result
    return Result(
        result.now, result.error, result.classification, result.was_reused, accepted, result.is_empty, taken
    )


def time_left(until: float) -> float:
    """Return the seconds left until ``until``. Raises OperationTimeoutError when there are none."""
    left = until - time.monotonic()
    if left <= 0:
        raise OperationTimeoutError(message="No time was left for this attempt.")
    return left


class Times:
    """The sends of one side and outcome: how many ended within each bound, and the sum of their seconds."""

    __slots__ = ("counts", "total")

    def __init__(self) -> None:
        self.counts = [0] * (len(BOUNDS) + 1)
        self.total = 0.0

    def add(self, seconds: float) -> None:
        """Count one send."""
        # Each line is one read and one write without a call between them, where no other thread gets its turn.
        bucket = bisect_left(BOUNDS, seconds)
        self.counts[bucket] += 1
        self.total += seconds

    def cumulative_counts(self) -> list[int]:
        """Return how many sends ended within each bound, and last the total number."""
        return list(accumulate(self.counts))


class SendTimes:
    """The sends of one client, by where their messages were stored and by outcome.

    ``primary`` counts those that the primary accepted.
    """

    bounds = BOUNDS

    def __init__(self) -> None:
        self.primary = Times()
        self._others: dict[tuple[str, str], Times] = {}

    def ended(self, outcome: Outcome, seconds: float) -> None:
        """Count a send that was decided by its flow."""
        key = _place_and_end(outcome)
        times = self.primary if key == BY_PRIMARY else self._others.setdefault(key, Times())
        times.add(seconds)

    def by_side(self) -> dict[tuple[str, str], Times]:
        """Return the sends by side and outcome; combinations that did not occur are left out."""
        return {BY_PRIMARY: self.primary, **self._others}


def _place_and_end(outcome: Outcome) -> tuple[str, str]:
    if isinstance(outcome, Stored):
        if outcome.is_spooled:
            return "spool", "accepted"
        return BY_PRIMARY if outcome.backlog is None else ("secondary", "accepted")
    is_primary = isinstance(outcome, Refused) and not outcome.is_parked
    return "primary" if is_primary else "secondary", "raised"
