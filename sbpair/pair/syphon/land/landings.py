"""The landings of a forwarding session: destinations on the secondary, and the messages that go there.

    home destination --out of reach, and due--> detour --> twin for the backlog --> LandingLink
           ^                                                |
           '-------- refused by the secondary, or the primary answers: the rest goes home

:class:`~.landing.Landing` decides, and this module acts on it. A twin belongs to one backlog, because a
transaction does. A message has one destination at a time. No message is dead-lettered because of an answer of the
secondary: messages that it refuses wait for the primary.
"""

from __future__ import annotations

import asyncio
import time
from collections.abc import Callable

from sbpair.pair.amqp.errors import NOT_ALLOWED
from sbpair.pair.amqp.performatives import Condition
from sbpair.pair.client.connection import NamespaceConnection
from sbpair.pair.client.errors import ClientError, LinkRefusedError
from sbpair.pair.client.link import Sender
from sbpair.pair.envelope.names import path_key
from sbpair.pair.ground.side import Side

from ..events import LandingBegan, LandingEnded, LandingRefused, SyphonEvent
from ..forward.delivery import Destination
from ..forward.destination_host import DeliveryTimeouts
from ..forward.in_flight import DeliveryAction, InFlightMessage, SendingLink, action_for_condition
from ..forward.pace import Pace, Paces
from ..forward.slots import LinkSlots, Slot
from .landing import Landing
from .landing_link import LandingLink
from .transaction import TransactionController

MAX_LINKS = 128  # to twins at a time; each is two AMQP links
CALM = 30.0  # seconds without a message after which a link that the primary accepted is taken for its answer


class Twin(Destination):
    """The entity of a destination's path on the secondary, for the messages of one backlog."""

    def __init__(
        self,
        home: Callable[[str], Destination],
        backlog: str,
        path: str,
        host: Landings,
        emit: Callable[[SyphonEvent], None],
        timeouts: DeliveryTimeouts,
        pace: Pace,
    ) -> None:
        super().__init__(path, host, emit, timeouts, pace)
        self.backlog = backlog
        self._home = home
        self._landings = host

    def _refused(self, message: InFlightMessage, condition: Condition | None) -> None:
        """Let the message wait for the primary, which may accept it."""
        message.stays = True
        self.send_home(message)

    def _refuse(self, error: ClientError) -> None:
        """Handle a refused link: without a usable twin, all messages wait for the primary."""
        self._landings.twin_refused(self, error)
        super()._refuse(error)

    def send_home(self, message: InFlightMessage) -> None:
        """Return a message to its destination on the primary."""
        message.post_home(self._home(self.path))


class Landings:
    """Diverts messages to twins; the host of the twins."""

    def __init__(
        self,
        landing: Landing,
        secondary: NamespaceConnection,
        emit: Callable[[SyphonEvent], None],
        timeouts: DeliveryTimeouts,
        *,
        retry_missing: float,
        paces: Paces | None = None,
        home: Callable[[str], Destination],
        lost: Callable[[str], None],
    ) -> None:
        """Create the landings; ``home`` returns the destination of a path on the primary.

        ``lost`` drops the connections, with the reason. ``retry_missing`` is the interval in seconds between checks for
        a missing twin.
        """
        self.unresponsive = lost
        self._landing = landing
        self._secondary = secondary
        self._emit = emit
        self._timeouts = timeouts
        self._retry_missing = retry_missing
        self._paces = Paces() if paces is None else paces
        self._home = home
        self._loop = asyncio.get_running_loop()
        self._controller = TransactionController(secondary)
        self._slots = LinkSlots(MAX_LINKS)
        self._twins: dict[tuple[str, str], Twin] = {}  # by backlog and key of the path
        self._timers: dict[str, asyncio.TimerHandle] = {}

    @property
    def round_trip(self) -> float:
        """The round-trip time to the secondary in seconds."""
        return self._secondary.round_trip

    def stop(self) -> None:
        """Stop sending; the pumps release the queued messages."""
        for timer in self._timers.values():
            timer.cancel()
        for twin in self._twins.values():
            twin.stop()

    # Homes

    def created(self, home: Destination) -> None:
        """Prepare a new destination: if it was out of reach, it is probed first."""
        home.is_in_doubt = self._landing.is_out_of_reach(path_key(home.path))

    def out_of_reach(self, home: Destination, since: float) -> None:
        """Divert the messages of a destination once it has been out of reach for long enough."""
        key = path_key(home.path)
        self._landing.out_of_reach(key, since)
        self._divert_if_due(home, key)

    def answered(self, home: Destination) -> None:
        """End the detour of a destination, and return to it the messages that wait at its twins."""
        key = path_key(home.path)
        self._cancel(key)
        home.detour = None
        if self._landing.note_answer(key):
            self._emit(LandingEnded(time.time(), home.path))
        self._recall(key)

    def attached(self, home: Destination) -> None:
        """End the detour of a destination that accepted a link.

        If a message comes first, its answer decides instead.
        """
        key = path_key(home.path)
        self._cancel(key)
        self._timers[key] = self._loop.call_later(CALM, self._calm, home, key, self._loop.time())

    def _calm(self, home: Destination, key: str, since: float) -> None:
        self._timers.pop(key, None)
        if home.used_at >= since:
            self.attached(home)
        else:
            home.note_answer()

    def primary_is_back(self) -> None:
        """Send messages that wait at twins to the primary, which is connected now; they probe their destinations there.

        Destinations without a message open a link, so that their landing can end without one.
        """
        for _, key in list(self._twins):
            self._recall(key)
        for path in self._landing.paths:
            self._home(path).ask()

    def _divert_if_due(self, home: Destination, key: str) -> None:
        self._cancel(key)
        now = self._loop.time()
        if self._landing.where(key, now) is Side.SECONDARY:
            home.divert(self._land)
            return
        due = self._landing.due(key)
        if due is not None:
            self._timers[key] = self._loop.call_at(due, self._due, home, key)

    def _due(self, home: Destination, key: str) -> None:
        self._timers.pop(key, None)
        if home.is_in_doubt:
            self._divert_if_due(home, key)

    def _cancel(self, key: str) -> None:
        timer = self._timers.pop(key, None)
        if timer is not None:
            timer.cancel()

    def _land(self, message: InFlightMessage) -> None:
        path = message.path
        key = path_key(path)
        if self._landing.begins(key, path):
            span = self._landing.out_of_reach_for(key, self._loop.time())
            self._emit(LandingBegan(time.time(), path, span))
        twin = self._twins.get((message.origin.backlog, key))
        if twin is None:
            pace = self._paces.of(path, self._loop.time())
            twin = Twin(self._home, message.origin.backlog, path, self, self._emit, self._timeouts, pace)
            self._twins[message.origin.backlog, key] = twin
        message.is_landing = True
        message.destination = twin
        twin.post(message)

    def _recall(self, key: str) -> None:
        for (_, its_key), twin in list(self._twins.items()):
            if its_key == key:
                for message in twin.take_queue():
                    twin.send_home(message)

    # Twins

    def twin_refused(self, twin: Twin, error: ClientError) -> None:
        """Handle a link that the secondary refused finally: messages of this path wait for the primary."""
        if action_for_condition(error.condition) is not DeliveryAction.DEAD_LETTER:
            return  # busy, or the key is refused: messages wait at the twin
        key, home = path_key(twin.path), self._home(twin.path)
        self._landing.twin_missing(key, self._loop.time() + self._retry_missing)
        self._emit(LandingRefused(time.time(), twin.path, str(error), self._retry_missing))
        home.detour = None
        self._recall(key)
        self._divert_if_due(home, key)

    async def open_sender(self, destination: Destination) -> SendingLink:
        """Open the links to a twin, once a slot is free. Raises ClientError."""
        assert isinstance(destination, Twin)  # noqa: S101 - there are no others
        slot = await self._slots.take(destination)
        try:
            link = await self._attach(destination)
        except BaseException:
            self._slots.free(destination, slot)
            raise
        link.detached.add_done_callback(lambda _: self._link_closed(destination, slot))
        return link

    async def _attach(self, twin: Twin) -> LandingLink:
        """Attach both links of a twin, or neither. Raises ClientError."""
        plain = await self._secondary.open_sender(twin.path)
        try:
            return LandingLink(plain, await self._via(twin), self._controller)
        except BaseException:
            plain.let_go()
            raise

    async def _via(self, twin: Twin) -> Sender | None:
        """Open the link via the backlog; return None if the namespace allows no transactions."""
        try:
            await self._controller.ready()
        except LinkRefusedError as error:
            if error.condition is not None and error.condition.symbol == NOT_ALLOWED:
                return None
            raise
        return await self._secondary.open_sender(twin.path, via=twin.backlog)

    def _link_closed(self, twin: Destination, slot: Slot) -> None:
        self._slots.free(twin, slot)
        if not twin.is_open:  # it may have another link by now
            self.destination_idle(twin)

    def destination_idle(self, destination: Destination) -> None:
        """Offer the slot of an idle twin to others; forget it if it has neither link nor messages."""
        self._slots.offer(destination)
        assert isinstance(destination, Twin)  # noqa: S101 - there are no others
        place = destination.backlog, path_key(destination.path)
        if destination.is_unused and self._twins.get(place) is destination:
            del self._twins[place]

    def destination_out_of_reach(self, destination: Destination, since: float) -> None:
        """Do nothing: a twin that is out of reach is retried."""

    def destination_attached(self, destination: Destination) -> None:
        """Do nothing: a twin has no detour."""

    def destination_answered(self, destination: Destination) -> None:
        """Do nothing: a twin has no detour."""
