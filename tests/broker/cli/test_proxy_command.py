"""`sbpair proxy` as a process: faults from a plan and over HTTP, plain and between TLS and TLS."""

from __future__ import annotations

import asyncio
import json
from collections.abc import Callable, Iterator
from pathlib import Path
from signal import SIGTERM
from typing import Any

import httpx
import pytest

from sbpair.broker import Broker, NamespaceControl
from sbpair.pair.amqp.message import DataBody, Message
from sbpair.pair.amqp.performatives import Accepted
from sbpair.pair.auth.connection_string import parse
from sbpair.pair.auth.route import Route
from sbpair.pair.client.connection import connect
from sbpair.pair.client.errors import ConnectionLostError, NamespaceUnusableError
from sbpair.pair.client.link import Sender
from tests.pair.cli.conftest import Running

pytestmark = pytest.mark.spec("E-7")
PAYLOAD = Message(body=DataBody((b"x",))).encode()
CUT = """
[[rule]]
action = "cut"
performative = "transfer"
direction = "in"
address = "orders"
nth = 2
after = true
"""
Started = tuple[Running, dict[str, Any]]
Start = Callable[..., Started]


@pytest.fixture
def contoso() -> Iterator[tuple[Broker, NamespaceControl]]:
    with Broker({"contoso": 0}) as broker:
        namespace = broker.namespace("contoso")
        namespace.create_queue("orders")
        yield broker, namespace


@pytest.fixture
def proxy(start: Callable[..., Running], contoso: tuple[Broker, NamespaceControl]) -> Start:
    def begin(*arguments: str, **env: str) -> Started:
        port = contoso[1].port
        running = start("proxy", "--target", f"localhost:{port}", *arguments, "--json", **env)
        return running, json.loads(running.line())

    return begin


def through(namespace: NamespaceControl, port: int) -> str:
    return namespace.connection_string.replace(f":{namespace.port};", f":{port};")


async def send(text: str, count: int, **route: str) -> list[object]:
    """Send messages one by one; return their outcomes."""
    access = parse(text)
    if "address" in route:
        access = access.dial_at(route.pop("address"))
    connection = await connect(access.along(Route(route.get("ca_file"))), timeout=30)
    try:
        async with asyncio.timeout(60):
            sender: Sender = await connection.open_sender("orders")
            return [await sender.send(PAYLOAD) for _ in range(count)]
    finally:
        await connection.close()


def control(printed: dict[str, Any]) -> httpx.Client:
    token = printed["control_token"]
    return httpx.Client(
        base_url=printed["control_url"], headers={"Authorization": f"Bearer {token}"}, timeout=30
    )


def test_a_plan_cuts_after_the_second_message_and_then_forwards(proxy, contoso, tmp_path: Path) -> None:
    _, namespace = contoso
    plan = tmp_path / "plan.toml"
    plan.write_text(CUT)
    running, printed = proxy("--plan", str(plan))
    text = through(namespace, printed["port"])
    assert [isinstance(each, Accepted) for each in asyncio.run(send(text, 2))] == [True, False]
    assert all(isinstance(each, Accepted) for each in asyncio.run(send(text, 2)))
    assert running.stop(SIGTERM) == (0, "")


def test_rules_are_set_counted_and_removed_over_http(proxy, contoso) -> None:
    _, namespace = contoso
    running, printed = proxy()
    text = through(namespace, printed["port"])
    with control(printed) as http:
        rule = {"action": "cut", "performative": "disposition", "direction": "out", "address": "orders"}
        made = http.post("/rules", json=rule)
        assert (made.status_code, made.json()) == (201, {"id": 1})
        assert asyncio.run(send(text, 1)) == [None]  # stored but not answered
        assert namespace.counts("orders").active == 1
        (row,) = http.get("/status").json()["rules"]
        assert (row["id"], row["hits"]) == (1, 1)
        assert http.delete("/rules/1").status_code == 204
        assert http.delete("/rules/1").status_code == 404
        assert http.put("/line", json={"rtt": 0.001, "slice": 7}).status_code == 204
        assert all(isinstance(each, Accepted) for each in asyncio.run(send(text, 1)))
        for act in ({"do": "blackhole", "direction": "out"}, {"do": "forward"}, {"do": "cut"}):
            assert http.post("/connections", json=act).status_code == 204
        assert http.post("/cuts", json={"direction": "in", "bytes": 20}).status_code == 204
        with pytest.raises(ConnectionLostError):
            asyncio.run(send(text, 1))
    assert running.stop(SIGTERM) == (0, "")


@pytest.mark.parametrize(
    ("path", "body", "said"),
    [
        ("/rules", {"action": "melt"}, "the body: action: expected one of drop, delay"),
        ("/rules", [], "the body: expected a JSON object"),
        (
            "/connections",
            {"do": "cut", "direction": "in"},
            "the body: direction: expected no direction, which only blackhole and forward have",
        ),
        ("/connections", {"do": "melt"}, "the body: do: expected one of cut, reset"),
        ("/cuts", {"direction": "in"}, "the body: bytes: expected a whole number"),
    ],
)
def test_an_invalid_proxy_request_is_refused_by_name(proxy_control, path, body, said) -> None:
    answer = proxy_control.post(path, json=body)
    assert (answer.status_code, said in answer.json()["error"]) == (400, True), answer.text


@pytest.fixture(scope="module")
def proxy_control() -> Iterator[httpx.Client]:
    """The control API of a proxy without a target, in this process."""
    from sbpair.broker.testing.chaos_proxy import ChaosProxy
    from sbpair.broker.testing.proxy_control import ProxyControl
    from sbpair.broker.testing.proxy_plan import ProxyPlan

    with (
        ChaosProxy("127.0.0.1", 1) as idle,
        ProxyControl(idle, ProxyPlan()) as endpoint,
        control({"control_url": endpoint.address, "control_token": endpoint.token}) as http,
    ):
        yield http


def test_the_control_endpoint_needs_its_token(proxy_control: httpx.Client) -> None:
    assert httpx.get(f"{proxy_control.base_url}/status", timeout=30).status_code == 401


def test_faults_apply_between_two_tls_connections(proxy, contoso) -> None:
    broker, namespace = contoso
    running, printed = proxy("--target-tls", "--tls", "--ca-file", str(broker.ca_file))
    text = namespace.connection_string.partition(";UseDevelopmentEmulator")[0]
    route = {"address": f"localhost:{printed['port']}", "ca_file": printed["ca_file"]}
    with control(printed) as http:
        assert all(isinstance(each, Accepted) for each in asyncio.run(send(text, 2, **route)))
        http.post(
            "/rules",
            json={"action": "cut", "performative": "disposition", "direction": "out", "address": "orders"},
        )
        assert asyncio.run(send(text, 1, **route)) == [None]
        assert http.get("/status").json()["rules"][0]["hits"] == 1
    assert running.stop(SIGTERM) == (0, "")


def test_a_client_that_does_not_trust_the_proxy_is_not_served(proxy, contoso) -> None:
    broker, namespace = contoso
    running, printed = proxy("--target-tls", "--tls", "--ca-file", str(broker.ca_file))
    text = namespace.connection_string.partition(";UseDevelopmentEmulator")[0]
    with pytest.raises(NamespaceUnusableError, match="certificate"):
        asyncio.run(send(text, 1, address=f"localhost:{printed['port']}", ca_file=str(broker.ca_file)))
    assert running.stop(SIGTERM) == (0, "")


def test_an_untrusted_target_receives_no_data(proxy, contoso) -> None:
    _, namespace = contoso
    running, printed = proxy("--target-tls")
    with pytest.raises(ConnectionLostError):
        asyncio.run(send(through(namespace, printed["port"]), 1))
    assert running.stop(SIGTERM)[0] == 0


@pytest.mark.parametrize(
    ("arguments", "code", "said"),
    [
        (("--target", "x:0"), 2, "'x:0' is not HOST:PORT"),
        (("--target", "x:1", "--listen", "off"), 2, "--listen needs an address"),
        (("--target", "x:1", "--plan", "missing.toml"), 3, "missing.toml"),
        (("--target", "x:1", "--listen", "192.0.2.1:0"), 3, "--listen 192.0.2.1:0: "),
        ((), 2, "--target"),
    ],
)
def test_a_proxy_that_cannot_start_says_why(sbpair, arguments, code, said) -> None:
    done = sbpair("proxy", *arguments)
    assert (done.returncode, said in done.stderr) == (code, True), done.stderr
