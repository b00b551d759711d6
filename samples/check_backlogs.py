"""How many messages wait in the backlog queues? Asked with the SDK's own administration client."""

from datetime import timedelta

from azure.servicebus import ServiceBusMessage
from azure.servicebus.management import ServiceBusAdministrationClient

from sbpair import PairedNamespaceOptions, PairedServiceBusClient
from sbpair.broker import Broker

OPTIONS = PairedNamespaceOptions(
    backlog_queue_count=3, failover_interval=timedelta(0), primary_namespace_name="contoso"
)


def park_some(broker: Broker) -> None:
    primary, secondary = broker.namespace("contoso"), broker.namespace("contoso-dr")
    primary.create_queue("orders")
    primary.take_down("refuse")
    with (
        PairedServiceBusClient.from_connection_strings(
            primary.connection_string,
            secondary.connection_string,
            options=OPTIONS,
            connection_verify=str(broker.ca_file),
        ) as client,
        client.get_queue_sender("orders") as sender,
    ):
        sender.send_messages([ServiceBusMessage(f"order {number}") for number in range(25)])


def main() -> None:
    with Broker({"contoso": 0, "contoso-dr": 0}) as broker:
        park_some(broker)
        with ServiceBusAdministrationClient.from_connection_string(
            broker.namespace("contoso-dr").connection_string, connection_verify=str(broker.ca_file)
        ) as administration:
            waiting = 0
            for queue in administration.list_queues_runtime_properties():
                print(f"{queue.name}: {queue.active_message_count} messages wait")
                waiting += queue.active_message_count or 0
        assert waiting == 25


if __name__ == "__main__":
    main()
