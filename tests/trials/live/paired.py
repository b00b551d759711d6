"""The same tests with the paired client's senders: the SDK's client returns one of them for each requested sender.

Client and receivers remain the SDK's, as for a user of the pairing. A sender is still an instance of the SDK's
class, so that tests that read its settings find them; its PairedServiceBusSender does the sending, scheduling,
cancelling, creation of batches, entering and closing. What these tests want raised while a namespace cannot be
reached, a pair with the default options parks: it is told to raise as the SDK does.
"""

from __future__ import annotations

import time
from collections.abc import Iterable
from contextlib import suppress
from types import ModuleType
from typing import Any

import azure.servicebus
import azure.servicebus.aio
from azure.core.credentials import AzureSasCredential
from azure.servicebus.exceptions import ServiceBusError

import sbpair
import sbpair.aio

from .cloud import SECONDARY, AsyncCredential, the_cloud
from .resolver import SUFFIX

SETTINGS = (
    "transport_type",
    "http_proxy",
    "user_agent",
    "connection_verify",
    "ssl_context",
    "logging_enable",
    "socket_timeout",
    "custom_endpoint_address",
    "use_tls",
)
"""The keywords of the SDK's client that hold for a pair; the SDK's own retries are not among them."""
OPEN_WITHIN = 10.0  # seconds: the SDK's senders open their link when they are entered


class _Reach:
    """What tests ask of a sender's private parts, answered by the link that the next send takes."""

    _paired: Any

    @property
    def _handler(self) -> Any:
        if self._paired._is_closed or self._paired._runtime.sides.is_closed:
            return None
        pool = self._pool()
        stored = pool._idle if hasattr(pool, "_idle") else pool._senders
        return stored[-1].sender._handler if stored else None

    @_handler.setter
    def _handler(self, _: object) -> None:
        """The SDK's own closing says None; the links are the pairing's."""

    @property
    def _running(self) -> bool:
        return self._handler is not None

    @_running.setter
    def _running(self, _: object) -> None:
        """As the handler."""

    def _pool(self) -> Any:
        return self._paired._runtime.primary_pool(self._paired.entity_name)


class _Sender(_Reach, azure.servicebus.ServiceBusSender):
    """A paired sender in the SDK's clothes."""

    _paired: sbpair.PairedServiceBusSender

    def __enter__(self) -> Any:
        self._paired.__enter__()
        with suppress(ServiceBusError):  # then the send says so
            self._open()
        return self

    def _open(self, timeout: float | None = None) -> None:
        if not self._running:
            self._pool().release(self._pool().acquire(time.monotonic() + (timeout or OPEN_WITHIN)))

    def send_messages(self, message: Any, **named: Any) -> None:
        self._check_live()
        self._paired.send_messages(message, **named)

    def schedule_messages(self, messages: Any, schedule_time_utc: Any, **named: Any) -> list[int]:
        self._check_live()
        return self._paired.schedule_messages(messages, schedule_time_utc, **named)

    def cancel_scheduled_messages(self, sequence_numbers: Any, **named: Any) -> None:
        self._check_live()
        self._paired.cancel_scheduled_messages(sequence_numbers, **named)

    def create_message_batch(self, max_size_in_bytes: int | None = None) -> Any:
        self._check_live()
        return self._paired.create_message_batch(max_size_in_bytes)

    def close(self) -> None:
        self._paired.close()
        super().close()


class _AsyncSender(_Reach, azure.servicebus.aio.ServiceBusSender):
    """A paired sender in the SDK's clothes."""

    _paired: sbpair.aio.PairedServiceBusSender

    async def __aenter__(self) -> Any:
        await self._paired.__aenter__()
        with suppress(ServiceBusError):  # then the send says so
            await self._open()
        return self

    async def _open(self, timeout: float | None = None) -> None:
        if not self._running:
            self._pool().release(await self._pool().acquire(time.monotonic() + (timeout or OPEN_WITHIN)))

    async def send_messages(self, message: Any, **named: Any) -> None:
        self._check_live()
        await self._paired.send_messages(message, **named)

    async def schedule_messages(self, messages: Any, schedule_time_utc: Any, **named: Any) -> list[int]:
        self._check_live()
        return await self._paired.schedule_messages(messages, schedule_time_utc, **named)

    async def cancel_scheduled_messages(self, sequence_numbers: Any, **named: Any) -> None:
        self._check_live()
        await self._paired.cancel_scheduled_messages(sequence_numbers, **named)

    async def create_message_batch(self, max_size_in_bytes: int | None = None) -> Any:
        self._check_live()
        return await self._paired.create_message_batch(max_size_in_bytes)

    async def close(self) -> None:
        await self._paired.close()
        await super().close()


class _Pairing:
    """What both clients do: keep what they were made from, and make one paired client when it is needed."""

    _PAIRED: Any
    _SENDER: Any

    def __init__(self, fully_qualified_namespace: str, credential: Any, **named: Any) -> None:
        super().__init__(fully_qualified_namespace, credential, **named)
        self._pair: Any = None
        self._made_from = (fully_qualified_namespace, credential, named)

    def get_queue_sender(self, queue_name: str, **named: Any) -> Any:
        sender = super().get_queue_sender(queue_name, **named)  # type: ignore[misc]
        return self._dressed(sender, self._paired_client().get_queue_sender(queue_name))

    def get_topic_sender(self, topic_name: str, **named: Any) -> Any:
        sender = super().get_topic_sender(topic_name, **named)  # type: ignore[misc]
        return self._dressed(sender, self._paired_client().get_topic_sender(topic_name))

    def _dressed(self, sender: Any, paired: Any) -> Any:
        sender.__class__ = self._SENDER
        sender._paired = paired
        return sender

    def _paired_client(self) -> Any:
        if self._pair is None:
            namespace, credential, named = self._made_from
            if isinstance(credential, str):  # a test of settings alone; a pair refuses what is none
                credential = AzureSasCredential(credential)
            self._pair = self._PAIRED(
                namespace,
                f"{SECONDARY}{SUFFIX}",
                credential,
                secondary_credential=self._secondary_credential(),
                options=sbpair.PairedNamespaceOptions(suspect_policy="raise"),
                **{name: named[name] for name in SETTINGS if name in named},
            )
        return self._pair

    def _secondary_credential(self) -> Any:
        return the_cloud().credential(SECONDARY)


class _Client(_Pairing, azure.servicebus.ServiceBusClient):
    _PAIRED = sbpair.PairedServiceBusClient
    _SENDER = _Sender

    def close(self) -> None:
        super().close()
        if self._pair is not None:
            self._pair.close()
            self._pair = None


class _AsyncClient(_Pairing, azure.servicebus.aio.ServiceBusClient):
    _PAIRED = sbpair.aio.PairedServiceBusClient
    _SENDER = _AsyncSender

    def _secondary_credential(self) -> Any:
        return AsyncCredential(super()._secondary_credential())

    async def close(self) -> None:
        await super().close()
        if self._pair is not None:
            await self._pair.close()
            self._pair = None


def install(modules: Iterable[ModuleType]) -> None:
    """In these test modules `ServiceBusClient` is one whose senders are paired; the pairing has the SDK's."""
    ours = {azure.servicebus.ServiceBusClient: _Client, azure.servicebus.aio.ServiceBusClient: _AsyncClient}
    for module in modules:
        found = getattr(module, "ServiceBusClient", None)
        if found in ours:
            module.ServiceBusClient = ours[found]  # type: ignore[attr-defined]
