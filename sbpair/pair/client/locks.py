"""Message locks: their remaining time despite differing clocks, and renewal requests to ``$management``."""

from __future__ import annotations

import asyncio
import logging
import sys
import time
from collections.abc import Callable, Container, Iterable, Sequence
from typing import Generic, Protocol, TypeVar
from uuid import UUID

from sbpair.pair.amqp.message import Message, ValueBody
from sbpair.pair.amqp.performatives import Condition
from sbpair.pair.amqp.types import Array

from .connection import NamespaceConnection
from .errors import ClientError, LinkRefusedError
from .request import CREDIT, RequestNode, wait_for_renewal

DEFAULT_LOCK = 60.0  # seconds: the default lock span of a queue, and the longest that is relied on
MIN_LOCK_SECONDS, MAX_LOCK_SECONDS = 5.0, 300.0  # seconds, of any queue
LEFT_AT_RENEWAL = 1 / 3  # of the lock span is left when a lock is renewed: of 60 s, after 40
MIN_MARGIN_SECONDS = 2.5  # and at least that much: a shorter lock may be checked a second late
TRUSTED_PART = 1 / 2  # of its span may have passed before a lock is checked

# CLOCK_MONOTONIC stops while Linux is suspended, but not on other systems; Windows has neither name
_STEADY = getattr(time, "CLOCK_BOOTTIME", getattr(time, "CLOCK_MONOTONIC", None))
OK, GONE = 200, 410
UUID_CODE = 0x98
logger = logging.getLogger("sbpair.client")
LOCKS_AT_ONCE = 200  # in one request
REQUESTS_AT_ONCE = 8  # far away a request takes seconds, and many locks may end in the next few


def steady() -> float:
    """Return seconds of a monotonic clock that includes the time the machine is suspended."""
    if sys.platform == "win32" or _STEADY is None:
        return time.monotonic()
    return time.clock_gettime(_STEADY)


def renewal_margin(span: float) -> float:
    """Return how many seconds before its end to renew a lock that lasts ``span`` seconds."""
    return max(span * LEFT_AT_RENEWAL, MIN_MARGIN_SECONDS)


class LockClock:
    """Measures how long the locks of one entity last, by the clock of :meth:`local` or one of the caller.

    A delivery carries the end of its lock by the broker's clock. The *lead* is this end minus the local time: the
    duration of the lock plus the difference of the clocks, which need not be known separately. A new lock has the
    greatest lead; a smaller lead is that of a lock which is older by the difference.

        local clock    |---------- lead of a new lock ----------|
                       |------ lead of this one ------|<- age ->|

    A lock that may be too old, because it sat in a socket while this process was suspended, is renewed before use. If a
    lock seems too old but cannot be, a clock was set: the lead is measured anew. Lock ends are seconds by the broker's
    clock; ``now`` and ``since`` are by the local one.
    """

    def __init__(self) -> None:
        self._lead: float | None = None
        self._began = time.time() - steady()
        self.span = DEFAULT_LOCK
        """Seconds that a new lock is relied on to last.

        Longer than the real span only when that is below a minute and the local clock is behind as well.
        """

    def local(self) -> float:
        """Return the time by a monotonic local clock that includes the time the machine is suspended.

        In seconds since the epoch, aligned with the wall clock when this object was made.
        """
        return self._began + steady()

    @property
    def is_measured(self) -> bool:
        """Whether the lead of a lock is known."""
        return self._lead is not None

    @property
    def difference(self) -> float | None:
        """By how many seconds, about, the broker's clock is ahead of the local one; None when the clocks may agree."""
        lead = self._lead
        if lead is None or 0 < lead <= MAX_LOCK_SECONDS + MIN_LOCK_SECONDS:
            return None
        return lead - DEFAULT_LOCK

    def left(self, ends: float, now: float, since: float) -> float:
        """Return the seconds that a lock taken after ``since`` certainly still lasts; 0 if it must be renewed first."""
        lead = ends - now
        if self._lead is None:
            if now - since > MIN_LOCK_SECONDS * TRUSTED_PART:
                return 0.0
            self._learn(lead)
            return self.span
        age = self._lead - lead
        is_new = 0 <= now - since <= MIN_LOCK_SECONDS * TRUSTED_PART
        if age < 0 or (is_new and age > MIN_LOCK_SECONDS * TRUSTED_PART):  # or one of the clocks was set
            self._learn(lead)
            return self.span
        return self.span - age if age <= self.span * TRUSTED_PART else 0.0

    def renewed(self, ends: float, now: float) -> float:
        """Record that a lock was renewed at ``now`` and ends at ``ends``; return the seconds it lasts."""
        self._learn(ends - now)
        return self.span

    def forget(self) -> None:
        """Discard the measurement, after a renewal whose result is unknown."""
        self._lead, self.span = None, DEFAULT_LOCK

    def _learn(self, lead: float) -> None:
        is_plausible = 0 < lead <= MAX_LOCK_SECONDS  # otherwise the clocks differ, and the lead is not a span
        self._lead = lead
        self.span = min(max(lead, MIN_LOCK_SECONDS), DEFAULT_LOCK) if is_plausible else DEFAULT_LOCK


async def renew_locks(
    connection: NamespaceConnection, path: str, tags: Sequence[bytes]
) -> list[float | None]:
    """Renew the locks with these delivery tags; return when each ends, None for a lost one.

    Ends are seconds since the epoch by the broker's clock. Raises TokenRefusedError, ConnectionLostError, and
    LinkRefusedError when the request fails.
    """
    node = RequestNode(connection, connection.namespace.address(f"{path}/$management"))
    try:
        ends = await _renew(node, path, tags)
        if ends is not None or len(tags) == 1:
            return ends or [None]
        found: list[float | None] = []  # one lost lock fails the whole request: renew each on its own
        for first in range(0, len(tags), CREDIT):
            requests = (_renew(node, path, [tag]) for tag in tags[first : first + CREDIT])
            found += [each[0] if each else None for each in await asyncio.gather(*requests)]
        return found
    finally:
        await node.close()


async def _renew(node: RequestNode, path: str, tags: Sequence[bytes]) -> list[float | None] | None:
    """Renew all locks or none; None when one of them is lost."""
    properties: dict[object, object] = {"operation": "com.microsoft:renew-lock", "type": "entity-mgmt"}
    try:
        tokens = tuple(UUID(bytes_le=tag) for tag in tags)
    except ValueError as error:
        raise LinkRefusedError(f"a delivery of {path} has no lock: its tag is not a UUID") from error
    request = node.ask(properties, {"lock-tokens": Array(UUID_CODE, tokens)})
    answer = await wait_for_renewal(request, f"locks on {path}")
    status = answer.application_properties.get("statusCode")
    if status == GONE:
        return None
    ends = _expirations(answer) if status == OK else []
    if len(ends) != len(tags):
        description = answer.application_properties.get("statusDescription")
        condition = Condition("amqp:internal-error", f"status {status}: {description}")
        raise LinkRefusedError(f"the locks on {path} were not renewed", condition)
    return ends


def _expirations(answer: Message) -> list[float | None]:
    body = answer.body.value if isinstance(answer.body, ValueBody) else None
    until = body.get("expirations") if isinstance(body, dict) else None
    each = until.items if isinstance(until, Array) else until
    return [end / 1000 for end in each or () if isinstance(end, int)]


class LockedDelivery(Protocol):
    """A delivery whose lock is renewed."""

    lock_ends: float  # seconds, monotonic

    @property
    def tag(self) -> bytes:
        """The lock token of the delivery."""


L = TypeVar("L", bound=LockedDelivery)


class LockKeeper(Generic[L]):
    """Renews the locks of one entity's deliveries that end soon, many with one request; one renewal at a time.

    few seconds are left --> asked --granted--> lasts for another span
                               |---denied-----> lost: it has ended
                               '---neither----> its owner asks again while it lasts
    """

    def __init__(
        self,
        path: str,
        clock: LockClock,
        local: Callable[[], float],
        renewed: Callable[[Sequence[L], Sequence[float | None]], None],
        failed: Callable[[], None] = lambda: None,
    ) -> None:
        """Keep locks of ``path``; ``local`` reads the clock against which ``clock`` measures locks.

        ``renewed`` is called with deliveries whose ``lock_ends`` is set, and with the ends by the broker's clock: None
        for a lost lock. ``failed`` is called after a request that neither renewed nor denied.
        """
        self._path, self._clock, self._local = path, clock, local
        self._renewed, self._failed = renewed, failed
        self._loop = asyncio.get_running_loop()
        self._renewing: asyncio.Task[None] | None = None

    def renew_due(
        self, connection: NamespaceConnection, locked: Iterable[L], doubtful: Container[L] = ()
    ) -> asyncio.Task[None] | None:
        """Start to renew the locks that end soon, and the doubtful ones.

        Returns None if none is due or a renewal is running.
        """
        if self._renewing is not None and not self._renewing.done():
            return None
        now = self._loop.time()
        until = now + renewal_margin(self._clock.span)
        due = [each for each in locked if now < each.lock_ends < until or each in doubtful]
        if not due:
            return None
        self._renewing = asyncio.ensure_future(self._renew_all(connection, due))
        return self._renewing

    def stop(self) -> None:
        """Stop renewing; ignore answers that arrive later."""
        if self._renewing is not None:
            self._renewing.cancel()
            self._renewing = None

    async def _renew_all(self, connection: NamespaceConnection, due: Sequence[L]) -> None:
        parts = [due[first : first + LOCKS_AT_ONCE] for first in range(0, len(due), LOCKS_AT_ONCE)]
        for first in range(0, len(parts), REQUESTS_AT_ONCE):
            async with asyncio.TaskGroup() as requests:
                for part in parts[first : first + REQUESTS_AT_ONCE]:
                    requests.create_task(self._renew(connection, part, self._renewing))

    async def _renew(
        self, connection: NamespaceConnection, part: Sequence[L], renewing: asyncio.Task[None] | None
    ) -> None:
        try:
            ends = await renew_locks(connection, self._path, [each.tag for each in part])
        except ClientError as error:
            logger.info("locks of %s were not renewed: %s", self._path, error)
            if renewing is self._renewing:
                self._failed()
            return
        if renewing is not self._renewing:
            return  # stopped: the requests of a group are cancelled a turn after the group
        now, local = self._loop.time(), self._local()
        for each, end in zip(part, ends, strict=True):
            each.lock_ends = now if end is None else now + self._clock.renewed(end, local)
        self._renewed(part, ends)
