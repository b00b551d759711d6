"""The requests by which the page operates a namespace: their protection, and what they refuse."""

from __future__ import annotations

import json

import pytest
from azure.servicebus import ServiceBusClient, ServiceBusMessage

from sbpair.broker.faults import EFFECTS
from sbpair.broker.server.page_operations import WITHOUT_SETTINGS
from tests.broker.page.test_page_actions import JSON, post, session_of

pytestmark = pytest.mark.spec("R-128")

ACTIONS = ("take-down", "bring-up", "set-fault", "clear-fault", "connection-string", "create", "delete")


@pytest.mark.parametrize("name", ACTIONS)
def test_every_operation_is_protected_like_the_other_actions(page, contoso, name):
    contoso.create_queue("orders")
    cookie, proof = session_of(page)
    body = json.dumps({"namespace": "contoso", "how": "refuse", "path": "orders", "kind": "queue"}).encode()
    for shown in ({}, {"Cookie": cookie}, {"Cookie": cookie, "Origin": page.address}):
        assert post(page, name, body, **JSON, **shown)[0] == 401
    assert post(page, name, body, **JSON, **{"Cookie": cookie, "X-Sbpair-Page": proof})[0] == 403
    assert (contoso.queue_names(), contoso.faults) == (["orders"], [])


REFUSED = {
    "take-down": ({"how": "politely"}, "politely"),
    "set-fault": ({"choice": "effect:nothing"}, "nothing"),
    "clear-fault": ({"number": 7}, "not set any more"),
    "create": ({"kind": "table", "path": "x"}, "queue, topic or subscription"),
    "delete": ({"path": "gone"}, "gone"),
}


@pytest.mark.parametrize("name", REFUSED)
def test_a_nonsensical_request_is_refused_in_one_line(page, contoso, name):
    given, words = REFUSED[name]
    body = json.dumps({"namespace": "contoso"} | given).encode()
    status, told = post(page, name, body, **JSON, Authorization=f"Bearer {page.token}")
    assert (status in (400, 404), words in told["error"]) == (True, True), told


def test_every_filter_can_be_set_and_cleared(page, ask, contoso):
    assert set(WITHOUT_SETTINGS) <= set(EFFECTS)
    contoso.create_queue("orders", enable_partitioning=True)
    for choice in ask("faults", namespace="contoso")[1]["choices"]:
        body = json.dumps({"namespace": "contoso", "choice": choice["value"], "entity": "orders"}).encode()
        status, told = post(page, "set-fault", body, **JSON, Authorization=f"Bearer {page.token}")
        assert (status, told.get("set", 0) > 0) == (200, True), (choice, told)
        for row in ask("faults", namespace="contoso")[1]["rows"]:
            body = json.dumps({"namespace": "contoso", "number": row["number"]}).encode()
            assert post(page, "clear-fault", body, **JSON, Authorization=f"Bearer {page.token}")[0] == 200
    assert contoso.faults == []


def test_a_search_continues_to_the_end(ask, contoso):
    contoso.create_queue("orders")
    with ServiceBusClient.from_connection_string(contoso.connection_string) as client:
        sender = client.get_queue_sender("orders")
        for start in range(0, 1200, 400):
            sender.send_messages([ServiceBusMessage("x", message_id=f"m{start + n}") for n in range(400)])
        sender.close()
    _, told = ask("messages", namespace="contoso", path="orders", find="M119", **{"from": 1})
    assert [each["message_id"] for each in told["messages"]] == ["m119"] + [
        f"m{n}" for n in range(1190, 1200)
    ]
    assert told["next"] is None
