"""Azure Resource Manager templates: their entities, and errors that name the place."""

from __future__ import annotations

import json

import pytest
from hypothesis import given
from hypothesis import strategies as st

from sbpair.broker.configuration import BadConfigurationError, is_arm_template, read_arm_template
from sbpair.broker.configuration.arm_expression import BadExpressionError, Scope, evaluate
from sbpair.broker.configuration.plan import NamespacePlan
from sbpair.broker.entities import Namespace
from sbpair.broker.entities.rules import CorrelationFilter, SqlFilter

pytestmark = [pytest.mark.spec("E-5"), pytest.mark.client("model")]
NOW = 1_800_000_000_000
BUS = "Microsoft.ServiceBus/namespaces"
BICEP = {  # as `az bicep build` writes it
    "$schema": "https://schema.management.azure.com/schemas/2019-04-01/deploymentTemplate.json#",
    "contentVersion": "1.0.0.0",
    "parameters": {
        "namespaceName": {
            "type": "string",
            "defaultValue": "[format('sb-{0}', uniqueString(resourceGroup().id))]",
        },
        "location": {"type": "string", "defaultValue": "[resourceGroup().location]"},
        "carts": {"type": "int", "defaultValue": 2},
        "regions": {"type": "array", "defaultValue": ["eu", "us"]},
        "audited": {"type": "bool", "defaultValue": False},
    },
    "variables": {"orders": "[concat('or', variables('rest').ders)]", "rest": {"ders": "ders"}},
    "resources": [
        {
            "type": BUS,
            "apiVersion": "2022-10-01-preview",
            "name": "[parameters('namespaceName')]",
            "location": "[parameters('location')]",
            "sku": {"name": "Standard"},
        },
        {
            "type": f"{BUS}/queues",
            "name": "[format('{0}/{1}', parameters('namespaceName'), variables('orders'))]",
            "properties": {
                "lockDuration": "PT30S",
                "maxDeliveryCount": "[int('7')]",
                "requiresSession": True,
                "forwardDeadLetteredMessagesTo": "dead",
            },
            "dependsOn": ["[resourceId('Microsoft.ServiceBus/namespaces', parameters('namespaceName'))]"],
        },
        {"type": f"{BUS}/queues", "name": "[format('{0}/{1}', parameters('namespaceName'), 'dead')]"},
        {
            "copy": {"name": "carts", "count": "[parameters('carts')]"},
            "type": f"{BUS}/queues",
            "name": "[format('{0}/carts~{1}', parameters('namespaceName'), copyIndex())]",
        },
        {
            "type": f"{BUS}/topics",
            "name": "[format('{0}/events', parameters('namespaceName'))]",
            "properties": {"supportOrdering": True},
            "resources": [
                {
                    "type": "subscriptions",
                    "copy": {"name": "each", "count": "[length(parameters('regions'))]"},
                    "name": "[toUpper(parameters('regions')[copyIndex()])]",
                    "properties": {"maxDeliveryCount": 3, "isClientAffine": False},
                    "resources": [
                        {
                            "type": "rules",
                            "name": "region",
                            "properties": {
                                "filterType": "SqlFilter",
                                "sqlFilter": {
                                    "sqlExpression": "[format('region = ''{0}''', parameters('regions')[copyIndex()])]"
                                },
                            },
                        },
                        {
                            "type": "rules",
                            "name": "paid",
                            "properties": {
                                "filterType": "CorrelationFilter",
                                "correlationFilter": {"label": "paid", "properties": {"vip": "yes"}},
                                "action": {"sqlExpression": "SET checked = 1"},
                            },
                        },
                    ],
                }
            ],
        },
        {"condition": "[parameters('audited')]", "type": f"{BUS}/queues", "name": "contoso/audit"},
        {"type": f"{BUS}/AuthorizationRules", "name": "contoso/sender", "properties": {"rights": ["Send"]}},
        {"type": "Microsoft.Storage/storageAccounts", "name": "[uniqueString('x')]"},
        {
            "type": "Microsoft.Resources/deployments",
            "name": "module",
            "properties": {
                "mode": "Incremental",
                "parameters": {"bus": {"value": "[parameters('namespaceName')]"}},
                "template": {
                    "parameters": {"bus": {"type": "string"}},
                    "resources": [{"type": f"{BUS}/queues", "name": "[concat(parameters('bus'), '/inner')]"}],
                },
            },
        },
    ],
}


def template(**queue: object) -> str:
    """Return a template of one queue with these values."""
    return json.dumps({"resources": [{"type": f"{BUS}/queues", "name": "contoso/orders", **queue}]})


def read(text: str, **parameters: str) -> NamespacePlan:
    (plan,) = read_arm_template("main.json", text, parameters)
    return plan


def test_what_bicep_writes_becomes_the_entities_it_describes() -> None:
    plan = read(json.dumps(BICEP), namespaceName="contoso", carts="3")
    assert (plan.name, sorted(plan.queues)) == (
        "contoso",
        ["carts/0", "carts/1", "carts/2", "dead", "inner", "orders"],
    )
    orders = plan.queues["orders"]
    assert (orders.lock_duration, orders.max_delivery_count, orders.requires_session) == (30_000, 7, True)
    assert orders.forward_dead_lettered_messages_to == "dead"
    subscriptions = plan.topics["events"].subscriptions
    assert sorted(subscriptions) == ["EU", "US"]
    region, paid = subscriptions["US"].rules
    assert isinstance(region.filter, SqlFilter)
    assert "us" in region.filter.expression
    assert isinstance(paid.filter, CorrelationFilter)
    assert (paid.filter.label, dict(paid.filter.properties)) == ("paid", {"vip": "yes"})


def test_a_broker_creates_what_a_template_describes() -> None:
    plan = read(json.dumps(BICEP), namespaceName="contoso", audited="true")
    namespace = Namespace("contoso", created_at=NOW)
    plan.create_entities(namespace, NOW)
    created = {each.path for each in namespace.directory.page(0, 100)[1]}
    assert {"audit", "carts/1", "dead", "events", "events/Subscriptions/EU", "inner", "orders"} <= created


@pytest.mark.parametrize(
    ("text", "said"),
    [
        (
            json.dumps(BICEP),
            "parameters.namespaceName.defaultValue: expected an expression that can be evaluated",
        ),
        (json.dumps(BICEP), "resourceGroup() needs Azure or is unknown"),
        (
            template(properties={"lockDuration": "[reference('x').y]"}),
            "resources[0].properties: expected an expression",
        ),
        (template(properties={"lockDuration": "soon"}), "resources[0].properties.lockDuration: expected"),
        (
            template(properties={"lockDurations": "PT1M"}),
            "lockDurations: expected no such key; did you mean lockDuration?",
        ),
        (template(name="contoso"), "resources[0].name: expected 2 names joined by '/', not 'contoso'"),
        (template(name="[parameters('x')]"), "parameter 'x' has no value: use --parameter x=VALUE"),
        (template(name="[concat('contoso/', 'a'"[:-1] + "]"), "resources[0].name: expected an expression"),
        (template(type=f"{BUS}/pipes"), "is not supported by the broker"),
        (template(copy={"count": "many"}), "resources[0].copy.count: expected a number"),
        (template(type=f"{BUS}/topics/subscriptions", name="contoso/t/s"), "expected contoso/t too"),
        ('{"resources": []}', "resources: expected a namespace, or entities"),
        ('{"resources": 5}', "resources: expected a list"),
        ('{"resources": [', "expected JSON"),
        (
            json.dumps(
                {
                    "variables": {"a": "[variables('a')]"},
                    "resources": [{"type": BUS, "name": "[variables('a')]"}],
                }
            ),
            "variable 'a' refers to itself",
        ),
    ],
)
def test_what_cannot_be_read_is_named_with_its_place(text: str, said: str) -> None:
    with pytest.raises(BadConfigurationError) as refused:
        read_arm_template("main.json", text, {})
    assert str(refused.value).startswith("main.json: ")
    assert said in str(refused.value)


def test_a_parameter_has_the_type_that_the_template_declares() -> None:
    with pytest.raises(BadConfigurationError, match=r"parameters\.carts: expected JSON, not 'two'"):
        read(json.dumps(BICEP), namespaceName="contoso", carts="two")
    with pytest.raises(
        BadConfigurationError, match="no parameter 'cart'; there are: namespaceName, location, carts"
    ):
        read(json.dumps(BICEP), cart="2")


@pytest.mark.parametrize(
    ("text", "value"),
    [
        ("plain", "plain"),
        ("[[not an expression]", "[not an expression]"),
        ("['it''s']", "it's"),
        ("[ concat( 'a' , 'b' ) ]", "ab"),
        ("[format('{0}-{1}-{{0}}', 'a', 7)]", "a-7-{0}"),
        ("[createArray('a', 'b')[1]]", "b"),
        ("[string(true())]", "True"),
        ("[length('four')]", 4),
    ],
)
def test_an_expression_is_evaluated_as_azure_does(text: str, value: object) -> None:
    assert evaluate(text, Scope()) == value


@pytest.mark.parametrize(
    "text",
    [
        "[]", "[a]", "[concat('a',)]", "[concat('a' 'b')]", "['a']x]", "['a', 'b']", "[concat('a'), ]",
        "[5.x]", "[format('{0:D3}', 5)]", "[copyIndex()]", "[format('{1}', 'a')]", "[int('x')]",
    ],
)  # fmt: skip
def test_an_expression_that_is_malformed_is_refused(text: str) -> None:
    with pytest.raises(BadExpressionError):
        evaluate(text, Scope())


@given(st.text("[]()'.,a1 {}", max_size=40))
def test_any_text_is_evaluated_or_refused(text: str) -> None:
    try:
        evaluate(f"[{text}]", Scope({"a": "b"}))
    except BadExpressionError:
        pass


def test_the_emulators_file_is_no_template() -> None:
    assert is_arm_template(BICEP)
    assert not is_arm_template({"UserConfig": {}})
    assert not is_arm_template([])
