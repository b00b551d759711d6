"""Watch a pairing go through an outage: every event, as it happens."""

import threading
import time
from datetime import timedelta

from azure.servicebus import ServiceBusMessage
from azure.servicebus.exceptions import ServiceBusError

from sbpair import EntityState, PairedNamespaceOptions, PairedServiceBusClient
from sbpair.broker import Broker
from sbpair.events import EntityRecovered

OPTIONS = PairedNamespaceOptions(
    failover_interval=timedelta(milliseconds=300),
    ping_primary_interval=timedelta(seconds=1),
    primary_namespace_name="contoso",
)


def main() -> None:
    with Broker({"contoso": 0, "contoso-dr": 0}) as broker:
        primary = broker.namespace("contoso")
        primary.create_queue("orders")
        client = PairedServiceBusClient.from_connection_strings(
            primary.connection_string,
            broker.namespace("contoso-dr").connection_string,
            options=OPTIONS,
            connection_verify=str(broker.ca_file),
            retry_total=0,  # show the first failure; by default a send is tried three times more
        )
        home = threading.Event()
        client.on_event(lambda event: print(type(event).__name__, event.path))
        client.on_event(lambda event: isinstance(event, EntityRecovered) and home.set())
        with client, client.get_queue_sender("orders") as sender:
            primary.take_down("reset")
            message = ServiceBusMessage("an order")  # sent again, it has the same message id
            while client.state_of("orders") is not EntityState.FAILED_OVER:
                try:
                    sender.send_messages(message)
                except ServiceBusError as error:
                    print("  the application sees", type(error).__name__)
                    time.sleep(0.1)
            sender.send_messages(message)
            primary.bring_up()
            assert home.wait(30), "the entity did not come home"


if __name__ == "__main__":
    main()
