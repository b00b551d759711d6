"""The client that users hold: the blocking skin.

    client = PairedServiceBusClient.from_connection_strings(primary, secondary)
    with client, client.get_queue_sender("orders") as sender:
        receipt = sender.send_messages(ServiceBusMessage("an order"))

What happens to a message is decided in pair.py and carried out in runtime.py.
"""

from __future__ import annotations

from types import TracebackType
from typing import TYPE_CHECKING, Self

from .address import Credential, Side
from .client_surface import ClientSurface, NamespaceSurface, receiver_keywords
from .options import PairedNamespaceOptions
from .runtime import Runtime
from .sender import PairedServiceBusSender

if TYPE_CHECKING:
    from azure.servicebus import (
        AutoLockRenewer,
        ServiceBusReceiveMode,
        ServiceBusReceiver,
        ServiceBusSessionFilter,
        ServiceBusSubQueue,
    )


class PairedNamespace(NamespaceSurface):
    """One of the two namespaces of a paired client."""

    def __init__(self, runtime: Runtime, side: Side) -> None:
        super().__init__(runtime, side)
        self._runtime = runtime

    def close(self) -> None:
        """Close this side: its links, and the receivers on it. The other has five seconds to follow (P-50).

        If it does not, the pair is faulted and every sender raises PairFaultedError. Closing both closes the
        client.
        """
        self._runtime.close_side(self._role)


class PairedServiceBusClient(ClientSurface[Credential, PairedNamespace]):
    """A Service Bus client for two namespaces: what the primary cannot take waits on the secondary (P-1).

    The constructor takes namespaces and credentials; :meth:`from_connection_strings` the other form.
    ``secondary_credential`` is ``credential`` unless given. ``options`` are the pairing's; the other
    keywords are those of ``azure.servicebus.ServiceBusClient`` and hold for both namespaces, except for
    the two custom endpoints. Nothing is opened here; the secondary may be down.

    Raises ValueError when the two sides are one namespace or share a name, or a value is out of range.
    """

    def _made(self, primary: Side, secondary: Side, label: str, options: PairedNamespaceOptions) -> Runtime:
        self._runtime = Runtime(primary, secondary, label, options)
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

    def close(self) -> None:
        """Close every sender, link and thread of this client. Calls under way end with an error."""
        self._runtime.close()

    def __enter__(self) -> Self:
        self._check_open()
        self._runtime.begin()
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.close()

    def _sender(self, path: str) -> PairedServiceBusSender:
        self._runtime.begin()
        return PairedServiceBusSender(
            self._runtime, path, self.fully_qualified_namespace, self._sender_closed
        )

    def _sender_closed(self, path: str) -> None:
        if self._was_last(path):
            self._runtime.release_path(path)
