"""The control of `sbpair proxy` over HTTP, for tests in any language: on a loopback port, with its own token.

GET    /status         connections, forwarded bytes, and the rules with how often each matched and acted
POST   /rules          {"action": "drop", "performative": "disposition", "direction": "out"}: the id
DELETE /rules/ID       remove one of them, or all without ID; what they hold is forwarded
POST   /cuts           {"direction": "in", "bytes": 400}: the next new connection
PUT    /line           {"rtt": 0.02, "bandwidth": 100000, "slice": 1}
POST   /connections    {"do": "cut"}, reset, blackhole (with "direction": in one), or forward, which ends a blackhole
"""

from __future__ import annotations

import json
from collections.abc import Callable

from aiohttp import web

from sbpair.broker.configuration import BadConfigurationError
from sbpair.broker.configuration.table import Table
from sbpair.broker.server.json_control import JsonControl

from .chaos_proxy import ChaosProxy
from .frames import ActiveRule, FrameRule
from .proxy_plan import LineSettings, ProxyPlan, cut_of, direction_of, line_of, rule_of


class ProxyControl(JsonControl[ActiveRule]):
    """Serves the control of ``proxy`` inside its ``with``, and applies ``plan`` at its start."""

    def __init__(self, proxy: ChaosProxy, plan: ProxyPlan, host: str = "127.0.0.1", port: int = 0) -> None:
        super().__init__("proxy", "rule", host, port)
        self._proxy = proxy
        for each in plan.rules:
            self.keep(proxy.set_rule(each))
        for direction, count in plan.cuts:
            proxy.cut_next(direction, count)
        _set_line(proxy, plan.line)

    def application(self) -> web.Application:
        """Return the application to serve."""
        return self.guarded_application(
            [
                web.get("/status", self._status),
                web.post("/rules", self._add),
                *self.removals(),
                web.post("/cuts", self._cut_next),
                web.put("/line", self._line),
                web.post("/connections", self._act),
            ]
        )

    def withdraw(self, entry: ActiveRule) -> None:
        """Remove a rule from the proxy, and forward the frames that it holds."""
        self._proxy.remove(entry)

    def withdraw_all(self) -> None:
        """Remove all rules, and cancel the cuts that have not happened yet."""
        super().withdraw_all()
        self._proxy.forget_cuts()

    async def _status(self, request: web.Request) -> web.StreamResponse:
        rules = [_row(number, each) for number, each in self.entries.items()]
        status = {"connections": self._proxy.connection_count, "passed": self._proxy.passed, "rules": rules}
        return web.json_response(status)

    async def _add(self, request: web.Request) -> web.StreamResponse:
        rule = rule_of(await _table(request))
        self.check_room()
        return web.json_response({"id": self.keep(self._proxy.set_rule(rule))}, status=201)

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
        raise BadConfigurationError("the body: expected a JSON object")
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
