"""What the SDK's administration client is given: connections opened in our way, and elements in the service's order.

The service reads a description from top to bottom and does not go back: a misplaced element is kept as text and
returned by a GET, but has no effect. azure-servicebus 7.15 sends ForwardTo, UserMetadata and
ForwardDeadLetteredMessagesTo of a queue behind AutoDeleteOnIdle, EnablePartitioning and EnableExpress: with one of
these, such a queue does not forward, although its description says so.
"""

from __future__ import annotations

import socket
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any
from xml.parsers.expat import ExpatError, ParserCreate

from azure.core.pipeline.policies import NetworkTraceLoggingPolicy
from azure.core.pipeline.transport import RequestsTransport
from urllib3 import HTTPConnectionPool, HTTPSConnectionPool
from urllib3.connection import HTTPConnection, HTTPSConnection
from urllib3.exceptions import ConnectTimeoutError, NameResolutionError, NewConnectionError

from sbpair.pair.auth.dialling import connect

if TYPE_CHECKING:
    from azure.core.pipeline import PipelineRequest, PipelineResponse

Exchanged = Callable[[Any, Any], None]
"""Takes a request as it was sent, and the response, of azure-core's pipeline."""

QUEUE = """
    LockDuration MaxSizeInMegabytes RequiresDuplicateDetection RequiresSession DefaultMessageTimeToLive
    DeadLetteringOnMessageExpiration DuplicateDetectionHistoryTimeWindow MaxDeliveryCount EnableBatchedOperations
    SizeInBytes MessageCount IsAnonymousAccessible AuthorizationRules Status ForwardTo CreatedAt UpdatedAt AccessedAt
    UserMetadata SupportOrdering CountDetails AutoDeleteOnIdle EnablePartitioning EntityAvailabilityStatus
    ForwardDeadLetteredMessagesTo EnableExpress MaxMessageSizeInKilobytes
"""
TOPIC = """
    DefaultMessageTimeToLive MaxSizeInMegabytes RequiresDuplicateDetection DuplicateDetectionHistoryTimeWindow
    EnableBatchedOperations SizeInBytes FilteringMessagesBeforePublishing IsAnonymousAccessible AuthorizationRules
    Status CreatedAt UpdatedAt AccessedAt UserMetadata SupportOrdering CountDetails SubscriptionCount AutoDeleteOnIdle
    EnablePartitioning IsExpress EntityAvailabilityStatus EnableSubscriptionPartitioning EnableExpress
    MaxMessageSizeInKilobytes
"""
SUBSCRIPTION = """
    LockDuration RequiresSession DefaultMessageTimeToLive DeadLetteringOnMessageExpiration
    DeadLetteringOnFilterEvaluationExceptions DefaultRuleDescription MessageCount MaxDeliveryCount
    EnableBatchedOperations Status ForwardTo CreatedAt UpdatedAt AccessedAt UserMetadata CountDetails
    ForwardDeadLetteredMessagesTo AutoDeleteOnIdle EntityAvailabilityStatus IsClientAffine
"""
ORDERS: Mapping[str, Sequence[str]] = {
    "QueueDescription": QUEUE.split(),
    "TopicDescription": TOPIC.split(),
    "SubscriptionDescription": SUBSCRIPTION.split(),
}
"""The elements by kind of description, in the order in which the service reads and writes them."""

Report = Callable[[str, Sequence[str]], None]
"""Called with the title of an entity and the elements of its description that have no effect."""


@dataclass(slots=True)
class _Description:
    """A description in a document: the title of its entry, and where its elements begin, in bytes."""

    kind: str
    title: str
    starts: list[tuple[str, int]] = field(default_factory=list)
    end: int = 0

    def late(self) -> list[str]:
        """Return the elements that come after one that should follow them."""
        order, reached, late = ORDERS[self.kind], -1, []
        for name, _ in self.starts:
            place = order.index(name) if name in order else None
            if place is None:
                continue
            if place <= reached:
                late.append(name)
            else:
                reached = place
        return late


class _Reader:
    """Finds the descriptions of a document and the places of their elements."""

    def __init__(self) -> None:
        self.found: list[_Description] = []
        self._path: list[str] = []
        self._title = ""
        self._parser = ParserCreate()
        self._parser.StartElementHandler = self._start
        self._parser.EndElementHandler = self._end
        self._parser.CharacterDataHandler = self._text

    def read(self, document: bytes) -> list[_Description]:
        """Return the descriptions. Raises ExpatError if the document is not XML."""
        self._parser.Parse(document, True)
        return self.found

    def _start(self, name: str, _: Mapping[str, str]) -> None:
        local = name.rpartition(":")[2]
        parent = self._path[-1] if self._path else ""
        if local in ORDERS and parent == "content":
            self.found.append(_Description(local, self._title))
        elif parent in ORDERS and self._path[-2:-1] == ["content"]:
            self.found[-1].starts.append((local, self._parser.CurrentByteIndex))
        elif local == "title":
            self._title = ""
        self._path.append(local)

    def _end(self, _: str) -> None:
        local = self._path.pop()
        if local in ORDERS and self._path[-1:] == ["content"]:
            self.found[-1].end = self._parser.CurrentByteIndex

    def _text(self, text: str) -> None:
        if self._path[-1:] == ["title"]:
            self._title += text


def in_order(document: bytes) -> bytes:
    """Return a document with the elements of its description in the service's order, otherwise byte for byte."""
    try:
        found = _Reader().read(document)
    except ExpatError:
        return document  # the service will say what is wrong with it
    if len(found) != 1 or not found[0].late():
        return document
    (description,) = found
    order = ORDERS[description.kind]
    ends = [start for _, start in description.starts[1:]] + [description.end]
    pieces = [
        (order.index(name) if name in order else len(order), document[start:end])
        for (name, start), end in zip(description.starts, ends, strict=True)
    ]
    pieces.sort(key=lambda piece: piece[0])
    begin = description.starts[0][1]
    return document[:begin] + b"".join(piece for _, piece in pieces) + document[description.end :]


def not_in_force(document: bytes) -> Iterator[tuple[str, list[str]]]:
    """Yield the title of each entity in an answer with elements that have no effect, and those elements."""
    try:
        found = _Reader().read(document)
    except ExpatError:
        return
    for each in found:
        if late := each.late():
            yield each.title, late


class ServiceOrder(NetworkTraceLoggingPolicy):
    """Logging policy of an administration client that also orders XML elements as the service reads them.

    Requests get the service's order; ``report`` is told what is not in force in the answers to GETs, ``exchanged``
    each request and its response.
    """

    def __init__(self, report: Report | None = None, exchanged: Exchanged | None = None) -> None:
        super().__init__()
        self._report = report
        self._exchanged = exchanged

    def on_request(self, request: PipelineRequest[Any]) -> None:
        """Put the elements of a description into the service's order."""
        sent = request.http_request
        body = sent.body
        if sent.method == "PUT" and isinstance(body, bytes):
            sent.body = sent.data = in_order(body)
        super().on_request(request)

    def on_response(self, request: PipelineRequest[Any], response: PipelineResponse[Any, Any]) -> None:
        """Report what is not in force, and the exchange."""
        if self._exchanged is not None:
            self._exchanged(request.http_request, response.http_response)
        if self._report is not None and request.http_request.method == "GET":
            for title, names in not_in_force(response.http_response.body()):
                self._report(title, names)
        super().on_response(request, response)


class AdministrationTransport(RequestsTransport):  # type: ignore[misc]  # of a package without types
    """The SDK's transport of administration requests, with connections opened in our way unless through a proxy."""

    def open(self) -> None:
        """Open the session."""
        super().open()
        for adapter in self.session.adapters.values():
            adapter.poolmanager.pool_classes_by_scheme = {"http": _Pool, "https": _TlsPool}


class _Dialled(HTTPConnection):
    def _new_conn(self) -> socket.socket:
        host, seconds = self._dns_host, self.timeout
        try:
            wire = connect(
                host, self.port or self.default_port, seconds if isinstance(seconds, int | float) else None
            )
        except socket.gaierror as error:
            raise NameResolutionError(self.host, self, error) from error
        except TimeoutError as error:
            raise ConnectTimeoutError(self, f"no connection to {host} within {seconds} s") from error
        except OSError as error:
            raise NewConnectionError(self, f"no connection to {host}: {error}") from error
        for option in self.socket_options or ():
            wire.setsockopt(*option)
        return wire


class _DialledTls(HTTPSConnection, _Dialled):
    pass


class _Pool(HTTPConnectionPool):
    ConnectionCls = _Dialled


class _TlsPool(HTTPSConnectionPool):
    ConnectionCls = _DialledTls
