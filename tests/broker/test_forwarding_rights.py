"""Forwarding requires Manage on both entities, by the request's token or by a separate header."""

from __future__ import annotations

import pytest

from sbpair.broker import auth
from sbpair.broker.access import SharedAccess
from sbpair.broker.auth import SharedAccessPolicy
from sbpair.broker.entities import Namespace, QueueDescription, SubscriptionDescription, TopicDescription
from sbpair.broker.entities.descriptions import AccessRule
from sbpair.broker.frontends.admin.requests import Request, forwarding_refusal
from tests.broker.administration import NOW, body_of, request

pytestmark = [pytest.mark.spec("R-45"), pytest.mark.client("amqp")]

ROOT = SharedAccessPolicy.generate()
NOW_S = NOW // 1000
HEADERS = {
    "ForwardTo": "servicebussupplementaryauthorization",
    "ForwardDeadLetteredMessagesTo": "servicebusdlqsupplementaryauthorization",
}
element = pytest.mark.parametrize("element", HEADERS)


MANAGER = AccessRule("own", ("Manage", "Send", "Listen"), "a" * 44, "b" * 44)
SENDER = AccessRule("own", ("Send",), "c" * 44, "d" * 44)


@pytest.fixture
def namespace() -> Namespace:
    """Queues ``mine`` and ``others``, each with a Manage key, ``guarded`` with a Send key, and a topic."""
    made = Namespace("contoso", created_at=NOW)
    for path, one in (("mine", MANAGER), ("others", MANAGER), ("guarded", SENDER), ("target", MANAGER)):
        made.create_queue(path, QueueDescription(authorization_rules=(one,)), NOW)
    made.create_topic("news", TopicDescription(authorization_rules=(MANAGER,)), NOW)
    made.create_subscription("news", "all", SubscriptionDescription(), NOW)
    return made


def token(path: str, key: AccessRule | SharedAccessPolicy = MANAGER, expires: int = NOW_S + 60) -> str:
    return auth.make_token(f"https://localhost:5300/{path}", key.name, key.primary_key, expires)


def describe(
    element: str,
    target: str,
    *,
    at: str = "/mine",
    by: str | None = None,
    kind: str = "QueueDescription",
    **more: str,
) -> Request:
    by = token(at.strip("/")) if by is None else by
    asked = request("PUT", at, body_of({element: target}, kind), authorization=by)
    return Request(asked.method, asked.raw_path, asked.query, {**asked.headers, **more}, asked.body)


def is_refused(namespace: Namespace, asked: Request) -> bool:
    answer = forwarding_refusal(
        asked, namespace, SharedAccess((ROOT,), namespace.directory.access_rules), NOW_S
    )
    if answer is not None:
        assert "must grant Manage on that entity too" in answer.refused
        assert b"<Error><Code>401</Code>" in answer.body
        assert b"sig=" not in answer.body
    return answer is not None


@element
@pytest.mark.parametrize("target", ["others", "sb://localhost:5300/others", "/OTHERS/", "nowhere"])
def test_a_key_for_one_queue_cannot_forward_to_another(namespace, element, target):
    assert is_refused(namespace, describe(element, target))


@element
@pytest.mark.parametrize("by", ["root", "others"])
def test_a_token_for_the_target_in_its_header_authorises_forwarding(namespace, element, by):
    given = token("", ROOT) if by == "root" else token("others")
    assert not is_refused(namespace, describe(element, "others", **{HEADERS[element]: given}))


@element
@pytest.mark.parametrize(
    "given",
    [
        pytest.param(lambda: token("mine"), id="for another"),
        pytest.param(lambda: token("others", SENDER), id="not of a key"),
        pytest.param(lambda: token("others", expires=NOW_S), id="expired"),
        pytest.param(lambda: "", id="empty"),
        pytest.param(lambda: "nonsense", id="nonsense"),
    ],
)
def test_an_invalid_header_authorises_nothing(namespace, element, given):
    assert is_refused(namespace, describe(element, "others", **{HEADERS[element]: given()}))


@element
def test_a_token_in_the_header_of_the_other_target_does_not_count(namespace, element):
    (other,) = HEADERS.keys() - {element}
    assert is_refused(namespace, describe(element, "others", **{HEADERS[other]: token("others")}))


@element
def test_the_right_to_send_to_the_target_is_not_enough(namespace, element):
    given = token("guarded", SENDER)
    assert is_refused(namespace, describe(element, "guarded", **{HEADERS[element]: given}))


@element
def test_a_namespace_key_may_forward_to_any_target(namespace, element):
    assert not is_refused(namespace, describe(element, "others", by=token("", ROOT)))


@element
def test_a_forwarding_subscription_needs_the_same_rights(namespace, element):
    path = "/news/Subscriptions/all"
    by = token("news")
    assert is_refused(namespace, describe(element, "others", at=path, by=by, kind="SubscriptionDescription"))
    given = {HEADERS[element]: token("others")}
    asked = describe(element, "others", at=path, by=by, kind="SubscriptionDescription", **given)
    assert not is_refused(namespace, asked)


@element
@pytest.mark.parametrize("target", ["target", "sb://localhost:5300/Target"])
def test_an_unchanged_target_needs_no_authorisation(namespace, element, target):
    field = {"ForwardTo": "forward_to"}.get(element, "forward_dead_lettered_messages_to")
    description = QueueDescription(authorization_rules=(MANAGER,), **{field: "target"})
    namespace.update_queue("mine", description, NOW)

    assert not is_refused(namespace, describe(element, target))
    assert is_refused(namespace, describe(element, "others"))


@pytest.mark.parametrize("body", [b"", b"<no", body_of({}), body_of({"ForwardTo": ""})])
def test_a_request_without_a_target_needs_no_forwarding_rights(namespace, body):
    assert not is_refused(namespace, request("PUT", "/mine", body, authorization=token("mine")))
