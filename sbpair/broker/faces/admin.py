"""What does the administration API (Atom over https, P-11, P-12) answer to a request?

    PUT    /{queue}                     create: 201, or 409 if it is there
    PUT    /{queue}  If-Match: *        update: 200, or 404
    GET    /{queue}                     200 with its entry; a queue that is not there: 200 with an empty feed
    DELETE /{queue}                     200, or 404
    GET    /$Resources/queues           a page of queues, $skip and $top
    GET    /$namespaceinfo              what the namespace is

A slash in a queue's name arrives as ``%2F`` or as it is; the path is split first and decoded after, so an
encoded slash never separates. Pure: request in, response out. Whether the caller may ask at all is what
``refusal`` says before ``answer`` is asked: it judges by seconds of real time, not by the entities' clock.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass, field
from urllib.parse import parse_qsl, quote, unquote, urlencode

from ..auth import Right, TokenRefused, Verifier
from ..entities import Namespace, Queue, QueueDescription
from ..errors import (
    BrokerError,
    EntityNotFound,
    InvalidArgument,
    InvalidDescription,
    NotSupported,
    Unauthorized,
)
from . import atom
from .queue_fields import read_queue_description, write_queue_description
from .wording import tracked

OLDEST_API, NEWEST_API = "2013-10", "2024-05"
PAGE_SIZE = 100
NEVER = None

_API_VERSION = re.compile(r"[0-9]{4}-[0-9]{2}")
_WHOLE = re.compile(r"[0-9]{1,9}")
_NOT_YET = {
    "TopicDescription": "A topic",
    "SubscriptionDescription": "A subscription",
    "RuleDescription": "A rule",
}


@dataclass(frozen=True, slots=True)
class Request:
    """An HTTP request: ``raw_path`` still percent-encoded, ``query`` without its question mark.

    ``headers`` have lower-case names; ``body`` is whole.
    """

    method: str
    raw_path: str
    query: str = ""
    headers: Mapping[str, str] = field(default_factory=dict)
    body: bytes = b""


@dataclass(frozen=True, slots=True)
class Response:
    """An HTTP response; the server adds Content-Length."""

    status: int
    headers: Mapping[str, str] = field(default_factory=dict)
    body: bytes = b""


class MethodNotAllowed(BrokerError):
    """The path is known, but not with this method."""

    status, sub_code = 405, 40500

    def __init__(self, method: str, allowed: Iterable[str]) -> None:
        self.allowed = ", ".join(allowed)
        super().__init__(f"The method {method} is not one of {self.allowed}.")


def refusal(request: Request, verifier: Verifier, now_s: int) -> Response | None:
    """The 401 for a caller who may not manage what is asked for, else None. ``now_s``: epoch seconds."""
    token = request.headers.get("authorization")
    try:
        path = "/".join(_segments(request))
        if not token:
            raise Unauthorized("The request has no Authorization header.")
        grant = verifier.verify(token, now_s)
        if not grant.covers(request.headers.get("host", ""), path, Right.MANAGE):
            raise Unauthorized("The token does not grant Manage on what is asked for.")
    except TokenRefused as refused:
        return _failed(Unauthorized(f"The token is refused: {refused.reason}."), request, now_s * 1000)
    except BrokerError as error:
        return _failed(error, request, now_s * 1000)
    return None


def answer(namespace: Namespace, request: Request, now: int) -> Response:
    """What ``namespace`` answers at ``now`` (ms since the epoch). A refusal is a response too."""
    try:
        return _Call(namespace, request, now).answer()
    except BrokerError as error:
        return _failed(error, request, now)


@dataclass(frozen=True, slots=True)
class _Call:
    namespace: Namespace
    request: Request
    now: int

    def answer(self) -> Response:
        segments = _segments(self.request)
        self._check_version()
        match [segment.lower() for segment in segments]:
            case ["$namespaceinfo"]:
                return self._route({"GET": self._namespace_information})
            case ["$resources", kind]:
                return self._route({"GET": self._list if kind == "queues" else self._no_such_kind})
        path = "/".join(segments)
        return self._route(
            {
                "GET": lambda: self._get(path),
                "PUT": lambda: self._put(path),
                "DELETE": lambda: self._delete(path),
            }
        )

    def _route(self, methods: Mapping[str, Callable[[], Response]]) -> Response:
        method = methods.get(self.request.method)
        if method is None:
            raise MethodNotAllowed(self.request.method, methods)
        return method()

    def _check_version(self) -> None:
        version = self._query("api-version")
        if version is None:
            raise InvalidArgument("The query has no api-version.")
        if not _API_VERSION.fullmatch(version) or not OLDEST_API <= version <= NEWEST_API:
            raise InvalidArgument(
                f"The api-version {version!r} is not one from {OLDEST_API} to {NEWEST_API}."
            )

    def _get(self, path: str) -> Response:
        try:
            queue = self.namespace.queue(path)
        except EntityNotFound:
            return self._empty()
        return self._empty() if queue.parent else _xml(200, self._entry(queue))

    def _put(self, path: str) -> Response:
        kind, fields = atom.read_description(self.request.body)
        if kind in _NOT_YET:
            raise NotSupported(_NOT_YET[kind])
        if kind != "QueueDescription":
            raise InvalidDescription(f"The body describes a {kind}: a QueueDescription is expected.")
        condition = self.request.headers.get("if-match")
        if condition is None:
            description = read_queue_description(fields, QueueDescription())
            return _xml(201, self._entry(self.namespace.create_queue(path, description, self.now)))
        if condition.strip() != "*":
            raise InvalidArgument("If-Match is not *: an update is unconditional or it is none.")
        current = self.namespace.queue(path)
        description = read_queue_description(fields, current.description)
        return _xml(200, self._entry(self.namespace.update_queue(path, description, self.now)))

    def _delete(self, path: str) -> Response:
        self.namespace.delete_queue(path, self.now)
        return Response(200)

    def _list(self) -> Response:
        skip, top = self._whole("$skip", 0), min(self._whole("$top", PAGE_SIZE), PAGE_SIZE)
        queues = self.namespace.queues()
        page = queues[skip : skip + top]
        more = bool(page) and skip + len(page) < len(queues)
        entries = [self._entry(queue) for queue in page]
        following = self._url_of_page(skip + len(page), top) if more else None
        return _xml(200, atom.feed(self._url(), "Queues", atom.instant(self.now), entries, following))

    def _no_such_kind(self) -> Response:
        return self._empty()  # there are no topics yet: their list is empty

    def _namespace_information(self) -> Response:
        never = atom.instant(NEVER)  # a namespace is as old as its process: it has no day of birth
        texts = {
            "CreatedTime": never,
            "MessagingSKU": "Standard",
            "ModifiedTime": never,
            "Name": self.namespace.name,
            "NamespaceType": "Messaging",
        }
        fields = (atom.element(name, atom.plain(text)) for name, text in texts.items())
        name = self.namespace.name
        content = atom.description("NamespaceInfo", fields)
        return _xml(200, atom.entry(self._url(), name, name, never, never, content))

    def _empty(self) -> Response:
        return _xml(200, atom.feed(self._url(), "Publicly Listed Services", atom.instant(self.now)))

    def _entry(self, queue: Queue) -> str:
        return atom.entry(
            f"https://{self._host()}/{quote(queue.path)}?api-version={self._query('api-version')}",
            queue.path,
            self.namespace.name,
            atom.instant(queue.created_at),
            atom.instant(queue.updated_at),
            write_queue_description(queue, self.now),
        )

    def _host(self) -> str:
        return self.request.headers.get("host") or self.namespace.name

    def _url(self) -> str:
        return f"https://{self._host()}{self.request.raw_path}?{self.request.query}"

    def _url_of_page(self, skip: int, top: int) -> str:
        query = urlencode(
            {"api-version": self._query("api-version") or "", "$skip": skip, "$top": top}, safe="$"
        )
        return f"https://{self._host()}{self.request.raw_path}?{query}"

    def _query(self, name: str) -> str | None:
        try:
            pairs = parse_qsl(self.request.query, keep_blank_values=True, max_num_fields=32)
        except ValueError:
            raise InvalidArgument("The query has more than 32 fields.") from None
        return dict(pairs).get(name)

    def _whole(self, name: str, default: int) -> int:
        text = self._query(name)
        if text is None:
            return default
        if not _WHOLE.fullmatch(text):
            raise InvalidArgument(
                f"{name} is {text[:100]!r}: a whole number from 0 to 999999999 is expected."
            )
        return int(text)


def _segments(request: Request) -> list[str]:
    try:
        return [unquote(raw, errors="strict") for raw in request.raw_path.removeprefix("/").split("/")]
    except UnicodeDecodeError:
        raise InvalidArgument("The path is not percent-encoded UTF-8.") from None


def _xml(status: int, markup: str, headers: Mapping[str, str] | None = None) -> Response:
    kind = {"content-type": "application/xml; charset=utf-8"} | dict(headers or {})
    return Response(status, kind, ('<?xml version="1.0" encoding="utf-8"?>' + markup).encode())


def _failed(error: BrokerError, request: Request, now: int) -> Response:
    detail = tracked(f"SubCode={error.sub_code}. {_opening(error)}{error}", request.raw_path[:300], now)
    headers = {"allow": error.allowed} if isinstance(error, MethodNotAllowed) else {}
    return _xml(error.status, atom.error(error.status, detail), headers)


def _opening(error: BrokerError) -> str:
    return {409: "Conflict. ", 400: "Bad Request. ", 401: "Unauthorized. "}.get(error.status, "")
