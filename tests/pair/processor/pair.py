"""Two namespaces in one broker, a paired client, and messages on both sides."""

from __future__ import annotations

from dataclasses import dataclass, field

from sbpair.aio import PairedServiceBusClient
from sbpair.broker import Broker, NamespaceControl
from sbpair.pair.amqp.message import DataBody, Header, Message, Properties
from sbpair.processor import ProcessorEvent, ReceivedMessage
from tests.pair.syphon.pair import put
from tests.waiting import PATIENCE, until

__all__ = ["PATIENCE", "Pair", "numbered", "pair_of", "put", "until"]


def numbered(number: int, *, session: str | None = None, body: bytes = b"hello") -> bytes:
    """Encode message ``number`` with the id ``m{number}``."""
    return Message(
        header=Header(durable=True),
        properties=Properties(message_id=f"m{number}", group_id=session),
        application_properties={"number": number},
        body=DataBody((body,)),
    ).encode()


@dataclass
class Pair:
    """Both namespaces, with the events of a processor and the messages it handled."""

    primary: NamespaceControl
    secondary: NamespaceControl
    events: list[ProcessorEvent] = field(default_factory=list)
    handled: list[str] = field(default_factory=list)
    """The ids of messages, in the order in which their handlers ended."""
    sides: list[str] = field(default_factory=list)

    def client(self) -> PairedServiceBusClient:
        return PairedServiceBusClient.from_connection_strings(
            self.primary.connection_string, self.secondary.connection_string
        )

    async def note(self, message: ReceivedMessage) -> None:
        """Handle a message by recording it."""
        self.handled.append(str(message.message_id))
        self.sides.append(message.side.value)

    def said(self, kind: type[ProcessorEvent]) -> list[ProcessorEvent]:
        return [event for event in self.events if isinstance(event, kind)]

    async def handles(self, count: int) -> None:
        await until(lambda: len(self.handled) >= count)

    async def settles(self, path: str = "orders") -> None:
        """Wait until the entity is empty on both sides."""
        await until(lambda: not self.left(path))

    def left(self, path: str = "orders") -> int:
        sides = (self.primary, self.secondary)
        return sum(side.counts(path).active for side in sides if path in side.queue_names())


def pair_of(broker: Broker) -> Pair:
    pair = Pair(broker.namespace("contoso"), broker.namespace("contoso-dr"))
    pair.primary.create_queue("orders")
    return pair
