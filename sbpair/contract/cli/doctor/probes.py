"""Two probes of the doctor: a ping sent to a scratch queue, and the status page of a syphon."""

from __future__ import annotations

import asyncio
import json
import uuid
from collections.abc import Iterator
from contextlib import contextmanager
from typing import TYPE_CHECKING

from azure.servicebus.management import ServiceBusAdministrationClient

from sbpair.contract.administration import create, delete
from sbpair.contract.entry import Queue
from sbpair.contract.inbox import Inbox
from sbpair.contract.search import is_empty
from sbpair.contract.subjects.pings import ping
from sbpair.pair.client.connection import NamespaceConnection

from .facts import Ping, SenderSeen, SyphonSeen

if TYPE_CHECKING:
    import httpx

PING_WAIT = 2.0  # seconds to wait for the delivery of a ping: twice its time to live
TIMEOUT = 5.0  # seconds for the whole response
MAX_RESPONSE_BYTES = 1_048_576  # bytes of a response


@contextmanager
def scratch_queue(administration: ServiceBusAdministrationClient) -> Iterator[str]:
    """Create a scratch queue, and delete it at the end. Raises AzureError when either fails."""
    queue, name = Queue(), f"sbpair-doctor-{uuid.uuid4().hex[:12]}"
    create(administration, queue, {queue.label: name})
    try:
        yield name
    finally:
        delete(administration, queue, name)


async def ping_trial(connection: NamespaceConnection, path: str) -> Ping:
    """Send one ping, as senders do, with a receiver waiting for it.

    Raises LinkRefusedError or TokenRefusedError when a right is missing, ConnectionLostError when the connection fails.
    """
    if not await is_empty(connection, path):
        return Ping.NOT_EMPTY
    return Ping.DELIVERED if await _is_delivered(connection, path) else Ping.HIDDEN


async def _is_delivered(connection: NamespaceConnection, path: str) -> bool:
    inbox = Inbox()
    inbox.opened(await connection.open_receiver(path, inbox.on_message))
    sender = await connection.open_sender(path)
    inbox.receiver.flow(1)
    await sender.send(ping(str(uuid.uuid4()), str(uuid.uuid4())).encode())
    arrival = await inbox.take_if_any(PING_WAIT)
    if arrival is not None:
        await inbox.complete(arrival)
    await asyncio.gather(inbox.close(), sender.close())
    return arrival is not None


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
        backlogs_missing=str(status["backlogs_missing"]) if status.get("backlogs_missing") else None,
    )


def _number(value: object) -> float | None:
    return float(value) if isinstance(value, (int, float)) and not isinstance(value, bool) else None
