"""The two namespaces of a scenario, each a broker with its own room, in a process beside those that use them."""

from __future__ import annotations

import multiprocessing
from contextlib import ExitStack
from multiprocessing.connection import Connection
from pathlib import Path
from tempfile import TemporaryDirectory
from types import TracebackType
from typing import Any

from azure.servicebus import ServiceBusMessage
from azure.servicebus._pyamqp._encode import encode_payload
from azure.servicebus._transport._pyamqp_transport import PyamqpTransport

from sbpair.broker import Broker, NamespaceControl
from sbpair.broker.frontends.received_message import stored_messages
from sbpair.broker.server.namespace_server import NamespaceServer
from sbpair.pair.envelope.copies import raw
from sbpair.pair.envelope.names import backlog_queue_name
from sbpair.pair.envelope.park import park

from .scenarios import ENTITY, Scenario

NAMES = ("contoso", "contoso-dr")
BACKLOGS = 10
SPAWN = multiprocessing.get_context("spawn")


def _encoded(number: int) -> bytes:
    out = bytearray()
    message = park(ServiceBusMessage(b"parked", message_id=f"parked-{number}"), ENTITY, None)
    encode_payload(out, PyamqpTransport.to_outgoing_amqp_message(raw(message)))
    return bytes(out)


class _Sides:
    """What the process of the brokers does when it is told."""

    def __init__(self, primary: NamespaceControl, secondary: NamespaceControl, scenario: Scenario) -> None:
        self._primary, self._secondary, self._scenario = primary, secondary, scenario

    def begin(self) -> None:
        """Set the faults."""
        for side, rules in (
            (self._primary, self._scenario.primary),
            (self._secondary, self._scenario.secondary),
        ):
            for rule in rules:
                side.set_fault(rule)

    def park(self, first: int, count: int) -> int:
        """Put messages into the backlogs, in turn; when, in milliseconds."""

        def put(server: NamespaceServer) -> int:
            now = server.read_clocks().entity
            for number in range(first, first + count):
                path = backlog_queue_name(NAMES[0], number % BACKLOGS)
                queue = server.frontend.namespace.queue(path)
                queue.enqueue_all(stored_messages(_encoded(number), now), now)
            return now

        return self._secondary.act(put)

    def arrivals(self) -> dict[str, int]:
        """When each message came to the primary first, in milliseconds."""

        def peek(server: NamespaceServer) -> dict[str, int]:
            queue, now = server.frontend.namespace.queue(ENTITY), server.read_clocks().entity
            came: dict[str, int] = {}
            for message in queue.peek(1, 1_000_000, now):
                came.setdefault(str(message.message_id), message.enqueued_at)
            return came

        return self._primary.inspect(peek)


def _serve(pipe: Connection, scenario: Scenario, tls: Path) -> None:
    with ExitStack() as stack:
        rooms = (scenario.primary_room, scenario.secondary_room)
        brokers = [
            stack.enter_context(Broker({name: 0}, credits_per_second=room, tls_directory=tls))
            for name, room in zip(NAMES, rooms, strict=True)
        ]
        primary, secondary = (broker.namespace(name) for broker, name in zip(brokers, NAMES, strict=True))
        primary.create_queue(ENTITY)
        for index in range(BACKLOGS):
            secondary.create_queue(backlog_queue_name(NAMES[0], index))
        sides = _Sides(primary, secondary, scenario)
        pipe.send((primary.connection_string, secondary.connection_string, str(brokers[0].ca_file)))
        while (told := pipe.recv()) is not None:
            name, *arguments = told
            pipe.send(getattr(sides, name)(*arguments))


class Stage:
    """A context manager; ``strings`` are the connection strings of both sides, and the file of their authority."""

    strings: tuple[str, str, str]

    def __init__(self, scenario: Scenario) -> None:
        self._tls = TemporaryDirectory()
        self._pipe, theirs = SPAWN.Pipe()
        self._process = SPAWN.Process(
            target=_serve, args=(theirs, scenario.plain, Path(self._tls.name)), daemon=True
        )

    def __enter__(self) -> Stage:
        self._process.start()
        self.strings = self._pipe.recv()
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self._pipe.send(None)
        self._process.join(10)
        if self._process.is_alive():
            self._process.terminate()
        self._tls.cleanup()

    def begin(self) -> None:
        """Set the faults of the scenario."""
        self._ask("begin")

    def park(self, first: int, count: int) -> int:
        """Put messages into the backlogs; when, in milliseconds."""
        return int(self._ask("park", first, count))

    def arrivals(self) -> dict[str, int]:
        """When each message came to the primary first, in milliseconds."""
        found: dict[str, int] = self._ask("arrivals")
        return found

    def _ask(self, *told: Any) -> Any:
        self._pipe.send(told)
        return self._pipe.recv()
