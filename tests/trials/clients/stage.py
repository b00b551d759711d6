"""Where one round plays: a primary behind a proxy, a secondary beside it, and one fault that is set and taken away."""

from __future__ import annotations

import asyncio
import re
import socket
import tempfile
from collections import Counter
from collections.abc import Iterable
from contextlib import ExitStack
from pathlib import Path
from types import TracebackType
from typing import Any

from sbpair.broker import Broker
from sbpair.broker.faults import ActiveFault, FaultRule
from sbpair.broker.testing.frames import IN, OUT, ActiveRule, FrameRule
from sbpair.broker.testing.pair import NamespacePair
from sbpair.broker.testing.proxy_plan import LineSettings
from sbpair.pair.amqp.message import DataBody, Message, Properties
from sbpair.pair.auth.connection_string import parse
from sbpair.pair.client.connection import connect
from sbpair.testing import BrokerProcess, ChaosProxy
from tests.trials.clients.faults import QUEUE, Cut, Event, Fault

LOOPBACK = "127.0.0.1"
LOCK_MS = 8_000
WARM_UP_QUEUE = "warm-up"
DEAD_LETTERS = f"{QUEUE}/$deadletterqueue"
PUT_WITHIN = 30.0  # seconds
_PORT = re.compile(r"Endpoint=sb://[^:/;]+:(\d+)")
_EMULATOR = ";UseDevelopmentEmulator=true"
DISCARDED = {Event.DEAF: (IN,), Event.MUTE: (OUT,), Event.BLACKHOLE: (IN, OUT)}


class Stage:
    """A context manager. The primary is a broker in memory, or one with a disk in a process that a fault can kill."""

    def __init__(self, fault: Fault) -> None:
        self._fault = fault
        self._until_end = ExitStack()
        self._process: BrokerProcess | None = None
        self._rule: ActiveRule | ActiveFault | None = None
        self._reserved: socket.socket | None = None  # keeps the port while nothing listens there

    def __enter__(self) -> Stage:
        with ExitStack() as stack:
            self._broker = stack.enter_context(Broker({"contoso": 0, "contoso-dr": 0}))
            self._primary, self._secondary = self._broker.namespaces
            if self._fault.cause is Event.KILL:
                self._data = Path(stack.enter_context(tempfile.TemporaryDirectory()))
                self._process = self._started(0)
                self._text = self._process.connection_strings["contoso"]
                stack.callback(self._end_process)
            else:
                self._primary.create_queue(WARM_UP_QUEUE)
                self._primary.create_queue(QUEUE, lock_duration=LOCK_MS, max_delivery_count=100)
                self._text = self._primary.connection_string
            port = _PORT.match(self._text)
            assert port is not None, "a connection string of the broker has a port"
            self._broker_port = int(port[1])
            self._proxy = ChaosProxy(LOOPBACK, self._broker_port)
            self._proxy.__enter__()
            self._port = self._proxy.port
            stack.callback(lambda: self._proxy.__exit__(None, None, None))
            stack.callback(self._free)
            self._until_end = stack.pop_all()
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self._until_end.close()

    def address(self) -> dict[str, Any]:
        """The command that makes the client."""
        text = self._proxy.connection_string(self._text)
        if self._fault.over_tls:
            text = text.replace(_EMULATOR, "")
        if self._fault.cause is Event.UNRESOLVED:
            text = _PORT.sub("Endpoint=sb://contoso.invalid", text).replace(_EMULATOR, "")
        return {
            "do": "open",
            "connection_string": text,
            "secondary": self._secondary.connection_string,
            "queue": QUEUE,
            "ca_file": str(self._broker.ca_file),
            "tls_port": self._port if self._fault.over_tls else None,
        }

    def direct(self) -> dict[str, Any]:
        """The command that makes a client past the proxy, of another queue."""
        return {**self.address(), "connection_string": self._text, "queue": WARM_UP_QUEUE, "tls_port": None}

    def put(self, message_ids: Iterable[str]) -> None:
        """Store messages in the queue, past the proxy."""
        asyncio.run(_put(self._text, message_ids))

    # -- the fault

    def begin(self) -> None:
        """Set the fault."""
        match self._fault.cause:
            case FrameRule() as rule:
                self._rule = self._proxy.set_rule(rule)
            case FaultRule() as rule:
                self._rule = self._primary.set_fault(rule)
            case Cut(direction, count):
                self._proxy.cut_next(direction, count)
            case LineSettings() as line:
                self._set_line(line)
            case Event() as event:
                self._happen(event)

    def end(self) -> None:
        """Take the fault away, as far as it is still there."""
        match self._fault.cause:
            case FrameRule():
                assert isinstance(self._rule, ActiveRule)
                self._proxy.remove(self._rule)
            case FaultRule():
                assert isinstance(self._rule, ActiveFault)
                self._primary.clear_fault(self._rule)
            case Cut():
                self._proxy.forget_cuts()
            case LineSettings():
                self._set_line(LineSettings())
            case Event.REFUSE:
                self._listen()
            case Event.KILL:
                self._process = self._started(self._broker_port)
            case Event():
                self._proxy.blackhole(False)

    @property
    def has_struck(self) -> bool:
        """Whether the fault has reached the client; an event has once it began."""
        rule, cause = self._rule, self._fault.cause
        if isinstance(cause, FaultRule) and cause.times is not None:
            return rule is not None and rule.hits >= cause.times
        return rule is None or rule.hits > 0

    def _set_line(self, line: LineSettings) -> None:
        self._proxy.rtt, self._proxy.bandwidth, self._proxy.slice = line.rtt, line.bandwidth, line.slice

    def _happen(self, event: Event) -> None:
        match event:
            case Event.REFUSE:
                self._proxy.__exit__(None, None, None)
                self._reserved = socket.socket()
                self._reserved.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
                self._reserved.bind((LOOPBACK, self._port))
            case Event.RESET:
                self._proxy.reset()
            case Event.KILL:
                assert self._process is not None
                self._end_process()
            case Event.DEAF | Event.MUTE | Event.BLACKHOLE:
                for direction in DISCARDED[event]:
                    self._proxy.blackhole(direction=direction)
            case Event.UNRESOLVED:
                pass

    def _free(self) -> None:
        if self._reserved is not None:
            self._reserved.close()
            self._reserved = None

    def _listen(self) -> None:
        self._free()
        self._proxy = ChaosProxy(LOOPBACK, self._broker_port, listen=(LOOPBACK, self._port))
        self._proxy.__enter__()

    def _started(self, port: int) -> BrokerProcess:
        return BrokerProcess(
            "--namespace",
            f"contoso:{port}",
            "--queue",
            f"contoso/{QUEUE}",
            "--queue",
            f"contoso/{WARM_UP_QUEUE}",
            "--data",
            str(self._data),
        ).__enter__()

    def _end_process(self) -> None:
        if self._process is not None:
            self._process.kill()
            self._process.__exit__(None, None, None)
            self._process = None

    # -- afterwards

    def left(self) -> Counter[str]:
        """How often each message is in the queue or its dead letters, after the syphon brought home what was parked."""
        if self._fault.cause is not Event.KILL:
            return self._left_in(self._broker)
        self._end_process()
        with Broker({"contoso": 0}, data=self._data) as revived:
            return self._left_in(revived)

    def _left_in(self, broker: Broker) -> Counter[str]:
        primary = broker.namespace("contoso")
        pair = NamespacePair(broker, primary, self._secondary)
        if any(self._secondary.counts(name).total for name in self._secondary.queue_names()):
            pair.drain()
        return Counter([*primary.message_ids(QUEUE), *primary.message_ids(DEAD_LETTERS)])


async def _put(text: str, message_ids: Iterable[str]) -> None:
    connection = await connect(parse(text))
    try:
        async with asyncio.timeout(PUT_WITHIN):
            sender = await connection.open_sender(QUEUE)
            for name in message_ids:
                message = Message(properties=Properties(message_id=name), body=DataBody((b"x",)))
                await sender.send(message.encode())
    finally:
        await connection.close()
