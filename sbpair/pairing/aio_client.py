"""The client that users hold: the asyncio skin of client.py, where the same words are explained.

async with PairedServiceBusClient.from_connection_strings(primary, secondary) as client:
    async with client.get_queue_sender("orders") as sender:
        receipt = await sender.send_messages(ServiceBusMessage("an order"))
"""

from __future__ import annotations

from types import TracebackType
from typing import TYPE_CHECKING, Self

from .address import AsyncCredential, Side
from .aio_runtime import AsyncRuntime
from .aio_sender import PairedServiceBusSender
from .client_surface import ClientSurface, NamespaceSurface, receiver_keywords
from .options import PairedNamespaceOptions

if TYPE_CHECKING:
    from azure.servicebus import ServiceBusReceiveMode, ServiceBusSessionFilter, ServiceBusSubQueue
    from azure.servicebus.aio import AutoLockRenewer, ServiceBusReceiver


class PairedNamespace(NamespaceSurface):
    """One of the two namespaces of a paired client."""

    def __init__(self, runtime: AsyncRuntime, side: Side) -> None:
        super().__init__(runtime, side)
        self._runtime = runtime

    async def close(self) -> None:
        """Close this side: its links, and the receivers on it. The other has five seconds to follow (P-50).

        If it does not, the pair is faulted and every sender raises PairFaultedError. Closing both closes the
        client.
        """
        await self._runtime.close_side(self._role)


class PairedServiceBusClient(ClientSurface[AsyncCredential, PairedNamespace]):
    """The paired client for asyncio; the arguments are those of ``sbpair.PairedServiceBusClient``.

    It belongs to the event loop in which it is first used; in any other its calls raise RuntimeError.
    Credentials are those of ``azure.identity.aio``. Callbacks of :meth:`on_event` run in the loop.
    """

    _IS_ASYNCIO = True

    def _made(
        self, primary: Side, secondary: Side, label: str, options: PairedNamespaceOptions
    ) -> AsyncRuntime:
        self._runtime = AsyncRuntime(primary, secondary, label, options)
        self._namespaces = {side.role: PairedNamespace(self._runtime, side) for side in (primary, secondary)}
        return self._runtime

    def get_queue_sender(self, queue_name: str) -> PairedServiceBusSender:
        """A sender for a queue of the primary. Raises ValueError for an empty name or a closed client."""
        return self._sender(self._counted("queue_name", queue_name))

    def get_topic_sender(self, topic_name: str) -> PairedServiceBusSender:
        """A sender for a topic of the primary. Raises ValueError for an empty name or a closed client."""
        return self._sender(self._counted("topic_name", topic_name))

    def get_queue_receiver(
        self,
        queue_name: str,
        *,
        session_id: str | ServiceBusSessionFilter | None = None,
        sub_queue: ServiceBusSubQueue | str | None = None,
        receive_mode: ServiceBusReceiveMode | str = "peeklock",
        max_wait_time: float | None = None,
        auto_lock_renewer: AutoLockRenewer | None = None,
        prefetch_count: int = 0,
    ) -> ServiceBusReceiver:
        """The SDK's own receiver on the primary: messages are received nowhere else."""
        self._check_open()
        keywords = receiver_keywords(
            session_id, sub_queue, receive_mode, max_wait_time, auto_lock_renewer, prefetch_count
        )
        sdk = self._runtime.sdk_client(self._primary, retry_total=None)
        return sdk.get_queue_receiver(queue_name, **keywords)

    def get_subscription_receiver(
        self,
        topic_name: str,
        subscription_name: str,
        *,
        session_id: str | ServiceBusSessionFilter | None = None,
        sub_queue: ServiceBusSubQueue | str | None = None,
        receive_mode: ServiceBusReceiveMode | str = "peeklock",
        max_wait_time: float | None = None,
        auto_lock_renewer: AutoLockRenewer | None = None,
        prefetch_count: int = 0,
    ) -> ServiceBusReceiver:
        """The SDK's own receiver on the primary: messages are received nowhere else."""
        self._check_open()
        keywords = receiver_keywords(
            session_id, sub_queue, receive_mode, max_wait_time, auto_lock_renewer, prefetch_count
        )
        sdk = self._runtime.sdk_client(self._primary, retry_total=None)
        return sdk.get_subscription_receiver(topic_name, subscription_name, **keywords)

    async def close(self) -> None:
        """Close every sender, link, task and thread of this client. Calls under way end with an error."""
        await self._runtime.close()

    async def __aenter__(self) -> Self:
        self._check_open()
        await self._runtime.begin()
        return self

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        await self.close()

    def _sender(self, path: str) -> PairedServiceBusSender:
        return PairedServiceBusSender(
            self._runtime, path, self.fully_qualified_namespace, self._sender_closed
        )

    def _sender_closed(self, path: str) -> None:
        if self._was_last(path):
            self._runtime.release_path(path)
