"""HTTP requests and responses of the administration and REST frontends, and the responses for refusals."""

from __future__ import annotations

import re
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field, replace
from urllib.parse import unquote

from ...access import Verifier
from ...auth import ExpiredTokenError, InvalidTokenError, Right
from ...clock import TICKS_PER_MS
from ...errors import BrokerError, InvalidArgumentError, TokenEndedError, TokenRefusedError, UnauthorizedError
from . import atom
from .error_texts import Asked, Place, detail_of, row_for


@dataclass(frozen=True, slots=True)
class Request:
    """An HTTP request: ``raw_path`` still percent-encoded, ``query`` without its question mark.

    ``headers`` have lower-case names, ``header_names`` has their original spelling; ``body`` is whole,
    ``scheme`` http or https.
    """

    method: str
    raw_path: str
    query: str = ""
    headers: Mapping[str, str] = field(default_factory=dict)
    body: bytes = b""
    header_names: Mapping[str, str] = field(default_factory=dict)
    scheme: str = "https"

    def with_body(self, body: bytes) -> Request:
        """Return the same request with its body."""
        return replace(self, body=body)


@dataclass(frozen=True, slots=True)
class Response:
    """An HTTP response; the server adds Content-Length. ``refused`` is the reason of a refusal.

    ``reason`` is the text of the status line, None for the usual one. ``unread``: for the operator of the broker, what
    the service would accept without reading it.
    """

    status: int
    headers: Mapping[str, str] = field(default_factory=dict)
    body: bytes = b""
    refused: str = ""
    reason: str | None = None
    unread: tuple[str, ...] = ()

    def with_reason(self, reason: str) -> Response:
        """Return the same response with another status line."""
        return replace(self, reason=reason)


class MethodNotAllowedError(BrokerError):
    """The path exists but does not support this method."""

    status, sub_code = 405, 40500

    def __init__(self, method: str, allowed: Iterable[str]) -> None:
        self.allowed = ", ".join(allowed)
        super().__init__(f"The method {method} is not one of {self.allowed}.")


def refuse_without(request: Request, verifier: Verifier, right: Right, now_s: int) -> Response | None:
    """Return a 401 response unless the caller has ``right`` on the request's path, else None.

    ``now_s``: seconds since the epoch.
    """
    token = request.headers.get("authorization")
    try:
        path = "/".join(segments_of(request))
        if not token:
            raise TokenRefusedError("The request has no Authorization header.")
        grant = verifier.verify(token, now_s)
        if not grant.covers(request.headers.get("host", ""), path, right):
            raise UnauthorizedError(f"The token does not grant {right.value} on the requested path.")
    except ExpiredTokenError as error:
        return failed(TokenEndedError(error.words), request, now_s * 1000)
    except InvalidTokenError as error:
        return failed(TokenRefusedError(f"The token is refused: {error.reason}."), request, now_s * 1000)
    except BrokerError as error:
        return failed(error, request, now_s * 1000)
    return None


def segments_of(request: Request) -> list[str]:
    """Return the segments of the path, split before decoding. Raises InvalidArgumentError unless they are UTF-8."""
    try:
        return [unquote(raw, errors="strict") for raw in request.raw_path.removeprefix("/").split("/")]
    except UnicodeDecodeError:
        raise InvalidArgumentError("The path is not percent-encoded UTF-8.") from None


_TICKS_AT_EPOCH = 621_355_968_000_000_000
ENTRY, FEED = "application/atom+xml;type=entry;charset=utf-8", "application/atom+xml;type=feed;charset=utf-8"
ERROR = "application/xml; charset=utf-8"


def xml(status: int, markup: str, kind: str, headers: Mapping[str, str] | None = None) -> Response:
    """Return a response with ``markup`` as its body, of a content type."""
    return Response(status, {"content-type": kind, **(headers or {})}, markup.encode())


def place_of(request: Request, namespace: str, asked: Asked | None = None) -> Place:
    """Return the target of a request for an error text; ``asked`` is derived from the path if None."""
    path = unquote(request.raw_path).strip("/")
    return Place(
        asked or _asked(path),
        namespace,
        request.headers.get("host", ""),
        path[:300],
        request.raw_path[:300] + (f"?{request.query[:300]}" if request.query else ""),
        request.method,
        version_of(request) or "",
    )


def version_of(request: Request) -> str | None:
    """Return the api-version of a request, or None."""
    found = re.search(r"(?:^|&)api-version=([^&]*)", request.query)
    return None if found is None else unquote(found[1])


def _asked(path: str) -> Asked:
    segments = path.lower().split("/")
    if "messages" in segments[1:]:
        return Asked.MESSAGES
    if "subscriptions" not in segments[1:]:
        return Asked.ENTITY
    below = len(segments) - segments.index("subscriptions", 1)
    return Asked.ENTITY if below < 2 else Asked.SUBSCRIPTION if below < 4 else Asked.RULE


def entity_headers(request: Request, updated_at: int | None) -> dict[str, str]:
    """Return the headers that the service adds to the answers of an entity; ``updated_at``: None if it does not exist.

    The tag is the instant of the last change of the queue or topic, in ticks.
    """
    headers = {"strict-transport-security": "max-age=31536000"}
    if updated_at is not None and version_of(request):
        headers["etag"] = str(_TICKS_AT_EPOCH + updated_at * TICKS_PER_MS)
    return headers


def failed(
    error: BrokerError, request: Request, now: int, status: int | None = None, place: Place | None = None
) -> Response:
    """Return the response that reports ``error``, with its status or the given one; ``now`` in milliseconds.

    Its body has no XML declaration, as the service's errors. ``place``: where the request went, if it is
    known better than from the path alone.
    """
    host = request.headers.get("host", "")
    where = place or place_of(request, host.partition(".")[0].partition(":")[0])
    code = status or error.status
    row = row_for(error, where)
    if row.reason is not None:
        return Response(code, refused=str(error), reason=row.reason)
    headers = entity_headers(request, None)
    if isinstance(error, MethodNotAllowedError):
        headers["allow"] = error.allowed
    body = atom.error(code, detail_of(error, where, now)).encode()
    return Response(code, {"content-type": ERROR, **headers}, body, refused=str(error))
