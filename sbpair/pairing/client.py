"""The client that users hold: the blocking skin.

    client = PairedServiceBusClient.from_connection_strings(primary, secondary)
    with client, client.get_queue_sender("orders") as sender:
        receipt = sender.send_messages(ServiceBusMessage("an order"))

What happens to a message is decided in pair.py and carried out in runtime.py.
"""

from __future__ import annotations

import time
from collections import Counter
from collections.abc import Callable, Mapping
from types import TracebackType
from typing import TYPE_CHECKING, Any, Self

from azure.servicebus import TransportType

from .address import NamespaceInfo, SdkSettings, Side, check_pair
from .events import PairingEvent
from .health import EntityState
from .names import path_key
from .options import PairedNamespaceOptions
from .runtime import Runtime
from .sender import PairedServiceBusSender

if TYPE_CHECKING:
    import ssl

    from azure.servicebus import (
        AutoLockRenewer,
        ServiceBusReceiveMode,
        ServiceBusReceiver,
        ServiceBusSessionFilter,
        ServiceBusSubQueue,
    )

    from .address import Credential


class PairedServiceBusClient:
    """A Service Bus client for two namespaces: what the primary cannot take waits on the secondary (P-1).

    The constructor takes namespaces and credentials; :meth:`from_connection_strings` the other form.
    ``secondary_credential`` is ``credential`` unless given. ``options`` are the pairing's; the other
    keywords are those of ``azure.servicebus.ServiceBusClient`` and hold for both namespaces, except for
    the two custom endpoints. Nothing is opened here; the secondary may be down.

    Raises ValueError when the two sides are one namespace or share a name, or a value is out of range.
    """

    def __init__(
        self,
        primary_namespace: str,
        secondary_namespace: str,
        credential: Credential,
        *,
        secondary_credential: Credential | None = None,
        options: PairedNamespaceOptions | None = None,
        transport_type: TransportType = TransportType.Amqp,
        http_proxy: Mapping[str, str | int] | None = None,
        user_agent: str | None = None,
        connection_verify: str | None = None,
        ssl_context: ssl.SSLContext | None = None,
        logging_enable: bool = False,
        socket_timeout: float | None = None,
        custom_endpoint_address: str | None = None,
        secondary_custom_endpoint_address: str | None = None,
        use_tls: bool = True,
    ) -> None:
        settings = SdkSettings(
            transport_type=transport_type,
            http_proxy=http_proxy,
            user_agent=user_agent,
            connection_verify=connection_verify,
            ssl_context=ssl_context,
            logging_enable=logging_enable,
            socket_timeout=socket_timeout,
        )
        self._set_up(
            Side(
                "primary",
                primary_namespace,
                settings,
                credential=credential,
                use_tls=use_tls,
                custom_endpoint_address=custom_endpoint_address,
            ),
            Side(
                "secondary",
                secondary_namespace,
                settings,
                credential=secondary_credential or credential,
                use_tls=use_tls,
                custom_endpoint_address=secondary_custom_endpoint_address,
            ),
            options,
        )

    @classmethod
    def from_connection_strings(
        cls,
        primary: str,
        secondary: str,
        *,
        options: PairedNamespaceOptions | None = None,
        transport_type: TransportType = TransportType.Amqp,
        http_proxy: Mapping[str, str | int] | None = None,
        user_agent: str | None = None,
        connection_verify: str | None = None,
        ssl_context: ssl.SSLContext | None = None,
        logging_enable: bool = False,
        socket_timeout: float | None = None,
        custom_endpoint_address: str | None = None,
        secondary_custom_endpoint_address: str | None = None,
    ) -> Self:
        """A client for the namespaces of two connection strings.

        Raises ValueError that names the side and what is wrong with it, never the key.
        """
        settings = SdkSettings(
            transport_type=transport_type,
            http_proxy=http_proxy,
            user_agent=user_agent,
            connection_verify=connection_verify,
            ssl_context=ssl_context,
            logging_enable=logging_enable,
            socket_timeout=socket_timeout,
        )
        client = cls.__new__(cls)
        client._set_up(
            Side.from_connection_string("primary", primary, settings, custom_endpoint_address),
            Side.from_connection_string("secondary", secondary, settings, secondary_custom_endpoint_address),
            options,
        )
        return client

    def _set_up(self, primary: Side, secondary: Side, options: PairedNamespaceOptions | None) -> None:
        options = options or PairedNamespaceOptions()
        label = check_pair(primary, secondary, options.primary_namespace_name)
        self._primary, self._secondary = primary, secondary
        self._senders: Counter[str] = Counter()
        self._runtime = Runtime(primary, secondary, label, options)

    @property
    def primary(self) -> NamespaceInfo:
        """The namespace messages are for."""
        return self._primary.info

    @property
    def secondary(self) -> NamespaceInfo:
        """The namespace they wait on when the primary is away."""
        return self._secondary.info

    @property
    def pings_sent(self) -> int:
        """How many pings this client has sent: they are billed as messages (P-34)."""
        return self._runtime.pair.pings_sent

    def get_queue_sender(self, queue_name: str) -> PairedServiceBusSender:
        """A sender for a queue of the primary. Raises ValueError for an empty name or a closed client."""
        if not isinstance(queue_name, str):
            raise TypeError(f"queue_name must be text, not {queue_name!r}")
        if not queue_name.strip("/ "):
            raise ValueError("queue_name must not be empty")
        self._check_open()
        with self._runtime.lock:
            self._senders[path_key(queue_name)] += 1
        return PairedServiceBusSender(self._runtime, queue_name, self._sender_closed)

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
        keywords: dict[str, Any] = {
            "session_id": session_id,
            "sub_queue": sub_queue,
            "max_wait_time": max_wait_time,
            "auto_lock_renewer": auto_lock_renewer,
        }
        given = {name: value for name, value in keywords.items() if value is not None}
        client = self._runtime.sdk_client(self._primary, retry_total=None)
        return client.get_queue_receiver(
            queue_name, receive_mode=receive_mode, prefetch_count=prefetch_count, **given
        )

    def state_of(self, path: str) -> EntityState:
        """The state that all senders of this entity share (P-6)."""
        with self._runtime.lock:
            return self._runtime.pair.state_of(path)

    def fail_over(self, path: str) -> None:
        """Park the messages of this entity from now on; a ping brings it home."""
        with self._runtime.lock:
            self._runtime.pair.fail_over(path, time.monotonic())
        self._runtime.publish()

    def mark_path_healthy(self, path: str) -> None:
        """Send this entity's messages to the primary from now on (P-6)."""
        with self._runtime.lock:
            self._runtime.pair.mark_healthy(path, time.monotonic())
        self._runtime.publish()

    def spooled(self, path: str | None = None) -> int:
        """How many messages wait in the spool, for this entity or for all; 0 without a spool."""
        return self._runtime.spooled(path)

    def on_event(self, callback: Callable[[PairingEvent], object]) -> Callable[[], None]:
        """Call ``callback`` with every event, in the thread it happened in; returns how to stop that."""
        return self._runtime.hub.subscribe(callback)

    def close(self) -> None:
        """Close every sender, link and thread of this client. Calls under way end with an error."""
        self._runtime.close()

    def __enter__(self) -> Self:
        self._check_open()
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.close()

    def _check_open(self) -> None:
        if self._runtime.is_closed:
            raise ValueError("the paired client is closed")

    def _sender_closed(self, path: str) -> None:
        with self._runtime.lock:
            self._senders[path_key(path)] -= 1
            is_last = self._senders[path_key(path)] <= 0
        if is_last:
            self._runtime.release_path(path)
