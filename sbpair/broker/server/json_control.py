"""An HTTP endpoint for tests in any language: JSON requests with its token add and remove numbered entries.

DELETE /ENTRIES       remove all
DELETE /ENTRIES/ID    remove one
a wrong token         401
an invalid request    400, with the reason as {"error": ...}
"""

from __future__ import annotations

import itertools
from abc import abstractmethod
from collections.abc import Awaitable, Callable, Iterable
from typing import Generic, TypeVar

from aiohttp import web

from ..errors import BrokerError
from .http_endpoint import LOOPBACK, HttpEndpoint

Handler = Callable[[web.Request], Awaitable[web.StreamResponse]]
MAX_BODY_BYTES = 65_536
MAX_ENTRIES = 1_000

Entry = TypeVar("Entry")


class JsonControl(HttpEndpoint, Generic[Entry]):
    """Keeps the entries of an endpoint; ``noun`` names an entry in error texts and, with an s, in paths."""

    def __init__(self, what: str, noun: str, host: str = LOOPBACK, port: int = 0) -> None:
        super().__init__(what, host, port)
        self._noun = noun
        self._numbers = itertools.count(1)
        self.entries: dict[int, Entry] = {}
        """The current entries, by number."""

    def guarded_application(self, routes: Iterable[web.RouteDef]) -> web.Application:
        """Return an application with these routes, which refuses requests without the token."""
        app = web.Application(client_max_size=MAX_BODY_BYTES, middlewares=[self._guard])
        app.add_routes(routes)
        return app

    def removals(self) -> list[web.RouteDef]:
        """Return the routes that remove entries."""
        path = f"/{self._noun}s"
        return [web.delete(path, self._clear), web.delete(path + r"/{id:\d{1,9}}", self._remove)]

    def keep(self, entry: Entry) -> int:
        """Add an entry and return its number."""
        number = next(self._numbers)
        self.entries[number] = entry
        return number

    def check_room(self, more: int = 1) -> None:
        """Raise HTTPConflict if with ``more`` there would be more than MAX_ENTRIES entries."""
        if len(self.entries) + more > MAX_ENTRIES:
            raise web.HTTPConflict(
                text=f"There can be {MAX_ENTRIES} {self._noun}s at most: remove some first."
            )

    @abstractmethod
    def withdraw(self, entry: Entry) -> None:
        """End the effect of an entry that is removed."""

    def withdraw_all(self) -> None:
        """Remove all entries."""
        while self.entries:
            self.withdraw(self.entries.popitem()[1])

    @web.middleware
    async def _guard(self, request: web.Request, handler: Handler) -> web.StreamResponse:
        if not self.has_token(request):
            return error_response(
                401, "Send the token that was printed at start: Authorization: Bearer TOKEN."
            )
        try:
            return await handler(request)
        except BrokerError as error:
            return error_response(400, str(error))
        except web.HTTPConflict as full:
            return error_response(full.status, full.text or "")

    async def _remove(self, request: web.Request) -> web.StreamResponse:
        number = int(request.match_info["id"])
        if number not in self.entries:
            return error_response(404, f"There is no {self._noun} with that id.")
        self.withdraw(self.entries.pop(number))
        return web.Response(status=204)

    async def _clear(self, request: web.Request) -> web.StreamResponse:
        self.withdraw_all()
        return web.Response(status=204)


def error_response(status: int, text: str) -> web.Response:
    """Return an error as JSON."""
    return web.json_response({"error": text}, status=status)
