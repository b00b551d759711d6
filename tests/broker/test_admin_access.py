"""Authorization of the administration API, and the errors of refused requests."""

from __future__ import annotations

from dataclasses import replace
from datetime import UTC, datetime

import pytest

from sbpair.broker import auth
from sbpair.broker.access import SharedAccess
from sbpair.broker.auth import Right, SharedAccessPolicy
from sbpair.broker.entities import Namespace, QueueDescription
from sbpair.broker.frontends.admin import requests
from sbpair.broker.frontends.admin.requests import Request, Response
from tests.broker.administration import NOW, VERSION, refused, request

pytestmark = pytest.mark.client("amqp")  # written by hand

POLICY = SharedAccessPolicy.generate()
READER = SharedAccessPolicy("reader", POLICY.primary_key, POLICY.secondary_key, frozenset({Right.LISTEN}))
STRICT = SharedAccess((POLICY, READER))
NOW_S = NOW // 1000
NAMESPACE = Namespace("contoso")
NAMESPACE.create_queue("orders", QueueDescription(), NOW)


def signed(
    uri: str, policy: SharedAccessPolicy = POLICY, path: str = "/orders", expires: int = NOW_S + 60
) -> Request:
    token = auth.make_token(uri, policy.name, policy.primary_key, expires)
    return request("GET", path, authorization=token)


@pytest.mark.parametrize("path", ["/orders", "/a%2Fb", "/$Resources/queues", "/$namespaceinfo"])
def test_a_token_for_the_endpoint_may_manage_everything(path: str) -> None:
    assert requests.refusal(signed("https://localhost:5300", path=path), NAMESPACE, STRICT, NOW_S) is None


@pytest.mark.parametrize("path", ["/orders", "/a%2fb", "/a/b", "/$Resources/queues", "/$namespaceinfo"])
def test_a_token_for_the_exact_request_url_authorises_it(path: str) -> None:
    url = f"https://localhost:5300{path}?{VERSION}".lower()  # as the JavaScript client signs
    assert requests.refusal(signed(url, path=path), NAMESPACE, STRICT, NOW_S) is None
    assert requests.refusal(signed(url, path="/another"), NAMESPACE, STRICT, NOW_S) is not None


@pytest.mark.spec("S-2")
def test_a_token_for_one_queue_may_manage_only_that_queue() -> None:
    assert requests.refusal(signed("https://localhost:5300/orders"), NAMESPACE, STRICT, NOW_S) is None
    for path in ("/orders2", "/$Resources/queues", "/$namespaceinfo"):
        response = requests.refusal(
            signed("https://localhost:5300/orders", path=path), NAMESPACE, STRICT, NOW_S
        )
        assert response is not None
        refused(response, 401, "Manage")


@pytest.mark.spec("S-3")
@pytest.mark.parametrize(
    ("asked", "part"),
    [
        (request("GET", "/orders"), "no Authorization header"),
        (request("GET", "/orders", authorization=""), "no Authorization header"),
        (
            request("GET", "/orders", authorization="Bearer eyJhbGciOiJub25lIn0.e30."),
            "not signed with HS256",
        ),
        (request("GET", "/orders", authorization="Basic bWU6a2V5"), "not a SharedAccessSignature"),
        (signed("https://localhost:5300", replace(POLICY, primary_key="d3Jvbmc=")), "does not match"),
        (signed("https://localhost:5300", replace(POLICY, name="nobody")), "does not match"),
        (signed("https://elsewhere:5300"), "Manage"),
    ],
)
def test_a_request_without_manage_gets_a_401_with_the_reason(asked: Request, part: str) -> None:
    response = requests.refusal(asked, NAMESPACE, STRICT, NOW_S)
    assert response is not None
    refused(response, 401, "claim is empty or token is invalid." if part != "Manage" else part)
    assert part in response.refused
    assert b"sig=" not in response.body


@pytest.mark.spec("W-4", "X-17")
def test_an_expired_signature_gets_a_401_with_the_time_when_it_ended() -> None:
    asked = signed("https://localhost:5300", expires=NOW_S)
    response = requests.refusal(asked, NAMESPACE, STRICT, NOW_S)
    assert response is not None
    ended = datetime.fromtimestamp(NOW_S, UTC).strftime("%Y-%m-%d %H:%M:%SZ")
    refused(response, 401, f"ExpiredToken: The token is expired. Expiration time: '{ended}'. TrackingId:")


def refused_to_a_reader(method: str, path: str) -> Response | None:
    token = auth.make_token("https://localhost:5300", READER.name, READER.primary_key, NOW_S + 60)
    return requests.refusal(request(method, path, authorization=token), NAMESPACE, STRICT, NOW_S)


@pytest.mark.spec("X-13")
@pytest.mark.parametrize(
    ("method", "path", "told"),
    [
        ("GET", "/orders", "Manage,EntityRead claims required for this operation."),
        ("GET", "/$Resources/queues", "Manage,EntityRead claims required for this operation."),
        ("PUT", "/orders", "Authorization failed for specified action: Manage,EntityWrite."),
        ("PUT", "/new", "Authorization failed for specified action: Manage,EntityWrite."),
        ("DELETE", "/orders", "Authorization failed for specified action: Manage,EntityDelete."),
    ],
)
def test_a_queue_request_without_manage_is_refused_in_the_words_of_the_service(
    method: str, path: str, told: str
) -> None:
    response = refused_to_a_reader(method, path)
    assert response is not None
    assert (response.status, response.reason) == (401, None)
    assert response.body.startswith(f"<Error><Code>401</Code><Detail>{told}".encode())


@pytest.mark.spec("X-13")
def test_a_missing_queue_reads_as_missing_without_manage_and_strangers_learn_nothing() -> None:
    assert refused_to_a_reader("GET", "/nowhere") is None
    elsewhere = signed("https://localhost:5300/mine", READER, path="/nowhere")
    assert requests.refusal(elsewhere, NAMESPACE, STRICT, NOW_S) is not None


@pytest.mark.spec("X-13")
@pytest.mark.parametrize(
    ("method", "path", "operation"),
    [
        ("GET", "/news/Subscriptions/all", "GetSubscription"),
        ("PUT", "/news/Subscriptions/all", "CreateOrUpdateSubscription"),
        ("DELETE", "/news/Subscriptions/all", "DeleteSubscription"),
        ("GET", "/news/Subscriptions", "EnumerateSubscriptions"),
        ("GET", "/news/Subscriptions/", "EnumerateSubscriptions"),
        ("GET", "/news/Subscriptions/all/Rules", "EnumerateRules"),
        ("PUT", "/news/Subscriptions/all/Rules/r", "CreateOrUpdateRule"),
    ],
)
def test_the_status_line_names_the_refused_subscription_operation(
    method: str, path: str, operation: str
) -> None:
    response = refused_to_a_reader(method, path)
    assert response is not None
    assert response.status == 401
    told = (
        f"Unauthorized access for '{operation}' operation on endpoint 'sb://localhost:5300{path}?{VERSION}'."
    )
    assert (response.reason or "").startswith(f"SubCode=40100: Unauthorized : {told} Tracking Id: ")
    assert told.encode() in response.body
