"""Descriptions as the service reads and writes them: in its order, by api-version, with what it does not read."""

from __future__ import annotations

from dataclasses import fields
from datetime import timedelta
from pathlib import Path
from xml.etree import ElementTree

import pytest
from azure.servicebus.management import ServiceBusAdministrationClient

from sbpair.broker import Broker
from sbpair.broker.entities import Namespace, QueueDescription, SubscriptionDescription, TopicDescription
from sbpair.broker.entities.descriptions import QueueFields, SubscriptionFields, TopicFields
from sbpair.broker.frontends.admin import requests
from sbpair.broker.frontends.admin.requests import Response
from sbpair.broker.frontends.dashboard.views import entity_row
from sbpair.pair.ground.entity_settings import SETTINGS
from tests.broker.administration import (
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


# -- the table of settings


@pytest.mark.parametrize(
    ("kind", "described", "keywords"),
    [
        ("queue", QueueDescription, QueueFields),
        ("topic", TopicDescription, TopicFields),
        ("subscription", SubscriptionDescription, SubscriptionFields),
    ],
)
def test_a_description_and_its_keywords_have_the_settings_of_the_table(
    kind: str, described: type[QueueDescription], keywords: type[QueueFields]
) -> None:
    names = {each.name for each in fields(described)}
    assert names - {"authorization_rules"} == {each.name for each in SETTINGS.values() if kind in each.of}
    assert names == keywords.__required_keys__ | keywords.__optional_keys__


# -- the order


def test_a_misplaced_element_is_returned_and_its_default_applies(namespace: Namespace) -> None:
    put(namespace, "/archive")
    response = put(namespace, "/orders", {"AutoDeleteOnIdle": "P1D", "ForwardTo": "archive"})
    assert response.status == 201
    assert namespace.queue("orders").description.forward_to is None
    for answer in (response, get(namespace, "/orders")):
        assert field_of(answer, "ForwardTo") == "archive"
        assert names_in(answer)[names_in(answer).index("ForwardTo") - 1] == "AutoDeleteOnIdle"


def test_the_first_of_duplicate_elements_wins(namespace: Namespace) -> None:
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


def test_a_subscription_forwards_only_with_its_elements_in_order(namespace: Namespace) -> None:
    namespace.create_topic("news", TopicDescription(), NOW)
    put(namespace, "/archive")
    fields = {"EnableBatchedOperations": "false", "MaxDeliveryCount": "15", "ForwardTo": "archive"}
    put_subscription(namespace, fields)
    made = namespace.subscription("news", "all").description
    assert (made.max_delivery_count, made.forward_to) == (10, "archive")


def test_a_misplaced_rule_filter_is_not_applied(namespace: Namespace) -> None:
    namespace.create_topic("news", TopicDescription(), NOW)
    namespace.create_subscription("news", "all", SubscriptionDescription(), NOW)
    body = body_of({"Name": "r", "Filter": "<SqlExpression>1=0</SqlExpression>"}, "RuleDescription")
    answer = requests.answer(namespace, request("PUT", "/news/Subscriptions/all/Rules/r", body), NOW)
    assert answer.status == 201
    assert answer.unread[0].startswith("not in force: Filter (it came after Name).")


def test_unknown_elements_are_kept_with_their_xml_namespaces(namespace: Namespace) -> None:
    body = body_of({"Colour": "<Hue>&lt;b&gt;</Hue>", "MaxDeliveryCount": "3"})
    body = body.replace(b"<Colour>", b'<queueName xmlns="">orders</queueName><Colour a="1">')
    assert requests.answer(namespace, request("PUT", "/orders", body), NOW).status == 201
    shown = get(namespace, "/orders")
    assert names_in(shown)[:3] == ["queueName", "Colour", "LockDuration"]
    assert shown.body.count(b'<queueName xmlns="">orders</queueName><Colour a="1"><Hue>&lt;b&gt;</Hue>') == 1
    assert field_of(shown, "MaxDeliveryCount") == "3"


def test_an_update_with_misplaced_forwarding_ends_forwarding(namespace: Namespace) -> None:
    put(namespace, "/archive")
    put(namespace, "/orders", {"ForwardTo": "archive"})
    answer = update(namespace, "/orders", {"EnableExpress": "false", "ForwardTo": "archive"})
    assert field_of(answer, "ForwardTo") == "archive"
    assert namespace.queue("orders").description.forward_to is None


# -- who is told, and what is kept


@pytest.mark.client("azure-servicebus")
def test_misplaced_elements_are_shown_to_the_operator_and_survive_a_restart(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    with Broker({"contoso": 0}, data=tmp_path) as broker, administration(broker) as client:
        client.create_queue("archive")
        client.create_queue("orders", forward_to="archive", auto_delete_on_idle=timedelta(hours=1))
        assert client.get_queue("orders").forward_to.endswith("/archive")
        told = f"PUT /orders: {TOLD}"
        assert [each.getMessage() for each in caplog.records if told in each.getMessage()]
        rejected = broker.namespace("contoso").server.frontend.rejections.recent
        assert [each.text.startswith(TOLD) for each in rejected] == [True]
    with Broker({"contoso": 0}, data=tmp_path) as broker, administration(broker) as client:
        assert client.get_queue("orders").forward_to.endswith("/archive")
        client.create_queue("plain")
        found = broker.namespace("contoso").server.frontend.namespace.queue("orders")
        assert entity_row(found, NOW).flags == ("ForwardTo not in force: sent too late",)


def administration(broker: Broker) -> ServiceBusAdministrationClient:
    return ServiceBusAdministrationClient.from_connection_string(
        broker.namespace("contoso").connection_string, connection_verify=str(broker.ca_file)
    )


# -- answers


def test_an_update_is_answered_with_the_sent_elements(namespace: Namespace) -> None:
    put(namespace, "/orders")
    sent = {"LockDuration": "PT30S", "CreatedAt": "2020-01-01T00:00:00Z", "EnableExpress": "false"}
    answer = update(namespace, "/orders", sent)
    assert names_in(answer) == list(sent)
    assert field_of(answer, "CreatedAt") == "2020-01-01T00:00:00Z"
    assert b"<published>" not in answer.body


def test_creation_is_answered_without_runtime_fields(namespace: Namespace) -> None:
    created, shown = put(namespace, "/orders"), get(namespace, "/orders")
    assert set(names_in(shown)) - set(names_in(created)) == {"AccessedAt", "CountDetails"}


def test_a_fraction_of_a_millisecond_is_returned_unchanged(namespace: Namespace) -> None:
    put(
        namespace,
        "/other",
        {"LockDuration": "PT60S", "DefaultMessageTimeToLive": "P10675199DT2H48M5.477539S"},
    )
    shown = get(namespace, "/other")
    assert field_of(shown, "DefaultMessageTimeToLive") == "P10675199DT2H48M5.477539S"
    assert field_of(shown, "LockDuration") == "PT1M"
    assert namespace.queue("other").description.default_message_time_to_live is None


def test_the_oldest_form_has_only_the_first_elements(namespace: Namespace) -> None:
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


@pytest.mark.client("azure-servicebus")
def test_a_topic_updated_by_the_sdk_is_read_back(tmp_path: Path) -> None:
    with Broker({"contoso": 0}, tls_directory=tmp_path) as broker:
        contoso = broker.namespace("contoso")
        with ServiceBusAdministrationClient.from_connection_string(
            contoso.connection_string, connection_verify=str(broker.ca_file)
        ) as client:
            client.create_topic("news")
            for hours in (1, 2):  # counts are sent back behind their place
                topic = client.get_topic("news")
                topic.default_message_time_to_live = timedelta(hours=hours)
                client.update_topic(topic)
            read = client.get_topic("news")

    assert read.default_message_time_to_live == timedelta(hours=2)
