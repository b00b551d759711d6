import os

from azure.servicebus import ServiceBusClient, ServiceBusMessage

with ServiceBusClient.from_connection_string(os.environ["SBPAIR_PRIMARY"]) as client:
    with client.get_queue_sender("orders") as sender:
        sender.send_messages(ServiceBusMessage("hello from Python"))
    with client.get_queue_receiver("orders") as receiver:
        for message in receiver.receive_messages(max_wait_time=5):
            print("received:", str(message))
            receiver.complete_message(message)
