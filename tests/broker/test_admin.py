"""The administration API as requests and responses, without a socket."""

from __future__ import annotations

from xml.etree import ElementTree

import pytest

from sbpair.broker.entities import (
    Namespace,
    QueueDescription,
    StoredMessage,
    SubscriptionDescription,
    TopicDescription,
)
from sbpair.broker.entities.descriptions import AccessRule
from sbpair.broker.entities.quotas import Tier
from sbpair.broker.frontends.admin import atom, requests
from sbpair.broker.frontends.admin.entity_fields import QUEUE_ELEMENTS
from sbpair.broker.frontends.admin.requests import Request, Response
from tests.broker.administration import (
    ATOM,
    BACKLOG,
    NEVER,
    NOW,
    SERVICE_BUS,
    VERSION,
    body_of,
    description_in,
    field_of,
    get,
    put,
    refused,
    request,
    standard,
    update,
)

pytestmark = pytest.mark.client("amqp")  # written by hand


@pytest.fixture
def namespace() -> Namespace:
    return Namespace("contoso", created_at=NOW)


@pytest.mark.spec("P-10")
@pytest.mark.parametrize("path", ["/contoso%2Fx-servicebus-transfer%2F0", "/contoso/x-servicebus-transfer/0"])
def test_a_slash_in_a_name_may_be_encoded_or_plain(namespace: Namespace, path: str) -> None:
    put(namespace, path)
    for asked in ("/contoso%2fx-servicebus-transfer%2f0", "/CONTOSO/x-servicebus-transfer/0"):
        root = ElementTree.fromstring(get(namespace, asked).body)
        assert root.findtext(ATOM + "title") == "contoso/x-servicebus-transfer/0"


def test_the_default_settings_are_those_of_the_service(namespace: Namespace) -> None:
    response = put(namespace, "/orders")
    expected = {
        "LockDuration": "PT1M",
        "MaxSizeInMegabytes": "1024",
        "RequiresDuplicateDetection": "false",
        "RequiresSession": "false",
        "DefaultMessageTimeToLive": NEVER,
        "DeadLetteringOnMessageExpiration": "false",
        "DuplicateDetectionHistoryTimeWindow": "PT10M",
        "MaxDeliveryCount": "10",
        "EnableBatchedOperations": "true",
        "Status": "Active",
        "AutoDeleteOnIdle": NEVER,
        "EnablePartitioning": "false",
        "EntityAvailabilityStatus": "Available",
        "EnableExpress": "false",
        "MaxMessageSizeInKilobytes": "256",
    }
    assert {name: field_of(response, name) for name in expected} == expected


def test_xml_elements_are_in_the_order_of_the_service(namespace: Namespace) -> None:
    put(namespace, "/orders", {"UserMetadata": "x"})
    shown = [child.tag.removeprefix(SERVICE_BUS) for child in description_in(get(namespace, "/orders"))]
    assert shown == [
        row.element
        for row in QUEUE_ELEMENTS
        if row.element not in ("ForwardTo", "ForwardDeadLetteredMessagesTo")
    ]


@pytest.mark.spec("W-2")
def test_the_sdk_places_three_queue_elements_where_the_service_ignores_them() -> None:
    from azure.servicebus.management._generated.models import QueueDescription as Model
    from azure.servicebus.management._model_workaround import MODEL_CLASS_ATTRIBUTES

    described = [Model._attribute_map[name] for name in MODEL_CLASS_ATTRIBUTES[Model]]
    names = [row.get("xml", {}).get("name", "CountDetails") for row in described]
    order = [row.element for row in QUEUE_ELEMENTS]
    assert sorted(names) == sorted(order)
    late = [
        name
        for at, name in enumerate(names)
        if any(order.index(each) > order.index(name) for each in names[:at])
    ]
    assert late == ["ForwardTo", "UserMetadata", "ForwardDeadLetteredMessagesTo"]


@pytest.mark.spec("P-12")
@pytest.mark.parametrize(
    "path",
    [
        "/events/Subscriptions/nobody",
        "/events/Subscriptions/billing/Rules/none",
        "/events/Subscriptions/nobody/Rules/none",
    ],
)
def test_a_missing_subscription_or_rule_is_a_404_as_in_the_cloud(namespace: Namespace, path: str) -> None:
    """The Java SDK cannot read an empty feed here, as it can for a queue."""
    namespace.create_topic("events", TopicDescription(), NOW)
    namespace.create_subscription("events", "billing", SubscriptionDescription(), NOW)
    refused(requests.answer(namespace, request("GET", path), NOW), 404, "was not found")


def test_a_missing_queue_reads_as_an_empty_feed(namespace: Namespace) -> None:
    response = get(namespace, "/orders")
    root = ElementTree.fromstring(response.body)
    assert (response.status, root.tag) == (200, ATOM + "feed")
    assert root.findall(f".//{ATOM}entry") == []
    assert root.findall(f".//{ATOM}content") == []


def test_a_dead_letter_queue_is_not_listed_as_an_entity(namespace: Namespace) -> None:
    put(namespace, "/orders")
    assert b"QueueDescription" not in get(namespace, "/orders/$DeadLetterQueue").body
    refused(update(namespace, "/orders/$DeadLetterQueue"), 404, "orders/$DeadLetterQueue")
    refused(requests.answer(namespace, request("DELETE", "/orders/$DeadLetterQueue"), NOW), 404, "No service")


def test_an_update_changes_only_the_named_fields(namespace: Namespace) -> None:
    put(namespace, "/orders", {"MaxDeliveryCount": "7", "EnableExpress": "true"})
    response = update(namespace, "/orders", {"LockDuration": "PT30S"}, NOW + 1000)
    assert response.status == 200
    assert namespace.queue("orders").description == standard(
        lock_duration=30_000, max_delivery_count=7, enable_express=True
    )
    shown = get(namespace, "/orders")
    assert field_of(shown, "UpdatedAt") != field_of(shown, "CreatedAt")


@pytest.mark.parametrize("optional", ["UserMetadata", "ForwardTo", "ForwardDeadLetteredMessagesTo"])
def test_an_update_clears_omitted_optional_fields(namespace: Namespace, optional: str) -> None:
    put(namespace, "/other")
    assert field_of(put(namespace, "/orders", {optional: "other"}), optional) == "other"
    assert update(namespace, "/orders").status == 200
    assert namespace.queue("orders").description == standard()


def test_the_complete_answer_of_a_get_is_accepted_as_an_update(namespace: Namespace) -> None:
    put(namespace, "/orders", BACKLOG)
    namespace.queue("orders").enqueue(StoredMessage(b"12345"), NOW)
    before = namespace.queue("orders").description
    entry = get(namespace, "/orders").body
    assert requests.answer(namespace, request("PUT", "/orders", entry, if_match="*"), NOW).status == 200
    assert namespace.queue("orders").description == before


def test_an_update_with_a_real_etag_is_refused(namespace: Namespace) -> None:
    put(namespace, "/orders")
    conditional = request("PUT", "/orders", body_of(), if_match='"1"')
    refused(requests.answer(namespace, conditional, NOW), 400, "If-Match")


@pytest.mark.spec("S-9")
def test_client_text_is_returned_escaped(namespace: Namespace) -> None:
    put(namespace, "/orders", {"UserMetadata": "a &lt;b&gt; &amp; \"c\" 'd' ü 𝄞"})
    assert field_of(get(namespace, "/orders"), "UserMetadata") == "a <b> & \"c\" 'd' ü 𝄞"
    hostile = Request("GET", "/orders", VERSION, {"host": '"><x/>\x01'})
    assert field_of(requests.answer(namespace, hostile, NOW), "Status") == "Active"


# -- many queues


def titles(response: Response) -> list[str | None]:
    found = ElementTree.fromstring(response.body).findall(f"{ATOM}entry/{ATOM}title")
    return [title.text for title in found]


def links(response: Response) -> list[ElementTree.Element]:
    return ElementTree.fromstring(response.body).findall(ATOM + "link")


def test_a_page_holds_at_most_a_hundred_entries_and_is_empty_past_the_end(namespace: Namespace) -> None:
    for i in range(101):
        namespace.create_queue(f"q{i}", QueueDescription(), NOW)
    assert len(titles(get(namespace, "/$Resources/queues", f"{VERSION}&$top=999999999"))) == 100
    assert len(titles(get(namespace, "/%24Resources/Queues", f"{VERSION}&%24skip=100"))) == 1
    beyond = get(namespace, "/$Resources/queues", f"{VERSION}&$skip=999999999")
    assert (titles(beyond), len(links(beyond))) == ([], 1)


@pytest.mark.parametrize(
    "query", ["$skip=-1", "$top=ten", "$top=1e3", "$skip=", "$skip=99999999999999999999"]
)
def test_an_invalid_page_number_is_refused_by_name(namespace: Namespace, query: str) -> None:
    name = query.partition("=")[0].removeprefix("$")
    told = f"Parameter '{name}' should be non-negative integer.\r\nParameter name: {name}."
    refused(get(namespace, "/$Resources/queues", f"{VERSION}&{query}"), 400, told)


def test_a_namespace_without_topics_lists_none(namespace: Namespace) -> None:
    assert titles(get(namespace, "/$Resources/topics")) == []


# -- bad input


@pytest.mark.parametrize(
    "path",
    [
        "/",
        "/a%2F%2Fb",
        "/a//b",
        "/a/",
        "/%2Fa",
        "/..",
        "/..%2f..%2fetc",
        "/%2e%2e%2f",
        "/a/%2e%2e/b",
        "/a%00b",
        "/a%0d%0ab",
        "/a%7fb",
        "/$Default",
        "/%",
        "/%zz",
        "/" + "a" * 261,
        "/%ff%fe",
    ],
)
def test_an_invalid_queue_name_is_refused(namespace: Namespace, path: str) -> None:
    assert put(namespace, path).status == 400
    assert namespace.queues() == []


def test_the_longest_entity_name_has_260_characters(namespace: Namespace) -> None:
    assert put(namespace, "/" + "a" * 260).status == 201


@pytest.mark.parametrize(
    ("element", "text", "part"),
    [
        ("LockDuration", "PT4.999S", "Parameter name: LockDuration"),
        ("LockDuration", "PT5M0.001S", "Parameter name: LockDuration"),
        ("LockDuration", NEVER, "Parameter name: LockDuration"),
        ("LockDuration", "-PT1M", "LockDuration"),
        ("LockDuration", "PT-1S", "LockDuration"),
        ("LockDuration", "P", "LockDuration"),
        ("LockDuration", "", "LockDuration"),
        ("LockDuration", "00:01:00", "LockDuration"),
        ("LockDuration", "PT1M" * 100, "LockDuration"),
        ("DefaultMessageTimeToLive", "P99999999999D", "DefaultMessageTimeToLive"),
        ("DefaultMessageTimeToLive", "P10675199DT2H48M6S", "DefaultMessageTimeToLive"),
        ("AutoDeleteOnIdle", "PT4M59S", "Parameter name: AutoDeleteOnIdle"),
        (
            "DuplicateDetectionHistoryTimeWindow",
            "PT19S",
            "Parameter name: DuplicateDetectionHistoryTimeWindow",
        ),
        ("DuplicateDetectionHistoryTimeWindow", "P8D", "Parameter name: DuplicateDetectionHistoryTimeWindow"),
        ("MaxDeliveryCount", "0", "Parameter name: MaxDeliveryCount"),
        ("MaxDeliveryCount", "2147483648", "Parameter name: MaxDeliveryCount"),
        ("MaxDeliveryCount", "ten", "MaxDeliveryCount"),
        ("MaxDeliveryCount", "٣", "MaxDeliveryCount"),
        ("MaxSizeInMegabytes", "1023", "max_size_in_megabytes"),
        ("MaxSizeInMegabytes", "1", "one of (1024, 2048, 3072, 4096, 5120)"),
        ("MaxSizeInMegabytes", "10240", "max_size_in_megabytes"),
        ("MaxSizeInMegabytes", "1e3", "MaxSizeInMegabytes"),
        ("Status", "Sleeping", "Parameter name: Status"),
        ("EnableBatchedOperations", "yes", "EnableBatchedOperations"),
        ("UserMetadata", "x" * 1025, "Parameter name: UserMetadata"),
        ("RequiresSession", "maybe", "RequiresSession"),
        ("RequiresDuplicateDetection", "maybe", "RequiresDuplicateDetection"),
        ("EnablePartitioning", "perhaps", "EnablePartitioning"),
        ("ForwardTo", "sb://localhost/", "Parameter name: ForwardTo"),
        (
            "AuthorizationRules",
            "<AuthorizationRule><KeyName>k</KeyName></AuthorizationRule>",
            "authorization rule 'k'",
        ),
        ("AuthorizationRules", "<AuthorizationRule><Rights/></AuthorizationRule>", "KeyName"),
        ("MaxMessageSizeInKilobytes", "1024", "SubCode=40000. Bad Request."),
        ("LockDuration", "<b>PT1M</b>", "LockDuration"),
    ],
)
def test_a_bad_field_is_refused_by_name_in_creation_and_update(
    namespace: Namespace, element: str, text: str, part: str
) -> None:
    refused(put(namespace, "/orders", {element: text}), 400, part)
    assert namespace.queues() == []
    put(namespace, "/orders")
    refused(update(namespace, "/orders", {element: text}), 400, part)
    assert namespace.queue("orders").description == standard()


@pytest.mark.parametrize("tier", [Tier.STANDARD, Tier.PREMIUM])
def test_a_size_chosen_by_a_test_survives_other_updates(tier: Tier) -> None:
    namespace = Namespace("contoso", tier=tier)
    namespace.create_queue("orders", QueueDescription(max_size_in_megabytes=1), NOW)
    update(namespace, "/orders", {"MaxSizeInMegabytes": "1", "MaxDeliveryCount": "5"})
    found = namespace.queue("orders").description
    assert (found.max_size_in_megabytes, found.max_delivery_count) == (1, 5)
    refused(update(namespace, "/orders", {"MaxSizeInMegabytes": "2"}), 400, "max_size_in_megabytes is 2")


@pytest.mark.parametrize(
    ("element", "text", "milliseconds"),
    [
        ("LockDuration", "PT5S", 5_000),
        ("LockDuration", " PT5M ", 300_000),
        ("LockDuration", "PT12.3456S", 12_345),
        ("AutoDeleteOnIdle", "PT5M", 300_000),
        ("AutoDeleteOnIdle", "P1Y", 365 * 86_400_000),
        ("AutoDeleteOnIdle", "P10675199DT2H48M5.477539S", None),
        ("AutoDeleteOnIdle", "P10675199DT2H48M5.477581S", None),
        ("DefaultMessageTimeToLive", "P1DT2H3M4.005S", 93_784_005),
        ("DefaultMessageTimeToLive", "P2M", 60 * 86_400_000),
    ],
)
def test_a_span_at_the_edge_of_its_range_is_accepted(
    namespace: Namespace, element: str, text: str, milliseconds: int | None
) -> None:
    attribute = {row.element: getattr(row, "attribute", "") for row in QUEUE_ELEMENTS}[element]
    assert put(namespace, "/orders", {element: text}).status == 201
    assert getattr(namespace.queue("orders").description, attribute) == milliseconds


def test_nil_and_empty_optional_fields_count_as_absent(namespace: Namespace) -> None:
    nil = f'<MaxDeliveryCount xmlns:i="{atom.INSTANCE}" i:nil="true"/><ForwardTo/><AuthorizationRules/>'
    body = body_of().replace(b"></QueueDescription>", b">" + nil.encode() + b"</QueueDescription>")
    assert requests.answer(namespace, request("PUT", "/orders", body), NOW).status == 201
    assert namespace.queue("orders").description == standard()


RULE = (
    "<AuthorizationRule><ClaimType>SharedAccessKey</ClaimType><ClaimValue>None</ClaimValue>"
    "<Rights>{rights}</Rights><KeyName>reader</KeyName><PrimaryKey>one</PrimaryKey>"
    "<SecondaryKey>two</SecondaryKey></AuthorizationRule>"
)
LISTEN = "<AccessRights>Listen</AccessRights>"


def test_authorization_rules_are_stored_returned_changed_and_removed(namespace: Namespace) -> None:
    made = put(namespace, "/orders", {"AuthorizationRules": RULE.format(rights=LISTEN)})
    rule = AccessRule("reader", ("Listen",), "one", "two")
    assert namespace.queue("orders").description.authorization_rules == (rule,)
    assert [found.text for found in description_in(made).iter(SERVICE_BUS + "KeyName")] == ["reader"]
    assert [found.text for found in description_in(made).iter(SERVICE_BUS + "AccessRights")] == ["Listen"]

    update(namespace, "/orders", {"LockDuration": "PT5S"})
    assert namespace.queue("orders").description.authorization_rules == (rule,)
    update(namespace, "/orders", {"AuthorizationRules": ""})
    assert namespace.queue("orders").description.authorization_rules == ()


@pytest.mark.parametrize(
    ("rights", "part"),
    [
        ("", "at least one right"),
        ("<AccessRights>Fly</AccessRights>", "at least one right"),
        (f"<AccessRights>Manage</AccessRights>{LISTEN}", "also include Send and Listen"),
    ],
)
def test_a_rule_with_invalid_rights_is_refused(namespace: Namespace, rights: str, part: str) -> None:
    refused(put(namespace, "/orders", {"AuthorizationRules": RULE.format(rights=rights)}), 400, part)


BILLION_LAUGHS = (
    '<!DOCTYPE l [<!ENTITY a "ha">'
    + "".join(f'<!ENTITY {b} "{f"&{a};" * 10}">' for a, b in zip("abcdefgh", "bcdefghi", strict=True))
    + "]>"
)
ENTRY = body_of().decode()


@pytest.mark.spec("S-9")
@pytest.mark.parametrize(
    ("body", "part"),
    [
        (b"", "not well-formed"),
        (b"not xml", "not well-formed"),
        (b"\x00\xff", "not well-formed"),
        (ENTRY[:-5].encode(), "not well-formed"),
        (f"<!DOCTYPE entry>{ENTRY}".encode(), "DTDForbidden"),
        (f"{BILLION_LAUGHS}{ENTRY}".encode(), "DTDForbidden"),
        (f'<!DOCTYPE e [<!ENTITY x SYSTEM "file:///etc/passwd">]>{ENTRY}'.encode(), "DTDForbidden"),
        (f'<!DOCTYPE e SYSTEM "http://127.0.0.1:1/x.dtd">{ENTRY}'.encode(), "DTDForbidden"),
        (f'<!DOCTYPE e [<!ENTITY % p SYSTEM "http://127.0.0.1:1/p">%p;]>{ENTRY}'.encode(), "DTDForbidden"),
        (f'<?xml version="1.0" encoding="UTF-7"?>{ENTRY}'.encode(), "encoding"),
        (f'<?xml version="1.0" encoding="no-such"?>{ENTRY}'.encode(), "encoding"),
        (ENTRY.replace("</Queue", "&undefined;</Queue").encode(), "not well-formed"),
        (b"<a>" * 100_000, "nest deeper"),
        (b"<entry/>", "entry"),
        (ENTRY.replace(atom.ATOM, "urn:other").encode(), "entry"),
        (ENTRY.replace(atom.SERVICE_BUS, "urn:other").encode(), "QueueDescription"),
        (f'<entry xmlns="{atom.ATOM}"/>'.encode(), "content"),
        (f'<entry xmlns="{atom.ATOM}"><content/><content/></entry>'.encode(), "2 contents"),
        (f'<entry xmlns="{atom.ATOM}"><content/></entry>'.encode(), "0 elements"),
        (body_of({"Status": "Active", "x:Status": "Active"}), "not well-formed"),
        (body_of({"Colour": "x" * 70_000}), "More than 65536 characters"),
        (body_of(kind="SubscriptionDescription"), "SubscriptionDescription"),
        (body_of(kind="RuleDescription"), "RuleDescription"),
        (body_of(kind="ToasterDescription"), "ToasterDescription"),
        (body_of({"UserMetadata": "x" * atom.MAX_BODY}), "bytes long"),
    ],
)
def test_a_hostile_body_is_refused_and_changes_nothing(namespace: Namespace, body: bytes, part: str) -> None:
    refused(requests.answer(namespace, request("PUT", "/orders", body), NOW), 400, part)
    assert namespace.queues() == []


def test_a_body_in_utf_16_with_a_byte_order_mark_is_read(namespace: Namespace) -> None:
    body = body_of({"UserMetadata": "ü"}).decode().encode("utf-16")
    assert requests.answer(namespace, request("PUT", "/orders", body), NOW).status == 201
    assert namespace.queue("orders").description.user_metadata == "ü"


@pytest.mark.parametrize("version", ["2013-10", "2017-04", "2021-05", "2024-05"])
def test_the_published_api_versions_are_supported(namespace: Namespace, version: str) -> None:
    assert get(namespace, "/orders", f"api-version={version}").status == 200


@pytest.mark.parametrize(
    "query", ["api-version=", "api-version=2012-03", "api-version=2099-01", "api-version=x"]
)
def test_another_api_version_is_refused(namespace: Namespace, query: str) -> None:
    refused(get(namespace, "/orders", query), 400, "api-version")


def test_a_query_of_a_thousand_fields_is_refused(namespace: Namespace) -> None:
    refused(get(namespace, "/orders", "&".join(["a=1"] * 1000)), 400, "more than 32 fields")


@pytest.mark.parametrize(
    ("method", "path"), [("POST", "/orders"), ("PUT", "/$namespaceinfo"), ("PATCH", "/a")]
)
def test_an_unsupported_method_is_answered_with_the_allowed_methods(
    namespace: Namespace, method: str, path: str
) -> None:
    response = requests.answer(namespace, request(method, path), NOW)
    refused(response, 405, method)
    assert "GET" in response.headers["allow"]


# -- as the SDKs' own live tests expect
