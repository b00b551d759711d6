"""Handle messages of both namespaces, while the primary is up and while it is down.

In production the two connection strings are those of your namespaces, and a syphon with `land="either"` brings
messages to the secondary; here both are a broker in this process, and the sample itself sends there.
"""

import threading

from azure.servicebus import ServiceBusClient, ServiceBusMessage

from sbpair import PairedNamespaceOptions, PairedServiceBusClient
from sbpair.broker import Broker
from sbpair.processor import DeadLetter, ReceivedMessage

OPTIONS = PairedNamespaceOptions(primary_namespace_name="contoso")  # both are on localhost
handled = threading.Semaphore(0)


def handle(message: ReceivedMessage) -> None:
    """Return: the message is completed. Raise: it is abandoned, and comes again, unless the error says otherwise."""
    handled.release()
    if not str(message):
        raise DeadLetter("Empty", "an order has a body")
    print(f"handled {message} from the {message.side}")


def send(connection_string: str, body: str) -> None:
    client = ServiceBusClient.from_connection_string(connection_string)
    with client, client.get_queue_sender("orders") as sender:
        sender.send_messages(ServiceBusMessage(body))
    assert handled.acquire(timeout=30)


def main() -> None:
    with Broker({"contoso": 0, "contoso-dr": 0}) as broker:
        primary, secondary = broker.namespaces
        strings = primary.connection_string, secondary.connection_string
        for namespace in broker.namespaces:
            namespace.create_queue("orders")
        client = PairedServiceBusClient.from_connection_strings(*strings, options=OPTIONS)
        with client, client.get_queue_processor("orders", handle):
            send(strings[0], "order 1")
            primary.take_down("refuse")
            send(strings[1], "order 2")
            send(strings[1], "")
        print("dead-lettered:", secondary.counts("orders").dead_letter)


if __name__ == "__main__":
    main()
