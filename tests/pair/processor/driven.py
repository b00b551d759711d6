"""A processor on a virtual clock and an in-memory network: an hour passes in a second."""

from __future__ import annotations

import asyncio
import math
from collections.abc import Callable, Coroutine, Iterator
from contextlib import contextmanager
from dataclasses import replace
from typing import Any

from sbpair.broker.entities.descriptions import QueueDescription
from sbpair.broker.faults import FaultRule
from sbpair.broker.frontends.amqp.queue_receiver import QueueReceiver
from sbpair.broker.frontends.amqp.request_response import RequestLink, ResponseLink
from sbpair.pair.amqp.errors import DETACH_FORCED, INTERNAL_ERROR
from sbpair.pair.amqp.performatives import Accepted, Condition
from sbpair.pair.auth.connection_string import parse
from sbpair.pair.client.connection import connect
from sbpair.pair.ground.side import Side
from sbpair.pair.processor.aio import PairedServiceBusProcessor
from sbpair.processor import ProcessorOptions, ReceivedMessage
from tests.pair.syphon.driven import CLOCK, STRING, Driven, play

__all__ = ["Story", "play_with"]
DETACH, FLOW = b"\x00\x53\x16", b"\x00\x53\x13"  # the descriptors that begin their bodies
Handler = Callable[[ReceivedMessage], Coroutine[Any, Any, None]]
SIDES = {Side.PRIMARY: "contoso", Side.SECONDARY: "contoso-dr"}


class Story:
    """A pair of namespaces on a virtual clock, and processors of their queue ``orders``."""

    def __init__(self, driven: Driven) -> None:
        self.driven = driven
        self.events: list[Any] = []
        self.handled: list[str] = []
        self.cut_sides: set[str] = set()
        driven.network._is_refused = self.cut_sides.__contains__

    @property
    def now(self) -> float:
        return self.driven.loop.time()

    def make(self, side: str = "contoso-dr", path: str = "orders", **description: Any) -> None:
        """Create a queue on a side."""
        self.driven.servers[side].frontend.namespace.create_queue(
            path, replace(QueueDescription(), **description), CLOCK.now()
        )

    async def note(self, message: ReceivedMessage) -> None:
        """Handle a message by recording it."""
        self.handled.append(str(message.message_id))

    async def note_slowly(self, message: ReceivedMessage) -> None:
        """Handle a message in more than three minutes, of locks that last one."""
        await asyncio.sleep(200)
        await self.note(message)

    def hold(self) -> tuple[Handler, asyncio.Event]:
        """Return a handler that records its messages once an event is set, and that event."""
        may_end = asyncio.Event()

        async def held(message: ReceivedMessage) -> None:
            await may_end.wait()
            await self.note(message)

        return held, may_end

    def processor(
        self,
        handler: Handler | None = None,
        path: str = "orders",
        **options: Any,
    ) -> PairedServiceBusProcessor:
        addresses = {role: parse(STRING.format(name)) for role, name in SIDES.items()}
        processor = PairedServiceBusProcessor(
            path, handler or self.note, addresses, ProcessorOptions(**options)
        )
        processor.on_event(self.events.append)
        return processor

    def said(self, kind: type) -> list[Any]:
        return [event for event in self.events if isinstance(event, kind)]

    async def put(self, payloads: list[bytes], side: str = "contoso", path: str = "orders") -> None:
        connection = await connect(parse(STRING.format(side)))
        sender = await connection.open_sender(path)
        outcomes = await asyncio.gather(*map(sender.send, payloads))
        assert all(isinstance(outcome, Accepted) for outcome in outcomes)
        await connection.close()

    async def until(self, holds: Callable[[], bool], within: float = 300.0) -> float:
        return await self.driven.until(holds, within)

    def left(self, side: str = "contoso", path: str = "orders") -> int:
        return self.driven.active(side, path)

    def set_fault(self, rule: FaultRule, side: str = "contoso") -> None:
        """Set a fault on a side."""
        server = self.driven.servers[side]
        server.frontend.set_fault(rule, server.read_clocks().idle)

    def cut(self, side: str = "contoso") -> None:
        """Reset all connections to a side."""
        for pipe in self.driven.network.pipes(side=side):
            pipe.cut()

    def links_to_node(self, path: str = "orders", side: str = "contoso") -> list[RequestLink | ResponseLink]:
        """Return the broker's ends of the links to the ``$management`` node of an entity."""
        links = (node for _, node in self._links(side) if isinstance(node, RequestLink | ResponseLink))
        return [link for link in links if link.queue is not None and link.queue.path == path]

    def detach_node(self, path: str = "orders", side: str = "contoso") -> None:
        """Detach the links to the ``$management`` node of an entity; their connections stay open."""
        links = self.links_to_node(path, side)
        self._detach(side, lambda node: node in links, Condition(DETACH_FORCED, "The node moves."))

    def detach_receiver(self, path: str = "orders", side: str = "contoso") -> None:
        """Detach the links that receive from an entity; their connections stay open."""
        self._detach(
            side,
            lambda node: isinstance(node, QueueReceiver) and node.queue.path == path,
            Condition(INTERNAL_ERROR, "The link moves."),
        )

    def _detach(self, side: str, is_meant: Callable[[object], bool], why: Condition) -> None:
        server = self.driven.servers[side]
        for client, node in self._links(side):
            if is_meant(node):
                node.link.refuse(why)
                server.frontend.stir(client)
        server.end_turn()

    def _links(self, side: str) -> list[tuple[Any, Any]]:
        """Return the broker's ends of all links of a side, each with its client."""
        clients = [wire.client for wire in self.driven.servers[side].wires.values()]
        return [(client, node) for client in clients for node in client.links]

    def lose_detaches(self, side: str = "contoso") -> None:
        """Lose the detaches that clients write from now on over the open connections: none is answered."""
        for pipe in self.driven.network.pipes(side=side):
            lose(pipe, DETACH)

    def lose_next_flow(self, side: str = "contoso") -> None:
        """Lose the next flow that clients write over each open connection: it is not answered."""
        for pipe in self.driven.network.pipes(side=side):
            lose(pipe, FLOW, most=1)

    def write_frames_apart(self) -> None:
        """Pass each frame that clients write from now on to the broker on its own, as a network may."""
        for pipe in self.driven.network.pipes():
            write_frames_apart(pipe)

    def count_frames(self) -> dict[str, int]:
        """Count the frames that clients write from now on over the open connections, by side."""
        counts = dict.fromkeys(self.driven.servers, 0)
        for pipe in self.driven.network.pipes():
            count_frames(pipe, counts)
        return counts

    @contextmanager
    def down(self, side: str = "contoso") -> Iterator[None]:
        """Make a side unreachable for the duration of the block."""
        self.cut_sides.add(side)
        self.cut(side)
        yield
        self.cut_sides.discard(side)


def play_with(story: Callable[[Story], Coroutine[object, object, None]]) -> None:
    """Run a story on a virtual clock."""
    play(lambda driven: story(Story(driven)))


def count_frames(pipe: Any, counts: dict[str, int]) -> None:
    """Count the frames that the client's end of a connection writes."""
    write = pipe.client.write

    def counted(data: bytes) -> None:
        counts[pipe.side] += frames_in(bytes(data))
        write(data)

    pipe.client.write = counted


def lose(pipe: Any, performative: bytes, most: float = math.inf) -> None:
    """Lose the frames of one kind that the client's end of a connection writes, at most so many."""
    write, lost = pipe.client.write, 0

    def without_them(data: bytes) -> None:
        nonlocal lost
        kept, at, data = [], 0, bytes(data)
        while at < len(data):
            frame = data[at : at + int.from_bytes(data[at : at + 4], "big")]
            at += len(frame)
            if frame[8:11] == performative and lost < most:
                lost += 1
            else:
                kept.append(frame)
        if kept:
            write(b"".join(kept))

    pipe.client.write = without_them


def write_frames_apart(pipe: Any) -> None:
    """Pass each frame that the client's end of a connection writes to the broker on its own."""
    write = pipe.client.write

    def one_by_one(data: bytes) -> None:
        at, data = 0, bytes(data)
        while at < len(data):
            end = at + int.from_bytes(data[at : at + 4], "big")
            write(data[at:end])
            at = end

    pipe.client.write = one_by_one


def frames_in(data: bytes) -> int:
    at = found = 0
    while at < len(data):
        at += int.from_bytes(data[at : at + 4], "big")
        found += 1
    return found
