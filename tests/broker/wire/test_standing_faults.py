"""A standing fault affects clients without changing or persisting the entity."""

from __future__ import annotations

import shutil
from pathlib import Path

import pytest
from azure.servicebus import ServiceBusClient, ServiceBusMessage
from azure.servicebus.exceptions import MessagingEntityDisabledError
from azure.servicebus.management import EntityStatus, ServiceBusAdministrationClient

from sbpair.broker import Broker, Disabled


@pytest.mark.spec("G-26")
def test_an_entity_disabled_by_a_fault_reads_as_active_and_is_active_after_a_kill(
    tmp_path: Path,
) -> None:
    data, left = tmp_path / "data", tmp_path / "left"
    with Broker({"contoso": 0}, data=data) as broker:
        contoso = broker.namespace("contoso")
        contoso.create_queue("orders")
        with (
            ServiceBusClient.from_connection_string(contoso.connection_string, retry_total=0) as client,
            client.get_queue_sender("orders") as sender,
            ServiceBusAdministrationClient.from_connection_string(
                contoso.connection_string, connection_verify=str(broker.ca_file)
            ) as admin,
            contoso.fault("orders", Disabled("SendDisabled")),
        ):
            with pytest.raises(MessagingEntityDisabledError):
                sender.send_messages(ServiceBusMessage("x"), timeout=30)
            found = admin.get_queue("orders")
            assert found.status == EntityStatus.ACTIVE
            found.max_delivery_count = 3
            admin.update_queue(found)
            shutil.copytree(data, left)  # what a killed process would leave
    with Broker({"contoso": 0}, data=left) as broker:
        contoso = broker.namespace("contoso")
        description = contoso.description("orders")
        assert (description.status, description.max_delivery_count) == ("Active", 3)
        with (
            ServiceBusClient.from_connection_string(contoso.connection_string, retry_total=0) as client,
            client.get_queue_sender("orders") as sender,
        ):
            sender.send_messages(ServiceBusMessage("x"), timeout=30)
