"""Does my sender survive a lost acknowledgement? Run it with pytest: no Docker, no account."""

from azure.servicebus import ServiceBusClient, ServiceBusMessage
from azure.servicebus.exceptions import OperationTimeoutError


def send_order(connection_string, order_id):
    """My program: sends an order, and sends it again, with the same id, when it does not know."""
    message = ServiceBusMessage("an order", message_id=order_id)
    with ServiceBusClient.from_connection_string(connection_string, retry_total=0) as client:
        with client.get_queue_sender("orders") as sender:
            for _ in range(3):
                try:
                    return sender.send_messages(message, timeout=0.5)
                except OperationTimeoutError:
                    continue
    return None


def test_my_sender_survives_a_lost_acknowledgement(servicebus_namespace, servicebus_ledger):
    servicebus_namespace.create_queue("orders", requires_duplicate_detection=True)
    with servicebus_namespace.scenario("ack-lost", "orders") as (fault,):
        with servicebus_ledger.sending("order-1"):
            send_order(servicebus_namespace.connection_string, "order-1")

    servicebus_ledger.received_all(servicebus_namespace.message_ids("orders"))
    assert fault.hits == 1, "the acknowledgement was lost"
    assert servicebus_ledger.check().is_conserved, "nothing was lost"
    assert servicebus_ledger.check().duplicates == 0, "and nothing is there twice"
