"""Empty a queue with the SDK's receiver."""

from __future__ import annotations

from azure.servicebus import ServiceBusClient, ServiceBusReceivedMessage

from sbpair.broker import NamespaceControl


def emptied(namespace: NamespaceControl, queue: str) -> list[ServiceBusReceivedMessage]:
    """Receive and complete every active message of a queue, in its order.

    A message counts as active until it is completed, so none is missed however slowly messages arrive. In
    receive-and-delete mode it would leave the queue before the receiver has it.
    """
    found: list[ServiceBusReceivedMessage] = []
    with (
        ServiceBusClient.from_connection_string(namespace.connection_string) as client,
        client.get_queue_receiver(queue) as receiver,
    ):
        while namespace.counts(queue).active:
            for message in receiver.receive_messages(500, max_wait_time=1):
                found.append(message)
                receiver.complete_message(message)
    return found
