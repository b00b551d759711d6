"""Descriptions as the service reads and writes them: in its order, by api-version, with what it does not read."""

from __future__ import annotations

from datetime import timedelta
from pathlib import Path
from xml.etree import ElementTree

import pytest
from azure.servicebus.management import ServiceBusAdministrationClient

from sbpair.broker import Broker
from sbpair.broker.entities import Namespace, SubscriptionDescription, TopicDescription
from sbpair.broker.frontends.admin import requests
from sbpair.broker.frontends.admin.entity_fields import QUEUE_ELEMENTS, SUBSCRIPTION_ELEMENTS, TOPIC_ELEMENTS
from sbpair.broker.frontends.admin.requests import Response
from sbpair.broker.frontends.dashboard.views import entity_row
from tests.broker.administration import (
    NEVER,
    NOW,
    SERVICE_BUS,
    VERSION,
    body_of,
    description_in,
    field_of,
    get,
    put,
    request,
    update,
)

pytestmark = [pytest.mark.client("amqp"), pytest.mark.spec("W-1")]  # written by hand

TOLD = "not in force: ForwardTo (it came after AutoDeleteOnIdle)."


@pytest.fixture
def namespace() -> Namespace:
    return Namespace("contoso", created_at=NOW)


def names_in(response: Response, kind: str = "QueueDescription") -> list[str]:
    found = ElementTree.fromstring(response.body).find(f".//{SERVICE_BUS}{kind}")
    assert found is not None
    return [child.tag.removeprefix(SERVICE_BUS) for child in found]


def put_subscription(
    namespace: Namespace, fields: dict[str, str], query: str = VERSION, **headers: str
) -> Response:
    body = body_of(fields, "SubscriptionDescription")
    return requests.answer(namespace, request("PUT", "/news/Subscriptions/all", body, query, **headers), NOW)


# -- the order


def test_late_element_is_given_back_and_default_holds(namespace: Namespace) -> None:
    put(namespace, "/archive")
    response = put(namespace, "/orders", {"AutoDeleteOnIdle": "P1D", "ForwardTo": "archive"})
    assert response.status == 201
    assert namespace.queue("orders").description.forward_to is None
    for answer in (response, get(namespace, "/orders")):
        assert field_of(answer, "ForwardTo") == "archive"
        assert names_in(answer)[names_in(answer).index("ForwardTo") - 1] == "AutoDeleteOnIdle"


def test_element_sent_twice_holds_as_it_came_first(namespace: Namespace) -> None:
    body = body_of({"MaxSizeInMegabytes": "2048", "AutoDeleteOnIdle": "P5D"})
    again = (
        b"<LockDuration>PT45S</LockDuration><MaxSizeInMegabytes>1024</MaxSizeInMegabytes></QueueDescription>"
    )
    answer = requests.answer(
        namespace, request("PUT", "/orders", body.replace(b"</QueueDescription>", again)), NOW
    )
    made = namespace.queue("orders").description
    assert (made.max_size_in_megabytes, made.lock_duration) == (2048, 60_000)
    assert [child.text for child in description_in(answer).iter(f"{SERVICE_BUS}LockDuration")] == [
        "PT1M",
        "PT45S",
    ]


def test_subscription_forwards_only_in_its_own_order(namespace: Namespace) -> None:
    namespace.create_topic("news", TopicDescription(), NOW)
    put(namespace, "/archive")
    fields = {"EnableBatchedOperations": "false", "MaxDeliveryCount": "15", "ForwardTo": "archive"}
    put_subscription(namespace, fields)
    made = namespace.subscription("news", "all").description
    assert (made.max_delivery_count, made.forward_to) == (10, "archive")


def test_late_rule_filter_is_not_in_force(namespace: Namespace) -> None:
    namespace.create_topic("news", TopicDescription(), NOW)
    namespace.create_subscription("news", "all", SubscriptionDescription(), NOW)
    body = body_of({"Name": "r", "Filter": "<SqlExpression>1=0</SqlExpression>"}, "RuleDescription")
    answer = requests.answer(namespace, request("PUT", "/news/Subscriptions/all/Rules/r", body), NOW)
    assert answer.status == 201
    assert answer.unread[0].startswith("not in force: Filter (it came after Name).")


def test_unknown_elements_are_kept_with_their_namespaces(namespace: Namespace) -> None:
    body = body_of({"Colour": "<Hue>&lt;b&gt;</Hue>", "MaxDeliveryCount": "3"})
    body = body.replace(b"<Colour>", b'<queueName xmlns="">orders</queueName><Colour a="1">')
    assert requests.answer(namespace, request("PUT", "/orders", body), NOW).status == 201
    shown = get(namespace, "/orders")
    assert names_in(shown)[:3] == ["queueName", "Colour", "LockDuration"]
    assert shown.body.count(b'<queueName xmlns="">orders</queueName><Colour a="1"><Hue>&lt;b&gt;</Hue>') == 1
    assert field_of(shown, "MaxDeliveryCount") == "3"


def test_update_without_late_elements_forgets_them(namespace: Namespace) -> None:
    put(namespace, "/archive")
    put(namespace, "/orders", {"EnableExpress": "false", "ForwardTo": "archive"})
    update(namespace, "/orders", {"MaxDeliveryCount": "3"})
    assert field_of(get(namespace, "/orders"), "ForwardTo") is None


def test_update_with_late_forwarding_ends_forwarding(namespace: Namespace) -> None:
    put(namespace, "/archive")
    put(namespace, "/orders", {"ForwardTo": "archive"})
    answer = update(namespace, "/orders", {"EnableExpress": "false", "ForwardTo": "archive"})
    assert field_of(answer, "ForwardTo") == "archive"
    assert namespace.queue("orders").description.forward_to is None


@pytest.mark.parametrize("rows", [QUEUE_ELEMENTS, TOPIC_ELEMENTS, SUBSCRIPTION_ELEMENTS])
def test_every_element_is_read_in_the_order_of_the_answers(rows: tuple) -> None:
    names = [row.element for row in rows]
    assert len(set(names)) == len(names)


# -- who is told, and what is kept


@pytest.mark.client("azure-servicebus")
def test_operator_is_told_what_came_late_and_a_restart_keeps_it(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    with Broker({"contoso": 0}, data=tmp_path) as broker, administration(broker) as client:
        client.create_queue("archive")
        client.create_queue("orders", forward_to="archive", auto_delete_on_idle=timedelta(hours=1))
        assert client.get_queue("orders").forward_to.endswith("/archive")
        told = f"PUT /orders: {TOLD}"
        assert [each.getMessage() for each in caplog.records if told in each.getMessage()]
        rejected = broker.namespace("contoso")._server.frontend.rejections.recent
        assert [each.text.startswith(TOLD) for each in rejected] == [True]
    with Broker({"contoso": 0}, data=tmp_path) as broker, administration(broker) as client:
        assert client.get_queue("orders").forward_to.endswith("/archive")
        client.create_queue("plain")
        found = broker.namespace("contoso")._server.frontend.namespace.queue("orders")
        assert entity_row(found, NOW).flags == ("ForwardTo not in force: sent too late",)


def administration(broker: Broker) -> ServiceBusAdministrationClient:
    return ServiceBusAdministrationClient.from_connection_string(
        broker.namespace("contoso").connection_string, connection_verify=str(broker.ca_file)
    )


# -- answers


def test_update_is_answered_with_what_was_sent(namespace: Namespace) -> None:
    put(namespace, "/orders")
    sent = {"LockDuration": "PT30S", "CreatedAt": "2020-01-01T00:00:00Z", "EnableExpress": "false"}
    answer = update(namespace, "/orders", sent)
    assert names_in(answer) == list(sent)
    assert field_of(answer, "CreatedAt") == "2020-01-01T00:00:00Z"
    assert b"<published>" not in answer.body


def test_creation_is_answered_without_runtime_fields(namespace: Namespace) -> None:
    created, shown = put(namespace, "/orders"), get(namespace, "/orders")
    assert set(names_in(shown)) - set(names_in(created)) == {"AccessedAt", "CountDetails"}


def test_forwarding_switches_deletion_on_idle_off(namespace: Namespace) -> None:
    namespace.create_topic("news", TopicDescription(), NOW)
    namespace.create_subscription("news", "all", SubscriptionDescription(), NOW)
    answer = put_subscription(
        namespace, {"ForwardTo": "news", "AutoDeleteOnIdle": "P10675199DT2H48M5.477539S"}, if_match="*"
    )
    assert f"<AutoDeleteOnIdle>{NEVER}</AutoDeleteOnIdle>".encode() in answer.body


def test_fraction_of_a_millisecond_is_given_back(namespace: Namespace) -> None:
    put(
        namespace,
        "/other",
        {"LockDuration": "PT60S", "DefaultMessageTimeToLive": "P10675199DT2H48M5.477539S"},
    )
    shown = get(namespace, "/other")
    assert field_of(shown, "DefaultMessageTimeToLive") == "P10675199DT2H48M5.477539S"
    assert field_of(shown, "LockDuration") == "PT1M"
    assert namespace.queue("other").description.default_message_time_to_live is None


def test_oldest_form_has_the_first_elements_only(namespace: Namespace) -> None:
    created = requests.answer(namespace, request("PUT", "/orders", body_of(), ""), NOW)
    assert names_in(created)[-3:] == ["MessageCount", "CreatedAt", "UpdatedAt"]
    assert names_in(get(namespace, "/orders", ""))[-2:] == ["SizeInBytes", "MessageCount"]


def test_elements_follow_the_api_version(namespace: Namespace) -> None:
    namespace.create_topic("news", TopicDescription(), NOW)
    put(namespace, "/orders")
    old, new = "api-version=2017-04", "api-version=2021-05"
    assert "MaxMessageSizeInKilobytes" not in names_in(get(namespace, "/orders", old))
    assert names_in(get(namespace, "/orders", new))[-1] == "MaxMessageSizeInKilobytes"
    assert "IsExpress" in names_in(get(namespace, "/news", old), "TopicDescription")
    assert "IsExpress" not in names_in(get(namespace, "/news", new), "TopicDescription")


def test_element_of_a_newer_api_version_is_refused(namespace: Namespace) -> None:
    body = body_of({"MaxMessageSizeInKilobytes": "256"})
    answer = requests.answer(namespace, request("PUT", "/orders", body, "api-version=2017-04"), NOW)
    assert answer.status == 400
    assert b"'QueueDescription' has unsupported properties for api-version '2017-04'" in answer.body
