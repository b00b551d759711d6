"""Faults and time over HTTP, for tests in other languages: on a loopback port, with its own token.

    GET    /faults        all faults that are set, with their hits
    POST   /faults        {"namespace": "contoso", "effect": "throttle", ...} or {"scenario": ...}: the ids
    DELETE /faults/ID     clear one of them, or all without ID
    POST   /time          {"advance": 90.5} and {"advance_connections": 600}: seconds of entity and connection time

It has its own port, because a namespace that is down does not answer, and it runs only on request.
"""

from __future__ import annotations

import itertools
import json
from collections.abc import Awaitable, Callable
from contextlib import ExitStack
from dataclasses import asdict
from datetime import timedelta

from aiohttp import web

from ..errors import BrokerError
from ..faults import ActiveFault
from ..faults.plan import planned_faults
from .broker import Broker
from .control import NamespaceControl
from .http_endpoint import HttpEndpoint

Handler = Callable[[web.Request], Awaitable[web.StreamResponse]]
MAX_BODY_BYTES = 65_536
MAX_FAULTS = 1_000
ADVANCE, ADVANCE_CONNECTIONS = "advance", "advance_connections"
MAX_SECONDS = 10 * 365 * 86_400


class FaultControl(HttpEndpoint):
    """Serves a broker's faults inside its ``with``; requests need ``url`` and ``token``.

    ``faults``, ``time``: which of the two to serve. Entity time can be advanced when the broker's clock can.
    """

    def __init__(self, broker: Broker, *, faults: bool = True, time: bool = False) -> None:
        super().__init__("faults")
        self._serves = (faults, time)
        self._broker = broker
        self._set: dict[int, tuple[NamespaceControl, ActiveFault]] = {}
        self._numbers = itertools.count(1)

    def __repr__(self) -> str:
        return f"FaultControl({self.url})"

    @property
    def url(self) -> str:
        """The URL of the faults."""
        return f"{self.address}/faults"

    @property
    def time_url(self) -> str:
        """The URL for advancing time."""
        return f"{self.address}/time"

    def application(self) -> web.Application:
        """Return the application to serve."""
        app = web.Application(client_max_size=MAX_BODY_BYTES, middlewares=[self._guard])
        faults, time = self._serves
        if faults:
            app.add_routes(
                [
                    web.get("/faults", self._list),
                    web.post("/faults", self._add),
                    web.delete("/faults", self._clear),
                    web.delete(r"/faults/{id:\d{1,9}}", self._remove),
                ]
            )
        if time:
            app.add_routes([web.post("/time", self._advance)])
        return app

    @web.middleware
    async def _guard(self, request: web.Request, handler: Handler) -> web.StreamResponse:
        if not self.has_token(request):
            return _refused(401, "Send the token that was printed at start: Authorization: Bearer TOKEN.")
        try:
            return await handler(request)
        except BrokerError as error:
            return _refused(400, str(error))

    async def _list(self, request: web.Request) -> web.StreamResponse:
        return web.json_response([_row(number, *each) for number, each in self._set.items()])

    async def _add(self, request: web.Request) -> web.StreamResponse:
        try:
            table = json.loads(await request.read())
        except (ValueError, RecursionError):
            return _refused(400, "The body is not JSON.")
        if len(self._set) >= MAX_FAULTS:
            return _refused(409, f"There are {MAX_FAULTS} faults: remove some first.")
        planned = [(self._broker.namespace(each.namespace), each.rule) for each in planned_faults(table)]
        with ExitStack() as undo:  # all of them, or none
            active = []
            for namespace, rule in planned:
                active.append((namespace, namespace.set_fault(rule)))
                undo.callback(namespace.clear_fault, active[-1][1])
            undo.pop_all()
        numbered = {next(self._numbers): each for each in active}
        self._set.update(numbered)
        return web.json_response({"ids": list(numbered)}, status=201)

    async def _advance(self, request: web.Request) -> web.StreamResponse:
        try:
            requested = _durations(json.loads(await request.read()))
        except (ValueError, RecursionError) as error:
            return _refused(400, f"The body is not valid: it needs {error}.")
        if (span := requested.get(ADVANCE)) is not None:
            self._broker.advance(span)
        if (span := requested.get(ADVANCE_CONNECTIONS)) is not None:
            self._broker.advance_connections(span)
        return web.Response(status=204)

    async def _remove(self, request: web.Request) -> web.StreamResponse:
        found = self._set.pop(int(request.match_info["id"]), None)
        if found is None:
            return _refused(404, "There is no fault with that id.")
        found[0].clear_fault(found[1])
        return web.Response(status=204)

    async def _clear(self, request: web.Request) -> web.StreamResponse:
        while self._set:
            namespace, active = self._set.popitem()[1]
            namespace.clear_fault(active)
        return web.Response(status=204)


def _durations(requested: object) -> dict[str, timedelta]:
    """Return the requested durations by name. Raises ValueError."""
    if not isinstance(requested, dict) or not requested or requested.keys() - {ADVANCE, ADVANCE_CONNECTIONS}:
        raise ValueError(f"a JSON object with {ADVANCE} or {ADVANCE_CONNECTIONS}, or both")
    for name, value in requested.items():
        if not isinstance(value, int | float) or isinstance(value, bool) or not 0 <= value <= MAX_SECONDS:
            raise ValueError(f"{name} in seconds, from 0 to {MAX_SECONDS}")
    return {name: timedelta(seconds=value) for name, value in requested.items()}


def _row(number: int, namespace: NamespaceControl, active: ActiveFault) -> dict[str, object]:
    rule = active.rule
    limits = {
        "entity": rule.entity,
        "operation": rule.operation.value if rule.operation else None,
        "nth": rule.nth,
        "times": rule.times,
        "probability": rule.probability,
    }
    return {
        "id": number,
        "namespace": namespace.name,
        "effect": rule.effect.name,
        **asdict(rule.effect),
        **{name: value for name, value in limits.items() if value is not None},
        "hits": active.hits,
    }


def _refused(status: int, text: str) -> web.Response:
    return web.json_response({"error": text}, status=status)
