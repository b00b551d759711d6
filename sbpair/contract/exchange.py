"""One request to the administration API and its answer, as a recording keeps them."""

from __future__ import annotations

import re
from collections.abc import Callable, Mapping
from dataclasses import asdict, dataclass, replace
from typing import TYPE_CHECKING, Any
from urllib.parse import urlsplit

if TYPE_CHECKING:
    from azure.core.rest import HttpRequest, HttpResponse

OF_REQUESTS = ("content-type", "if-match")
OF_ANSWERS = (
    "content-type",
    "location",
    "etag",
    "strict-transport-security",
    "date",
    "server",
    "retry-after",
)
_KEYS = re.compile(r"<((?:Primary|Secondary)Key)>[^<]*<")


@dataclass(frozen=True, slots=True)
class Exchange:
    """What was asked and answered, with the headers that are named above; no other header is kept."""

    method: str
    target: str
    request_headers: Mapping[str, str]
    request_body: str
    status: int
    reason: str | None
    headers: Mapping[str, str]
    body: str

    @classmethod
    def of(cls, request: HttpRequest, response: HttpResponse) -> Exchange:
        """Return the exchange of two objects of azure-core's pipeline."""
        asked: Any = request
        url = urlsplit(request.url)
        return cls(
            request.method,
            f"{url.path}?{url.query}" if url.query else url.path,
            _named(request.headers, OF_REQUESTS),
            _text(getattr(asked, "body", None)),
            response.status_code,
            response.reason,
            _named(response.headers, OF_ANSWERS),
            _text(_body_of(response)),
        )

    def without(self, conceal: Callable[[str], str]) -> Exchange:
        """Return the exchange with every text passed through ``conceal``, and without keys of policies."""

        def of_text(text: str) -> str:
            return _KEYS.sub(r"<\1>***<", conceal(text))

        return replace(
            self,
            target=of_text(self.target),
            request_headers={name: of_text(value) for name, value in self.request_headers.items()},
            request_body=of_text(self.request_body),
            headers={name: of_text(value) for name, value in self.headers.items()},
            body=of_text(self.body),
        )

    def line(self) -> dict[str, object]:
        """Return it as an object of JSON."""
        return asdict(self)


def _named(headers: Mapping[str, str], names: tuple[str, ...]) -> dict[str, str]:
    found = {name.lower(): value for name, value in headers.items()}
    return {name: found[name] for name in names if name in found}


def _body_of(response: Any) -> object:  # noqa: ANN401  a method of the pipeline's own kind of response
    return response.body()


def _text(body: object) -> str:
    if isinstance(body, bytes):
        return body.decode("utf-8", "replace")
    return body if isinstance(body, str) else ""
