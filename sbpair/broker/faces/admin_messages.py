"""What is a request of the administration API, what a response, and how does a refusal become one?"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field, replace
from urllib.parse import unquote

from ..errors import BrokerError, InvalidArgument
from . import atom
from .wording import tracked


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

    def with_body(self, body: bytes) -> Request:
        """The same request once its body has been read."""
        return replace(self, body=body)


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


def segments_of(request: Request) -> list[str]:
    """The parts of the path, split first and decoded after. Raises InvalidArgument."""
    try:
        return [unquote(raw, errors="strict") for raw in request.raw_path.removeprefix("/").split("/")]
    except UnicodeDecodeError:
        raise InvalidArgument("The path is not percent-encoded UTF-8.") from None


def xml(status: int, markup: str, headers: Mapping[str, str] | None = None) -> Response:
    """A response whose body is ``markup``."""
    kind = {"content-type": "application/xml; charset=utf-8"} | dict(headers or {})
    return Response(status, kind, ('<?xml version="1.0" encoding="utf-8"?>' + markup).encode())


def failed(error: BrokerError, request: Request, now: int) -> Response:
    """The response that tells of ``error``; ``now`` in milliseconds."""
    detail = tracked(f"SubCode={error.sub_code}. {_opening(error)}{error}", request.raw_path[:300], now)
    headers = {"allow": error.allowed} if isinstance(error, MethodNotAllowed) else {}
    return xml(error.status, atom.error(error.status, detail), headers)


def _opening(error: BrokerError) -> str:
    return {409: "Conflict. ", 400: "Bad Request. ", 401: "Unauthorized. "}.get(error.status, "")
