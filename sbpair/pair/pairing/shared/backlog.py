"""Creation and inspection of backlog queues.

Missing queues are created; existing ones are never changed. Blocking; runs on a worker thread.
"""

from __future__ import annotations

import logging
import threading
import time
from collections import deque
from collections.abc import Callable, Iterable
from datetime import timedelta
from functools import partial
from typing import TYPE_CHECKING

from azure.core.exceptions import (
    AzureError,
    ClientAuthenticationError,
    ResourceExistsError,
    ResourceNotFoundError,
    ServiceRequestError,
    ServiceResponseError,
)

from sbpair.pair.envelope.names import backlog_queue_name, is_ordered_backlog, ordered_backlog_name
from sbpair.pair.ground.shortage import causes

from ..decide.backlogs import BacklogSize
from ..events import BacklogsCreated, BacklogsNotCreated, PairingEvent
from ..outcome import Failure
from ..request.classify import Phase, classify
from .partitions import create_as_the_namespace_asks

if TYPE_CHECKING:
    from random import Random

    from azure.servicebus.management import QueueProperties, ServiceBusAdministrationClient
    from tenacity import RetryCallState

_logger = logging.getLogger("sbpair")

FOREVER = "P10675199DT2H48M5.4775807S"  # the service's notation for "no limit"
_LIMITLESS = timedelta(days=10_000_000)  # the SDK parses FOREVER as more than this

MEBIBYTE = 1024 * 1024
CREATED_MEBIBYTES = 5120
MAX_LISTED = 300  # queues, of a namespace that has more
SPREAD_SECONDS = 30.0
MAX_WAIT_SECONDS = 60.0  # seconds between two attempts in the background
TOLD_AFTER_SECONDS = 30.0  # without the queues


class Backlogs:
    """The backlog queues of one primary namespace on the secondary.

    ``administration`` creates an administration client for the secondary. With ``is_ordered``, there are as many
    ordered queues, numbered after the others.
    """

    def __init__(
        self,
        namespace: str,
        count: int,
        administration: Callable[[], ServiceBusAdministrationClient],
        *,
        is_ordered: bool = False,
    ) -> None:
        self._namespace = namespace
        self._count = count
        self._total = 2 * count if is_ordered else count
        self._administration = administration
        self.missing_because: str | None = ""
        """Why the backlog is not ready: a cause, or "" before the first check; None once all queues exist."""
        self._is_told = False

    def name(self, index: int) -> str:
        if index < self._count:
            return backlog_queue_name(self._namespace, index)
        return ordered_backlog_name(self._namespace, index - self._count)

    def ensure(self, indexes: Iterable[int] | None = None) -> tuple[str, ...]:
        """Create the missing backlog queues, of all or of those with these ``indexes``; return the names created.

        Raises the errors of the SDK's administration client.
        """
        return self._round(range(self._total) if indexes is None else indexes)()

    def ensure_in_background(
        self,
        closed: threading.Event,
        delay: float = 0.0,
        tell: Callable[[PairingEvent], object] = lambda event: None,
    ) -> tuple[str, ...] | None:
        """Call :meth:`ensure` after ``delay`` seconds, and repeat it until it succeeds: a missing right may be granted.

        ``tell`` gets an event about a refusal at once, about a secondary that is unavailable or busy after half a
        minute, and then at each change of the cause. If ``closed`` is set, returns None before the first attempt, and
        later raises the error of the last one.
        """
        if delay and closed.wait(delay):
            return None
        import tenacity

        retrying = tenacity.Retrying(
            retry=tenacity.retry_if_exception_type(Exception),
            wait=tenacity.wait_exponential(max=MAX_WAIT_SECONDS),  # a fleet's first delays are spread
            stop=tenacity.stop_when_event_set(closed),
            sleep=tenacity.sleep_using_event(closed),
            before_sleep=partial(self._still_missing, tell),
            reraise=True,
        )
        return retrying(self._round(range(self._total)))

    def make_in_background(
        self, closed: threading.Event, delay: float, tell: Callable[[PairingEvent], object]
    ) -> None:
        """Call :meth:`ensure_in_background` and pass the result to ``tell``, unless the client is closed."""
        made: tuple[str, ...] | Exception | None
        try:
            made = self.ensure_in_background(closed, delay, tell)
        except Exception as error:
            made = None if closed.is_set() else error
        if made is not None:
            event = backlogs_event(made, time.monotonic())
            self.missing_because = event.cause if isinstance(event, BacklogsNotCreated) else None
            tell(event)

    def _still_missing(self, tell: Callable[[PairingEvent], object], state: RetryCallState) -> None:
        error = None if state.outcome is None else state.outcome.exception()
        if not isinstance(error, Exception):
            return
        event = backlogs_event(error, time.monotonic())
        told, self.missing_because = (
            self.missing_because,
            event.cause if isinstance(event, BacklogsNotCreated) else "",
        )
        is_long = state.seconds_since_start is not None and state.seconds_since_start >= TOLD_AFTER_SECONDS
        if (is_long or not _may_pass(error)) and not (self._is_told and told == self.missing_because):
            self._is_told = True
            tell(event)

    def _round(self, indexes: Iterable[int]) -> Callable[[], tuple[str, ...]]:
        """Return a function that ensures these queues; after an error, another call continues where it stopped."""
        unsure, missing, created = [self.name(index) for index in indexes], deque[str](), list[str]()

        def go_on() -> tuple[str, ...]:
            with self._administration() as administration:
                if len(unsure) > 1:
                    found, is_all = _list(administration, set(unsure))
                    missing.extend(name for name in unsure if is_all and name not in found)
                    unsure[:] = [name for name in unsure if not (is_all or name in found)]
                while unsure:
                    if not _exists(administration, unsure[0]):
                        missing.append(unsure[0])
                    del unsure[0]
                while missing:
                    created.extend([missing[0]] if _create(administration, missing[0]) else [])
                    missing.popleft()
            return tuple(created)

        return go_on

    def sizes(self, indexes: Iterable[int]) -> dict[int, BacklogSize] | None:
        """Return the sizes of these backlog queues as the service counts them; None when the key lacks Manage.

        A queue whose size cannot be read now is left out.
        """
        found = {}
        try:
            with self._administration() as administration:
                for index in indexes:
                    found[index] = _size(administration, self.name(index))
        except ClientAuthenticationError:
            return None
        except (AzureError, ValueError) as error:
            _logger.debug("the sizes of the backlog queues are unknown: %s", type(error).__name__)
        return found


def _size(administration: ServiceBusAdministrationClient, name: str) -> BacklogSize:
    counts, queue = administration.get_queue_runtime_properties(name), administration.get_queue(name)
    limit = (queue.max_size_in_megabytes or CREATED_MEBIBYTES) * MEBIBYTE
    return BacklogSize(counts.size_in_bytes or 0, limit, counts.active_message_count or 0)


def _may_pass(error: BaseException) -> bool:
    return isinstance(error, Exception) and classify(error).failure in (Failure.UNAVAILABLE, Failure.BUSY)


def first_moment(rng: Random, failover_interval: float) -> float:
    """Return after how many seconds a new client checks its queues: at random, since many clients may start together.

    That is well before the first failover could need them; a send that needs a queue does not wait for this.
    """
    return rng.uniform(0.0, min(SPREAD_SECONDS, failover_interval / 2))


def _list(administration: ServiceBusAdministrationClient, wanted: set[str]) -> tuple[set[str], bool]:
    """Return the wanted queues that exist, and whether all others are missing; one call per hundred queues.

    In a namespace with more than MAX_LISTED queues, the other wanted ones must be requested one by one.
    """
    found: set[str] = set()
    count = 0
    for count, queue in enumerate(administration.list_queues(), 1):
        if queue.name in wanted:
            found.add(queue.name)
            _compare(queue)
        if len(found) == len(wanted) or count == MAX_LISTED:
            break
    return found, count < MAX_LISTED or len(found) == len(wanted)


def _exists(administration: ServiceBusAdministrationClient, name: str) -> bool:
    try:
        _compare(administration.get_queue(name))
    except ResourceNotFoundError:
        return False
    return True


def _compare(found: QueueProperties) -> None:
    for difference in differences(found):
        _logger.warning(
            "backlog queue %s differs from the recommended settings: %s; using it as it is",
            found.name,
            difference,
        )


def _create(administration: ServiceBusAdministrationClient, name: str) -> bool:
    def create(is_partitioned: bool | None) -> None:
        administration.create_queue(
            name,
            max_size_in_megabytes=CREATED_MEBIBYTES,
            max_delivery_count=2**31 - 1,
            default_message_time_to_live=FOREVER,
            auto_delete_on_idle=FOREVER,
            lock_duration=timedelta(minutes=1),
            dead_lettering_on_message_expiration=True,
            enable_batched_operations=True,
            enable_partitioning=is_partitioned,
            requires_session=is_ordered_backlog(name),
        )

    try:
        create_as_the_namespace_asks(create)
    except ResourceExistsError:  # for every 409, a concurrent change among them
        if not _exists(administration, name):
            raise
        return False  # another client created it
    _logger.info("created backlog queue %s", name)
    return True


def differences(found: QueueProperties) -> list[str]:
    """Return, as text, the settings and the status in which an existing backlog queue differs from a created one."""
    is_ordered = is_ordered_backlog(found.name)
    is_ours = {
        "max_size_in_megabytes": found.max_size_in_megabytes == CREATED_MEBIBYTES,
        "max_delivery_count": found.max_delivery_count == 2**31 - 1,
        "default_message_time_to_live": _is_limitless(found.default_message_time_to_live),
        "auto_delete_on_idle": _is_limitless(found.auto_delete_on_idle),
        "lock_duration": found.lock_duration == timedelta(minutes=1),
        "dead_lettering_on_message_expiration": found.dead_lettering_on_message_expiration is True,
        "enable_batched_operations": found.enable_batched_operations is not False,
        "status": _word(found.status) in ("None", "Active"),
        "requires_session": bool(found.requires_session) is is_ordered,
        # it would drop messages of different entities with one id
        "requires_duplicate_detection": not found.requires_duplicate_detection,
        # a peek may be answered by one partition
        "enable_partitioning": not (is_ordered and found.enable_partitioning),
        "forward_to": not found.forward_to,
    }
    return [f"{name} is {_word(getattr(found, name))}" for name, holds in is_ours.items() if not holds]


def _word(status: object) -> str:
    """Return the name of a status, which is an enum of the SDK or text."""
    return str(getattr(status, "value", status))


def _is_limitless(span: object) -> bool:
    return span is None or (isinstance(span, timedelta) and span >= _LIMITLESS)


def backlogs_event(created: tuple[str, ...] | Exception, now: float) -> PairingEvent:
    """Return the event for the creation of the backlog queues, or its failure."""
    if isinstance(created, Exception):
        return BacklogsNotCreated(now, "", f"{type(created).__name__}: {_why(created)}")
    return BacklogsCreated(now, "", created)


def _why(error: Exception) -> str:
    """Return why the administration API refused or cannot be reached, as text that is the same for the same cause.

    HTTP errors can contain addresses of objects in memory, which are left out.
    """
    if not isinstance(error, (ServiceRequestError, ServiceResponseError)):
        return classify(error, Phase.OPENING).why
    found = (each for each in causes(error) if isinstance(each, OSError) and each.errno is not None)
    root = next(found, None)
    verdict = getattr(root, "verify_message", None)
    said = f"its certificate is not trusted: {verdict}" if verdict else root and root.strerror
    away = "the secondary's administration over HTTPS cannot be reached"
    return f"{away}: {said}" if said else away
