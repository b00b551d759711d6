"""An API that takes orders in an outage, too: `gunicorn --workers 2 --threads 8 orders_flask:app`."""

import atexit

from azure.servicebus import ServiceBusMessage
from azure.servicebus.exceptions import ServiceBusError
from flask import Flask

from sbpair import PairedServiceBusClient

PATIENCE = 5  # seconds for one send: less than the caller waits

# One client and one sender for each worker process; all its threads share them. Nothing is opened here,
# so this may also run before the fork (`--preload`): each worker opens connections of its own.
client = PairedServiceBusClient.from_environment()
orders = client.get_queue_sender("orders")
atexit.register(client.close)

app = Flask(__name__)


@app.put("/orders/<number>")
def put_order(number: str) -> tuple[dict[str, str], int] | tuple[dict[str, str], int, dict[str, str]]:
    message = ServiceBusMessage(f"order {number}", message_id=number)
    try:
        receipt = orders.send_messages(message, timeout=PATIENCE)
    except ServiceBusError:
        return {"detail": "not stored; put it again"}, 503, {"Retry-After": "5"}
    return {"number": number, "stored_in": receipt.stored_in.value}, 202
