"""HTTP requests and responses of the administration and REST frontends, and the responses for refusals."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field, replace
from urllib.parse import unquote

from ...access import Verifier
from ...auth import InvalidTokenError, Right
from ...errors import (
    BrokerError,
    InvalidArgumentError,
    ManageRequiredError,
    OperationInProgressError,
    UnauthorizedError,
)
from ..refusals import tracked
from . import atom


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

    ``reason`` is the text of the status line, None for the usual one.
    """

    status: int
    headers: Mapping[str, str] = field(default_factory=dict)
    body: bytes = b""
    refused: str = ""
    reason: str | None = None

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
            raise UnauthorizedError("The request has no Authorization header.")
        grant = verifier.verify(token, now_s)
        if not grant.covers(request.headers.get("host", ""), path, right):
            raise UnauthorizedError(f"The token does not grant {right.value} on the requested path.")
    except InvalidTokenError as error:
        return failed(UnauthorizedError(f"The token is refused: {error.reason}."), request, now_s * 1000)
    except BrokerError as error:
        return failed(error, request, now_s * 1000)
    return None


def segments_of(request: Request) -> list[str]:
    """Return the segments of the path, split before decoding. Raises InvalidArgumentError unless they are UTF-8."""
    try:
        return [unquote(raw, errors="strict") for raw in request.raw_path.removeprefix("/").split("/")]
    except UnicodeDecodeError:
        raise InvalidArgumentError("The path is not percent-encoded UTF-8.") from None


_XML = {"content-type": "application/xml; charset=utf-8"}


def xml(status: int, markup: str, headers: Mapping[str, str] | None = None) -> Response:
    """Return a response with ``markup`` as its body."""
    return Response(
        status, _XML | dict(headers or {}), ('<?xml version="1.0" encoding="utf-8"?>' + markup).encode()
    )


def failed(error: BrokerError, request: Request, now: int, status: int | None = None) -> Response:
    """Return the response that reports ``error``, with its status or the given one; ``now`` in milliseconds.

    Its body has no XML declaration, as the service's errors (X-18).
    """
    text = error.text_at(request.headers.get("host", ""))
    detail = tracked(f"{_opening(error)}{text}", request.raw_path[:300], now)
    headers = _XML | ({"allow": error.allowed} if isinstance(error, MethodNotAllowedError) else {})
    code = status or error.status
    return Response(code, headers, atom.error(code, detail).encode(), refused=str(error))


def _opening(error: BrokerError) -> str:
    if isinstance(error, ManageRequiredError):
        return ""
    words = {409: "Conflict. ", 400: "Bad Request. ", 401: "Unauthorized. "}.get(error.status, "")
    return f"SubCode={error.sub_code}. {'' if isinstance(error, OperationInProgressError) else words}"
