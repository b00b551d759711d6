"""The dashboard's requests that change something, and the check that the page itself sent them.

    POST /api/send        {"namespace", "path", "message": {"body", "message_id", "session_id", "subject",
                           "content_type", "properties"}}                                    -> {"number"}
    POST /api/purge       {"namespace", "path"}                                              -> {"deleted"}
    POST /api/resubmit    {"namespace", "path", "number"}; number null for all               -> {"resubmitted"}

A request needs the token in its Authorization header, or, besides its session's cookie, the proof in the header
:data:`INTENT` and the page's own origin. A form cannot set that header, and a script of another origin needs a CORS
preflight, which is refused.
"""

from __future__ import annotations

import json
from collections.abc import Callable, Sequence
from functools import partial

from aiohttp import web

from ..errors import InvalidArgumentError, NoSuchMessageError
from ..frontends.dashboard import actions
from ..frontends.dashboard.actions import MAX_AT_ONCE, Draft
from .broker import Broker
from .control import NamespaceControl
from .namespace_server import NamespaceServer
from .page_requests import Given, Row, namespace_of, text_of

INTENT = "X-Sbpair-Page"
"""The header that carries the proof of a session."""
MAX_REQUEST = 2 * 1024 * 1024  # bytes of a request


def is_intended(request: web.Request) -> bool:
    """Whether a request of a session comes from the page itself."""
    origin = request.headers.get("Origin", "")
    return INTENT in request.headers and origin == f"{request.scheme}://{request.host}"


async def body_of(request: web.Request) -> Given:
    """Return the JSON object in a request's body. Raises InvalidArgumentError when the body is anything else."""
    if request.content_type != "application/json":
        raise InvalidArgumentError("The request must be application/json.")
    try:
        given = json.loads(await request.read())
    except (ValueError, RecursionError) as error:
        raise InvalidArgumentError("The request is not JSON.") from error
    if not isinstance(given, dict):
        raise InvalidArgumentError("The request must be a JSON object.")
    return given


class PageActions:
    """The actions on the namespaces of one broker; each maps the JSON of a request to that of the answer."""

    def __init__(self, broker: Broker) -> None:
        self._broker = broker
        self.by_name: dict[str, Callable[[Given], Row]] = {
            "send": self._send,
            "purge": self._purge,
            "resubmit": self._resubmit,
        }

    def _send(self, given: Given) -> Row:
        control, path, message = self._control(given), text_of(given, "path"), given.get("message")
        if not isinstance(message, dict):
            raise InvalidArgumentError("message must be an object.")
        draft = Draft.of(message)
        number = control.act(lambda server: actions.send(server.frontend, path, draft, _now(server)))
        return {"number": number}

    def _purge(self, given: Given) -> Row:
        """Purge in several turns of the broker's loop, so that clients are served in between."""
        control, path, deleted = self._control(given), text_of(given, "path"), 0
        before = control.inspect(_now) + 1
        while some := control.act(lambda server: actions.purge(server.frontend, path, before, _now(server))):
            deleted += some
        return {"deleted": deleted}

    def _resubmit(self, given: Given) -> Row:
        control, path, number = self._control(given), text_of(given, "path"), given.get("number")
        if number is None:
            return {"resubmitted": self._resubmit_all(control, path)}
        if not isinstance(number, int) or isinstance(number, bool) or number < 0:
            raise InvalidArgumentError("number must be a sequence number, or null for all.")
        if not control.act(partial(_resubmit, path=path, numbers=[number])):
            raise NoSuchMessageError(number)
        return {"resubmitted": 1}

    def _resubmit_all(self, control: NamespaceControl, path: str) -> int:
        """Resubmit only the messages present now, so that none is resubmitted twice if it is dead-lettered again."""
        numbers: list[int] = []
        start: int | None = 1
        while start is not None:
            page, start = control.inspect(partial(_waiting, path=path, start=start))
            numbers += page
        return sum(
            control.act(partial(_resubmit, path=path, numbers=numbers[first : first + MAX_AT_ONCE]))
            for first in range(0, len(numbers), MAX_AT_ONCE)
        )

    def _control(self, given: Given) -> NamespaceControl:
        return namespace_of(self._broker, given)


def _now(server: NamespaceServer) -> int:
    return server.read_clocks().entity


def _waiting(server: NamespaceServer, *, path: str, start: int) -> tuple[list[int], int | None]:
    return actions.waiting(server.frontend, path, start)


def _resubmit(server: NamespaceServer, *, path: str, numbers: Sequence[int]) -> int:
    return actions.resubmit(server.frontend, path, numbers, _now(server))
