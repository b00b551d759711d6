"""What the entities of a run dead-lettered, read from their dead-letter queues when it ends."""

from __future__ import annotations

from typing import TYPE_CHECKING

from .entities import AUDIT, CLOCK, CLOSED, ENTITIES, READ_FROM, readable
from .plan import PRIMARY, SECONDARY, TOPIC

if TYPE_CHECKING:
    from .world import World


def find_untransferred(world: World) -> None:
    """C-2: what landed is in its entity, not in the transfer dead-letter queue of a backlog."""
    for queue in world.namespace(SECONDARY).queues():
        refused = queue.transfer_dead_letter_queue if queue.path in world.backlogs else None
        while refused is not None and (message := refused.receive_and_delete(CLOCK.now())) is not None:
            world.history.wrong(f"C-2: {message.message_id} landed in no entity, but beside {queue.path}")


def find_expired(world: World) -> None:
    """What a side has set aside, since its time to live was over."""
    open_ones = [path for path in ENTITIES if path != CLOSED]
    places = [(PRIMARY, path) for path in (*open_ones, *READ_FROM[TOPIC][1:])]
    places += [(SECONDARY, each) for path in world.shape.twins for each in readable(path) if each != TOPIC]
    for side, path in places:
        buried = world.namespace(side).queue(path).dead_letter_queue
        while buried is not None and (message := buried.receive_and_delete(CLOCK.now())) is not None:
            name = str(message.message_id)
            world.history.note(world.now, side, "expired", name, path)
            if path == AUDIT:
                world.history.audited[name] += 1
                continue
            world.history.expired[name] += 1
            world.history.reached["expired at the primary"] += 1
            if name not in world.history.deadlines:
                world.history.wrong(f"G-14: {name} expired in {path}, and lives for a quarter of an hour")
