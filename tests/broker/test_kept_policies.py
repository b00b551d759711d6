"""The namespace's own policies outlive its process, until they are removed (R-50)."""

from __future__ import annotations

from pathlib import Path

import pytest
from azure.servicebus import ServiceBusClient, ServiceBusMessage
from azure.servicebus.exceptions import ServiceBusAuthenticationError, ServiceBusAuthorizationError

from sbpair.broker import Broker
from sbpair.broker.errors import BrokerError

pytestmark = pytest.mark.spec("R-50")


def key_of(connection_string: str) -> str:
    return connection_string.partition("SharedAccessKeyName=")[2]


def send(broker: Broker, key: str) -> None:
    own = broker.namespace("contoso").connection_string
    there = own.partition("SharedAccessKeyName=")[0] + "SharedAccessKeyName=" + key
    with (
        ServiceBusClient.from_connection_string(there, retry_total=0) as client,
        client.get_queue_sender("orders") as sender,
    ):
        sender.send_messages(ServiceBusMessage("x"))


def test_a_policy_of_the_namespace_outlives_the_process(tmp_path: Path) -> None:
    with Broker({"contoso": 0}, data=tmp_path / "data") as broker:
        contoso = broker.namespace("contoso")
        contoso.create_queue("orders")
        sends = key_of(contoso.add_policy("sends", ["Send"]))
        listens = key_of(contoso.add_policy("listens", ["Listen"]))
        send(broker, sends)
    with Broker({"contoso": 0}, data=tmp_path / "data") as broker:
        contoso = broker.namespace("contoso")
        send(broker, sends)
        with pytest.raises(ServiceBusAuthorizationError):
            send(broker, listens)
        with pytest.raises(BrokerError, match="The policy 'sends' already exists"):
            contoso.add_policy("sends", ["Send"])
        contoso.remove_policy("sends")
        with pytest.raises((ServiceBusAuthenticationError, ServiceBusAuthorizationError)):
            send(broker, sends)
    refusals = (ServiceBusAuthenticationError, ServiceBusAuthorizationError)
    with Broker({"contoso": 0}, data=tmp_path / "data") as broker, pytest.raises(refusals):
        send(broker, sends)
