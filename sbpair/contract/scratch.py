"""Fixture of a check: its scratch entities, and links and requests that end with it."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager, suppress
from dataclasses import replace
from itertools import count
from typing import TYPE_CHECKING, TypeVar
from uuid import UUID

from sbpair.pair.amqp.message import Body, DataBody, Header, Message, Properties
from sbpair.pair.amqp.performatives import (
    Accepted,
    AmqpMap,
    Condition,
    DeliveryState,
    Rejected,
    TransactionalState,
)
from sbpair.pair.amqp.types import Array, Symbol, Timestamp, UInt
from sbpair.pair.auth.credential import Token
from sbpair.pair.client.connection import (
    MAX_FRAME,
    SECOND,
    UNSETTLED,
    WINDOW,
    NamespaceConnection,
    Tap,
    connect,
)
from sbpair.pair.client.errors import (
    ClientError,
    LinkRefusedError,
    SessionUnavailableError,
    TokenRefusedError,
)
from sbpair.pair.client.link import OnMessage, Receiver, Sender
from sbpair.pair.client.management_node import ManagementNode
from sbpair.pair.client.request import RequestNode, peek, refusal_of, value_of
from sbpair.pair.client.session import SessionReceiver
from sbpair.pair.ground.daemon_thread import in_daemon_thread
from sbpair.pair.ground.side import Side
from sbpair.pair.syphon.land.transaction import TransactionController

from .entry import DifferenceError, expect
from .inbox import PATIENCE, Arrival, Inbox, whole
from .naming import PREFIX
from .target import Target

if TYPE_CHECKING:
    from azure.servicebus import ServiceBusClient, ServiceBusMessage
    from azure.servicebus.amqp import AmqpAnnotatedMessage
    from azure.servicebus.management import QueueProperties, ServiceBusAdministrationClient

    from sbpair.pair.pairing.shared.administration import Exchanged

CONNECT_TIMEOUT, CLOSE_TIMEOUT = 20.0, 10.0  # seconds
BATCH = 0x8001_3700  # the message format of a batch
DEAD = "/$DeadLetterQueue"
KEY = {"x-opt-partition-key": "k"}
NO_FIELDS = Properties()
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
        exchanged: Callable[[Side], Exchanged] | None = None,
    ) -> None:
        self._targets = targets
        self._tap, self._exchanged = tap, exchanged
        self.does_more_than_frames = False
        """Whether something was done that no tap was told: administration, or the SDK without TLS."""

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
        """Return the path of an entity by its label; a suffix after the label is kept: `q/$DeadLetterQueue`."""
        label = self._label(of)
        return self._names[label] + of[len(label) :]

    def side(self, of: str = "q") -> Side:
        return self._sides[self._label(of)]

    def _label(self, of: str) -> str:
        return max((each for each in self._names if of == each or of.startswith(f"{each}/")), key=len)

    def target(self, side: Side = Side.PRIMARY) -> Target:
        return self._targets[side]

    def new_id(self) -> str:
        """Return a message id that marks a message as one of this run."""
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
        fields: Properties = NO_FIELDS,
    ) -> Message:
        """Return a message of this run; ``ttl`` in ms, annotations by name. ``fields``: more of its properties."""
        return Message(
            header=None if ttl is None else Header(ttl=ttl),
            message_annotations={Symbol(name): value for name, value in (annotations or {}).items()},
            properties=replace(
                fields,
                message_id=id or fields.message_id or self.new_id(),
                group_id=fields.group_id if session is None else session,
                content_type=content_type or fields.content_type,
            ),
            application_properties=properties or {},
            body=DataBody((body,)) if isinstance(body, bytes) else body,
        )

    def scheduled_message(
        self, at: float, body: bytes = b"later", *, id: str | None = None, ttl: int | None = None
    ) -> Message:
        """Return a message that is scheduled for this time, in seconds since the epoch."""
        due = {"x-opt-scheduled-enqueue-time": Timestamp(round(at * 1000))}
        return self.message(body, id=id, ttl=ttl, annotations=due)

    @property
    def audience(self) -> str:
        """The audience of a token for the entry's queue."""
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
        """Return a further connection, closed at the end of the entry at the latest. Raises ConnectionLostError.

        ``window``: how many frames the peer may send in a session before our next flow; ``frame``: their maximum size.
        """
        connection = await self._dial(side, window, frame)
        self._extra.append(connection)
        return connection

    async def _dial(self, side: Side, window: int = WINDOW, frame: int = MAX_FRAME) -> NamespaceConnection:
        target = self._targets[side]
        tap = None if self._tap is None else self._tap(side)
        return await connect(target.namespace, timeout=CONNECT_TIMEOUT, window=window, frame=frame, tap=tap)

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
        """Send a message; return the peer's answer, None when the link ended."""
        return await (await self.sender(to)).send(message.encode(), state=state)

    async def answer_to_batch(self, messages: Sequence[Message], *, to: str = "q") -> DeliveryState | None:
        """Send messages as one batch; return the peer's answer."""
        first = messages[0]
        envelope = Message(
            message_annotations=first.message_annotations,
            properties=first.properties,
            body=DataBody(tuple(each.encode() for each in messages)),
        )
        return await (await self.sender(to)).send(envelope.encode(), BATCH)

    async def inbox(self, of: str = "q", *, on: NamespaceConnection | None = None) -> Inbox:
        """Return a peek-lock receiver. Raises LinkRefusedError, TokenRefusedError."""
        inbox = Inbox()
        connection = on or await self.connection(self.side(of))
        inbox.opened(await connection.open_receiver(self.path(of), inbox.on_message))
        self._inboxes.append(inbox)
        return inbox

    async def take(self, *messages: Message) -> tuple[Inbox, Arrival]:
        """Send messages to the queue, and take the first that comes. Raises DifferenceError when none comes in time."""
        await self.send(*messages)
        inbox = await self.inbox()
        return inbox, await inbox.take()

    async def receive(self, of: str = "q", *, within: float = PATIENCE) -> Arrival:
        """Take a message and complete it. Raises DifferenceError when none comes in time."""
        return await (await self.inbox(of)).receive(within)

    async def through(self, message: Message) -> Arrival:
        """Send a message to the queue, receive the next one, and complete it."""
        await self.send(message)
        return await self.receive()

    async def receive_all(self, count: int, of: str = "q") -> list[Arrival]:
        """Take and complete ``count`` messages, one after the other. Raises as :meth:`receive`."""
        return await (await self.inbox(of)).receive_all(count)

    async def expect(self, *bodies: bytes, of: str = "q") -> list[Arrival]:
        """Take and complete messages. Raises DifferenceError unless they come with these bodies, in this order."""
        return await (await self.inbox(of)).expect(*bodies)

    async def expect_only(self, *bodies: bytes, of: str = "q") -> list[Arrival]:
        """As :meth:`expect`. Raises DifferenceError if another message comes."""
        return await (await self.inbox(of)).expect_only(*bodies)

    async def nothing(self, of: str = "q") -> None:
        """Raise DifferenceError if a message comes."""
        await (await self.inbox(of)).nothing()

    async def dead_letter(self, message: Message, reason: str = "verify", text: str = "") -> None:
        """Send a message to the queue, and dead-letter it."""
        inbox, arrival = await self.take(message)
        await inbox.dead_letter(arrival, reason, text)
        await inbox.close()

    async def expect_dead(self, reason: str, of: str = "q", *, within: float = PATIENCE) -> str:
        """Receive a dead letter and return its reason. Raises DifferenceError if none comes or the reason differs."""
        arrival = await self.receive(f"{of}{DEAD}", within=within)
        found = arrival.message.application_properties.get("DeadLetterReason")
        expect(found == reason, f"the reason is {found!r}")
        return str(found)

    async def expect_no_sends(self, to: str) -> str:
        """Raise DifferenceError when an entity accepts a message."""
        try:
            sender = await (await self.connection()).open_sender(self.path(to))
        except (LinkRefusedError, TokenRefusedError) as error:
            return f"refused with {symbol_of(error.condition)}"
        answer = await sender.send(self.message().encode())
        expect(not isinstance(answer, Accepted), "a send was accepted")
        return answer_text(answer)

    async def transaction(self) -> tuple[TransactionController, bytes]:
        """A new transaction, and its id."""
        controller = TransactionController(await self.connection())
        return controller, await controller.declare()

    async def expect_no_commit(self, *sends: tuple[Message, str]) -> str:
        """Send messages in one transaction, each to an entity. Raises DifferenceError if they are committed."""
        controller, txn = await self.transaction()
        state = TransactionalState(txn)
        answers = [answer_text(await self.answer(message, to=to, state=state)) for message, to in sends]
        try:
            await controller.commit(txn)
        except ClientError as error:
            return f"{answers[-1]}; the commit: {symbol_of(error.condition)}"
        raise DifferenceError(f"it was committed after {answers}")

    async def deleting_inbox(self, of: str = "q") -> Inbox:
        """Return a receive-and-delete receiver. Raises LinkRefusedError, TokenRefusedError."""
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
        """Return a receiver of a session, the next one for None. Raises SessionUnavailableError, LinkRefusedError."""
        inbox = Inbox()
        connection = on or await self.connection(self.side(of))
        receiver = await connection.open_session_receiver(
            self.path(of), inbox.on_message, session_id=session, timeout=timeout
        )
        inbox.opened(receiver)
        self._inboxes.append(inbox)
        return inbox, receiver

    async def bare_receiver(self, on: NamespaceConnection, of: str = "q") -> Receiver:
        """Return a receiver for which no token was put. Raises LinkRefusedError."""
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
        """Return the answer to a request such as `renew-lock`, whatever its status.

        Raises LinkRefusedError, ConnectionLostError.
        """
        properties: AmqpMap = {"operation": f"com.microsoft:{operation}", "type": "entity-mgmt"}
        return await (await self.node(of)).ask(lambda node: node.ask(properties, body))

    async def schedule(self, *messages: Message, of: str = "q") -> list[int]:
        """Schedule messages by request; return their sequence numbers. Raises DifferenceError when it is refused."""
        entries = [{"message-id": str(each.properties and each.properties.message_id), "message": each.encode()}
                   for each in messages]  # fmt: skip
        answer = await self.ask("schedule-message", {"messages": entries}, of)
        expect_granted(answer, "scheduling")
        return [int(str(each)) for each in items(value_of(answer).get("sequence-numbers"))]

    async def cancel(self, *numbers: int, of: str = "q") -> Message:
        """Return the answer to a request to cancel scheduled messages."""
        return await self.ask("cancel-scheduled-message", {"sequence-numbers": Array(0x81, numbers)}, of)

    async def ask_for_deferred(
        self, *numbers: int, of: str = "q", session: str | None = None, deletes: bool = False
    ) -> Message:
        """Return the answer to a request for deferred messages; they are locked, or with ``deletes`` removed."""
        mode = UInt(0 if deletes else 1)
        body: AmqpMap = {"sequence-numbers": Array(0x81, numbers), "receiver-settle-mode": mode}
        if session is not None:
            body["session-id"] = session
        return await self.ask("receive-by-sequence-number", body, of)

    async def receive_deferred(
        self, *numbers: int, of: str = "q", session: str | None = None, deletes: bool = False
    ) -> list[tuple[Message, UUID]]:
        """Return deferred messages, each with its lock token. Raises DifferenceError when they are refused."""
        answer = await self.ask_for_deferred(*numbers, of=of, session=session, deletes=deletes)
        expect_granted(answer, "receiving by number")
        found = value_of(answer).get("messages") or []
        return [(Message.decode(each["message"]), each.get("lock-token")) for each in found]

    async def settle_by_token(
        self, token: object, status: str, *, reason: str | None = None, session: str | None = None
    ) -> Message:
        """Return the answer to a request to settle a message by its lock token: *completed*, *suspended* and so on."""
        given = {"deadletter-reason": reason, "deadletter-description": reason, "session-id": session}
        body: AmqpMap = {"disposition-status": status, "lock-tokens": Array(0x98, (token,))}
        return await self.ask("update-disposition", body | {k: v for k, v in given.items() if v is not None})

    async def peek(
        self, of: str = "q", *, start: int = 0, most: int = 100, session: str | None = None
    ) -> list[Message]:
        """Return messages of an entity, from a sequence number on. Raises LinkRefusedError, ConnectionLostError."""
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
            exchanged = None if self._exchanged is None else self._exchanged(side)
            with self._targets[side].administration(exchanged) as administration:
                return act(administration)

        self.does_more_than_frames = True
        return await in_daemon_thread(call, "sbpair-verify")

    async def description(self, of: str = "q") -> QueueProperties:
        """The description of a queue. Raises AzureError."""
        path = self.path(of)
        return await self.admin(lambda client: client.get_queue(path))

    async def change(self, setting: str, value: object) -> QueueProperties:
        """Update one setting of the queue; return its description afterwards. Raises AzureError."""
        path = self.path()

        def changed(client: ServiceBusAdministrationClient) -> QueueProperties:
            found = client.get_queue(path)
            setattr(found, setting, value)
            client.update_queue(found)
            return client.get_queue(path)

        return await self.admin(changed)

    @contextmanager
    def sdk(self, side: Side = Side.PRIMARY) -> Iterator[ServiceBusClient]:
        """A client of the SDK, whose connections are tapped as ours are. Blocking: for :meth:`in_thread`."""
        target, tap = self._targets[side], self._tap
        self.does_more_than_frames |= not target.namespace.uses_tls
        with target.sdk(None if tap is None else lambda: tap(side)) as client:
            yield client

    async def send_by_sdk(self, message: ServiceBusMessage | AmqpAnnotatedMessage, *, to: str = "q") -> None:
        """Send a message with the SDK, as an application does. Raises ServiceBusError."""
        path = self.path(to)

        def send() -> None:
            with self.sdk() as client, client.get_queue_sender(path) as sender:
                sender.send_messages(message)

        await self.in_thread(send)

    async def in_thread(self, call: Callable[[], Result]) -> Result:
        """The result of a blocking call, such as one of the SDK. Raises what it raises."""
        return await in_daemon_thread(call, "sbpair-verify")

    async def close(self, timeout: float = CLOSE_TIMEOUT) -> None:
        """Close the links and connections; wait at most ``timeout`` seconds for the peer's answers. Never raises."""
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
    """Return an answer in a few words."""
    if state is None:
        return "nothing: the link ended"
    if isinstance(state, Rejected):
        return "rejected" if state.error is None else f"rejected, {state.error.symbol}"
    return type(state).__name__.lower()


def rejection_symbol(state: DeliveryState | None) -> str:
    """Return the condition of a rejection; "" for any other answer."""
    return str(state.error.symbol) if isinstance(state, Rejected) and state.error is not None else ""


def expect_rejected(answer: DeliveryState | None, symbol: str = "") -> str:
    """Return an answer in words. Raises DifferenceError unless it is a rejection, with this condition if given."""
    found = rejection_symbol(answer)
    expect(bool(found) and found == (symbol or found), f"the answer is {answer_text(answer)}")
    return answer_text(answer)


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
    """Return the answer. Raises DifferenceError, which says that ``what`` is missing, if it does not come in time."""
    try:
        async with asyncio.timeout(seconds):
            return await answer
    except TimeoutError:
        raise DifferenceError(f"{what} in {seconds:g} s") from None


async def put_token(connection: NamespaceConnection, audience: str, token: Token, times: int = 1) -> int:
    """Put a token ``times`` times on `$cbs`, over links that are closed then.

    Return the last status, -1 without one.
    """
    node = RequestNode(connection, "$cbs")
    properties: AmqpMap = {
        "operation": "put-token",
        "type": token.kind,
        "name": audience,
        "expiration": Timestamp(token.expires * 1000),
    }
    try:
        for _ in range(times):
            answer = await node.ask(properties, token.text)
    finally:
        await node.close()
    found = answer.application_properties.get("status-code")
    return int(found) if isinstance(found, int) else -1


def number_of(message: Message) -> int:
    """The sequence number of a peeked message. Raises DifferenceError when it has none."""
    name = "x-opt-sequence-number"
    return whole(name, message.message_annotations.get(Symbol(name)))


def expect_same(found: Sequence[object], wanted: Sequence[object], how: str) -> None:
    """Raise DifferenceError unless both lists are equal."""
    lost = [each for each in wanted if each not in found]
    order = next((n for n, pair in enumerate(zip(found, wanted, strict=False)) if pair[0] != pair[1]), None)
    expect(list(found) == list(wanted), f"of {len(wanted)} messages {len(found)} were {how}, {len(lost)} are "
           f"missing, and the order differs from number {order} on")  # fmt: skip


def items(found: object) -> Sequence[object]:
    """The items of an array or a list in an answer; none for anything else."""
    inner = found.items if isinstance(found, Array) else found
    return inner if isinstance(inner, list | tuple) else ()


def expect_granted(answer: Message, what: str) -> None:
    """Raise DifferenceError when a request was refused."""
    refusal = refusal_of(answer)
    expect(refusal is None, f"{what} was refused: {refusal}")


def expect_accepted(answer: DeliveryState | None) -> None:
    """Raise DifferenceError unless a peer has answered with *accepted*."""
    expect(isinstance(answer, Accepted), f"the answer is {answer_text(answer)}")


async def expect_refused(
    opening: Awaitable[object], symbol: str = "", *, otherwise: str = "it was attached"
) -> str:
    """Return, in words, the condition with which a link is refused.

    Raises DifferenceError, with the text ``otherwise`` if the link is attached, or if the condition is not ``symbol``,
    where one is given.
    """
    try:
        await opening
    except (LinkRefusedError, TokenRefusedError, SessionUnavailableError) as error:
        found = symbol_of(error.condition)
        expect(found == (symbol or found), f"refused with {found}")
        return f"refused with {found}"
    raise DifferenceError(otherwise)


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
    """Return the name of the condition with which a link or connection ended.

    Raises DifferenceError if it did not end ``within`` this many seconds, or ended with another condition than
    ``symbol``.
    """
    await asyncio.wait([end], timeout=within)
    expect(end.done(), f"{what} was there after {within:g} s")
    found = symbol_of(end.result())
    expect(found == symbol, f"{how} with {found}")
    return found
