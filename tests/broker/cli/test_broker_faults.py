"""`sbpair broker --faults` and `--allow-faults`: faults set from outside, and the right to set them."""

from __future__ import annotations

import json
from functools import partial

import httpx
import pytest
from azure.servicebus import ServiceBusClient, ServiceBusMessage
from azure.servicebus.exceptions import ServiceBusServerBusyError

from sbpair.broker import Broker
from sbpair.broker.faults.plan import read_plan
from sbpair.broker.server import fault_control, json_control
from tests.pair.cli.conftest import evaluate
from tests.waiting import PATIENCE

get, post = partial(httpx.get, timeout=PATIENCE), partial(httpx.post, timeout=PATIENCE)

PLAN = """
[[fault]]
namespace = "contoso"
entity = "orders"
effect = "throttle"
times = 1
"""
THROTTLE = {"namespace": "contoso", "entity": "orders", "effect": "throttle", "times": 1}


def ready(start, *arguments):
    running = start("broker", "--namespace", "contoso:0", "--queue", "contoso/orders", "--json", *arguments)
    return running, json.loads(running.line())


def send(printed):
    connection_string = printed["namespaces"][0]["connection_string"]
    with (
        ServiceBusClient.from_connection_string(connection_string, retry_total=0) as client,
        client.get_queue_sender("orders") as sender,
    ):
        sender.send_messages(ServiceBusMessage("x"))


def test_a_fault_plan_applies_from_the_start(start, tmp_path):
    plan = tmp_path / "plan.toml"
    plan.write_text(PLAN, "utf-8")
    running, printed = ready(start, "--faults", str(plan))
    assert "faults_url" not in printed
    with pytest.raises(ServiceBusServerBusyError):
        send(printed)
    send(printed)
    assert running.stop() == (0, "")


def test_faults_are_set_listed_and_removed_over_http(start):
    running, printed = ready(start, "--allow-faults")
    url, token = printed["faults_url"], printed["faults_token"]
    with httpx.Client(headers={"Authorization": f"Bearer {token}"}, timeout=PATIENCE) as http:
        ids = http.post(url, json=THROTTLE).raise_for_status().json()["ids"]
        with pytest.raises(ServiceBusServerBusyError):
            send(printed)
        (told,) = http.get(url).json()
        assert (told["id"], told["effect"], told["hits"]) == (ids[0], "throttle", 1)
        assert http.delete(f"{url}/{ids[0]}").status_code == 204
        assert http.delete(f"{url}/{ids[0]}").status_code == 404

        down = http.post(url, json={"namespace": "contoso", "scenario": "primary-down"})
        assert down.status_code == 201  # and the endpoint still works
        assert http.delete(url).status_code == 204
        assert http.get(url).json() == []
    send(printed)
    assert running.stop() == (0, "")


@pytest.mark.spec("E-9")
def test_a_plan_is_set_over_http_as_from_a_file():
    with Broker({"contoso": 0}) as broker, fault_control.FaultControl(broker) as control:
        contoso = broker.namespace("contoso")
        contoso.create_queue("orders")
        shown = {"Authorization": f"Bearer {control.token}"}
        down = {"namespace": "contoso", "effect": "down"}
        done = post(control.url, json={"seed": 7, "fault": [THROTTLE, down]}, headers=shown)
        assert (done.status_code, done.json()) == (201, {"ids": [1, 2]})
        assert [each["effect"] for each in get(control.url, headers=shown).json()] == ["throttle", "down"]
        planned = read_plan("seed = 7\n" + PLAN + "[[fault]]\nnamespace = 'contoso'\neffect = 'down'")
        assert [each.rule for each in contoso.faults] == [each.rule for each in planned]


@pytest.mark.spec("E-9")
@pytest.mark.parametrize(
    ("second", "says"),
    [
        ({"namespace": "contoso", "entity": "orders", "effect": "partition-down"}, "partition"),
        ({"namespace": "contoso", "effect": "flood"}, "flood"),
        ({"effect": "down"}, "namespace"),
        (3, "must be a table of settings"),
    ],
)
def test_several_faults_are_set_all_or_none(second, says):
    with Broker({"contoso": 0}) as broker, fault_control.FaultControl(broker) as control:
        contoso = broker.namespace("contoso")
        contoso.create_queue("orders")  # which has no partitions
        shown = {"Authorization": f"Bearer {control.token}"}
        refused = post(control.url, json={"fault": [THROTTLE, second]}, headers=shown)
        assert refused.status_code == 400
        assert says in refused.json()["error"]
        assert get(control.url, headers=shown).json() == []
        assert contoso.faults == []


def test_faults_beyond_the_limit_are_refused_until_some_are_removed(monkeypatch):
    monkeypatch.setattr(json_control, "MAX_ENTRIES", 1)
    with Broker({"contoso": 0}) as broker, fault_control.FaultControl(broker) as control:
        broker.namespace("contoso").create_queue("orders")
        with httpx.Client(headers={"Authorization": f"Bearer {control.token}"}, timeout=PATIENCE) as http:
            assert http.post(control.url, json=THROTTLE).status_code == 201
            refused = http.post(control.url, json=THROTTLE)
            assert refused.status_code == 409
            assert refused.json() == {"error": "There can be 1 faults at most: remove some first."}
            assert http.delete(control.url).status_code == 204
            plan = {"fault": [THROTTLE, THROTTLE]}
            assert http.post(control.url, json=plan).status_code == 409
            assert http.post(control.url, json=THROTTLE).status_code == 201


def test_a_token_that_is_no_text_is_refused_like_a_wrong_one():
    with Broker({"contoso": 0}) as broker, fault_control.FaultControl(broker) as control:
        refused = get(control.url, headers={"Authorization": b"Bearer \xe9"})
    assert refused.status_code == 401


@pytest.mark.spec("S-11")
def test_setting_a_fault_needs_a_token_and_bad_requests_are_explained(start):
    running, printed = ready(start, "--allow-faults")
    url, token = printed["faults_url"], printed["faults_token"]
    assert url.startswith("http://127.0.0.1:")
    for headers in ({}, {"Authorization": "Bearer wrong"}, {"Authorization": f"Bearer {token}x"}):
        refused = post(url, json=THROTTLE, headers=headers)
        assert refused.status_code == 401
        assert token not in refused.text
    shown = {"Authorization": f"Bearer {token}"}
    assert "flood" in post(url, json=THROTTLE | {"effect": "flood"}, headers=shown).json()["error"]
    assert "fabrikam" in post(url, json=THROTTLE | {"namespace": "fabrikam"}, headers=shown).text
    assert post(url, content=b"{", headers=shown).status_code == 400
    assert post(url, content=b"[" * 60_000, headers=shown).status_code == 400
    assert post(url, content=b"[" * 70_000, headers=shown).status_code == 413
    assert get(url, headers=shown).json() == []
    assert running.stop() == (0, "")


def test_the_fault_endpoint_exists_only_with_its_flag(start):
    running, printed = ready(start)
    assert "faults_url" not in printed
    namespace = printed["namespaces"][0]
    assert post(f"http://127.0.0.1:{namespace['port']}/faults", json=THROTTLE).status_code in (401, 404)
    assert running.stop() == (0, "")


@pytest.mark.parametrize(
    ("plan", "says"),
    [
        ("seed =", "TOML"),
        ("[[fault]]\nnamespace='contoso'\neffect='flood'", "flood"),
        ("[[fault]]\nnamespace='fabrikam'\neffect='withhold'", "fabrikam"),
        ("[[fault]]\nnamespace='contoso'\nentity='nowhere'\neffect='withhold'", "nowhere"),
    ],
)
def test_a_fault_that_cannot_be_set_is_a_usage_error_with_the_reason(sbpair, tmp_path, plan, says):
    path = tmp_path / "plan.toml"
    path.write_text(plan, "utf-8")
    done = sbpair("broker", "--namespace", "contoso:0", "--faults", str(path))
    assert done.returncode == 2
    assert says in done.stderr
    assert "Traceback" not in done.stderr


@pytest.mark.spec("E-9")
def test_faults_and_time_are_controlled_with_the_printed_environment(start, sbpair):
    running = start(
        "broker", "--namespace", "contoso:0", "--allow-faults", "--driven-time", "--print-env"
    )  # fmt: skip
    exported = evaluate("".join(running.line() for _ in range(6)))

    done = sbpair("faults", "set", "namespace=contoso", "effect=down", **exported)
    assert (done.returncode, done.stderr) == (0, "")
    assert sbpair("faults", "list", **exported).stdout.startswith("1: down on contoso")

    headers = {"Authorization": f"Bearer {exported['SBPAIR_TIME_TOKEN']}"}
    assert post(exported["SBPAIR_TIME_URL"], json={"advance": 60}, headers=headers).status_code == 204


@pytest.mark.slow
@pytest.mark.spec("R-133")
def test_faults_are_set_listed_and_removed_by_commands(start, sbpair):
    running, printed = ready(start, "--allow-faults")
    control = {"SBPAIR_FAULTS_URL": printed["faults_url"], "SBPAIR_FAULTS_TOKEN": printed["faults_token"]}
    done = sbpair(
        "faults", "set", "namespace=contoso", "entity=orders", "effect=throttle", "times=1", **control
    )
    assert (done.returncode, done.stderr) == (0, "")
    with pytest.raises(ServiceBusServerBusyError):
        send(printed)
    assert sbpair("faults", "set", "namespace=contoso", "scenario=flapping", **control).returncode == 0

    listed = sbpair("faults", "list", **control).stdout.splitlines()
    as_json = [json.loads(line) for line in sbpair("faults", "list", "--json", **control).stdout.splitlines()]
    assert listed[0].startswith(f"{done.stdout.strip()}: throttle on contoso")
    assert listed[0].endswith("took effect 1 times")
    assert as_json[0]["hits"] == 1

    assert sbpair("faults", "clear", done.stdout.strip(), **control).returncode == 0
    assert len(sbpair("faults", "list", **control).stdout.splitlines()) == len(listed) - 1
    assert sbpair("faults", "clear", "--all", **control).returncode == 0
    assert sbpair("faults", "list", **control).stdout == ""
    assert running.stop() == (0, "")


@pytest.mark.spec("R-133")
def test_a_fault_command_that_cannot_work_says_why(start, sbpair):
    _, printed = ready(start, "--allow-faults")
    control = {"SBPAIR_FAULTS_URL": printed["faults_url"], "SBPAIR_FAULTS_TOKEN": printed["faults_token"]}
    odd = sbpair("faults", "set", "namespace=contoso", "effect=hiccup", **control)
    assert odd.returncode == 1
    assert "hiccup" in odd.stderr
    wrong = sbpair("faults", "list", **control | {"SBPAIR_FAULTS_TOKEN": "wrong-token-of-mine"})
    assert (wrong.returncode, "wrong-token-of-mine" in wrong.stderr) == (4, False)
    assert sbpair("faults", "list", "--token", "in-the-open", **control).returncode == 3
    assert sbpair("faults", "clear", **control).returncode == 2
    away = sbpair("faults", "list", "--url", "http://127.0.0.1:9/faults", **control)
    assert away.returncode == 5
    assert len(away.stderr.splitlines()) == 1
