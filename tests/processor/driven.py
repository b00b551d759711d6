"""A processor on a virtual clock and an in-memory network: an hour passes in a second."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Coroutine, Iterator
from contextlib import contextmanager
from dataclasses import replace
from typing import Any

from sbpair.amqp.errors import DETACH_FORCED, INTERNAL_ERROR
from sbpair.amqp.performatives import Accepted, Condition
from sbpair.auth.connection_string import parse
from sbpair.broker.entities.descriptions import QueueDescription
from sbpair.broker.faults import FaultRule
from sbpair.broker.frontends.amqp.queue_receiver import QueueReceiver
from sbpair.broker.frontends.amqp.request_response import RequestLink, ResponseLink
from sbpair.client.dial import connect
from sbpair.client.route import Route
from sbpair.pairing.pair_state import Role
from sbpair.processor import ProcessorOptions, ReceivedMessage
from sbpair.processor.aio import PairedServiceBusProcessor
from sbpair.processor.side import SideAddress
from tests.syphon.driven import CLOCK, STRING, Driven, play

__all__ = ["Story", "play_with"]
SIDES = {Role.PRIMARY: "contoso", Role.SECONDARY: "contoso-dr"}


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

    def processor(
        self,
        handler: Callable[[ReceivedMessage], Coroutine[Any, Any, None]] | None = None,
        path: str = "orders",
        **options: Any,
    ) -> PairedServiceBusProcessor:
        addresses = {role: SideAddress(parse(STRING.format(name)), Route()) for role, name in SIDES.items()}
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
        wires = self.driven.servers[side].wires.values()
        nodes = [node for wire in wires for node in wire.client.links]
        links = [node for node in nodes if isinstance(node, RequestLink | ResponseLink)]
        return [link for link in links if link.queue is not None and link.queue.path == path]

    def detach_node(self, path: str = "orders", side: str = "contoso") -> None:
        """Detach the links to the ``$management`` node of an entity; their connections stay open."""
        for each in self.links_to_node(path, side):
            each.link.refuse(Condition(DETACH_FORCED, "The node moves."))
        self.driven.servers[side].end_turn()

    def detach_receiver(self, path: str = "orders", side: str = "contoso") -> None:
        """Detach the links that receive from an entity; their connections stay open."""
        server = self.driven.servers[side]
        for wire in list(server.wires.values()):
            for node in [each for each in wire.client.links if isinstance(each, QueueReceiver)]:
                if node.queue.path == path:
                    node.link.refuse(Condition(INTERNAL_ERROR, "The link moves."))
                    server.frontend.stir(wire.client)
        server.end_turn()

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


def frames_in(data: bytes) -> int:
    at = found = 0
    while at < len(data):
        at += int.from_bytes(data[at : at + 4], "big")
        found += 1
    return found
