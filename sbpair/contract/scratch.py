"""What a check is handed: the entities of its entry, and links and requests of its own, which end with it."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable, Mapping, Sequence
from contextlib import suppress
from itertools import count
from typing import TYPE_CHECKING, TypeVar

from sbpair.pair.amqp.message import Body, DataBody, Header, Message, Properties
from sbpair.pair.amqp.performatives import (
    Accepted,
    AmqpMap,
    Condition,
    DeliveryState,
    Rejected,
    TransactionalState,
)
from sbpair.pair.amqp.types import Symbol, Timestamp
from sbpair.pair.auth.credential import Token
from sbpair.pair.client.connection import MAX_FRAME, SECOND, UNSETTLED, WINDOW, NamespaceConnection, Tap
from sbpair.pair.client.dial import connect
from sbpair.pair.client.errors import ClientError
from sbpair.pair.client.link import OnMessage, Receiver, Sender
from sbpair.pair.client.management_node import ManagementNode
from sbpair.pair.client.request import RequestNode, peek
from sbpair.pair.client.session import SessionReceiver
from sbpair.pair.ground.daemon_thread import in_daemon_thread
from sbpair.pair.ground.side import Side

from .entry import DifferenceError, expect
from .inbox import PATIENCE, Inbox
from .naming import PREFIX
from .target import Target

if TYPE_CHECKING:
    from azure.servicebus.management import ServiceBusAdministrationClient

CONNECT_TIMEOUT, CLOSE_TIMEOUT = 20.0, 10.0  # seconds
BATCH = 0x8001_3700  # the message format of a batch
DEAD = "/$DeadLetterQueue"
Result = TypeVar("Result")


class Scratch:
    """The entities of one entry in one run; ``names`` by label."""

    def __init__(
        self,
        targets: Mapping[Side, Target],
        names: Mapping[str, str],
        sides: Mapping[str, Side],
        mark: str,
        tap: Callable[[Side], Tap] | None = None,
    ) -> None:
        self._targets = targets
        self._tap = tap
        self.uses_sdk = False
        self._names = names
        self._sides = sides
        self._mark = mark
        self._ids = count(1)
        self._connections: dict[Side, NamespaceConnection] = {}
        self._opening = asyncio.Lock()
        self._senders: dict[str, Sender] = {}
        self._nodes: dict[str, ManagementNode] = {}
        self._inboxes: list[Inbox] = []
        self._extra: list[NamespaceConnection] = []

    # Names and messages.

    def path(self, of: str = "q") -> str:
        """The path of an entity by its label; what follows the label is kept: `q/$DeadLetterQueue`."""
        label = max((each for each in self._names if of == each or of.startswith(f"{each}/")), key=len)
        return self._names[label] + of[len(label) :]

    def side(self, of: str = "q") -> Side:
        label = max((each for each in self._names if of == each or of.startswith(f"{each}/")), key=len)
        return self._sides[label]

    def target(self, side: Side = Side.PRIMARY) -> Target:
        return self._targets[side]

    def new_id(self) -> str:
        """A message id that marks a message as one of this run."""
        return f"{PREFIX}{self._mark}-{next(self._ids)}"

    def message(
        self,
        body: bytes | Body = b"verify",
        *,
        id: str | None = None,
        session: str | None = None,
        ttl: int | None = None,
        content_type: str | None = None,
        properties: AmqpMap | None = None,
        annotations: Mapping[str, object] | None = None,
    ) -> Message:
        """A message of this run; ``ttl`` in ms, annotations by name."""
        return Message(
            header=None if ttl is None else Header(ttl=ttl),
            message_annotations={Symbol(name): value for name, value in (annotations or {}).items()},
            properties=Properties(
                message_id=id or self.new_id(), group_id=session, content_type=content_type
            ),
            application_properties=properties or {},
            body=DataBody((body,)) if isinstance(body, bytes) else body,
        )

    def scheduled_message(self, at: float, body: bytes = b"later", *, ttl: int | None = None) -> Message:
        """A message that is due at this time, in seconds since the epoch."""
        return self.message(
            body, ttl=ttl, annotations={"x-opt-scheduled-enqueue-time": Timestamp(round(at * 1000))}
        )

    @property
    def audience(self) -> str:
        """What a token for the entry's queue is for."""
        return self.target().namespace.audience(self.path())

    # Links.

    async def connection(self, side: Side = Side.PRIMARY) -> NamespaceConnection:
        """The connection of this entry to a namespace. Raises ConnectionLostError."""
        async with self._opening:
            if side not in self._connections:
                self._connections[side] = await self._dial(side)
            return self._connections[side]

    async def another_connection(
        self, side: Side = Side.PRIMARY, *, window: int = WINDOW, frame: int = MAX_FRAME
    ) -> NamespaceConnection:
        """A further connection, which ends with the entry unless it is closed before. Raises ConnectionLostError.

        ``window``: frames that the peer may send in a session before it hears from us; ``frame``: their size.
        """
        connection = await self._dial(side, window, frame)
        self._extra.append(connection)
        return connection

    async def _dial(self, side: Side, window: int = WINDOW, frame: int = MAX_FRAME) -> NamespaceConnection:
        target = self._targets[side]
        tap = None if self._tap is None else self._tap(side)
        return await connect(
            target.namespace,
            timeout=CONNECT_TIMEOUT,
            window=window,
            frame=frame,
            tap=tap,
        )

    async def sender(self, to: str = "q") -> Sender:
        """A sender, the same for each call unless its link ended. Raises LinkRefusedError, TokenRefusedError."""
        sender = self._senders.get(to)
        if sender is None or not sender.is_open:
            connection = await self.connection(self.side(to))
            sender = self._senders[to] = await connection.open_sender(self.path(to))
        return sender

    async def send(self, *messages: Message, to: str = "q") -> None:
        """Send messages one after the other. Raises DifferenceError when one is not accepted."""
        for message in messages:
            answer = await self.answer(message, to=to)
            if not isinstance(answer, Accepted):
                raise DifferenceError(f"a send to {self.path(to)} was answered with {answer_text(answer)}")

    async def answer(
        self, message: Message, *, to: str = "q", state: TransactionalState | None = None
    ) -> DeliveryState | None:
        """Send a message; the peer's answer, None when the link ended."""
        return await (await self.sender(to)).send(message.encode(), state=state)

    async def answer_to_batch(self, messages: Sequence[Message], *, to: str = "q") -> DeliveryState | None:
        """Send messages as one batch; the peer's answer."""
        first = messages[0]
        envelope = Message(
            message_annotations=first.message_annotations,
            properties=first.properties,
            body=DataBody(tuple(each.encode() for each in messages)),
        )
        return await (await self.sender(to)).send(envelope.encode(), BATCH)

    async def inbox(self, of: str = "q", *, on: NamespaceConnection | None = None) -> Inbox:
        """A receiver under locks. Raises LinkRefusedError, TokenRefusedError."""
        inbox = Inbox()
        connection = on or await self.connection(self.side(of))
        inbox.opened(await connection.open_receiver(self.path(of), inbox.on_message))
        self._inboxes.append(inbox)
        return inbox

    async def deleting_inbox(self, of: str = "q") -> Inbox:
        """A receiver without locks: what it is sent is deleted. Raises LinkRefusedError, TokenRefusedError."""
        inbox = Inbox()
        connection = await self.connection(self.side(of))
        await connection.authorize(self.path(of))
        inbox.opened(
            await _attach(connection, self.path(of), inbox.on_message, snd_settle_mode=1, rcv_settle_mode=0)
        )
        self._inboxes.append(inbox)
        return inbox

    async def session_inbox(
        self,
        session: str | None,
        of: str = "q",
        *,
        timeout: float = 5.0,
        on: NamespaceConnection | None = None,
    ) -> tuple[Inbox, SessionReceiver]:
        """A receiver of a session, or of the next one for None. Raises SessionUnavailableError, LinkRefusedError."""
        inbox = Inbox()
        connection = on or await self.connection(self.side(of))
        receiver = await connection.open_session_receiver(
            self.path(of), inbox.on_message, session_id=session, timeout=timeout
        )
        inbox.opened(receiver)
        self._inboxes.append(inbox)
        return inbox, receiver

    async def bare_receiver(self, on: NamespaceConnection, of: str = "q") -> Receiver:
        """A receiver for which no token is shown. Raises LinkRefusedError."""
        return await _attach(on, self.path(of), lambda event: None)

    # Requests.

    async def node(self, of: str = "q") -> ManagementNode:
        """The management node of an entity."""
        if of not in self._nodes:
            connection = await self.connection(self.side(of))
            await connection.authorize(self.path(of))
            self._nodes[of] = ManagementNode(connection, self.path(of))
        return self._nodes[of]

    async def ask(self, operation: str, body: AmqpMap, of: str = "q") -> Message:
        """The answer to a request such as `renew-lock`, whatever its status.

        Raises LinkRefusedError, ConnectionLostError.
        """
        properties: AmqpMap = {"operation": f"com.microsoft:{operation}", "type": "entity-mgmt"}
        return await (await self.node(of)).ask(lambda node: node.ask(properties, body))

    async def peek(
        self, of: str = "q", *, start: int = 0, most: int = 100, session: str | None = None
    ) -> list[Message]:
        """Messages of an entity, from a sequence number on. Raises LinkRefusedError, ConnectionLostError."""
        path = self.path(of)
        payloads = await (await self.node(of)).ask(
            lambda node: peek(node, path, start, most, session_id=session)
        )
        return [Message.decode(payload) for payload in payloads]

    async def admin(
        self, act: Callable[[ServiceBusAdministrationClient], Result], side: Side = Side.PRIMARY
    ) -> Result:
        """Call the administration API in a thread. Raises AzureError."""

        def call() -> Result:
            with self._targets[side].administration() as administration:
                return act(administration)

        return await self.in_thread(call)

    async def in_thread(self, call: Callable[[], Result]) -> Result:
        """The result of a blocking call, such as one of the SDK. Raises what it raises."""
        self.uses_sdk = True
        return await in_daemon_thread(call, "sbpair-verify")

    async def close(self, timeout: float = CLOSE_TIMEOUT) -> None:
        """End the links and connections, and wait so many seconds for the peer's answers. Never raises."""
        try:
            with suppress(Exception):  # a foreign peer may answer anything, or nothing
                async with asyncio.timeout(timeout):
                    for inbox in self._inboxes:
                        await inbox.close()
                    for node in self._nodes.values():
                        await node.close()
                    for connection in self._all:
                        await connection.close()
        finally:
            for connection in self._all:
                connection.abort()

    @property
    def _all(self) -> list[NamespaceConnection]:
        return [*self._connections.values(), *self._extra]


def answer_text(state: DeliveryState | None) -> str:
    """An answer in a few words."""
    if state is None:
        return "nothing: the link ended"
    if isinstance(state, Rejected):
        return "rejected" if state.error is None else f"rejected, {state.error.symbol}"
    return type(state).__name__.lower()


def rejection_symbol(state: DeliveryState | None) -> str:
    """The condition of a rejection, "" for anything else."""
    return str(state.error.symbol) if isinstance(state, Rejected) and state.error is not None else ""


async def _attach(
    connection: NamespaceConnection,
    path: str,
    on_message: OnMessage,
    *,
    snd_settle_mode: int = UNSETTLED,
    rcv_settle_mode: int = SECOND,
) -> Receiver:
    link = connection.attach_receiver(path, snd_settle_mode=snd_settle_mode, rcv_settle_mode=rcv_settle_mode)
    receiver = Receiver(connection, link, path, on_message)
    connection.register(receiver)
    await receiver.wait_attached()
    return receiver


async def expect_within(answer: Awaitable[Result], what: str, seconds: float = PATIENCE) -> Result:
    """The answer. Raises DifferenceError, with ``what`` was missed, when it does not come in time."""
    try:
        async with asyncio.timeout(seconds):
            return await answer
    except TimeoutError:
        raise DifferenceError(f"{what} in {seconds:g} s") from None


async def put_token(connection: NamespaceConnection, audience: str, token: Token) -> int:
    """Show a token on `$cbs` over links that end with it; the status of the answer, -1 without one."""
    node = RequestNode(connection, "$cbs")
    properties: AmqpMap = {
        "operation": "put-token",
        "type": token.kind,
        "name": audience,
        "expiration": Timestamp(token.expires * 1000),
    }
    try:
        answer = await node.ask(properties, token.text)
    finally:
        await node.close()
    found = answer.application_properties.get("status-code")
    return int(found) if isinstance(found, int) else -1


def symbol_of(condition: Condition | None) -> str:
    """The name of a condition, "nothing" without one."""
    return str(condition.symbol) if condition else "nothing"


def expect_refusal(error: ClientError, symbol: str) -> str:
    """The name of the condition of a refusal. Raises DifferenceError when it is not ``symbol``."""
    found = symbol_of(error.condition)
    expect(found == symbol, f"refused with {found}")
    return found


async def expect_end(
    end: asyncio.Future[Condition | None], symbol: str, how: str, *, within: float, what: str = "it"
) -> str:
    """The name of the condition with which a link or connection ended.

    Raises DifferenceError when it did not end ``within`` so many seconds, or with another than ``symbol``.
    """
    await asyncio.wait([end], timeout=within)
    expect(end.done(), f"{what} was there after {within:g} s")
    found = symbol_of(end.result())
    expect(found == symbol, f"{how} with {found}")
    return found
