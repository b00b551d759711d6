"""What the administration API accepts it gives back, or changes as the service does; nothing is dropped silently."""

from __future__ import annotations

from xml.etree import ElementTree

import pytest

from sbpair.broker.entities import Namespace, TopicDescription
from sbpair.broker.frontends.admin import requests
from sbpair.broker.frontends.admin.entity_fields import QUEUE_ELEMENTS, SUBSCRIPTION_ELEMENTS, TOPIC_ELEMENTS
from sbpair.broker.frontends.admin.fields import BOOLEAN, DURATION, INTEGER, Row, Setting
from tests.broker.administration import NEVER, NOW, SERVICE_BUS, body_of, get, refused, request

# values unlike the defaults, where the type does not say one
OTHER = {
    "LockDuration": "PT31S",
    "MaxSizeInMegabytes": "2048",
    "Status": "ReceiveDisabled",
    "ForwardTo": "end",
    "ForwardDeadLetteredMessagesTo": "end",
    "UserMetadata": "of ours",
    "MaxDeliveryCount": "7",
    "MaxMessageSizeInKilobytes": "1024",
    "EnableBatchedOperations": "false",
    "DeadLetteringOnFilterEvaluationExceptions": "false",
    "SupportOrdering": "false",
}
OF_TYPE = {BOOLEAN: "true", DURATION: "PT17M", INTEGER: "3"}
REFUSED = {  # not implemented; for Premium to choose
    "FilteringMessagesBeforePublishing",
    "MaxMessageSizeInKilobytes",
}
KINDS = {
    "QueueDescription": ("q", QUEUE_ELEMENTS),
    "TopicDescription": ("t", TOPIC_ELEMENTS),
    "SubscriptionDescription": ("events/Subscriptions/s", SUBSCRIPTION_ELEMENTS),
}


def settings() -> list[tuple[str, Setting]]:
    rows: list[tuple[str, tuple[Row[object], ...]]] = [(kind, rows) for kind, (_, rows) in KINDS.items()]
    return [(kind, row) for kind, found in rows for row in found if isinstance(row, Setting)]


@pytest.fixture
def namespace() -> Namespace:
    made = Namespace("contoso", created_at=NOW)
    made.create_topic("events", TopicDescription(), NOW)
    requests.answer(made, request("PUT", "end", body_of()), NOW)
    return made


def put(namespace: Namespace, kind: str, fields: dict[str, str]) -> requests.Response:
    return requests.answer(namespace, request("PUT", KINDS[kind][0], body_of(fields, kind)), NOW)


def shown(namespace: Namespace, kind: str, element: str) -> str | None:
    answer = get(namespace, KINDS[kind][0])
    return ElementTree.fromstring(answer.body).findtext(f".//{SERVICE_BUS}{kind}/{SERVICE_BUS}{element}")


@pytest.mark.parametrize(
    ("kind", "setting"), settings(), ids=lambda given: given if isinstance(given, str) else given.element
)
def test_a_setting_is_returned_as_it_was_sent(namespace: Namespace, kind: str, setting: Setting) -> None:
    value = OTHER.get(setting.element) or OF_TYPE[setting.kind]
    answer = put(namespace, kind, {setting.element: value})
    if setting.element in REFUSED:
        assert answer.status == 400
        return
    assert answer.status == 201
    found = shown(namespace, kind, setting.element)
    assert found == value


@pytest.mark.parametrize("kind", ["QueueDescription", "SubscriptionDescription"])
@pytest.mark.parametrize("is_updated", [False, True])
def test_forwarding_switches_deletion_on_idle_off_and_the_answer_shows_it(
    namespace: Namespace, kind: str, is_updated: bool
) -> None:
    both = {"ForwardTo": "end", "AutoDeleteOnIdle": "PT17M"}
    if is_updated:
        put(namespace, kind, {"AutoDeleteOnIdle": "PT17M"})
        path = KINDS[kind][0]
        requests.answer(namespace, request("PUT", path, body_of(both, kind), if_match="*"), NOW)
    else:
        put(namespace, kind, both)
    assert shown(namespace, kind, "AutoDeleteOnIdle") == NEVER


def rule(markup: str) -> bytes:
    return body_of({"Filter": markup}, "RuleDescription").replace(
        b"<Filter><Filter", b"<Filter").replace(b"</Filter></Filter>", b"</Filter>"
    )  # fmt: skip


TYPE = 'xmlns:i="http://www.w3.org/2001/XMLSchema-instance" i:type'
SILENT = {
    "an expression without a type": "<Filter><SqlExpression>a = 1</SqlExpression></Filter>",
    "properties without a type": "<Filter><Label>a</Label></Filter>",
    "an unknown condition": f'<Filter {TYPE}="CorrelationFilter"><Label>a</Label><Colour>b</Colour></Filter>',
    "an unknown part": f'<Filter {TYPE}="SqlFilter"><SqlExpression>1</SqlExpression><Else>b</Else></Filter>',
    "an unknown type": f'<Filter {TYPE}="Filter"><SqlExpression>a = 1</SqlExpression></Filter>',
}


@pytest.mark.parametrize("markup", SILENT.values(), ids=SILENT)
def test_an_ineffective_condition_is_refused(namespace: Namespace, markup: str) -> None:
    put(namespace, "SubscriptionDescription", {})
    answer = requests.answer(namespace, request("PUT", "events/Subscriptions/s/Rules/r", rule(markup)), NOW)
    refused(answer, 400, "Filter")


def test_an_action_without_a_type_is_refused(namespace: Namespace) -> None:
    put(namespace, "SubscriptionDescription", {})
    body = body_of({"Action": "<SqlExpression>SET a = 1</SqlExpression>"}, "RuleDescription")
    answer = requests.answer(namespace, request("PUT", "events/Subscriptions/s/Rules/r", body), NOW)
    refused(answer, 400, "Action")
