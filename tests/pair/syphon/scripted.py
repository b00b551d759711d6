"""A destination on a driven clock with a host, a link and an origin that the test plays."""

from __future__ import annotations

import asyncio
import functools
from collections.abc import Callable, Coroutine, Iterable, Sequence
from dataclasses import dataclass, field
from typing import Any, TypeVar
from unittest.mock import patch

from sbpair.pair.amqp.message import DataBody, Message, Properties
from sbpair.pair.amqp.performatives import ACCEPTED, Condition, DeliveryState, Rejected
from sbpair.pair.client.backoff import RANDOM
from sbpair.pair.client.errors import ClientError
from sbpair.pair.envelope.restore import Poison
from sbpair.pair.syphon.events import SyphonEvent
from sbpair.pair.syphon.forward.delivery import DeliveryTimeouts, Destination
from sbpair.pair.syphon.forward.in_flight import InFlightMessage
from sbpair.pair.syphon.forward.pace import Pace
from tests.trials.simulation.virtual_loop import VirtualLoop, one_time

ANSWER = 60.0  # seconds without progress until a link is given up
LONGEST_RETRY = 8.0  # seconds
LOCK = 300.0  # seconds
PAYLOAD = Message(properties=Properties(message_id="m"), body=DataBody((b"hello",))).encode()
BUSY = Rejected(Condition("com.microsoft:server-busy", "too fast"))
FINAL = Condition("amqp:not-found", "no orders here")
GONE = Rejected(FINAL)
INTERNAL = Rejected(Condition("amqp:internal-error"))
Story = TypeVar("Story", bound=Callable[..., Coroutine[Any, Any, None]])


def driven(story: Story) -> Callable[..., None]:
    """Run a test on a virtual clock, with back-off without jitter: half a second, one, two, four ..."""

    @functools.wraps(story)
    def run(*arguments: Any, **named: Any) -> None:
        loop = VirtualLoop()
        asyncio.set_event_loop(loop)
        try:
            with one_time(loop), patch.object(RANDOM, "random", lambda: 1.0):
                loop.run_until_complete(_to_its_end(story(*arguments, **named)))
        finally:
            asyncio.set_event_loop(None)
            loop.close()

    return run


async def _to_its_end(story: Coroutine[Any, Any, None]) -> None:
    try:
        async with asyncio.timeout(
            100_000.0
        ):  # in virtual time: a test that waits for something that never happens fails
            await story
    finally:
        while rest := asyncio.all_tasks() - {asyncio.current_task()}:  # one that ends may begin another
            for task in rest:
                task.cancel()
            await asyncio.gather(*rest, return_exceptions=True)


def now() -> float:
    return asyncio.get_running_loop().time()


async def turns(count: int = 8) -> None:
    for _ in range(count):
        await asyncio.sleep(0)


@dataclass
class PlayedLink:
    """A link that sends within ``credit``; the test answers."""

    credit: int = 1000
    progress: int = 0
    on_progress: Callable[[], None] | None = None
    sent: list[InFlightMessage] = field(default_factory=list)
    waiting: list[InFlightMessage] = field(default_factory=list)
    all_sent: list[int] = field(default_factory=list)
    """The delivery ids, in order; of a batch, that of its first message."""
    largest_batch: int = 0
    detached: asyncio.Future[Condition | None] = field(
        default_factory=lambda: asyncio.get_running_loop().create_future()
    )
    let_go_at: float | None = None

    @property
    def is_open(self) -> bool:
        return not self.detached.done()

    @property
    def in_flight(self) -> int:
        return len(self.sent) + len(self.waiting)

    def transfer(self, message: InFlightMessage) -> None:
        self.waiting.append(message)
        self._push()

    def grant(self, credit: int) -> None:
        """Let the peer grant credit."""
        self.credit += credit
        self._push()
        self._moved()

    def answer(self, state: DeliveryState | None = ACCEPTED) -> None:
        """Let the peer answer the first message in flight."""
        self.sent.pop(0).answered(state)
        self._moved()

    def accept_all(self) -> None:
        """Let the peer accept all messages in flight with one disposition."""
        answered, self.sent = self.sent, []
        for message in answered:
            message.answered(ACCEPTED)
        self._moved()

    def detach(self, condition: Condition | None = None) -> None:
        """Let the peer detach."""
        self.detached.set_result(condition)
        lost, self.sent, self.waiting = [*self.sent, *self.waiting], [], []
        for message in lost:
            message.answered(None)

    def take_waiting(self) -> Sequence[object]:
        taken, self.waiting = self.waiting, []
        return taken

    def unanswered_messages(self) -> Sequence[object]:
        return list(self.sent)

    def let_go(self) -> None:
        self.let_go_at = now()

    def _push(self) -> None:
        while self.waiting and self.credit > 0:
            message = self.waiting.pop(0)
            if message.may_go(now()):
                self.credit -= 1
                self.sent.append(message)
                self.all_sent.append(message.delivery_id)

    def _moved(self) -> None:
        self.progress += 1
        if self.on_progress is not None:
            self.on_progress()


@dataclass
class Scene:
    """Host and origin in one, recording their calls; ``opens`` holds the next outcomes of opening a link."""

    backlog: str = "backlog"
    opens: list[PlayedLink | ClientError | asyncio.Future[PlayedLink]] = field(default_factory=list)
    links: list[PlayedLink] = field(default_factory=list)
    opened_at: list[float] = field(default_factory=list)
    told: list[tuple[Any, ...]] = field(default_factory=list)
    """What the origin was told: the word and the delivery id, and what else there is."""
    host: list[tuple[Any, ...]] = field(default_factory=list)
    events: list[SyphonEvent] = field(default_factory=list)
    round_trip: float = 0.0  # seconds
    pace: Pace = field(default_factory=Pace)

    def __post_init__(self) -> None:
        timeouts = DeliveryTimeouts(LONGEST_RETRY, ANSWER)
        self.orders = Destination("orders", self, self.events.append, timeouts, self.pace)

    @property
    def link(self) -> PlayedLink:
        return self.links[-1]

    def message(self, number: int, **more: Any) -> InFlightMessage:
        settings = {"posted_at": now(), "lock_ends": now() + LOCK, "lock_span": LOCK, "tag": b"", "size": 100}
        return InFlightMessage(self, number, "orders", PAYLOAD, destination=self.orders, **(settings | more))

    def post(self, numbers: Iterable[int] = (1,), **more: Any) -> list[InFlightMessage]:
        messages = [self.message(number, **more) for number in numbers]
        for message in messages:
            self.orders.post(message)
        return messages

    def said(self, kind: type) -> list[Any]:
        return [event for event in self.events if isinstance(event, kind)]

    def told_of(self, word: str) -> list[int]:
        """Return the delivery ids for which this method of the origin was called."""
        return [entry[1] for entry in self.told if entry[0] == word]

    # the host

    async def open_sender(self, destination: Destination) -> PlayedLink:
        assert destination is self.orders
        self.opened_at.append(now())
        outcome = self.opens.pop(0) if self.opens else PlayedLink()
        if isinstance(outcome, ClientError):
            raise outcome
        link = outcome if isinstance(outcome, PlayedLink) else await outcome
        self.links.append(link)
        return link

    def destination_idle(self, destination: Destination) -> None:
        assert destination is self.orders
        self.host.append(("idle", now()))

    def destination_out_of_reach(self, destination: Destination, since: float) -> None:
        assert destination is self.orders
        self.host.append(("out of reach", since))

    def destination_attached(self, destination: Destination) -> None:
        assert destination is self.orders
        self.host.append(("attached", now()))

    def destination_answered(self, destination: Destination) -> None:
        assert destination is self.orders
        self.host.append(("answered", now()))

    def unresponsive(self, reason: str) -> None:
        self.host.append(("unresponsive", reason))

    # the origin

    def forwarded(self, message: InFlightMessage) -> None:
        self.told.append(("forwarded", message.delivery_id))

    def refused(self, message: InFlightMessage, condition: Condition | None) -> None:
        self.told.append(("refused", message.delivery_id, condition))

    def held(self, message: InFlightMessage) -> None:
        self.told.append(("held", message.delivery_id))

    def resumed(self, message: InFlightMessage) -> None:
        self.told.append(("resumed", message.delivery_id))

    def stalled(self, message: InFlightMessage) -> None:
        self.told.append(("stalled", message.delivery_id))

    def lock_doubtful(self, message: InFlightMessage) -> None:
        message.is_released = True
        self.told.append(("doubtful", message.delivery_id))

    def poisoned(self, message: InFlightMessage, poison: Poison) -> None:
        self.told.append(("poisoned", message.delivery_id, poison))

    def reported(self, message: InFlightMessage) -> None:
        self.told.append(("reported", message.delivery_id))

    def unanswered(self, message: InFlightMessage) -> None:
        self.told.append(("unanswered", message.delivery_id))

    async def complete_in(self, messages: Sequence[InFlightMessage], txn_id: bytes) -> bool:
        self.told.append(("completed in", [each.delivery_id for each in messages], txn_id))
        return True

    def lock_given_up(self, messages: Iterable[InFlightMessage]) -> None:
        self.told.append(("given up", [each.delivery_id for each in messages]))
