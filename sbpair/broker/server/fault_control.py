"""Faults and time over HTTP, for tests in other languages: on a loopback port, with its own token.

    GET    /faults        all faults that are set, with their hits
    POST   /faults        set {"namespace": "contoso", "effect": "throttle", ...} or {"scenario": ...}; returns the ids.
                          {"fault": [...]} sets several, all or none
    DELETE /faults/ID     clear one fault
    DELETE /faults        clear all faults
    POST   /time          {"advance": 90.5} or {"advance_connections": 600}: seconds of entity or connection time

It has its own port, because a namespace that is down does not answer, and it runs only when requested.
"""

from __future__ import annotations

import json
from contextlib import ExitStack
from dataclasses import asdict
from datetime import timedelta

from aiohttp import web

from ..faults import ActiveFault
from ..faults.plan import posted_faults
from .broker import Broker
from .control import NamespaceControl
from .json_control import JsonControl, error_response

ADVANCE, ADVANCE_CONNECTIONS = "advance", "advance_connections"
MAX_SECONDS = 10 * 365 * 86_400  # ten years


class FaultControl(JsonControl[tuple[NamespaceControl, ActiveFault]]):
    """Serves a broker's faults inside its ``with``; requests need ``url`` and ``token``.

    ``faults``, ``time``: which of the two to serve. Entity time can be advanced if the broker's clock can be.
    """

    def __init__(self, broker: Broker, *, faults: bool = True, time: bool = False) -> None:
        super().__init__("faults", "fault")
        self._serves = (faults, time)
        self._broker = broker

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
        faults, time = self._serves
        routes: list[web.RouteDef] = []
        if faults:
            routes += [web.get("/faults", self._list), web.post("/faults", self._add), *self.removals()]
        if time:
            routes.append(web.post("/time", self._advance))
        return self.guarded_application(routes)

    def withdraw(self, entry: tuple[NamespaceControl, ActiveFault]) -> None:
        """Clear a fault."""
        namespace, active = entry
        namespace.clear_fault(active)

    async def _list(self, request: web.Request) -> web.StreamResponse:
        return web.json_response([_row(number, *each) for number, each in self.entries.items()])

    async def _add(self, request: web.Request) -> web.StreamResponse:
        try:
            table = json.loads(await request.read())
        except (ValueError, RecursionError):
            return error_response(400, "The body is not JSON.")
        planned = [(self._broker.namespace(each.namespace), each.rule) for each in posted_faults(table)]
        self.check_room(len(planned))
        with ExitStack() as undo:  # all of them, or none
            active = []
            for namespace, rule in planned:
                active.append((namespace, namespace.set_fault(rule)))
                undo.callback(namespace.clear_fault, active[-1][1])
            undo.pop_all()
        return web.json_response({"ids": [self.keep(each) for each in active]}, status=201)

    async def _advance(self, request: web.Request) -> web.StreamResponse:
        try:
            requested = _durations(json.loads(await request.read()))
        except (ValueError, RecursionError) as error:
            return error_response(400, f"The body is not valid: expected {error}.")
        if (span := requested.get(ADVANCE)) is not None:
            self._broker.advance(span)
        if (span := requested.get(ADVANCE_CONNECTIONS)) is not None:
            self._broker.advance_connections(span)
        return web.Response(status=204)


def _durations(requested: object) -> dict[str, timedelta]:
    """Return the requested durations by name. Raises ValueError, whose text says what is expected."""
    if not isinstance(requested, dict) or not requested or requested.keys() - {ADVANCE, ADVANCE_CONNECTIONS}:
        raise ValueError(f"a JSON object with {ADVANCE} or {ADVANCE_CONNECTIONS}, or both")
    for name, value in requested.items():
        if not isinstance(value, int | float) or isinstance(value, bool) or not 0 <= value <= MAX_SECONDS:
            raise ValueError(f"{name} between 0 and {MAX_SECONDS} seconds")
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
