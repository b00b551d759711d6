"""Who sends in a scenario: the bare SDK or a paired client, blocking or asyncio, in a process of its own."""

from __future__ import annotations

import asyncio
import logging
import threading
import time
from collections import Counter
from collections.abc import Iterator
from contextlib import AsyncExitStack, ExitStack
from dataclasses import dataclass, field
from multiprocessing.connection import Connection
from tempfile import TemporaryDirectory
from typing import Any

from azure.core.credentials import AccessToken
from azure.core.exceptions import ClientAuthenticationError
from azure.servicebus import ServiceBusClient, ServiceBusMessage

from sbpair import PairedNamespaceOptions, PairedServiceBusClient, StoredIn
from sbpair.aio import PairedServiceBusClient as AsyncPairedServiceBusClient
from sbpair.broker.bearer import make_bearer
from sbpair.pair.auth.connection_string import fields_of
from sbpair.pair.pairing.events import BacklogWithdrawn, EntityFailedOver

from .scenarios import ENTITY, Scenario

WARM = 4  # senders that send once before a scenario begins
GRACE = 1.5  # seconds beyond its timeout in which a blocking send has ended (G-18)


@dataclass(slots=True)
class Load:
    """What came of the sends: when each began, how long it took, and where it was stored or why it was not."""

    sends: list[tuple[float, float, str]] = field(default_factory=list)
    events: Counter[str] = field(default_factory=Counter)
    failed_over_at: float | None = None

    def hear(self, event: object, began: float) -> None:
        self.events[type(event).__name__] += 1
        if isinstance(event, EntityFailedOver) and self.failed_over_at is None:
            self.failed_over_at = time.monotonic() - began


class CredentialUnavailableError(ClientAuthenticationError):
    """Stands for the error of azure-identity, which is known by its name (H-30)."""


class _Began:
    """When the sends of this process began."""

    at: float | None = None


class Identity:
    """A managed identity that is away for a while; tokens live ``life`` seconds."""

    def __init__(self, string: str, life: float, away: tuple[float, float]) -> None:
        fields = fields_of(string)
        self._policy, self._key = fields["sharedaccesskeyname"], fields["sharedaccesskey"]
        self.life, self.away = life, away

    def get_token(self, *scopes: str, **_: Any) -> AccessToken:
        began = _Began.at
        if began is not None and self.away[0] <= time.monotonic() - began < self.away[1]:
            raise CredentialUnavailableError("ManagedIdentityCredential authentication unavailable.")
        expires = int(time.time() + self.life)
        audience = scopes[0].removesuffix("/.default").rstrip("/")
        return AccessToken(make_bearer(self._policy, self._key, expires, audience), expires)

    def close(self) -> None:
        """Do nothing; part of the protocol."""


def run_load(
    pipe: Connection, scenario: Scenario, contestant: str, strings: tuple[str, str, str]
) -> None:  # the target of a process
    """Make the client, say so, wait for the word, send, and tell what came of it."""
    logging.disable(logging.CRITICAL)
    if contestant == "asyncio":
        asyncio.run(_run_asyncio(pipe, scenario, strings[:2]))
    else:
        _run_blocking(pipe, scenario, contestant, strings)


def _options(scenario: Scenario, contestant: str, spool: str) -> PairedNamespaceOptions:
    more = {"suspect_policy": "redirect"} if contestant.endswith("redirect") else {}
    more |= {"spool": f"{spool}/spool"} if "spool" in contestant else {}
    given: dict[str, Any] = {**scenario.options, **more}
    return PairedNamespaceOptions(primary_namespace_name="contoso", assume_backlogs_exist=True, **given)


def _run_blocking(
    pipe: Connection, scenario: Scenario, contestant: str, strings: tuple[str, str, str]
) -> None:
    load = Load()
    with TemporaryDirectory() as spool, ExitStack() as stack:
        identity = None
        if scenario.token_life is not None:
            identity = Identity(strings[0], scenario.token_life, scenario.token_away)
        client = stack.enter_context(_client(scenario, contestant, strings, spool, identity))
        count = scenario.workers if contestant == "sdk" else 1
        senders = [stack.enter_context(client.get_queue_sender(ENTITY)) for _ in range(count)]
        for sender in senders[:WARM]:
            sender.send_messages(ServiceBusMessage("warm"), timeout=30)
        pipe.send("ready")
        pipe.recv()
        began = time.monotonic()
        _Began.at = began
        if contestant != "sdk":
            client.on_event(lambda event: load.hear(event, began))
        threads = [
            threading.Thread(
                target=_work,
                args=(load, scenario, contestant, senders[index % count], index, began),
                daemon=True,
            )
            for index in range(scenario.workers)
        ]
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join(began + scenario.seconds + scenario.timeout + 15 - time.monotonic())
        pipe.send(load)
        pipe.recv()  # it may go


def _client(
    scenario: Scenario, contestant: str, strings: tuple[str, str, str], spool: str, identity: Identity | None
) -> Any:
    if identity is None:
        if contestant == "sdk":
            return ServiceBusClient.from_connection_string(strings[0])
        options = _options(scenario, contestant, spool)
        return PairedServiceBusClient.from_connection_strings(*strings[:2], options=options)
    ends = [fields_of(string)["endpoint"].rstrip("/") for string in strings[:2]]
    hosts = [end.removeprefix("sb://") for end in ends]
    if contestant == "sdk":
        return ServiceBusClient(
            hosts[0], identity, custom_endpoint_address=ends[0], connection_verify=strings[2]
        )
    return PairedServiceBusClient(
        *hosts,
        credential=identity,
        secondary_credential=Identity(strings[1], identity.life, identity.away),
        custom_endpoint_address=ends[0],
        secondary_custom_endpoint_address=ends[1],
        connection_verify=strings[2],
        options=_options(scenario, contestant, spool),
    )


def _moments(scenario: Scenario, index: int, began: float) -> Iterator[float]:
    """When a worker sends, as long as the scenario lasts: at its times, or at once."""
    end, number = began + scenario.seconds, index
    while time.monotonic() < end:
        if scenario.rate is None:
            yield time.monotonic()
            continue
        at = began + number / scenario.rate
        if at >= end:
            return
        yield at
        number += scenario.workers


def _work(load: Load, scenario: Scenario, contestant: str, sender: Any, index: int, began: float) -> None:
    for at in _moments(scenario, index, began):
        time.sleep(max(at - time.monotonic(), 0.0))
        start = time.monotonic()
        try:
            receipt = sender.send_messages(
                ServiceBusMessage("x", message_id=f"{index}-{start}"), timeout=scenario.timeout
            )
            how = "primary" if contestant == "sdk" else _stored(receipt)
        except Exception as error:
            how = f"raised {type(error).__name__}"
        load.sends.append((start - began, time.monotonic() - start, how))


def _stored(receipt: Any) -> str:
    return {StoredIn.PRIMARY: "primary", StoredIn.BACKLOG: "backlog"}.get(receipt.stored_in, "spool")


async def _run_asyncio(pipe: Connection, scenario: Scenario, strings: tuple[str, str]) -> None:
    load = Load()
    async with AsyncExitStack() as stack:
        client = AsyncPairedServiceBusClient.from_connection_strings(
            *strings, options=_options(scenario, "asyncio", "")
        )
        await stack.enter_async_context(client)
        sender = await stack.enter_async_context(client.get_queue_sender(ENTITY))
        await sender.send_messages(ServiceBusMessage("warm"), timeout=30)
        pipe.send("ready")
        await asyncio.to_thread(pipe.recv)
        began = time.monotonic()
        client.on_event(lambda event: load.hear(event, began))
        workers = (_work_asyncio(load, scenario, sender, index, began) for index in range(scenario.workers))
        await asyncio.gather(*workers)
        pipe.send(load)
        await asyncio.to_thread(pipe.recv)


async def _work_asyncio(load: Load, scenario: Scenario, sender: Any, index: int, began: float) -> None:
    for at in _moments(scenario, index, began):
        await asyncio.sleep(max(at - time.monotonic(), 0.0))
        start = time.monotonic()
        try:
            how = _stored(await sender.send_messages(ServiceBusMessage("x"), timeout=scenario.timeout))
        except Exception as error:
            how = f"raised {type(error).__name__}"
        load.sends.append((start - began, time.monotonic() - start, how))


def withdrawals(load: Load) -> int:
    """How often a backlog queue was withdrawn."""
    return load.events[BacklogWithdrawn.__name__]
