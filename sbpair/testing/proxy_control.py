"""The control of `sbpair proxy` over HTTP, for tests in any language: on a loopback port, with its own token.

GET    /status         connections, forwarded bytes, and the rules with how often each matched and acted
POST   /rules          {"action": "drop", "performative": "disposition", "direction": "out"}: the id
DELETE /rules/ID       remove one of them, or all without ID; what they hold is forwarded
POST   /cuts           {"direction": "in", "bytes": 400}: the next new connection
PUT    /line           {"rtt": 0.02, "bandwidth": 100000, "slice": 1}
POST   /connections    {"do": "cut"}, reset, blackhole (with "direction": in one), or forward, which ends a blackhole
"""

from __future__ import annotations

import itertools
import json
from collections.abc import Awaitable, Callable

from aiohttp import web

from sbpair.broker.configuration import BadConfiguration
from sbpair.broker.configuration.table import Table
from sbpair.broker.server.http_endpoint import HttpEndpoint

from .chaos_proxy import ChaosProxy
from .frames import ActiveRule, FrameRule
from .proxy_plan import LineSettings, ProxyPlan, cut_of, direction_of, line_of, rule_of

Handler = Callable[[web.Request], Awaitable[web.StreamResponse]]
MAX_BODY_BYTES = 65_536
MAX_RULES = 1_000


class ProxyControl(HttpEndpoint):
    """Serves the control of ``proxy`` inside its ``with``, and applies ``plan`` at its start."""

    def __init__(self, proxy: ChaosProxy, plan: ProxyPlan, host: str = "127.0.0.1", port: int = 0) -> None:
        super().__init__("proxy", host, port)
        self._proxy = proxy
        self._numbers = itertools.count(1)
        self._rules: dict[int, ActiveRule] = {
            next(self._numbers): proxy.set_rule(each) for each in plan.rules
        }
        for direction, count in plan.cuts:
            proxy.cut_next(direction, count)
        _set_line(proxy, plan.line)

    def application(self) -> web.Application:
        """Return the application to serve."""
        app = web.Application(client_max_size=MAX_BODY_BYTES, middlewares=[self._guard])
        app.add_routes(
            [
                web.get("/status", self._status),
                web.post("/rules", self._add),
                web.delete("/rules", self._clear),
                web.delete(r"/rules/{id:\d{1,9}}", self._remove),
                web.post("/cuts", self._cut_next),
                web.put("/line", self._line),
                web.post("/connections", self._act),
            ]
        )
        return app

    @web.middleware
    async def _guard(self, request: web.Request, handler: Handler) -> web.StreamResponse:
        if not self.has_token(request):
            return _refused(401, "Send the token that was printed at start: Authorization: Bearer TOKEN.")
        try:
            return await handler(request)
        except BadConfiguration as error:
            return _refused(400, str(error))

    async def _status(self, request: web.Request) -> web.StreamResponse:
        rules = [_row(number, each) for number, each in self._rules.items()]
        status = {"connections": self._proxy.connection_count, "passed": self._proxy.passed, "rules": rules}
        return web.json_response(status)

    async def _add(self, request: web.Request) -> web.StreamResponse:
        rule = rule_of(await _table(request))
        if len(self._rules) >= MAX_RULES:
            return _refused(409, f"There are {MAX_RULES} rules: remove some first.")
        number = next(self._numbers)
        self._rules[number] = self._proxy.set_rule(rule)
        return web.json_response({"id": number}, status=201)

    async def _remove(self, request: web.Request) -> web.StreamResponse:
        found = self._rules.pop(int(request.match_info["id"]), None)
        if found is None:
            return _refused(404, "There is no rule with that id.")
        self._proxy.remove(found)
        return web.Response(status=204)

    async def _clear(self, request: web.Request) -> web.StreamResponse:
        while self._rules:
            self._proxy.remove(self._rules.popitem()[1])
        self._proxy.forget_cuts()
        return web.Response(status=204)

    async def _cut_next(self, request: web.Request) -> web.StreamResponse:
        self._proxy.cut_next(*cut_of(await _table(request)))
        return web.Response(status=204)

    async def _line(self, request: web.Request) -> web.StreamResponse:
        _set_line(self._proxy, line_of(await _table(request)))
        return web.Response(status=204)

    async def _act(self, request: web.Request) -> web.StreamResponse:
        table = await _table(request)
        direction = direction_of(table)
        does: dict[object, Callable[[], None]] = {
            "cut": self._proxy.cut,
            "reset": self._proxy.reset,
            "blackhole": lambda: self._proxy.blackhole(True, direction),
            "forward": lambda: self._proxy.blackhole(False, direction),
        }
        expected = f"one of {', '.join(map(str, does))}"
        act = does.get(table.text("do", expected))
        if act is None:
            raise table.wrong("do", expected)
        if direction is not None and act in (self._proxy.cut, self._proxy.reset):
            raise table.wrong("direction", "no direction, which only blackhole and forward have")
        table.end()
        act()
        return web.Response(status=204)


def _set_line(proxy: ChaosProxy, line: LineSettings) -> None:
    proxy.rtt, proxy.bandwidth, proxy.slice = line.rtt, line.bandwidth, line.slice


async def _table(request: web.Request) -> Table:
    try:
        found = json.loads(await request.read())
    except (ValueError, RecursionError):
        found = None
    if not isinstance(found, dict):
        raise BadConfiguration("the body: expected a JSON object")
    return Table("the body", "", found)


def _row(number: int, active: ActiveRule) -> dict[str, object]:
    rule: FrameRule = active.rule
    chosen = {"performative": rule.performative, "direction": rule.direction, "address": rule.address}
    return {
        "id": number,
        "action": rule.action.value,
        **{name: value for name, value in chosen.items() if value is not None},
        **({"nth": rule.nth} if rule.nth is not None else {"every": True}),
        "seen": active.seen,
        "hits": active.hits,
    }


def _refused(status: int, text: str) -> web.Response:
    return web.json_response({"error": text}, status=status)
