"""The blocking paired client.

    client = PairedServiceBusClient.from_connection_strings(primary, secondary)
    with client, client.get_queue_sender("orders") as sender:
        receipt = sender.send_messages(ServiceBusMessage("an order"))

pairing/pair.py decides where a message goes; pairing/runtime.py carries it out.
"""

from __future__ import annotations

from functools import partial
from types import TracebackType
from typing import TYPE_CHECKING, Self

from sbpair.pair.pairing.blocking.runtime import Runtime
from sbpair.pair.pairing.blocking.sender import PairedServiceBusSender
from sbpair.pair.pairing.options import PairedNamespaceOptions
from sbpair.pair.pairing.shared.address import Credential, LinkSettings, SdkNamespace
from sbpair.pair.pairing.shared.background import BackgroundService, Services
from sbpair.pair.pairing.shared.hearing import hearing

from .base import BaseClient, BaseNamespace, receiver_keywords
from .processors import Processors

if TYPE_CHECKING:
    from datetime import datetime

    from azure.core.paging import ItemPaged
    from azure.servicebus import (
        AutoLockRenewer,
        ServiceBusClient,
        ServiceBusReceiveMode,
        ServiceBusReceiver,
        ServiceBusSessionFilter,
        ServiceBusSubQueue,
    )

    from sbpair.pair.processor.blocking import PairedServiceBusProcessor
    from sbpair.pair.processor.options import ProcessorOptions
    from sbpair.pair.processor.threads import Handler

    from .hosted_syphon import SyphonThread
    from .stand_in import Loan, StandIn


class PairedNamespace(BaseNamespace):
    """One of the two namespaces of a paired client."""

    _runtime: Runtime

    def close(self) -> None:
        """Close this side: its links and its receivers. The other side must be closed within five seconds.

        If it is not, the pair is faulted and every sender raises PairFaultedError. Closing both sides closes the
        client.
        """
        self._runtime.close_side(self._role)


class PairedServiceBusClient(BaseClient[Credential, PairedNamespace]):
    """A Service Bus client for two namespaces: messages that the primary cannot take wait on the secondary.

    The constructor takes namespaces and credentials, :meth:`from_connection_strings` connection strings.
    ``secondary_credential`` defaults to ``credential``. ``options`` are the pairing's; the other keywords are those of
    ``azure.servicebus.ServiceBusClient`` and apply to both namespaces, except for the two custom endpoints. Nothing is
    opened here; the secondary may be down.

    Raises ValueError when the two sides are one namespace or share a name, or a value is out of range.
    """

    _runtime: Runtime

    def _make_runtime(
        self, primary: SdkNamespace, secondary: SdkNamespace, label: str, options: PairedNamespaceOptions
    ) -> Runtime:
        self._processors: Processors[PairedServiceBusProcessor] = Processors()
        self._runtime = Runtime(
            primary, secondary, label, options, services_of=partial(_services, self._processors)
        )
        self._namespaces = {side.role: PairedNamespace(self._runtime, side) for side in (primary, secondary)}
        return self._runtime

    def get_queue_sender(
        self,
        queue_name: str,
        *,
        client_identifier: str | None = None,
        socket_timeout: float | None = None,
        keep_alive: float | None = None,
    ) -> PairedServiceBusSender:
        """Return a sender for a queue of the primary. Raises ValueError for an empty name or a closed client.

        The keywords apply to links opened to this entity from now on; all its senders share them.
        """
        links = LinkSettings(client_identifier, socket_timeout, keep_alive)
        return self._sender(self._count_sender("queue_name", queue_name), links)

    def get_topic_sender(
        self,
        topic_name: str,
        *,
        client_identifier: str | None = None,
        socket_timeout: float | None = None,
        keep_alive: float | None = None,
    ) -> PairedServiceBusSender:
        """Return a sender for a topic of the primary. Raises ValueError for an empty name or a closed client.

        The keywords are those of :meth:`get_queue_sender`.
        """
        links = LinkSettings(client_identifier, socket_timeout, keep_alive)
        return self._sender(self._count_sender("topic_name", topic_name), links)

    def list_queue_sessions(
        self, queue_name: str, *, state_updated_after: datetime | None = None, timeout: float | None = None
    ) -> ItemPaged[str]:
        """The sessions of a queue of the primary, as the SDK lists them."""
        sdk = self._sdk()
        return sdk.list_queue_sessions(queue_name, state_updated_after=state_updated_after, timeout=timeout)

    def list_subscription_sessions(
        self,
        topic_name: str,
        subscription_name: str,
        *,
        state_updated_after: datetime | None = None,
        timeout: float | None = None,
    ) -> ItemPaged[str]:
        """The sessions of a subscription on the primary, as the SDK lists them."""
        sdk = self._sdk()
        return sdk.list_subscription_sessions(
            topic_name, subscription_name, state_updated_after=state_updated_after, timeout=timeout
        )

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
        client_identifier: str | None = None,
        socket_timeout: float | None = None,
        keep_alive: float | None = None,
    ) -> ServiceBusReceiver:
        """Return the SDK's own receiver on the primary; messages are received from no other side."""
        sdk = self._sdk()
        keywords = receiver_keywords(
            session_id,
            sub_queue,
            receive_mode,
            max_wait_time,
            auto_lock_renewer,
            prefetch_count,
            LinkSettings(client_identifier, socket_timeout, keep_alive),
        )
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
        client_identifier: str | None = None,
        socket_timeout: float | None = None,
        keep_alive: float | None = None,
    ) -> ServiceBusReceiver:
        """Return the SDK's own receiver on the primary; messages are received from no other side."""
        sdk = self._sdk()
        keywords = receiver_keywords(
            session_id,
            sub_queue,
            receive_mode,
            max_wait_time,
            auto_lock_renewer,
            prefetch_count,
            LinkSettings(client_identifier, socket_timeout, keep_alive),
        )
        return sdk.get_subscription_receiver(topic_name, subscription_name, **keywords)

    def get_queue_processor(
        self, queue_name: str, handler: Handler, *, options: ProcessorOptions | None = None
    ) -> PairedServiceBusProcessor:
        """Return a processor that calls ``handler(message)`` for each message of a queue, on both namespaces.

        Raises ValueError for an empty name or a closed client.
        """
        return self._processor(self._entity("queue_name", queue_name), handler, options)

    def get_subscription_processor(
        self,
        topic_name: str,
        subscription_name: str,
        handler: Handler,
        *,
        options: ProcessorOptions | None = None,
    ) -> PairedServiceBusProcessor:
        """Return a processor for a subscription; see :meth:`get_queue_processor`."""
        return self._processor(self._subscription(topic_name, subscription_name), handler, options)

    def _processor(
        self, path: str, handler: Handler, options: ProcessorOptions | None
    ) -> PairedServiceBusProcessor:
        from sbpair.pair.processor.blocking import PairedServiceBusProcessor

        self._runtime.begin()
        processor = PairedServiceBusProcessor(
            path, handler, self._addresses(), self._processor_options(options)
        )
        self._processors.add(processor)
        return processor

    def _sdk(self) -> ServiceBusClient:
        """The SDK's own client of the primary, with its own retries. Raises ValueError when this client is closed."""
        self._check_open()
        return hearing(self._runtime.sdk_client(self._primary, retry_total=None))

    def stand_in(self) -> StandIn[Loan]:
        """Return a stand-in for the class ``ServiceBusClient`` that lends this client to a library."""
        from .administration import AdministrationStandIn  # late: few programs need it
        from .stand_in import Loan, StandIn

        return StandIn(lambda: Loan(self), AdministrationStandIn(self._primary.administration, self.state_of))

    def close(self) -> None:
        """Stop the processors, and close every sender, link and thread of this client.

        Calls under way end with an error.
        """
        for processor in self._processors.alive():
            processor.stop()
        self._runtime.close()

    def __enter__(self) -> Self:
        self._check_open()
        self._runtime.begin()
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.close()

    def _sender(self, path: str, links: LinkSettings) -> PairedServiceBusSender:
        self._runtime.begin()
        return PairedServiceBusSender(
            self._runtime, path, self.fully_qualified_namespace, self._sender_closed, links
        )

    def _sender_closed(self, path: str) -> None:
        if self._was_last(path):
            self._runtime.release_path(path)


def _services(processors: Processors[PairedServiceBusProcessor], runtime: Runtime) -> Services:
    """Return the services that the options ask for; the modules that provide them are loaded only then."""
    syphon: SyphonThread | None = None
    observer: BackgroundService | None = None
    if runtime.options.enable_syphon and not runtime.is_disabled:
        from . import hosted_syphon

        syphon = hosted_syphon.SyphonThread(runtime)
    if runtime.options.observation is not None:
        from .observer import Observer

        observer = Observer(runtime, syphon, processors)
    return syphon, observer
