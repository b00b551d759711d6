"""Does the primary hide pings from receivers? One is sent to a scratch queue, with a receiver waiting."""

from __future__ import annotations

import asyncio
import uuid
from collections.abc import Iterator
from contextlib import contextmanager
from datetime import timedelta

from azure.servicebus.management import ServiceBusAdministrationClient

from sbpair.amqp.events import MessageReceived
from sbpair.amqp.message import DataBody, Header, Message, Properties
from sbpair.amqp.performatives import Accepted
from sbpair.pairing.aliases import PING_CONTENT_TYPE
from sbpair.syphon.connection import NamespaceConnection
from sbpair.syphon.look import look

from .facts import Ping

PING_WAIT = 2.0  # seconds a ping is given to be delivered in: twice its time to live
IDLE = timedelta(
    minutes=5
)  # the least the service allows: a scratch queue that was left behind goes by itself


@contextmanager
def scratch_queue(administration: ServiceBusAdministrationClient) -> Iterator[str]:
    """A queue of our own, deleted at the end. Raises AzureError."""
    name = f"sbpair-doctor-{uuid.uuid4().hex[:12]}"
    administration.create_queue(name, auto_delete_on_idle=IDLE)
    try:
        yield name
    finally:
        administration.delete_queue(name)


async def ping_trial(connection: NamespaceConnection, path: str) -> Ping:
    """Send one ping, as senders do. Raises LinkRefused, TokenRefused, ConnectionLost."""
    if [each async for each in look(connection, path, most=1)]:
        return Ping.NOT_EMPTY
    return Ping.DELIVERED if await _is_delivered(connection, path) else Ping.HIDDEN


async def _is_delivered(connection: NamespaceConnection, path: str) -> bool:
    arrived = asyncio.Event()
    deliveries: list[int] = []

    def on_message(event: MessageReceived) -> None:
        deliveries.append(event.delivery_id)
        arrived.set()

    receiver = await connection.open_receiver(path, on_message)
    sender = await connection.open_sender(path)
    receiver.flow(1)
    await sender.send(_ping().encode())
    try:
        await asyncio.wait_for(arrived.wait(), PING_WAIT)
    except TimeoutError:
        pass
    for delivery_id in deliveries:
        await receiver.settled(delivery_id, Accepted())
    await asyncio.gather(receiver.close(), sender.close())
    return arrived.is_set()


def _ping() -> Message:
    ids = (str(uuid.uuid4()), str(uuid.uuid4()))
    properties = Properties(message_id=ids[0], content_type=PING_CONTENT_TYPE, group_id=ids[1])
    return Message(header=Header(ttl=1000), properties=properties, body=DataBody((b"",)))
