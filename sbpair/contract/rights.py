"""The rights of the keys and the tier of a namespace, determined before anything is created."""

from __future__ import annotations

import asyncio
import time
from dataclasses import replace

from azure.core.exceptions import AzureError, HttpResponseError

from sbpair.pair.amqp.errors import NOT_FOUND
from sbpair.pair.auth.credential import SharedKey
from sbpair.pair.client.connection import NamespaceConnection, connect
from sbpair.pair.client.errors import ClientError, TokenRefusedError
from sbpair.pair.ground.daemon_thread import in_daemon_thread

from .entry import Tier
from .naming import name_of
from .plan import Rights
from .target import Target

TIMEOUT = 20.0  # seconds for each answer
TIERS = {tier.name: tier for tier in Tier}
NO_KEY = SharedKey(lambda: ("RootManageSharedAccessKey", "bm90IHRoZSBrZXk="))
"""Signs tokens that every service refuses."""


async def rights_of(target: Target, queue: str | None = None, *, timeout: float = TIMEOUT) -> Rights:
    """Determine the rights in a namespace; Send and Listen on ``queue``. One that does not answer counts as down.

    ``timeout`` is in seconds, for each answer.
    """
    try:
        connection = await connect(target.namespace, timeout=timeout)
    except ClientError as error:
        return Rights(manage=False, send=False, listen=False, down=str(error))
    try:
        takes_any = not target.namespace.uses_tls and await _takes_any_token(target, timeout)
        tier, why = await _tier(target, timeout)
        if not why:
            return Rights(tier=tier, takes_any_token=takes_any)
        no_send, no_listen = await _refusals(connection, queue, timeout) if queue else ("", "")
        return Rights(
            manage=False,
            send=queue is not None and not no_send,
            listen=queue is not None and not no_listen,
            why=why,
            why_not=no_send or no_listen,
            takes_any_token=takes_any,
        )
    finally:
        connection.abort()


async def _refusals(connection: NamespaceConnection, queue: str, timeout: float) -> tuple[str, str]:
    """Return the reasons why the key may not send to and receive from a queue; "" if it may."""
    found = []
    for opening in (connection.open_sender(queue), connection.open_receiver(queue, lambda event: None)):
        try:
            async with asyncio.timeout(timeout):
                await (await opening).close()
            found.append("")
        except ClientError as error:
            found.append(str(error))
        except TimeoutError:
            found.append(f"no answer within {timeout:g} s")
    return found[0], found[1]


async def _takes_any_token(target: Target, timeout: float) -> bool:
    """Whether an emulator accepts a token that was signed with a wrong key."""
    namespace = replace(target.namespace, tokens=NO_KEY)
    try:
        connection = await connect(namespace, timeout=timeout)
        try:
            async with asyncio.timeout(timeout):
                await connection.authorize(name_of(f"{time.time():.0f}", "rights", "q"))
        finally:
            connection.abort()
    except TokenRefusedError as refused:
        return refused.condition is not None and refused.condition.symbol == NOT_FOUND
    except (ClientError, TimeoutError):
        return False
    return True


async def _tier(target: Target, timeout: float) -> tuple[Tier | None, str]:
    """Return the tier of a namespace and the refusal of the administration API, "" without one."""

    def sku_of() -> str:
        with target.administration() as administration:
            return str(administration.get_namespace_properties().messaging_sku)

    try:
        async with asyncio.timeout(timeout):
            sku = await in_daemon_thread(sku_of, "sbpair-verify")
    except HttpResponseError as refusal:
        return None, f"the administration API answers {refusal.status_code or 'with an error'}"
    except TimeoutError:
        return None, f"the administration API does not answer within {timeout:g} s"
    except AzureError as error:
        return None, f"the administration API cannot be reached ({type(error).__name__}: {error.message})"
    except Exception as error:  # any error: the SDK may fail on the answers of another server
        return None, f"the administration API cannot be read ({type(error).__name__}: {error})"
    return TIERS.get(sku.upper()), ""
