"""Who waits for what in a namespace, and who is handed the next message?

One file asks, one answers: entities leave word that something is there; here the receivers with credit stand
in line, queue by queue, and are served in turn.
"""

from __future__ import annotations

from collections import OrderedDict
from typing import TYPE_CHECKING

from ...amqp.errors import RESOURCE_DELETED
from ...amqp.performatives import Condition
from ..auth import Verifier
from ..entities.namespace import Namespace
from ..entities.queue import Queue
from ..errors import BrokerError
from ..faults import Fault
from .moment import Moment
from .wording import condition_of, tracked

if TYPE_CHECKING:
    from .client_connection import ClientConnection
    from .node import Node
    from .queue_receiver import QueueReceiver


class NamespaceFace:
    """A namespace as its connections share it."""

    def __init__(self, namespace: Namespace, verifier: Verifier) -> None:
        self.namespace = namespace
        self.verifier = verifier
        self._faults: dict[str, list[Fault]] = {}
        self._lines: dict[Queue, OrderedDict[QueueReceiver, None]] = {}
        self._look: set[Queue] = set()  # a receiver joined the line
        self._nodes: dict[Queue, set[Node]] = {}
        self._stirred: set[ClientConnection] = set()

    def tracker(self, path: str) -> str:
        """How error texts name an entity."""
        return f"{self.namespace.name}:Queue:{path}"

    # -- faults

    def set_fault(self, path: str, fault: Fault) -> None:
        """Let sends to the entity meet ``fault``; the one set last strikes. Raises EntityNotFound."""
        self._faults.setdefault(self.namespace.queue(path).path.casefold(), []).append(fault)

    def clear_fault(self, path: str, fault: Fault) -> None:
        """Take ``fault`` away again; nothing happens when it is not set."""
        faults = self._faults.get(path.casefold(), [])
        faults[:] = [other for other in faults if other is not fault]

    def fault_of(self, queue: Queue) -> Fault | None:
        """The fault that strikes sends to ``queue`` now."""
        if not self._faults:
            return None
        faults = self._faults.get(queue.path.casefold())
        return faults[-1] if faults else None

    # -- the line of receivers

    def is_waiting(self, receiver: QueueReceiver) -> bool:
        """Whether the receiver stands in the line."""
        return receiver in self._lines.get(receiver.queue, ())

    def wait(self, receiver: QueueReceiver, moment: Moment) -> None:
        """Put a receiver that has credit in its queue's line."""
        line = self._lines.setdefault(receiver.queue, OrderedDict())
        if receiver not in line:
            line[receiver] = None
            receiver.queue.listen(moment.entity)
        self._look.add(receiver.queue)

    def leave(self, receiver: QueueReceiver, moment: Moment) -> None:
        """Take a receiver out of the line; nothing happens when it does not stand there."""
        line = self._lines.get(receiver.queue)
        if line is not None and receiver in line:
            del line[receiver]
            receiver.queue.stop_listening(moment.entity)
            if not line:
                del self._lines[receiver.queue]

    def deliver(self, moment: Moment) -> None:
        """Hand out what there is to those who wait, and detach the links of what was deleted."""
        looks = self.namespace.take_ready()
        if self._look:
            looks = list(self._look.union(looks))
            self._look.clear()
        for queue in looks:
            if not self.namespace.holds(queue):
                self._detach_all(queue, moment)
            elif (line := self._lines.get(queue)) is not None:
                self._serve(queue, line, moment)

    def _serve(self, queue: Queue, line: OrderedDict[QueueReceiver, None], moment: Moment) -> None:
        while line:
            receiver = next(iter(line))
            try:
                if not receiver.is_hungry:
                    self.leave(receiver, moment)
                    continue
                if not receiver.deliver(moment):
                    return
            except BrokerError as error:
                self.leave(receiver, moment)
                receiver.link.detach(condition_of(error, self.tracker(queue.path), moment.entity))
            self.stir(receiver.connection)
            line = self._lines.get(queue, line)
            if receiver in line:
                line.move_to_end(receiver)

    # -- nodes and connections

    def remember(self, node: Node) -> None:
        """Know a node of an entity, to detach its link when the entity goes."""
        if node.queue is not None:
            self._nodes.setdefault(node.queue, set()).add(node)

    def forget(self, node: Node) -> None:
        """The node's link is over."""
        queue = node.queue
        if queue is not None and (nodes := self._nodes.get(queue)) is not None:
            nodes.discard(node)
            if not nodes:
                del self._nodes[queue]

    def stir(self, connection: ClientConnection) -> None:
        """The connection has something to send."""
        self._stirred.add(connection)

    def take_stirred(self) -> list[ClientConnection]:
        """The connections that got something to send since this was last asked."""
        if not self._stirred:
            return []
        stirred = list(self._stirred)
        self._stirred.clear()
        return stirred

    def _detach_all(self, queue: Queue, moment: Moment) -> None:
        self._lines.pop(queue, None)
        for node in self._nodes.pop(queue, set()):
            text = f"The messaging entity '{queue.path}' was deleted."
            node.link.detach(
                Condition(RESOURCE_DELETED, tracked(text, self.tracker(queue.path), moment.entity))
            )
            self.stir(node.connection)
