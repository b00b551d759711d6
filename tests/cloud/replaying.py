"""Replaying recorded exchanges against a broker, over HTTP, and naming what it answers otherwise.

What a recording takes for granted is created first, from the service's own description of it: an entity that is read,
updated or deleted and was never created. A test account had more in it than its recordings show, so counts of messages
and of subscriptions are not compared; nor are instants, keys and tracking ids.
"""

from __future__ import annotations

import base64
import hashlib
import hmac
import http.client
import json
import re
import time
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from typing import Any
from urllib.parse import quote_plus, unquote, urlsplit
from xml.etree import ElementTree

from tests.cloud.exchanges import ATOM, Exchange, Node, Recording, children, entry_around, node_of

HOST = "contoso.servicebus.windows.net"
SET_BY_THE_SERVICE = {
    *["SizeInBytes", "MessageCount", "CreatedAt", "UpdatedAt", "AccessedAt", "CountDetails", "SubscriptionCount"],
    *["EntityAvailabilityStatus", "SqlFilterCount", "CorrelationFilterCount"],
}
VARIES = {
    *["SizeInBytes", "MessageCount", "CountDetails", "SubscriptionCount", "CreatedAt", "UpdatedAt", "AccessedAt"],
    *["PrimaryKey", "SecondaryKey", "CreatedTime", "ModifiedTime"],
}
TAIL = re.compile(r"\s*TrackingId:.*$", re.DOTALL)
OF_CONNECTION = {"date", "server", "connection", "transfer-encoding", "content-length", "keep-alive"}
LOCK = re.compile(r"/messages/([^/]+)/([^/?]+)")


@dataclass(frozen=True, slots=True)
class Difference:
    """What a broker answered otherwise: the kind of difference, where, what the service said and what the broker."""

    what: str
    where: str
    service: object = None
    broker: object = None


@dataclass(frozen=True, slots=True)
class Replayed:
    """One exchange, and how the broker's answer differs."""

    recording: Recording
    step: int
    exchange: Exchange
    differences: tuple[Difference, ...]

    @property
    def label(self) -> str:
        """The recording's number and the step in it."""
        return f"{self.recording.name.partition(' ')[0]}#{self.step}"


@dataclass(frozen=True, slots=True)
class Answer:
    """What a broker answered."""

    status: int
    reason: str
    headers: Mapping[str, str]
    body: str


@dataclass(slots=True)
class HttpClient:
    """Sends requests with a token of a policy to a namespace."""

    port: int
    key_name: str
    key: str

    def send(
        self,
        method: str,
        target: str,
        headers: Mapping[str, str],
        body: bytes | None,
        key: str | None = None,
    ) -> Answer:
        """Send one request on a connection of its own."""
        connection = http.client.HTTPConnection("127.0.0.1", self.port, timeout=60)
        sent = {"Host": HOST, "Authorization": self._signature(key or self.key), **headers}
        try:
            connection.request(method, target, body if body is not None else _empty(method), sent)
            found = connection.getresponse()
            return Answer(
                found.status,
                found.reason,
                {name.lower(): value for name, value in found.getheaders()},
                found.read().decode(),
            )
        finally:
            connection.close()

    def _signature(self, key: str) -> str:
        resource, expiry = quote_plus(f"http://{HOST}/"), int(time.time()) + 3600
        digest = hmac.new(key.encode(), f"{resource}\n{expiry}".encode(), hashlib.sha256).digest()
        signed = quote_plus(base64.b64encode(digest))
        return f"SharedAccessSignature sr={resource}&sig={signed}&se={expiry}&skn={self.key_name}"


def _empty(method: str) -> bytes | None:
    return b"" if method in ("PUT", "POST") else None


def replay(client: HttpClient, recording: Recording) -> Iterator[Replayed]:
    """Replay a recording on a namespace without entities."""
    state = _State(client, recording)
    for step, exchange in enumerate(recording.exchanges):
        state.prepare(exchange)
        answer = state.send(exchange)
        yield Replayed(recording, step, exchange, tuple(_differences(exchange, answer)))


@dataclass(slots=True)
class _State:
    """A namespace in the middle of a recording: which entities are there, and the locks by the recorded ones."""

    client: HttpClient
    recording: Recording
    there: set[str] = field(default_factory=set)
    locks: dict[str, str] = field(default_factory=dict)

    def send(self, exchange: Exchange) -> Answer:
        """Send the request of an exchange."""
        target, taken = exchange.target, "messages/head" in exchange.target.lower()
        for recorded, ours in self.locks.items():
            target = target.replace(recorded, ours)
        if taken or exchange.seen.status == 204:
            target = re.sub(r"timeout=\d+", "timeout=1", target)
        body = exchange.document
        if body is None and exchange.method == "PUT" and exchange.seen.entries:
            described = exchange.seen.entries[0][
                1
            ]  # it was not recorded: an update is answered with what was sent
            body = entry_around(described if exchange.seen.status == 200 else _settable(described))
        headers = dict(exchange.headers)
        if exchange.method == "PUT" and exchange.seen.status == 200 and exchange.seen.kind:
            headers.setdefault("if-match", "*")
        wrong = "d3Jvbmc=" if exchange.seen.status == 401 else None
        answer = self.client.send(exchange.method, target, headers, body, wrong)
        locks = [LOCK.search(each.get("location", "")) for each in (exchange.seen.headers, answer.headers)]
        if locks[0] and locks[1]:
            self.locks[locks[0][0]] = locks[1][0]
        path = _path(exchange)
        if exchange.method == "PUT" and exchange.seen.status in (200, 201):
            self.there |= {path, f"{path}/rules/$default"}
        elif exchange.method == "DELETE" and exchange.seen.status == 200:
            self.there = {each for each in self.there if each != path and not each.startswith(f"{path}/")}
        return answer

    def prepare(self, exchange: Exchange) -> None:
        """Create what the answer shows to have been there."""
        path, seen = _path(exchange), exchange.seen
        if "/messages" in path:
            entity = re.sub(r"/\$deadletterqueue$", "", path.partition("/messages")[0])
            if seen.status < 400:
                self._create(entity, [_kind(entity, "QueueDescription")])
        elif seen.kind == "feed":
            for title, description in seen.entries:
                here = title if path.startswith("$resources") else f"{path.rstrip('/')}/{title}"
                self._create(here.lower(), _settable(description), title)
        elif path.startswith("$"):
            return
        elif exchange.method == "PUT" and seen.status == 201:
            self._create_above(path)
        elif seen.status in (200, 409) and seen.entries:
            self._create(path, _settable(seen.entries[0][1]))
        elif (exchange.method == "DELETE" and seen.status == 200) or seen.status == 409:
            usual = "TopicDescription" if "opic" in self.recording.name else "QueueDescription"
            self._create(path, exchange.description or [_kind(path, usual)])
        elif "was not found" in (seen.said or "") or "already exists" in (seen.said or ""):
            self._create_above(path)  # a topic that is missing is told otherwise

    def _create(self, path: str, description: Node, name: str | None = None) -> None:
        if path in self.there:
            return
        self._create_above(path)
        self.there |= {path, f"{path}/rules/$default"}
        target = f"/{path if name is None else path[: -len(name)] + name}?api-version=2021-05"
        headers = {"content-type": "application/atom+xml"}
        self.client.send("PUT", target.replace(" ", "%20"), headers, entry_around(description))

    def _create_above(self, path: str) -> None:
        topic, found, rest = path.partition("/subscriptions/")
        if found:
            self._create(topic, ["TopicDescription"])
        if "/rules/" in rest:
            subscription = f"{topic}/subscriptions/{rest.partition('/rules/')[0]}"
            self._create(subscription, ["SubscriptionDescription"])


def _kind(path: str, usual: str) -> str:
    if "/subscriptions/" not in path:
        return usual
    return "RuleDescription" if "/rules/" in path else "SubscriptionDescription"


def _path(exchange: Exchange) -> str:
    return unquote(urlsplit(exchange.target).path).strip("/").lower()


def _settable(description: Node) -> Node:
    return [
        description[0],
        [each for each in children(description) if each[0] not in SET_BY_THE_SERVICE],
    ]


# -- comparing


def _differences(exchange: Exchange, answer: Answer) -> Iterator[Difference]:
    seen = exchange.seen
    if seen.status != answer.status:
        yield Difference("status", "", seen.status, f"{answer.status} {answer.body[:200]}")
        return
    if seen.reason is not None and seen.reason != answer.reason:
        yield Difference("reason", "", seen.reason, answer.reason)
    yield from _of_headers(seen.headers, answer.headers)
    root = ElementTree.fromstring(answer.body) if answer.body.startswith("<") else None
    if seen.said is not None or (root is not None and root.tag == "Error"):
        said = None if root is None else root.findtext("Detail")
        texts = [TAIL.sub("", text or "").replace("\r\n", "\n").rstrip() for text in (seen.said, said)]
        if texts[0] != texts[1]:
            yield Difference("error", "", *texts)
    elif root is None or not seen.kind:
        if (seen.body or "") != answer.body:
            yield Difference("body", "", seen.body, answer.body)
    else:
        yield from _of_documents(exchange, root)


def _of_documents(exchange: Exchange, root: ElementTree.Element) -> Iterator[Difference]:
    seen = exchange.seen
    kind = root.tag.rpartition("}")[2]
    if kind != seen.kind:
        yield Difference("kind", "", seen.kind, kind)
        return
    entries = [root] if kind == "entry" else root.findall(f"{{{ATOM}}}entry")
    names = [child.tag.rpartition("}")[2] for child in (entries[0] if entries else root)]
    names = list(dict.fromkeys(name for name in names if name != "entry"))  # a longer list has a second link
    if names != list(dict.fromkeys(seen.envelope)):
        yield Difference("envelope", "", seen.envelope, names)
    ours: dict[str, Node] = {}
    for each in entries:
        described = each.find(f"{{{ATOM}}}content")
        if described is not None and len(described):
            ours[each.findtext(f"{{{ATOM}}}title") or ""] = node_of(described[0])
    for title, description in seen.entries:
        if title not in ours:
            yield Difference("entry", title, title, list(ours))
        else:
            yield from _of_nodes(description, ours[title], "")


def _of_nodes(service: Node, broker: Node, where: str) -> Iterator[Difference]:
    here = f"{where}/{service[0]}"
    if service[0] in VARIES:
        return
    theirs, ours = (list(_parts(each)) for each in (service, broker))
    if not isinstance(theirs[0], list) and not isinstance(ours[0], list) and theirs != ours:
        yield Difference("value", here, theirs, ours)
        return
    if theirs[1] != ours[1]:
        yield Difference("attribute", here, theirs[1], ours[1])
    names = [[each[0] for each in part[0]] if isinstance(part[0], list) else [] for part in (theirs, ours)]
    for name in dict.fromkeys(names[0]):
        if name not in names[1]:
            yield Difference("missing", f"{here}/{name}")
    for name in dict.fromkeys(names[1]):
        if name not in names[0]:
            yield Difference("extra", f"{here}/{name}")
    shared = [[name for name in part if name in names[1 - number]] for number, part in enumerate(names)]
    if shared[0] != shared[1]:
        yield Difference("order", here, *shared)
        return
    if isinstance(theirs[0], list) and isinstance(ours[0], list):
        pairs = ([each for each in part if each[0] in shared[0]] for part in (theirs[0], ours[0]))
        for mine, other in zip(*pairs, strict=True):
            yield from _of_nodes(mine, other, here)


def _parts(node: Node) -> tuple[Any, dict[str, str]]:
    content = node[1] if len(node) > 1 else ""
    attributes = dict(node[2]) if len(node) > 2 else {}
    if "type" in attributes:
        attributes["type"] = attributes["type"].rpartition(":")[2]
    return content, attributes


def _of_headers(service: Mapping[str, str], broker: Mapping[str, str]) -> Iterator[Difference]:
    for name in sorted({*service, *broker} - OF_CONNECTION):
        theirs, ours = service.get(name), broker.get(name)
        if theirs is None or ours is None:
            yield Difference("missing header" if ours is None else "extra header", name, theirs, ours)
        elif name == "brokerproperties":
            yield from _of_properties(json.loads(theirs), json.loads(ours))
        elif name == "etag":
            if not re.fullmatch(r"\d{18}", ours):
                yield Difference("header", name, theirs, ours)
        elif name == "location":
            shaped = [re.sub(r"^https?", "", LOCK.sub("/messages/N/LOCK", each)) for each in (theirs, ours)]
            if shaped[0] != shaped[1]:
                yield Difference("header", name, *shaped)
        elif theirs != ours:
            yield Difference("header", name, theirs, ours)


ANEW = {"EnqueuedTimeUtc", "LockToken", "LockedUntilUtc", "MessageId", "SequenceNumber"}


def _of_properties(service: dict[str, Any], broker: dict[str, Any]) -> Iterator[Difference]:
    if list(service) != list(broker):
        yield Difference("properties", "", list(service), list(broker))
    for name in service.keys() & broker.keys() - ANEW:
        theirs, ours = service[name], broker[name]
        if theirs != ours or type(theirs) is not type(ours):
            yield Difference("property", name, theirs, ours)
