"""Receiving from one entity until enough messages are handled, no message arrives for a while, or a signal comes.

A message is completed after the caller has handled it, and the broker's answer is awaited. Messages that were received
but not handled are released.
"""

from __future__ import annotations

import asyncio
from collections import deque
from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager, suppress
from dataclasses import dataclass, field
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from sbpair.pair.amqp.events import MessageReceived
    from sbpair.pair.client.connection import NamespaceConnection
    from sbpair.pair.client.link import Receiver

WINDOW = 100  # messages received and not yet completed
TICK = 1.0  # seconds between checks of the lock of a session
Handle = Callable[[bytes], None]


@dataclass(slots=True)
class Consumed:
    """The count so far."""

    completed: int = 0
    lost: int = 0
    """Messages handled after their lock had ended: they are delivered again."""


@dataclass(frozen=True, slots=True)
class SessionChoice:
    """Which session to receive from: ``session_id``, or the next available for None."""

    session_id: str | None


@dataclass(slots=True)
class _Arrivals:
    """Messages received and not yet handled."""

    messages: deque[MessageReceived] = field(default_factory=deque)
    some: asyncio.Event = field(default_factory=asyncio.Event)

    def add(self, event: MessageReceived) -> None:
        self.messages.append(event)
        self.some.set()


async def consume(
    connection: NamespaceConnection,
    path: str,
    handle: Handle,
    counts: Consumed,
    *,
    most: int | None,
    wait: float | None,
    sessions: SessionChoice | None,
    stop: asyncio.Event,
) -> None:
    """Receive up to ``most`` messages, each handled and then completed.

    Ends after ``wait`` seconds without a message; 0 takes only those already there, and None continues until
    ``stop``. Raises TokenRefusedError, LinkRefusedError, SessionUnavailableError, ConnectionLostError, and the errors
    of ``handle``, whose message is then not completed.
    """
    arrivals = _Arrivals()
    async with _receiving(connection, path, arrivals, sessions, wait) as receiver:
        renewing = asyncio.ensure_future(_renew(connection, path, receiver)) if sessions else None
        try:
            left = most
            while (left is None or left > 0) and not stop.is_set():
                receiver.flow(WINDOW if left is None else min(left, WINDOW), drain=wait == 0)
                if not await _wait_for_arrival(arrivals, receiver, stop, wait):
                    return
                handled = await _handle(arrivals, receiver, handle, counts, left)
                left = None if left is None else left - handled
        finally:
            if renewing is not None:
                renewing.cancel()
                await asyncio.gather(renewing, return_exceptions=True)


@asynccontextmanager
async def _receiving(
    connection: NamespaceConnection,
    path: str,
    arrivals: _Arrivals,
    sessions: SessionChoice | None,
    wait: float | None,
) -> AsyncIterator[Receiver]:
    """Open a receiver, closed at the end; messages not handled by then are released."""
    from sbpair.pair.client.link import release

    receiver: Receiver
    if sessions is None:
        receiver = await connection.open_receiver(path, arrivals.add)
    else:
        receiver = await connection.open_session_receiver(
            path,
            arrivals.add,
            session_id=sessions.session_id,
            timeout=60.0 if wait is None else max(wait, 1.0),
        )
    try:
        yield receiver
    finally:
        if receiver.credit:
            await receiver.withdraw(within=5.0)
        release(receiver, (event.delivery_id for event in arrivals.messages))
        await receiver.close()


async def _wait_for_arrival(
    arrivals: _Arrivals, receiver: Receiver, stop: asyncio.Event, wait: float | None
) -> bool:
    """Wait for messages. Returns False after ``wait`` seconds or a signal.

    Raises ConnectionLostError when the link ends.
    """
    from sbpair.pair.client.errors import ConnectionLostError

    if wait == 0:
        await receiver.drained()
    elif arrivals.messages:
        return True
    arrivals.some.clear()
    waiting = [asyncio.ensure_future(each.wait()) for each in (arrivals.some, stop)]
    try:
        either: set[asyncio.Future[object]] = {*waiting, receiver.detached}  # type: ignore[arg-type]
        if not arrivals.messages and wait != 0:
            await asyncio.wait(either, timeout=wait, return_when=asyncio.FIRST_COMPLETED)
    finally:
        for each in waiting:
            each.cancel()
        await asyncio.gather(*waiting, return_exceptions=True)
    if receiver.detached.done() and not arrivals.messages:
        raise ConnectionLostError(f"the link to {receiver.path} ended", receiver.detached.result())
    return bool(arrivals.messages) and not stop.is_set()


async def _handle(
    arrivals: _Arrivals, receiver: Receiver, handle: Handle, counts: Consumed, most: int | None
) -> int:
    """Handle and complete the messages that have arrived; return their number."""
    from sbpair.pair.amqp.performatives import Accepted
    from sbpair.pair.client.link import runs

    done: list[int] = []
    try:
        while arrivals.messages and (most is None or len(done) < most):
            handle(arrivals.messages[0].payload)
            done.append(arrivals.messages.popleft().delivery_id)
    finally:
        answers = [
            answer
            for first, last in runs(done)
            for answer in await receiver.settled_run(first, last, Accepted())
        ]
        completed = sum(isinstance(answer, Accepted) for answer in answers)
        counts.completed += completed
        counts.lost += len(done) - completed
    return len(done)


async def _renew(connection: NamespaceConnection, path: str, receiver: Receiver) -> None:
    """Renew the lock of a session until cancelled; a lost lock ends the link, which the receiver reports."""
    from sbpair.pair.client.errors import ClientError
    from sbpair.pair.client.locks import LockClock, renewal_margin
    from sbpair.pair.client.management_node import ManagementNode
    from sbpair.pair.client.session import SessionReceiver

    if not isinstance(receiver, SessionReceiver):
        return
    node, clock = ManagementNode(connection, path), LockClock()
    ends = clock.local() + clock.left(receiver.locked_until, clock.local(), clock.local())
    try:
        while True:
            await asyncio.sleep(TICK)
            if ends - clock.local() < renewal_margin(clock.span):
                with suppress(ClientError):
                    until = await node.ask(receiver.renew)
                    ends = clock.local() + clock.renewed(until, clock.local())
    finally:
        await node.close()
