"""Send through a pair of namespaces, with the primary up and with the primary down.

In production the two connection strings are those of your namespaces and everything else is as
below; here both namespaces are a broker in this process.
"""

from datetime import timedelta

from azure.servicebus import ServiceBusMessage

from sbpair import PairedNamespaceOptions, PairedServiceBusClient, StoredIn
from sbpair.broker import Broker

OPTIONS = PairedNamespaceOptions(
    backlog_queue_count=2,
    failover_interval=timedelta(0),  # redirect the first message that fails; the default waits a minute
    primary_namespace_name="contoso",  # both are on localhost, so the host does not say it
)


def main() -> None:
    with Broker({"contoso": 0, "contoso-dr": 0}) as broker:
        primary, secondary = broker.namespace("contoso"), broker.namespace("contoso-dr")
        primary.create_queue("orders")
        with (
            PairedServiceBusClient.from_connection_strings(
                primary.connection_string,
                secondary.connection_string,
                options=OPTIONS,
                connection_verify=str(broker.ca_file),
            ) as client,
            client.get_queue_sender("orders") as sender,
        ):
            receipt = sender.send_messages(ServiceBusMessage("one order"))
            print(f"contoso is up:   the message is stored on the {receipt.stored_in.value}")
            assert receipt.stored_in is StoredIn.PRIMARY

            primary.take_down("refuse")
            receipt = sender.send_messages([ServiceBusMessage("another"), ServiceBusMessage("a third")])
            print(f"contoso is down: the messages are in {receipt.stored_in.value} {receipt.backlog}")
            assert receipt.stored_in is StoredIn.BACKLOG


if __name__ == "__main__":
    main()
