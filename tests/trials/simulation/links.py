"""Single links that a broker ends while their connection stays open."""

from __future__ import annotations

from random import Random
from typing import TYPE_CHECKING, Any

from sbpair.broker.frontends.amqp.coordinator import CoordinatorNode
from sbpair.broker.server.wire import AmqpWire
from sbpair.pair.amqp.errors import DETACH_FORCED, INTERNAL_ERROR
from sbpair.pair.amqp.performatives import Condition

from .plan import SECONDARY

if TYPE_CHECKING:
    from .world import World


def detach_any(world: World, host: str, side: str, rng: Random) -> None:
    """End a link of this process, of any kind; most are receivers of backlogs."""
    links = _links(world, host, side)
    if not links:
        return
    kind = rng.choice(sorted({type(node).__name__ for _, node in links}))
    client, node = rng.choice([each for each in links if type(each[1]).__name__ == kind])
    path = node.queue.path if node.queue else ""
    world.history.note(world.now, host, "detached", "", f"{kind} {path} of {side}")
    world.history.reached["link detached"] += 1
    if side == SECONDARY and (path in world.shape.twins or isinstance(node, CoordinatorNode)):
        world.history.reached["link of a landing detached"] += 1
    _end(world, side, client, node, rng.choice((DETACH_FORCED, INTERNAL_ERROR)))


def _links(world: World, host: str, side: str) -> list[tuple[Any, Any]]:
    ends = (pipe.server.protocol for pipe in world.network.pipes(host, side))
    clients = [wire.client for wire in ends if isinstance(wire, AmqpWire)]
    return [(client, node) for client in clients for node in client.links]


def _end(world: World, side: str, client: Any, node: Any, symbol: Any) -> None:
    node.link.refuse(Condition(symbol, "The broker ended this link, as the plan says."))
    world.servers[side].frontend.stir(client)
    world.servers[side].end_turn()
