"""An API that takes orders in an outage, too: `uvicorn orders_fastapi:app --workers 2`."""

from collections.abc import AsyncIterator
from contextlib import asynccontextmanager

from azure.servicebus import ServiceBusMessage
from azure.servicebus.exceptions import ServiceBusError
from fastapi import FastAPI, HTTPException

from sbpair.aio import PairedServiceBusClient

PATIENCE = 5  # seconds for one send: less than the caller waits


@asynccontextmanager
async def lifespan(app: FastAPI) -> AsyncIterator[None]:
    """One client and one sender for each worker process; all its requests share them."""
    async with (
        PairedServiceBusClient.from_environment() as client,
        client.get_queue_sender("orders") as sender,
    ):
        app.state.orders = sender
        yield


app = FastAPI(lifespan=lifespan)


@app.put("/orders/{number}", status_code=202)
async def put_order(number: str) -> dict[str, str]:
    message = ServiceBusMessage(f"order {number}", message_id=number)
    try:
        receipt = await app.state.orders.send_messages(message, timeout=PATIENCE)
    except ServiceBusError as error:
        raise HTTPException(503, "not stored; put it again", {"Retry-After": "5"}) from error
    return {"number": number, "stored_in": receipt.stored_in.value}
