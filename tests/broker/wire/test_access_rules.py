"""Keys with some of the rights, for a namespace or for one entity, used by the SDK's clients."""

from __future__ import annotations

import time
from http.client import HTTPConnection

import pytest
from azure.servicebus import ServiceBusClient, ServiceBusMessage
from azure.servicebus.exceptions import ServiceBusAuthenticationError, ServiceBusAuthorizationError
from azure.servicebus.management import AccessRights, AuthorizationRule, ServiceBusAdministrationClient

from sbpair.broker import Broker, NamespaceControl
from sbpair.broker.auth import make_token
from sbpair.broker.errors import BrokerError, InvalidDescriptionError
from tests.broker.test_admin import body_of

REFUSED = (ServiceBusAuthorizationError, ServiceBusAuthenticationError)


def can_send(connection_string: str, queue: str) -> bool:
    with ServiceBusClient.from_connection_string(connection_string, retry_total=0) as client:
        try:
            with client.get_queue_sender(queue) as sender:
                sender.send_messages(ServiceBusMessage("x"))
        except REFUSED:
            return False
    return True


def can_listen(connection_string: str, queue: str) -> bool:
    with ServiceBusClient.from_connection_string(connection_string, retry_total=0) as client:
        try:
            with client.get_queue_receiver(queue) as receiver:
                receiver.peek_messages()
        except REFUSED:
            return False
    return True


def test_a_namespace_policy_authorises_its_rights(contoso: NamespaceControl, queue: str) -> None:
    sends, listens = contoso.add_policy("sender", ["Send"]), contoso.add_policy("reader", ["Listen"])
    assert (can_send(sends, queue), can_listen(sends, queue)) == (True, False)
    assert (can_send(listens, queue), can_listen(listens, queue)) == (False, True)

    contoso.remove_policy("sender")
    assert not can_send(sends, queue)
    contoso.remove_policy("reader")


def test_an_entity_policy_authorises_that_entity_only(contoso: NamespaceControl, make_queue) -> None:
    mine, other = make_queue(), make_queue()
    given = contoso.add_policy("own", ["Send", "Listen"], entity=mine)
    assert given.endswith(f";EntityPath={mine}")
    anywhere = given.removesuffix(f";EntityPath={mine}")

    assert (can_send(anywhere, mine), can_listen(anywhere, mine)) == (True, True)
    assert (can_send(anywhere, other), can_listen(anywhere, other)) == (False, False)
    contoso.remove_policy("own", entity=mine)
    assert not can_send(anywhere, mine)


def test_a_rule_created_by_an_administration_client_is_a_valid_key(
    broker: Broker, contoso: NamespaceControl
) -> None:
    key = "k" * 44
    rule = AuthorizationRule(
        type="SharedAccessAuthorizationRule",
        claim_type="SharedAccessKey",
        claim_value="None",
        key_name="app",
        rights=[AccessRights.LISTEN, AccessRights.SEND],
        primary_key=key,
        secondary_key="l" * 44,
    )
    with ServiceBusAdministrationClient.from_connection_string(
        contoso.connection_string, connection_verify=str(broker.ca_file)
    ) as client:
        client.create_queue("guarded", authorization_rules=[rule])
        (told,) = client.get_queue("guarded").authorization_rules
        assert (told.key_name, told.primary_key, set(told.rights)) == ("app", key, {"Listen", "Send"})
        host = contoso.connection_string.partition(";")[0]
        given = f"{host};SharedAccessKeyName=app;SharedAccessKey={key};UseDevelopmentEmulator=true"
        assert can_send(given, "guarded")

        client.delete_queue("guarded")
        client.create_queue("guarded")
        assert not can_send(given, "guarded")
        client.delete_queue("guarded")


@pytest.mark.spec("R-45")
def test_a_manage_key_of_one_queue_cannot_forward_to_another(contoso: NamespaceControl, make_queue) -> None:
    mine, other = make_queue(), make_queue()
    keys = {}
    for queue in (mine, other):
        given = contoso.add_policy("manager", ["Manage", "Send", "Listen"], entity=queue)
        keys[queue] = dict(field.split("=", 1) for field in given.split(";"))["SharedAccessKey"]

    def signed(queue: str) -> str:
        uri = f"http://localhost:{contoso.port}/{queue}"
        return make_token(uri, "manager", keys[queue], int(time.time()) + 600)

    def forward(**headers: str) -> int:
        sent = {"Authorization": signed(mine), "If-Match": "*", **headers}
        connection = HTTPConnection("localhost", contoso.port, timeout=30)
        try:
            body = body_of({"ForwardTo": f"sb://localhost:{contoso.port}/{other}"})
            connection.request("PUT", f"/{mine}?api-version=2021-05", body, sent)
            return connection.getresponse().status
        finally:
            connection.close()

    assert forward() == 401
    assert forward(ServiceBusDlqSupplementaryAuthorization=signed(other)) == 401
    assert forward(ServiceBusSupplementaryAuthorization=signed(other)) == 200
    assert forward() == 200  # it does not change


def test_a_taken_or_missing_rule_name_is_reported(contoso: NamespaceControl) -> None:
    contoso.add_policy("twice", ["Send"])
    with pytest.raises(BrokerError, match="'twice' already"):
        contoso.add_policy("twice", ["Listen"])
    contoso.remove_policy("twice")
    with pytest.raises(BrokerError, match="no policy 'twice'"):
        contoso.remove_policy("twice")


@pytest.mark.parametrize(
    ("rights", "said"),
    [(["Sned"], "at least one right of Manage, Send, Listen"), (["Manage"], "also include")],
)
def test_invalid_rights_are_reported(contoso: NamespaceControl, rights: list[str], said: str) -> None:
    with pytest.raises(InvalidDescriptionError, match=said):
        contoso.add_policy("odd", rights)


def test_open_access_has_no_policies() -> None:
    with Broker({"a": 0}, open_access=True) as broker, pytest.raises(BrokerError, match="open access"):
        broker.namespace("a").add_policy("sender", ["Send"])
