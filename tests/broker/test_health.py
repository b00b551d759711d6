"""`GET /health` needs no token, makes a real round trip over AMQP and leaves nothing behind."""

from __future__ import annotations

import json
import urllib.error
import urllib.request
from concurrent.futures import ThreadPoolExecutor

import pytest

from sbpair.broker import Broker, NamespaceControl
from sbpair.broker.server import health

pytestmark = pytest.mark.spec("E-2")


@pytest.fixture(autouse=True)
def patient(monkeypatch: pytest.MonkeyPatch) -> None:
    """Allow the probe any time: a pause of the machine must not look unhealthy."""
    monkeypatch.setattr(health, "WITHIN", 100.0)


def ask(port: int, path: str = "/health", **headers: str) -> tuple[int, str]:
    request = urllib.request.Request(f"http://127.0.0.1:{port}{path}", headers=headers)
    try:
        with urllib.request.urlopen(request, timeout=30) as answer:
            return answer.status, answer.read().decode()
    except urllib.error.HTTPError as refused:
        with refused:
            return refused.code, refused.read().decode()


@pytest.mark.parametrize("listening", ["127.0.0.1", "0.0.0.0"])
def test_a_working_broker_is_healthy_without_a_token(listening: str) -> None:
    with Broker({"contoso": 0}, host=listening) as broker:
        status, text = ask(broker.namespace("contoso").port)
    found = json.loads(text)
    assert (status, found["status"]) == (200, "healthy")
    assert found["round_trip_ms"] >= 0  # the clock of a virtual machine may stand still for a moment


def test_the_health_probe_opens_one_connection_and_closes_it() -> None:
    with Broker({"contoso": 0}) as broker:
        contoso = broker.namespace("contoso")
        for _ in range(3):
            assert ask(contoso.port)[0] == 200
        until_no_wires(contoso)


def until_no_wires(namespace: NamespaceControl) -> None:
    for _ in range(1000):
        if not namespace.server.wires:
            return
        ask(namespace.port, "/none")  # takes at least a turn of the loop
    raise AssertionError("the probe's connection did not end")


def test_health_may_be_queried_under_any_host_name() -> None:
    with Broker({"contoso": 0}, open_access=True, host="0.0.0.0") as broker:
        assert ask(broker.namespace("contoso").port, Host="broker.testing.svc.cluster.local:5672")[0] == 200


def test_a_port_that_does_not_answer_over_amqp_is_unhealthy(monkeypatch: pytest.MonkeyPatch) -> None:
    with Broker({"contoso": 0}) as broker:
        port = broker.namespace("contoso").port
        assert ask(port)[0] == 200
        monkeypatch.setattr(health, "WITHIN", 0.0)
        assert ask(port) == (503, '{"status": "unhealthy", "reason": "no answer over AMQP in time"}')


def test_concurrent_health_requests_share_one_probe() -> None:
    with Broker({"contoso": 0}) as broker, ThreadPoolExecutor(20) as executor:
        port = broker.namespace("contoso").port
        assert {status for status, _ in executor.map(lambda _: ask(port), range(40))} == {200}


def test_a_queue_called_health_is_still_administered_with_a_token() -> None:
    with Broker({"contoso": 0}) as broker:
        assert ask(broker.namespace("contoso").port, Authorization="SharedAccessSignature x")[0] == 401


def test_a_namespace_that_is_down_is_not_healthy() -> None:
    with Broker({"contoso": 0}, management_port=0) as broker:
        contoso = broker.namespace("contoso")
        contoso.take_down("refuse")
        for port in (contoso.port, contoso.server.management_port):
            with pytest.raises(urllib.error.URLError):
                ask(port or 0)
        contoso.bring_up()
        assert ask(contoso.server.management_port or 0)[0] == 200
