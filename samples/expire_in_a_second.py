"""Fourteen days pass in milliseconds: a message expires where nobody listened; its dead letter says why."""

from datetime import timedelta

from azure.servicebus import ServiceBusClient, ServiceBusMessage, ServiceBusSubQueue

from sbpair.broker import Broker, ManualClock

DAY = 24 * 60 * 60 * 1000  # milliseconds


def main() -> None:
    with Broker({"contoso": 0}, clock=ManualClock()) as broker:
        namespace = broker.namespace("contoso")
        namespace.create_queue(
            "orders",
            default_message_time_to_live=14 * DAY,
            dead_lettering_on_message_expiration=True,
        )
        with ServiceBusClient.from_connection_string(namespace.connection_string) as client:
            with client.get_queue_sender("orders") as sender:
                sender.send_messages(ServiceBusMessage("nobody came for me"))

            broker.advance(timedelta(days=14))
            print(f"after 14 days, nobody listening: {namespace.counts('orders').active} message is counted")

            with client.get_queue_receiver("orders") as receiver:
                print(f"peeked: {len(receiver.peek_messages(10))}")
                print(f"received: {len(receiver.receive_messages(10, max_wait_time=0.2))}")
            with client.get_queue_receiver("orders", sub_queue=ServiceBusSubQueue.DEAD_LETTER) as receiver:
                (dead,) = receiver.receive_messages(1)
                print(f"dead-lettered: {dead}, {dead.dead_letter_reason}")
                receiver.complete_message(dead)


if __name__ == "__main__":
    main()
