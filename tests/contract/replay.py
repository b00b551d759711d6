"""Replay the client's side of a recorded entry against another peer, and compare the answers.

    python -m tests.contract.replay FILE [ENTRY ...]     against a broker of this package

Frames are sent as they were recorded, each once all that had been answered before it is answered again. What cannot be
the same is adapted: tokens, host names, numbers of deliveries, lock tokens, transactions and times. Answers are
compared link by link, without what differs in every run.
"""

from __future__ import annotations

import asyncio
import base64
import json
import re
import sys
import time
import zlib
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import ExitStack, suppress
from dataclasses import dataclass, replace
from pathlib import Path
from uuid import UUID

from sbpair.broker.testing.frames import IN, OUT, Conversation
from sbpair.broker.testing.streams import Streams, open_streams
from sbpair.contract.administration import create, delete
from sbpair.contract.entry import Entity, Queue, Subscription, Topic
from sbpair.contract.target import Target as Namespace
from sbpair.pair.amqp.composite import decode_composite, encode_composite
from sbpair.pair.amqp.encoding import AMQP_FRAME, EMPTY_FRAME, FRAME_HEAD, frame
from sbpair.pair.amqp.errors import DecodeError
from sbpair.pair.amqp.message import DataBody, Message, ValueBody
from sbpair.pair.amqp.performatives import (
    Attach,
    Begin,
    Close,
    Condition,
    Declared,
    Detach,
    Disposition,
    End,
    Flow,
    Open,
    Rejected,
    Source,
    Target,
    Transfer,
)
from sbpair.pair.amqp.types import Array, Timestamp
from sbpair.pair.auth.dialling import trusting
from sbpair.pair.ground.side import Side

PATIENCE, LESS = 10.0, 0.5  # seconds to wait for an answer: the first that is missing, and the others
NEAR = 100_000_000  # milliseconds around a recorded time that are shifted with it
KINDS: dict[str, type[Queue | Topic | Subscription]] = {
    "Queue": Queue,
    "Topic": Topic,
    "Subscription": Subscription,
}
_TIME = re.compile(rb"\x83(\x00\x00[\x00-\xff]{6})", re.DOTALL)
GOODBYES = {f"{what} without an error" for what in ("detach", "end", "close")}
VOLATILE = {"status-description", "statusDescription"}


@dataclass(frozen=True, slots=True)
class Frame:
    """A recorded frame."""

    at: float
    connection: int
    direction: str
    raw: bytes


@dataclass(frozen=True, slots=True)
class Recorded:
    """One entry of a recording."""

    entry: str
    verdict: str
    seen: str
    at: float
    is_whole: bool
    entities: tuple[tuple[Entity, str], ...]
    """Each with its name."""

    connections: tuple[Side, ...]
    frames: tuple[Frame, ...]
    hosts: tuple[str, ...]
    """What stands for the names of hosts."""

    @property
    def can_be_replayed(self) -> bool:
        """Whether the frames are all that it needs: wrong tokens cannot be told from others."""
        return self.is_whole and bool(self.frames) and not self.entry.startswith("tokens-")


def read_recording(file: Path) -> list[Recorded]:
    """The entries of a recording. Raises OSError, ValueError."""
    head, *lines = (json.loads(line) for line in file.read_text("utf-8").splitlines())
    return [_entry(line, tuple(head["hosts"])) for line in lines]


def _entry(line: dict[str, object], hosts: tuple[str, ...]) -> Recorded:
    told: dict[str, object] = dict(line)
    entities, connections, frames = (list(told[name]) for name in ("entities", "connections", "frames"))  # type: ignore[call-overload]
    return Recorded(
        str(told["entry"]),
        str(told["verdict"]),
        str(told["seen"]),
        float(str(told["at"])),
        bool(told["is_whole"]),
        tuple(_entity(each) for each in entities),
        tuple(Side(each) for each in connections),
        tuple(Frame(at, n, way, zlib.decompress(base64.b64decode(data))) for at, n, way, data in frames),
        hosts,
    )


def _entity(told: Mapping[str, object]) -> tuple[Entity, str]:
    settings = {name: value for name, value in told.items() if name not in ("kind", "name", "side")}
    return KINDS[str(told["kind"])](side=Side(str(told["side"])), **settings), str(told["name"])  # type: ignore[arg-type]


class Answers:
    """What the peer answered on one connection, link by link, from the frames of both directions."""

    def __init__(self) -> None:
        self.found: dict[str, list[str]] = {}
        self.outgoing: dict[int, int] = {}  # the client's channel -> the first id of the peer's session
        self.deliveries: dict[str, list[int]] = {}  # link -> the ids of the peer's deliveries
        self.owner: dict[tuple[int, int], tuple[str, int]] = {}  # the same, found by channel and id
        self.is_closed = False
        """Whether the client closed the connection: the SDK does not wait for what is answered then."""

        self.unique: list[bytes] = []  # tags, lock tokens and transactions in their order
        self._channels: dict[int, int] = {}  # the peer's channel -> the client's
        self._names: dict[tuple[str, int, int], str] = {}  # direction, channel, handle -> link
        self._labels: dict[str, str] = {}
        self._sent: dict[tuple[int, int], str] = {}
        self._pieces: dict[str, bytes] = {}

    @property
    def count(self) -> int:
        return sum(len(each) for each in self.found.values())

    def feed(self, direction: str, raw: bytes) -> None:
        """Take a frame into account."""
        if raw == EMPTY_FRAME:
            return
        channel, what, payload = parts(raw)
        if direction == IN:
            self._note_ours(channel, what)
        else:
            self._note(self._channels.get(channel, channel), channel, what, payload)

    def _tell(self, link: str, text: str) -> None:
        self.found.setdefault(self._labels.get(link, link), []).append(text)

    def _note_ours(self, channel: int, what: object) -> None:
        match what:
            case Attach():
                self._names[IN, channel, what.handle] = what.name
                node = what.source if what.role else what.target
                address = getattr(node, "address", None) or type(node).__name__.lower()
                path = re.sub(r"^[a-z]+://[^/]*/", "", address)
                nth = sum(each.endswith(f" {path}") for each in self._labels.values()) + 1
                self._labels[what.name] = f"{'receiver' if what.role else 'sender'} {nth} of {path}"
            case Close():
                self.is_closed = True
            case Transfer(delivery_id=number) if number is not None:
                self._sent[channel, number] = self._names.get((IN, channel, what.handle), "")

    def _note(self, channel: int, theirs: int, what: object, payload: bytes) -> None:
        link = self._names.get((OUT, theirs, getattr(what, "handle", -1) or 0), "?")
        match what:
            case bytes():
                self._tell("connection", f"header {what.hex()}")
            case Begin(remote_channel=ours) if ours is not None:
                self._channels[theirs] = ours
                self.outgoing[ours] = what.next_outgoing_id
                self._tell("connection", f"begin {ours}")
            case Attach():
                self._names[OUT, theirs, what.handle] = what.name
                node = what.target if what.role else what.source
                self._tell(what.name, "attach" if node is not None else "attach, without its node")
            case Flow() if what.handle is not None:
                self._note_flow(link, what)
            case Transfer():
                self._note_transfer(channel, link, what, payload)
            case Disposition():
                self._note_disposition(channel, what)
            case Detach():
                self._tell(link, f"detach {_symbol(what.error)}")
            case Open() | End() | Close():
                told = type(what).__name__.lower()
                self._tell("connection", f"{told} {_symbol(getattr(what, 'error', None))}")
            case Flow():
                pass
            case _:
                self._tell("connection", type(what).__name__)

    def _note_flow(self, link: str, flow: Flow) -> None:
        key = f"credit of {self._labels.get(link, link)}"
        if flow.drain and not flow.link_credit:
            self._tell(key, "drained")
        elif flow.link_credit and key not in self.found:
            self._tell(key, "credit")

    def _note_transfer(self, channel: int, link: str, transfer: Transfer, payload: bytes) -> None:
        whole = self._pieces.pop(link, b"") + payload
        if transfer.delivery_id is not None and (channel, transfer.delivery_id) not in self.owner:
            ids = self.deliveries.setdefault(link, [])
            self.owner[channel, transfer.delivery_id] = link, len(ids)
            ids.append(transfer.delivery_id)
            self.unique.append(transfer.delivery_tag or b"")
        if transfer.more:
            self._pieces[link] = whole
            return
        message = Message.decode(whole)
        self.unique += [each.bytes for each in _uuids(message.body)]
        self._tell(link, _told_message(message))

    def _note_disposition(self, channel: int, what: Disposition) -> None:
        if isinstance(what.state, Declared):
            self.unique.append(what.state.txn_id)
        error = what.state.error if isinstance(what.state, Rejected) else None
        state = "nothing" if what.state is None else type(what.state).__name__.lower()
        told = f"{state}{'' if error is None else ' ' + _symbol(error)}{', settled' if what.settled else ''}"
        for number in range(what.first, (what.first if what.last is None else what.last) + 1):
            if what.role:
                self._tell(self._sent.get((channel, number), "?"), told)
            else:
                self._tell(self.owner.get((channel, number), ("?", 0))[0], f"confirmed {told}")


def parts(raw: bytes) -> tuple[int, object, bytes]:
    """The channel, the performative (the bytes themselves for a header) and the payload of a frame."""
    if raw.startswith(b"AMQP"):
        return 0, raw, b""
    _, offset, _, channel = FRAME_HEAD.unpack_from(raw)
    try:
        what, at = decode_composite(raw, 4 * offset, len(raw))
    except (DecodeError, IndexError):
        return channel, raw, b""
    return channel, what, raw[at:]


def _symbol(error: Condition | None) -> str:
    return "without an error" if error is None else str(error.symbol)


def _uuids(value: object) -> Iterator[UUID]:
    match value:
        case UUID():
            yield value
        case ValueBody():
            yield from _uuids(value.value)
        case dict():
            for each in value.values():
                yield from _uuids(each)
        case Array():
            yield from _uuids(value.items)
        case list() | tuple():
            for each in value:
                yield from _uuids(each)


def _told_message(message: Message) -> str:
    header, properties = message.header, message.properties
    count = None if header is None else header.delivery_count
    said = {str(k): v for k, v in message.application_properties.items() if k not in VOLATILE}
    annotations = {str(k): v for k, v in message.message_annotations.items()}
    body = message.body
    told = (
        body.data.hex()[:200]
        if isinstance(body, DataBody) and isinstance(body.data, bytes)
        else _told(getattr(body, "value", body))
    )
    group = None if properties is None else properties.group_id
    return f"message count={count} session={group} {_told(annotations)} {_told(said)} {told}"


def _told(value: object) -> str:
    match value:
        case Timestamp():
            return "time"
        case UUID():
            return "uuid"
        case Array():
            return _told(value.items)
        case dict():
            parts = sorted(f"{name}: {_told_item(str(name), item)}" for name, item in value.items())
            return "{" + ", ".join(parts) + "}"
        case list() | tuple():
            return "[" + ", ".join(_told(each) for each in value) + "]"
        case _:
            return str(value)[:200]


def _told_item(name: str, value: object) -> str:
    if name == "message" and isinstance(value, bytes | memoryview):
        return _told_message(Message.decode(bytes(value)))
    return _told(value)


class Replay:
    """One recorded entry on its way to other namespaces."""

    def __init__(self, recorded: Recorded, targets: Mapping[Side, Namespace]) -> None:
        self._recorded = recorded
        self._targets = targets
        self._was = [Answers() for _ in recorded.connections]
        self._now = [Answers() for _ in recorded.connections]
        self._streams: dict[int, Streams] = {}
        self._reading: list[asyncio.Task[None]] = []
        self._claims = [Conversation() for _ in recorded.connections]
        self._news = asyncio.Event()
        self._patience = PATIENCE
        self._shift = round((time.time() - recorded.at) * 1000)

    async def differences(self) -> list[str]:
        """What the peer answers otherwise than it did. Raises OSError when it cannot be reached."""
        loop = asyncio.get_running_loop()
        last, began = 0.0, loop.time()
        try:
            for each in self._recorded.frames:
                if each.direction == OUT:
                    self._was[each.connection].feed(OUT, each.raw)
                else:
                    await self._until_answered()
                    await asyncio.sleep(
                        max(each.at - last, began + each.at - loop.time() if each.at - last > LESS else 0, 0)
                    )
                    await self._send(each)
                last = each.at
            await self._until_answered()
        finally:
            for task in self._reading:
                task.cancel()
            for _, writer in self._streams.values():
                writer.transport.abort()
        return [each for was, now in zip(self._was, self._now, strict=True) for each in compare(was, now)]

    async def _until_answered(self) -> None:
        def is_behind() -> bool:
            return any(now.count < was.count for was, now in zip(self._was, self._now, strict=True))

        try:
            async with asyncio.timeout(self._patience):
                while is_behind():
                    self._news.clear()
                    await self._news.wait()
        except TimeoutError:
            self._patience = LESS

    async def _send(self, each: Frame) -> None:
        number = each.connection
        was, now = self._was[number], self._now[number]
        was.feed(IN, each.raw)
        for raw in await self._adapt(number, each.raw):
            now.feed(IN, raw)
            with suppress(OSError):  # the peer may have ended what it had not
                await self._write(number, raw)

    async def _write(self, number: int, raw: bytes) -> None:
        if number not in self._streams:
            target = self._targets[self._recorded.connections[number]]
            namespace = target.namespace
            context = trusting(target.namespace.route.ca_file) if namespace.uses_tls else None
            self._streams[number] = await open_streams(namespace.host, namespace.port, context)
            self._reading.append(asyncio.ensure_future(self._read(number)))
        writer = self._streams[number][1]
        writer.write(raw)
        await writer.drain()

    async def _read(self, number: int) -> None:
        conversation = Conversation()
        with suppress(OSError):
            while data := await self._streams[number][0].read(65_536):
                for each in conversation.feed(OUT, data):
                    self._now[number].feed(OUT, each.raw)
                self._news.set()

    async def _adapt(self, number: int, raw: bytes) -> Sequence[bytes]:
        """The frames to send for a recorded one."""
        was, now = self._was[number], self._now[number]
        (passing,) = self._claims[number].feed(IN, raw)
        if raw.startswith(b"AMQP") or FRAME_HEAD.unpack_from(raw)[2] != AMQP_FRAME:
            return (raw,)
        channel, what, payload = parts(raw)
        if (passing.address, passing.performative) == ("$cbs", "transfer"):
            payload = await self._with_token(number, payload)
        for old, new in self._unique():
            if len(old) == len(new) == 16:
                payload = payload.replace(old, new).replace(
                    UUID(bytes=old).bytes_le, UUID(bytes=new).bytes_le
                )
                what = _with_transaction(what, old, new)
        payload = _TIME.sub(self._shifted, payload)
        shift = now.outgoing.get(channel, 0) - was.outgoing.get(channel, 0)
        match what:
            case Open():
                what = replace(what, hostname=self._with_host(number, what.hostname))
            case Attach(source=Source() as source) if what.role:
                what = replace(what, source=replace(source, address=self._with_host(number, source.address)))
            case Attach(target=Target() as target) if not what.role:
                what = replace(what, target=replace(target, address=self._with_host(number, target.address)))
            case Flow(next_incoming_id=known) if known is not None:
                what = replace(what, next_incoming_id=known + shift)
            case Disposition(role=True):
                last = what.first if what.last is None else what.last
                numbers = [_same(was, now, channel, each) for each in range(what.first, last + 1)]
                return [_frame(channel, replace(what, first=each, last=None), b"") for each in numbers]
            case None | bytes():
                return (raw,)
        return (_frame(channel, what, payload),)

    def _unique(self) -> Iterator[tuple[bytes, bytes]]:
        """Tags, lock tokens and transactions of the recording, with those that stand for them now."""
        for was, now in zip(self._was, self._now, strict=True):
            yield from zip(was.unique, now.unique, strict=False)

    def _with_host(self, number: int, text: str | None) -> str | None:
        namespace = self._targets[self._recorded.connections[number]].namespace
        for host in self._recorded.hosts:
            if text is not None and host in text:
                return text.replace(host, namespace.netloc if "//" in text else namespace.name)
        return text

    def _shifted(self, found: re.Match[bytes]) -> bytes:
        value = int.from_bytes(found[1], "big")
        if abs(value - self._recorded.at * 1000) > NEAR:
            return found[0]
        return b"\x83" + (value + self._shift).to_bytes(8, "big")

    async def _with_token(self, number: int, payload: bytes) -> bytes:
        request = Message.decode(payload)
        said = dict(request.application_properties)
        namespace = self._targets[self._recorded.connections[number]].namespace
        audience = namespace.audience(str(said["name"]).split("/", 3)[3])
        token = await namespace.tokens.token(audience)
        said |= {"name": audience, "type": token.kind, "expiration": Timestamp(token.expires * 1000)}
        return replace(request, application_properties=said, body=ValueBody(token.text)).encode()


def _frame(channel: int, what: object, payload: bytes) -> bytes:
    return frame(channel, encode_composite(what), len(payload)) + payload


def _same(was: Answers, now: Answers, channel: int, number: int) -> int:
    """The number that a recorded delivery of the peer has now."""
    link, index = was.owner.get((channel, number), ("", 0))
    ids = now.deliveries.get(link, [])
    return ids[index] if index < len(ids) else number


def _with_transaction(what: object, old: bytes, new: bytes) -> object:
    state = getattr(what, "state", None)
    if getattr(state, "txn_id", None) != old or not isinstance(what, Transfer | Disposition):
        return what
    return replace(what, state=replace(state, txn_id=new))  # type: ignore[type-var]


def compare(was: Answers, now: Answers) -> Iterator[str]:
    """What one peer answered otherwise than the other, in words."""
    for link in dict.fromkeys([*was.found, *now.found]):
        before, after = was.found.get(link, []), now.found.get(link, [])
        for n in range(max(len(before), len(after))):
            pair = [each[n] if n < len(each) else "nothing" for each in (before, after)]
            if pair[0] != pair[1] and not (was.is_closed and n >= len(before) and after[n] in GOODBYES):
                yield f"{link}: it answered {pair[0]!r}, now {pair[1]!r}"
                break


async def replay(recorded: Recorded, targets: Mapping[Side, Namespace]) -> list[str]:
    """Replay an entry with entities of its own; what is answered otherwise. Raises ValueError when it is not whole."""
    if not recorded.can_be_replayed:
        raise ValueError(f"{recorded.entry} cannot be replayed: its frames are not all that it needs")
    names = {entity.label: name for entity, name in recorded.entities}
    made: list[Callable[[], None]] = []
    try:
        for entity, name in recorded.entities:
            with targets[entity.side].administration() as client:
                await asyncio.to_thread(create, client, entity, names)
            made.append(lambda entity=entity, name=name: _delete(targets, entity, name))  # type: ignore[misc]
        return await Replay(recorded, targets).differences()
    finally:
        for undo in reversed(made):
            await asyncio.to_thread(undo)


def _delete(targets: Mapping[Side, Namespace], entity: Entity, name: str) -> None:
    with targets[entity.side].administration() as client:
        delete(client, entity, name)


def main() -> int:
    """Replay a recording against a broker of this package; 1 if something is answered otherwise."""
    from sbpair.broker import Broker
    from tests.contract.conftest import NAMES, targets_of

    file, *only = sys.argv[1:]
    differs = False
    with ExitStack() as stack:
        broker = stack.enter_context(Broker(dict.fromkeys(NAMES.values(), 0)))
        for each in read_recording(Path(file)):
            if (only and each.entry not in only) or not each.can_be_replayed:
                continue
            found = asyncio.run(replay(each, targets_of(broker)))
            differs |= bool(found)
            print(each.entry, each.verdict, *(found or ["the same"]), sep="\n    ")
    return int(differs)


if __name__ == "__main__":
    sys.exit(main())
