"""Two probes of the doctor: a ping sent to a scratch queue, and the status page of a syphon."""

from __future__ import annotations

import asyncio
import json
import uuid
from collections.abc import Iterator
from contextlib import contextmanager
from datetime import timedelta
from typing import TYPE_CHECKING

from azure.servicebus.management import ServiceBusAdministrationClient

from sbpair.pair.amqp.events import MessageReceived
from sbpair.pair.amqp.message import DataBody, Header, Message, Properties
from sbpair.pair.amqp.performatives import Accepted
from sbpair.pair.client.connection import NamespaceConnection
from sbpair.pair.envelope.aliases import PING_CONTENT_TYPE
from sbpair.pair.syphon.watch.peeking import peek_parked

from .facts import Ping, SenderSeen, SyphonSeen

if TYPE_CHECKING:
    import httpx

PING_WAIT = 2.0  # seconds to wait for the delivery of a ping: twice its time to live
IDLE = timedelta(minutes=5)  # the service's minimum; a scratch queue left behind is then deleted
TIMEOUT = 5.0  # seconds for the whole response
MAX_RESPONSE_BYTES = 1_048_576  # bytes of a response


@contextmanager
def scratch_queue(administration: ServiceBusAdministrationClient) -> Iterator[str]:
    """Create a scratch queue, and delete it at the end. Raises AzureError when either fails."""
    name = f"sbpair-doctor-{uuid.uuid4().hex[:12]}"
    administration.create_queue(name, auto_delete_on_idle=IDLE)
    try:
        yield name
    finally:
        administration.delete_queue(name)


async def ping_trial(connection: NamespaceConnection, path: str) -> Ping:
    """Send one ping, as senders do, with a receiver waiting for it.

    Raises LinkRefusedError or TokenRefusedError when a right is missing, ConnectionLostError when the connection fails.
    """
    if [each async for each in peek_parked(connection, path, most=1)]:
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
        await receiver.settle_and_wait(delivery_id, Accepted())
    await asyncio.gather(receiver.close(), sender.close())
    return arrived.is_set()


def _ping() -> Message:
    ids = (str(uuid.uuid4()), str(uuid.uuid4()))
    properties = Properties(message_id=ids[0], content_type=PING_CONTENT_TYPE, group_id=ids[1])
    return Message(header=Header(ttl=1000), properties=properties, body=DataBody((b"",)))


async def _body(answer: httpx.Response) -> bytes:
    """Return the body of ``answer``. Raises ValueError when it exceeds MAX_RESPONSE_BYTES."""
    body = b""
    async for part in answer.aiter_bytes():
        body += part
        if len(body) > MAX_RESPONSE_BYTES:
            raise ValueError(f"the response exceeds {MAX_RESPONSE_BYTES} bytes")
    return body


async def _read_page(url: str, role: str) -> dict[str, object] | str:
    """Read the status page of a syphon or sender, or return why it cannot be read."""
    import httpx

    page = url.rstrip("/")
    page = page if page.endswith("/state") else f"{page}/state"
    try:
        async with (
            asyncio.timeout(TIMEOUT),
            httpx.AsyncClient(timeout=TIMEOUT, follow_redirects=False) as client,
            client.stream("GET", page) as answer,
        ):
            status = json.loads(await _body(answer)) if answer.status_code == 200 else None
    except TimeoutError:
        return f"{page}: no answer within {TIMEOUT:g} s"
    except (httpx.HTTPError, httpx.InvalidURL, ValueError) as error:
        return f"{page}: {str(error) or type(error).__name__}"
    if not isinstance(status, dict) or status.get("role") != role:
        return f"{page} is not the status page of a {role} (status {answer.status_code})"
    return status


async def read_status(url: str) -> SyphonSeen:
    """Read the status page of a syphon. Never raises: a missing answer is a finding."""
    status = await _read_page(url, "syphon")
    if isinstance(status, str):
        return SyphonSeen(trouble=status)
    backlogs = status.get("backlogs")
    return SyphonSeen(
        state=str(status.get("state")),
        reason=str(status["reason"]) if status.get("reason") else None,
        backlogs=tuple(map(str, backlogs)) if isinstance(backlogs, list) else (),
        is_unpaced="max_rate" in status and status["max_rate"] is None,
    )


async def read_sender(url: str) -> SenderSeen:
    """Read the status page of a sender. Never raises: a missing answer is a finding."""
    status = await _read_page(url, "sender")
    if isinstance(status, str):
        return SenderSeen(trouble=status)
    options = status.get("options")
    given = options if isinstance(options, dict) else {}
    return SenderSeen(
        failover_share=_number(given.get("failover_share")),
        operation_timeout=_number(given.get("operation_timeout")),
        redirects_suspects=given.get("suspect_policy") == "redirect",
    )


def _number(value: object) -> float | None:
    return float(value) if isinstance(value, (int, float)) and not isinstance(value, bool) else None
