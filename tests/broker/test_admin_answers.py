"""The administration API answers as the service does, where clients of other makers look."""

from __future__ import annotations

from xml.etree import ElementTree

import pytest

from sbpair.broker.entities import (
    Namespace,
    SubscriptionDescription,
    TopicDescription,
)
from sbpair.broker.entities.partition import Layout
from sbpair.broker.entities.quotas import Tier
from sbpair.broker.frontends.admin import requests
from tests.broker.administration import (
    NOW,
    SERVICE_BUS,
    VERSION,
    body_of,
    field_of,
    get,
    put,
    refused,
    request,
    update,
)

pytestmark = pytest.mark.client("amqp")  # written by hand


@pytest.fixture
def namespace() -> Namespace:
    return Namespace("contoso", created_at=NOW)


@pytest.mark.spec("X-16")
def test_a_request_without_api_version_is_answered(namespace: Namespace) -> None:
    put(namespace, "/orders")
    assert get(namespace, "/orders", "").status == 200
    for number in range(3):
        put(namespace, f"/q{number}")
    page = get(namespace, "/$Resources/queues", "$top=2").body
    assert b"api-version" not in page
    assert b"%24skip=2&amp;%24top=2" in page


@pytest.mark.spec("X-18")
def test_an_error_has_no_xml_declaration(namespace: Namespace) -> None:
    assert get(namespace, "/orders", "api-version=x").body.startswith(b"<Error><Code>400</Code>")
    assert put(namespace, "/orders").body.startswith(b"<entry ")


@pytest.mark.spec("X-14")
def test_a_forwarding_target_is_returned_with_scheme_and_host_in_lower_case(namespace: Namespace) -> None:
    put(namespace, "/Archive")
    put(namespace, "/orders", {"ForwardTo": "SB://Contoso.ServiceBus.Windows.NET/Archive"})
    put(namespace, "/plain", {"ForwardDeadLetteredMessagesTo": "Archive"})
    assert field_of(get(namespace, "/orders"), "ForwardTo") == "sb://contoso.servicebus.windows.net/Archive"
    assert field_of(get(namespace, "/plain"), "ForwardDeadLetteredMessagesTo") == "Archive"


@pytest.mark.spec("X-14", "W-1")
def test_a_forwarding_target_set_later_is_returned_in_the_same_form(namespace: Namespace) -> None:
    put(
        namespace,
        "/orders",
        {"EnableExpress": "false", "ForwardTo": "SB://Contoso.ServiceBus.Windows.NET/Archive"},
    )
    assert field_of(get(namespace, "/orders"), "ForwardTo") == "sb://contoso.servicebus.windows.net/Archive"


@pytest.mark.spec("X-15")
@pytest.mark.parametrize(("size", "status"), [(1023, 400), (1024, 201), (102_400, 201), (102_401, 400)])
def test_the_largest_message_of_a_premium_entity_is_1_to_100_megabytes(size: int, status: int) -> None:
    response = put(
        Namespace("contoso", tier=Tier.PREMIUM), "/orders", {"MaxMessageSizeInKilobytes": str(size)}
    )
    assert response.status == status
    if status == 400:
        refused(response, 400, "value for 'MaxMessageSizeInKilobytes' must be between 1024 and 102400")


@pytest.mark.spec("X-12")
def test_an_update_is_no_access_and_a_new_subscription_was_accessed_at_creation() -> None:
    namespace = Namespace("contoso")
    put(namespace, "/orders")
    update(namespace, "/orders", {"MaxDeliveryCount": "3"})
    assert field_of(get(namespace, "/orders"), "AccessedAt") == "0001-01-01T00:00:00Z"
    namespace.create_topic("news", TopicDescription(), NOW)
    namespace.create_subscription("news", "all", SubscriptionDescription(), NOW)
    assert (
        b"<AccessedAt>2027-01-15T08:00:00.000Z</AccessedAt>" in get(namespace, "/news/Subscriptions/all").body
    )


@pytest.mark.spec("X-24")
@pytest.mark.parametrize(
    ("settings", "units"),
    [
        ({}, None),
        ({"tier": Tier.PREMIUM}, "1"),
        ({"layout": Layout(premium=4)}, "4"),
    ],
    ids=["Standard", "Premium", "partitioned Premium"],
)
def test_a_premium_namespace_has_messaging_units(settings: dict[str, object], units: str | None) -> None:
    told = ElementTree.fromstring(get(Namespace("contoso", **settings), "/$namespaceinfo").body)
    assert told.findtext(f".//{SERVICE_BUS}MessagingUnits") == units


@pytest.mark.spec("X-17")
@pytest.mark.parametrize(
    ("changed", "told"),
    [
        (
            {"RequiresSession": "true"},
            "The value for the RequiresSession property of an existing Queue cannot be changed",
        ),
        ({"EnablePartitioning": "true"}, "Partitioning cannot be changed for Queue. "),
    ],
)
def test_a_change_of_a_fixed_setting_is_refused_in_the_words_of_the_service(
    namespace: Namespace, changed: dict[str, str], told: str
) -> None:
    put(namespace, "/orders")
    refused(update(namespace, "/orders", changed), 400, told)


ERRORS = [  # as published, without trackers; what was asked for, and the service's words
    (
        "PUT",
        "/news",
        "TopicDescription",
        False,
        "SubCode=40900. Conflict. You're requesting an operation that isn't",
    ),
    ("DELETE", "/nowhere", "", False, "No service is hosted at the specified address."),
    ("PUT", "/nowhere", "QueueDescription", True, "SubCode=40400. Not Found. The Operation doesn't exist."),
    (
        "PUT",
        "/news/subscriptions/all",
        "SubscriptionDescription",
        False,
        "'contoso:Topic:news|all' already exists.",
    ),
    ("GET", "/news/Subscriptions/none", "", False, "Entity 'contoso:Topic:news|none' was not found."),
    ("DELETE", "/news/Subscriptions/none", "", False, "'contoso:Topic:news|none' could not be found."),
    ("GET", "/news/Subscriptions/all/Rules/r", "", False, "Entity 'contoso:Topic:news|all|r' was not found."),
    (
        "PUT",
        "/no/Subscriptions/s",
        "SubscriptionDescription",
        True,
        "not recognized as a namespace policy put request",
    ),
    ("PUT", "/b%C3%A4d", "QueueDescription", False, "Incorrect request Uri format."),
    (
        "PUT",
        "/news/Subscriptions/b%C3%A4d",
        "SubscriptionDescription",
        False,
        "/b%C3%A4d?api-version=2024-05' contains",
    ),
]


@pytest.mark.spec("W-6")
@pytest.mark.parametrize(("method", "path", "kind", "is_update", "told"), ERRORS)
def test_an_error_has_the_words_of_the_service(
    namespace: Namespace, method: str, path: str, kind: str, is_update: bool, told: str
) -> None:
    namespace.create_topic("news", TopicDescription(), NOW)
    namespace.create_subscription("news", "all", SubscriptionDescription(), NOW)
    headers = {"if_match": "*"} if is_update else {}
    body = body_of(kind=kind) if kind else b""
    response = requests.answer(namespace, request(method, path, body, **headers), NOW)
    assert told in response.body.decode()
    assert b"TrackingId:" in response.body
    assert response.headers["content-type"] == "application/xml; charset=utf-8"


@pytest.mark.spec("W-6")
def test_a_missing_subscription_without_api_version_is_named_in_the_status_line(namespace: Namespace) -> None:
    namespace.create_topic("news", TopicDescription(), NOW)
    response = get(namespace, "/news/Subscriptions/none", "")
    assert (response.status, response.reason, response.body) == (404, "40400: Endpoint not found.", b"")


@pytest.mark.spec("W-6")
def test_trackers_without_api_version_have_the_oldest_form(namespace: Namespace) -> None:
    put(namespace, "/orders")
    response = requests.answer(namespace, request("PUT", "/orders", body_of(), ""), NOW)
    assert response.body.endswith(b"_G0,TimeStamp:1/15/2027 8:00:00 AM</Detail></Error>")


@pytest.mark.spec("W-6")
def test_answers_have_the_tag_of_the_queue_or_topic(namespace: Namespace) -> None:
    created = put(namespace, "/orders")
    shown = get(namespace, "/orders")
    assert "etag" not in created.headers
    assert shown.headers["etag"] == "639355968000000000"
    assert shown.headers["content-type"] == "application/atom+xml;type=entry;charset=utf-8"
    listed = get(namespace, "/$Resources/queues")
    assert listed.headers == {"content-type": "application/atom+xml;type=feed;charset=utf-8"}


@pytest.mark.spec("W-6")
@pytest.mark.parametrize(("version", "status"), [("", 200), ("api-version=2017-04", 404), (VERSION, 200)])
def test_a_get_below_a_missing_topic_finds_nothing(namespace: Namespace, version: str, status: int) -> None:
    assert get(namespace, "/nowhere/Subscriptions/none", version).status == status
