"""Send to a partitioned queue, with and without a key, while one of its 16 partitions is down.

A message without a key goes round the partition that is down; one with a key of it cannot, and fails.
"""

from azure.servicebus import ServiceBusClient, ServiceBusMessage
from azure.servicebus.exceptions import ServiceBusError

from sbpair.broker import Broker

CUSTOMERS = ("ada", "ben", "cem", "dia", "eva", "fay", "gus", "hal")


def main() -> None:
    with Broker({"contoso": 0}) as broker:
        contoso = broker.namespace("contoso")
        contoso.create_queue("orders", enable_partitioning=True)
        with (
            ServiceBusClient.from_connection_string(contoso.connection_string, retry_total=0) as client,
            client.get_queue_sender("orders") as sender,
            client.get_queue_receiver("orders") as receiver,
        ):
            homes: dict[int, str] = {}
            for customer in CUSTOMERS:
                sender.send_messages(ServiceBusMessage("an order", partition_key=customer))
            while contoso.counts("orders").active:
                (message,) = receiver.receive_messages(1, max_wait_time=5)
                homes[(message.sequence_number or 0) >> 48] = message.partition_key or ""
                receiver.complete_message(message)
            print("homes:", ", ".join(f"{who} in partition {index}" for index, who in sorted(homes.items())))

            index, unlucky = min(homes.items())
            with contoso.partition("orders", index).take_down():
                for _ in range(16):
                    sender.send_messages(ServiceBusMessage("no key"))
                print(f"partition {index} is down: 16 messages without a key found another one")
                try:
                    sender.send_messages(ServiceBusMessage("a key", partition_key=unlucky))
                except ServiceBusError as error:
                    print(f"a message with the key {unlucky} failed: {str(error).partition(' Tr')[0]}")
            sender.send_messages(ServiceBusMessage("a key", partition_key=unlucky))
            print(f"partition {index} is back: {contoso.counts('orders').active} messages wait")
            assert contoso.counts("orders").active == 17


if __name__ == "__main__":
    main()
