"""Access to the page, its answers without a browser, and its cost when it is not open."""

from __future__ import annotations

import http.client
import json
import socket
import subprocess
import sys
from contextlib import suppress

import pytest
from azure.servicebus import ServiceBusClient, ServiceBusMessage

from sbpair.broker import Broker
from sbpair.broker.errors import EndpointUnavailableError
from sbpair.broker.faults import Disabled
from sbpair.broker.frontends.dashboard.views import MAX_MESSAGES, MAX_ROWS
from sbpair.broker.server.dashboard import Page
from sbpair.broker.server.dashboard_actions import INTENT
from sbpair.broker.server.dashboard_application import MAX_SESSIONS, PageSessions
from sbpair.broker.server.http_endpoint import HttpEndpoint

ALL = ("overview", "entities", "entity", "messages", "message", "sessions", "connections", "rejections")


def raw(page, method, path, **headers):
    connection = http.client.HTTPConnection("127.0.0.1", int(page.address.rpartition(":")[2]), timeout=20)
    connection.request(method, path, headers=headers)
    answer = connection.getresponse()
    body = answer.read()
    connection.close()
    return answer, body


@pytest.mark.parametrize("name", ALL)
@pytest.mark.parametrize("token", ["", "wrong", "é"])
def test_the_page_shows_nothing_without_the_token(ask, name, token):
    assert ask(name, token=token, namespace="contoso")[0] == 401


@pytest.mark.spec("R-118")
def test_a_cookie_is_useless_on_another_port_of_the_host(page):
    answer, _ = raw(page, "GET", f"/?token={page.token}")
    cookie = answer.headers["Set-Cookie"].partition(";")[0]
    proof = answer.headers["Location"].partition("=")[2]
    assert len({page.token, cookie.partition("=")[2], proof}) == 3
    for shown in ({"Cookie": cookie}, {"Cookie": cookie, INTENT: cookie.partition("=")[2]}):
        assert raw(page, "GET", "/api/overview", **shown)[0].status == 401
    assert raw(page, "GET", "/api/overview", **{INTENT: proof})[0].status == 401
    assert raw(page, "GET", "/api/overview", **{"Cookie": cookie, INTENT: proof})[0].status == 200
    bearer = {"Authorization": f"Bearer {cookie.partition('=')[2]}"}
    assert raw(page, "GET", "/api/overview", **bearer)[0].status == 401


@pytest.mark.spec("R-118")
def test_the_number_of_open_sessions_is_limited():
    sessions = PageSessions()
    opened = [sessions.open() for _ in range(MAX_SESSIONS + 1)]
    assert [sessions.is_proven(*each) for each in opened] == [False] + [True] * MAX_SESSIONS
    assert not sessions.is_proven(opened[1][0], opened[2][1])


def test_the_token_becomes_a_session_hidden_from_scripts_and_other_sites(page):
    answer, _ = raw(page, "GET", f"/?token={page.token}")
    cookie = answer.headers["Set-Cookie"]
    assert (answer.status, answer.headers["Location"].partition("=")[0]) == (303, "/?proof")
    assert "HttpOnly" in cookie
    assert "SameSite=Strict" in cookie
    inside, body = raw(page, "GET", "/", Cookie=cookie.partition(";")[0])
    assert (inside.status, b"<main" in body) == (200, True)
    assert raw(page, "GET", "/")[0].status == 401
    assert raw(page, "GET", "/?token=wrong")[0].status == 401


@pytest.mark.parametrize("path", ["/", "/page.js", "/api/overview", "/nowhere"])
def test_every_response_has_the_strict_policy(page, path):
    answer, _ = raw(page, "GET", path)
    policy = answer.headers["Content-Security-Policy"]
    assert "default-src 'none'" in policy
    assert "unsafe" not in policy
    assert answer.headers["X-Content-Type-Options"] == "nosniff"
    assert answer.headers["Cache-Control"] == "no-store"


@pytest.mark.parametrize("method", ["POST", "PUT", "DELETE", "PATCH"])
def test_the_page_accepts_only_reads(page, method):
    shown = {"Authorization": f"Bearer {page.token}"}
    assert [raw(page, method, f"/api/{name}", **shown)[0].status for name in ALL] == [405] * len(ALL)


def test_a_nonsensical_query_is_answered_in_one_line(ask, contoso):
    contoso.create_queue("orders")
    assert ask("entities", namespace="nowhere") == (
        400, {"error": "There is no namespace 'nowhere'; there are: contoso, contoso-dr."})  # fmt: skip
    assert ask("entity", namespace="contoso", path="gone")[0] == 404
    assert ask("message", namespace="contoso", path="orders", number=7)[0] == 404
    for number in ("-1", "x", "9" * 30, "٣"):
        status, said = ask("messages", namespace="contoso", path="orders", **{"from": number})
        assert (status, "whole number" in said["error"]) == (400, True)


@pytest.mark.spec("S-12")
def test_key_names_are_shown_without_the_keys(ask, contoso):
    contoso.create_queue("orders")
    contoso.create_topic("events")
    keys = [contoso.add_policy("shop", ("Send",), entity=path) for path in ("orders", "events")]
    for path, made in zip(("orders", "events"), keys, strict=True):
        told = ask("entity", namespace="contoso", path=path)[1]
        key = made.partition("SharedAccessKey=")[2].partition(";")[0]
        assert len(key) > 40
        assert key not in json.dumps(told)
        assert told["description"]["authorization_rules"] == "shop (Send)"


def test_a_namespace_with_many_entities_is_shown_page_by_page(ask, contoso):
    for number in range(250):
        contoso.create_queue(f"queue-{number:03}")
    _, first = ask("entities", namespace="contoso")
    _, last = ask("entities", namespace="contoso", skip=200)
    _, found = ask("entities", namespace="contoso", find="UE-24")
    assert (first["total"], len(first["rows"]), first["rows"][0]["path"]) == (250, MAX_ROWS, "queue-000")
    assert [row["path"] for row in last["rows"]][-1] == "queue-249"
    assert [row["path"] for row in found["rows"]] == [f"queue-{number}" for number in range(240, 250)]


def test_a_status_imposed_by_a_fault_is_shown(ask, contoso):
    contoso.create_queue("orders")
    with contoso.fault("orders", Disabled("SendDisabled")):
        (row,) = ask("entities", namespace="contoso")[1]["rows"]
        assert (
            row["status"] == ask("entity", namespace="contoso", path="orders")[1]["status"] == "SendDisabled"
        )
    assert ask("entity", namespace="contoso", path="orders")[1]["status"] == "Active"


def test_messages_and_dead_letters_are_listed_page_by_page(ask, contoso):
    contoso.create_queue("orders")
    with ServiceBusClient.from_connection_string(contoso.connection_string) as client:
        with client.get_queue_sender("orders") as sender:
            sender.send_messages([ServiceBusMessage("x" * 20_000, message_id=f"{n}") for n in range(10)])
            sender.send_messages([ServiceBusMessage("y", message_id=f"{n}") for n in range(10, 120)])
        with client.get_queue_receiver("orders") as receiver:
            (message,) = receiver.receive_messages(max_wait_time=10)
            receiver.dead_letter_message(message, reason="NoSuchCustomer", error_description="who is that?")
    _, first = ask("messages", namespace="contoso", path="orders")
    _, then = ask("messages", namespace="contoso", path="orders", **{"from": 101})
    _, dead = ask("messages", namespace="contoso", path="orders/$DeadLetterQueue")
    assert len(first["messages"]) == MAX_MESSAGES
    assert [each["message_id"] for each in then["messages"]] == [f"{n}" for n in range(100, 120)]
    assert [(each["reason"], each["why"]) for each in dead["messages"]] == [
        ("NoSuchCustomer", "who is that?")
    ]
    _, one = ask("message", namespace="contoso", path="orders", number=2)
    assert (one["body"]["size"], len(one["body"]["text"]), one["body"]["is_whole"]) == (20_000, 16_384, False)


def test_a_taken_port_is_named(page):
    port = int(page.address.rpartition(":")[2])
    named = pytest.raises(EndpointUnavailableError, match=f"The page cannot be served on 127.0.0.1:{port}: ")
    with Broker({"other": 0}) as broker, named, Page(broker, port=port):
        pass


class Broken(HttpEndpoint):
    def application(self):
        raise LookupError("there is nothing to serve")


@pytest.mark.filterwarnings("ignore::pytest.PytestUnhandledThreadExceptionWarning")
def test_a_page_server_that_failed_closes_and_frees_its_port():
    with Broken("door") as door:
        port = door.port
        with suppress(ConnectionError), socket.create_connection((door.host, port), 20) as knocking:
            assert knocking.recv(1) == b""
    with socket.create_server((door.host, port)):
        pass


def test_an_unopened_page_loads_no_module_and_makes_no_request():
    program = """
import sys
from sbpair.broker import Broker
from sbpair.broker.server.dashboard import Page
with Broker({"contoso": 0}) as broker, Page(broker) as page:
    print([name for name in ("aiohttp", "sbpair.broker.server.dashboard_application") if name in sys.modules])
"""
    done = subprocess.run([sys.executable, "-c", program], capture_output=True, text=True, check=True)
    assert done.stdout.strip() == "[]"


def test_the_token_is_not_in_the_repr(page):
    assert page.token not in repr(page)
