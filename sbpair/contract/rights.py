"""What the keys may do, and the tier of a namespace, found out before anything is created."""

from __future__ import annotations

import asyncio

from azure.core.exceptions import AzureError, HttpResponseError

from sbpair.client.dial import connect
from sbpair.client.errors import LinkRefused, TokenRefused

from .entry import Tier
from .plan import Powers
from .target import Target

TIMEOUT = 20.0  # seconds to connect
TIERS = {tier.name: tier for tier in Tier}


async def powers_of(target: Target, queue: str | None = None) -> Powers:
    """Find out the powers over a namespace; Send and Listen on ``queue``.

    Raises ConnectionLost, SyphonFaulted when it cannot be reached over AMQP.
    """
    connection = await connect(target.namespace, ca_file=target.ca_file, timeout=TIMEOUT)
    try:
        tier, why = await asyncio.to_thread(_tier, target)
        if not why:
            return Powers(tier=tier)
        send = listen = False
        if queue is not None:
            try:
                await (await connection.open_sender(queue)).close()
                send = True
            except (LinkRefused, TokenRefused):
                pass
            try:
                await (await connection.open_receiver(queue, lambda event: None)).close()
                listen = True
            except (LinkRefused, TokenRefused):
                pass
        return Powers(manage=False, send=send, listen=listen, why=why)
    finally:
        await connection.close()


def _tier(target: Target) -> tuple[Tier | None, str]:
    """The tier of a namespace, and "" or why the administration API refuses us."""
    try:
        with target.administration() as administration:
            found = administration.get_namespace_properties()
    except HttpResponseError as refusal:
        return None, f"the administration API answers {refusal.status_code or 'with an error'}"
    except (AzureError, ValueError) as error:
        return None, f"the administration API cannot be reached ({type(error).__name__})"
    return TIERS.get(str(found.messaging_sku).upper()), ""
