"""The two namespaces of a run: brokers in a process of their own, told by a pipe what to do."""

from __future__ import annotations

import multiprocessing
from multiprocessing.connection import Connection
from typing import Any, Self

from sbpair.broker import Broker, NamespaceControl
from sbpair.broker.server.namespace_server import NamespaceServer
from sbpair.pair.auth.connection_string import fields_of
from sbpair.pair.envelope.names import backlog_queue_name, namespace_label

from .ends import NAMES, Ends
from .scenarios import Scenario

BACKLOGS = 10
SPAWN = multiprocessing.get_context("spawn")
Arrivals = dict[str, list[tuple[float, bool]]]
"""By message id, for each copy in a queue that consumers read: when it came, and whether to the secondary."""


class Stage:
    """A context manager; ``ends`` are where to send."""

    ends: Ends

    def __init__(self, scenario: Scenario) -> None:
        self._pipe, theirs = SPAWN.Pipe()
        self._process = SPAWN.Process(target=_serve, args=(theirs, scenario), daemon=True)

    def __enter__(self) -> Self:
        self._process.start()
        self.ends = self._pipe.recv()
        return self

    def __exit__(self, *_: object) -> None:
        self._pipe.send("end")
        self._process.join(10)
        self._process.terminate()

    def fail(self) -> None:
        """Set the faults of the scenario."""
        self._ask("fail")

    def heal(self) -> None:
        """Clear them."""
        self._ask("heal")

    def arrivals(self) -> Arrivals:
        """What came so far."""
        found: Arrivals = self._ask("arrivals")
        return found

    def _ask(self, told: str) -> Any:
        self._pipe.send(told)
        return self._pipe.recv()


def _serve(pipe: Connection, scenario: Scenario) -> None:
    with Broker(dict.fromkeys(NAMES, 0)) as broker:
        sides = {name: broker.namespace(name) for name in NAMES}
        primary, secondary = sides.values()
        ends = Ends(primary.connection_string, secondary.connection_string)
        for side in sides.values():
            side.create_queue(ends.queue)
        secondary.create_queue(ends.parking)
        label = namespace_label(fields_of(ends.primary)["endpoint"])
        for index in range(BACKLOGS):
            secondary.create_queue(backlog_queue_name(label, index))
        pipe.send(ends)
        active: list[tuple[NamespaceControl, Any]] = []
        while (told := pipe.recv()) != "end":
            answer: object = None
            if told == "fail":
                active = [(sides[name], sides[name].set_fault(rule)) for name, rule in scenario.faults]
            elif told == "heal":
                for side, fault in active:
                    side.clear_fault(fault)
            else:
                answer = _arrivals(primary, secondary, ends.queue)
            pipe.send(answer)


def _arrivals(primary: NamespaceControl, secondary: NamespaceControl, path: str) -> Arrivals:
    found: Arrivals = {}
    for side in (primary, secondary):

        def peek(server: NamespaceServer, is_secondary: bool = side is secondary) -> None:
            queue, now = server.frontend.namespace.queue(path), server.read_clocks().entity
            for message in queue.peek(1, 1_000_000, now):
                entry = (message.enqueued_at / 1000, is_secondary)
                found.setdefault(str(message.message_id), []).append(entry)

        side.inspect(peek)
    return found
