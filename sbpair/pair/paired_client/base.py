"""Base of the blocking and the asyncio client: construction, properties and the state of entities. Nothing waits."""

from __future__ import annotations

import os
import sys
from collections import Counter
from collections.abc import Callable, Mapping
from typing import TYPE_CHECKING, Any, ClassVar, Generic, Self, TypeVar

from azure.servicebus import TransportType

from sbpair.pair.auth.connection_string import resolve
from sbpair.pair.envelope.names import MAX_PATH, path_key
from sbpair.pair.ground.side import Side
from sbpair.pair.pairing.decide.health import EntityState
from sbpair.pair.pairing.decide.pair_state import SideState
from sbpair.pair.pairing.decide.retry import RetryPolicy
from sbpair.pair.pairing.events import PairingEvent
from sbpair.pair.pairing.options import PairedNamespaceOptions
from sbpair.pair.pairing.shared.address import (
    SAME,
    AsyncCredential,
    Credential,
    LinkSettings,
    Same,
    SdkNamespace,
    SdkSettings,
    check_pair,
)

if TYPE_CHECKING:
    import ssl

    from azure.servicebus import ServiceBusReceiveMode, ServiceBusSessionFilter, ServiceBusSubQueue

    from sbpair.pair.auth.connection_string import NamespaceAccess
    from sbpair.pair.pairing.shared.base_runtime import BaseRuntime
    from sbpair.pair.processor.options import ProcessorOptions

CredentialT = TypeVar("CredentialT", bound=Credential | AsyncCredential, contravariant=True)
NamespaceT = TypeVar("NamespaceT", covariant=True)


class BaseNamespace:
    """One of the two namespaces of a client: its names and its state."""

    def __init__(self, runtime: BaseRuntime, side: SdkNamespace) -> None:
        self._runtime = runtime
        self._role = side.role
        self.label = side.info.label
        self.endpoint = side.info.endpoint

    @property
    def state(self) -> SideState:
        """The state of this side: open, closed, or refused, which means that its configuration must be corrected."""
        return self._runtime.sides.state.state_of(self._role)

    def __repr__(self) -> str:
        return f"<{self._role} {self.endpoint}, {self.state.value}>"


class BaseClient(Generic[CredentialT, NamespaceT]):
    """The part of a paired client that opens nothing. See PairedServiceBusClient."""

    _IS_ASYNCIO: ClassVar[bool] = False
    _runtime: BaseRuntime
    _namespaces: Mapping[Side, NamespaceT]

    def __init__(
        self,
        primary_namespace: str,
        secondary_namespace: str,
        credential: CredentialT,
        *,
        secondary_credential: CredentialT | None = None,
        options: PairedNamespaceOptions | None = None,
        transport_type: TransportType = TransportType.Amqp,
        http_proxy: Mapping[str, str | int] | None = None,
        user_agent: str | None = None,
        connection_verify: str | None = None,
        ssl_context: ssl.SSLContext | None = None,
        logging_enable: bool = False,
        socket_timeout: float | None = None,
        retry_total: int = 3,
        retry_mode: str = "exponential",
        retry_backoff_factor: float = 0.8,
        retry_backoff_max: float = 120.0,
        try_timeout: float | None = None,
        uamqp_transport: bool = False,
        custom_endpoint_address: str | None = None,
        secondary_custom_endpoint_address: str | None = None,
        secondary_transport_type: TransportType | Same = SAME,
        secondary_http_proxy: Mapping[str, str | int] | Same | None = SAME,
        secondary_connection_verify: str | Same | None = SAME,
        secondary_ssl_context: ssl.SSLContext | Same | None = SAME,
        use_tls: bool = True,
        secondary_use_tls: bool | Same = SAME,
    ) -> None:
        settings = SdkSettings(
            transport_type=transport_type,
            http_proxy=http_proxy,
            user_agent=user_agent,
            connection_verify=connection_verify,
            ssl_context=ssl_context,
            logging_enable=logging_enable,
            socket_timeout=socket_timeout,
            retry=RetryPolicy(retry_total, retry_backoff_factor, retry_backoff_max, retry_mode),
            try_timeout=try_timeout,
            uamqp_transport=uamqp_transport,
        )
        for_secondary = settings.for_secondary(
            secondary_transport_type, secondary_http_proxy, secondary_connection_verify, secondary_ssl_context
        )
        self._set_up(
            SdkNamespace(
                Side.PRIMARY,
                primary_namespace,
                settings,
                credential=credential,
                use_tls=use_tls,
                custom_endpoint_address=custom_endpoint_address,
            ),
            SdkNamespace(
                Side.SECONDARY,
                secondary_namespace,
                for_secondary,
                credential=secondary_credential or credential,
                use_tls=use_tls if secondary_use_tls is SAME else bool(secondary_use_tls),
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
        retry_total: int = 3,
        retry_mode: str = "exponential",
        retry_backoff_factor: float = 0.8,
        retry_backoff_max: float = 120.0,
        try_timeout: float | None = None,
        uamqp_transport: bool = False,
        custom_endpoint_address: str | None = None,
        secondary_custom_endpoint_address: str | None = None,
        secondary_transport_type: TransportType | Same = SAME,
        secondary_http_proxy: Mapping[str, str | int] | Same | None = SAME,
        secondary_connection_verify: str | Same | None = SAME,
        secondary_ssl_context: ssl.SSLContext | Same | None = SAME,
    ) -> Self:
        """Return a client for the namespaces of two connection strings.

        Raises ValueError that names the side and the problem, never the key.
        """
        settings = SdkSettings(
            transport_type=transport_type,
            http_proxy=http_proxy,
            user_agent=user_agent,
            connection_verify=connection_verify,
            ssl_context=ssl_context,
            logging_enable=logging_enable,
            socket_timeout=socket_timeout,
            retry=RetryPolicy(retry_total, retry_backoff_factor, retry_backoff_max, retry_mode),
            try_timeout=try_timeout,
            uamqp_transport=uamqp_transport,
        )
        for_secondary = settings.for_secondary(
            secondary_transport_type, secondary_http_proxy, secondary_connection_verify, secondary_ssl_context
        )
        return cls.between(
            SdkNamespace.from_connection_string("primary", primary, settings, custom_endpoint_address),
            SdkNamespace.from_connection_string(
                "secondary", secondary, for_secondary, secondary_custom_endpoint_address
            ),
            options=options,
        )

    @classmethod
    def between(
        cls, primary: SdkNamespace, secondary: SdkNamespace, *, options: PairedNamespaceOptions | None = None
    ) -> Self:
        """Return a client for two namespaces, each with its own credential and settings.

        Raises ValueError when they cannot be a pair, and TypeError for a credential of the wrong kind.
        """
        client = cls.__new__(cls)
        client._set_up(primary, secondary, options)
        return client

    @classmethod
    def from_environment(
        cls,
        *,
        options: PairedNamespaceOptions | None = None,
        transport_type: TransportType = TransportType.Amqp,
        http_proxy: Mapping[str, str | int] | None = None,
        user_agent: str | None = None,
        connection_verify: str | None = None,
        ssl_context: ssl.SSLContext | None = None,
        logging_enable: bool = False,
        socket_timeout: float | None = None,
        retry_total: int = 3,
        retry_mode: str = "exponential",
        retry_backoff_factor: float = 0.8,
        retry_backoff_max: float = 120.0,
        try_timeout: float | None = None,
        uamqp_transport: bool = False,
        custom_endpoint_address: str | None = None,
        secondary_custom_endpoint_address: str | None = None,
        secondary_transport_type: TransportType | Same = SAME,
        secondary_http_proxy: Mapping[str, str | int] | Same | None = SAME,
        secondary_connection_verify: str | Same | None = SAME,
        secondary_ssl_context: ssl.SSLContext | Same | None = SAME,
    ) -> Self:
        """Return a client for the namespaces that the environment names, as for the commands of ``sbpair``.

        ``SBPAIR_PRIMARY`` and ``SBPAIR_SECONDARY`` hold a connection string each, or ``file:PATH`` or ``env:NAME`` to
        read it from there; ``SBPAIR_CA_FILE``, if set, a file of trusted certificates (PEM). The other keywords are
        those of :meth:`from_connection_strings`; ``connection_verify`` precedes the variable.

        Raises ValueError that names the variable that is not set, or what is wrong with its value.
        """
        return cls.from_connection_strings(
            resolve("env:SBPAIR_PRIMARY", "the primary connection string"),
            resolve("env:SBPAIR_SECONDARY", "the secondary connection string"),
            options=options,
            transport_type=transport_type,
            http_proxy=http_proxy,
            user_agent=user_agent,
            connection_verify=connection_verify or os.environ.get("SBPAIR_CA_FILE") or None,
            ssl_context=ssl_context,
            logging_enable=logging_enable,
            socket_timeout=socket_timeout,
            retry_total=retry_total,
            retry_mode=retry_mode,
            retry_backoff_factor=retry_backoff_factor,
            retry_backoff_max=retry_backoff_max,
            try_timeout=try_timeout,
            uamqp_transport=uamqp_transport,
            custom_endpoint_address=custom_endpoint_address,
            secondary_custom_endpoint_address=secondary_custom_endpoint_address,
            secondary_transport_type=secondary_transport_type,
            secondary_http_proxy=secondary_http_proxy,
            secondary_connection_verify=secondary_connection_verify,
            secondary_ssl_context=secondary_ssl_context,
        )

    def _set_up(
        self, primary: SdkNamespace, secondary: SdkNamespace, options: PairedNamespaceOptions | None
    ) -> None:
        _refuse_eventlet()
        options = options or PairedNamespaceOptions()
        if not isinstance(options, PairedNamespaceOptions):
            raise TypeError(f"options must be PairedNamespaceOptions, not {type(options).__name__}")
        for side in (primary, secondary):
            side.check_credential(is_asyncio=self._IS_ASYNCIO)
        label = check_pair(primary, secondary, options.primary_namespace_name)
        self._primary, self._secondary = primary, secondary
        self._senders: Counter[str] = Counter()
        self._runtime = self._make_runtime(primary, secondary, label, options)

    def _make_runtime(
        self, primary: SdkNamespace, secondary: SdkNamespace, label: str, options: PairedNamespaceOptions
    ) -> BaseRuntime:
        raise NotImplementedError

    @property
    def primary(self) -> NamespaceT:
        """The namespace that messages are sent to; it can be closed on its own."""
        return self._namespaces[Side.PRIMARY]

    @property
    def secondary(self) -> NamespaceT:
        """The namespace where messages wait while the primary is unavailable; it can be closed on its own."""
        return self._namespaces[Side.SECONDARY]

    @property
    def fully_qualified_namespace(self) -> str:
        """The primary's host, as the SDK's client calls it."""
        return self._primary.info.endpoint

    @property
    def pings_sent(self) -> int:
        """The number of pings that this client has sent; they are billed as messages."""
        return self._runtime.pair.pings_sent

    def state_of(self, path: str) -> EntityState:
        """Return the state that all senders of this entity share."""
        with self._runtime.exclusive():
            return self._runtime.pair.state_of(path)

    def fail_over(self, path: str) -> None:
        """Park the messages of this entity from now on; the next accepted ping brings it home.

        The first ping goes out at once: for a planned outage call :meth:`hold`.
        """
        self._runtime.by_hand(self._runtime.pair.fail_over, path)

    def hold(self, path: str) -> None:
        """Park the messages of this entity until :meth:`release` or :meth:`mark_path_healthy`; no pings."""
        self._runtime.by_hand(self._runtime.pair.hold, path)

    def release(self, path: str) -> None:
        """End a :meth:`hold`: the next accepted ping brings the entity home."""
        self._runtime.by_hand(self._runtime.pair.release, path)

    def mark_path_healthy(self, path: str) -> None:
        """Send this entity's messages to the primary from now on."""
        self._runtime.mark_healthy(path)

    def count_spooled(self, path: str | None = None) -> int:
        """Return how many messages wait in the spool, for this entity or for all; 0 without a spool."""
        return self._runtime.spool.waiting(path)

    def on_event(self, callback: Callable[[PairingEvent], object]) -> Callable[[], None]:
        """Call ``callback`` with every event, in the thread it occurs in. Returns a function that unsubscribes it."""
        return self._runtime.dispatcher.subscribe(callback)

    def _check_open(self) -> None:
        if self._runtime.sides.is_closed:
            raise self._runtime.sides.closed_error()

    def _count_sender(self, what: str, name: str) -> str:
        """Return the name of an entity, and count one more sender of it."""
        self._entity(what, name)
        self._runtime.announce()
        with self._runtime.exclusive():
            self._senders[path_key(name)] += 1
        return name

    def _entity(self, what: str, name: str) -> str:
        """Return the name of an entity. Raises TypeError or ValueError, also when this client is closed."""
        if not isinstance(name, str):
            raise TypeError(f"{what} must be text, not {name!r}")
        if not name.strip("/ "):
            raise ValueError(f"{what} must not be empty")
        if len(name) > MAX_PATH:
            raise ValueError(f"{what} must have at most {MAX_PATH} characters, not {len(name)}")
        self._primary.check_entity(what, name)
        self._check_open()
        return name

    def _subscription(self, topic_name: str, subscription_name: str) -> str:
        """Return the path of a subscription. Raises as :meth:`_entity`."""
        topic = self._entity("topic_name", topic_name)
        if not isinstance(subscription_name, str) or not subscription_name.strip("/ "):
            raise ValueError("subscription_name must not be empty")
        return f"{topic}/Subscriptions/{subscription_name}"

    def _addresses(self) -> dict[Side, NamespaceAccess]:
        """Return the addresses of both namespaces for a processor."""
        return {side.role: side.access() for side in (self._primary, self._secondary)}

    def _processor_options(self, options: ProcessorOptions | None) -> ProcessorOptions:
        from sbpair.pair.processor.options import ProcessorOptions

        options = options or ProcessorOptions()
        if not isinstance(options, ProcessorOptions):
            raise TypeError(f"options must be ProcessorOptions, not {type(options).__name__}")
        return options

    def _was_last(self, path: str) -> bool:
        """Record that a sender was closed; return whether it was the last one of this entity."""
        with self._runtime.exclusive():
            self._senders[path_key(path)] -= 1
            return self._senders[path_key(path)] <= 0


def receiver_keywords(
    session_id: str | ServiceBusSessionFilter | None,
    sub_queue: ServiceBusSubQueue | str | None,
    receive_mode: ServiceBusReceiveMode | str,
    max_wait_time: float | None,
    auto_lock_renewer: object,
    prefetch_count: int,
    links: LinkSettings,
) -> dict[str, Any]:
    """Return the keyword arguments for the SDK's receiver: those that were given."""
    keywords = {
        "session_id": session_id,
        "sub_queue": sub_queue,
        "max_wait_time": max_wait_time,
        "auto_lock_renewer": auto_lock_renewer,
    }
    given = {name: value for name, value in keywords.items() if value is not None}
    return {**given, **links.keywords(), "receive_mode": receive_mode, "prefetch_count": prefetch_count}


def _refuse_eventlet() -> None:
    """Raise RuntimeError where eventlet has patched the standard library: calls would hang in an outage."""
    patcher = sys.modules.get("eventlet.patcher")
    if patcher is not None and patcher.is_monkey_patched("socket"):
        raise RuntimeError(
            "a paired client does not run on eventlet, which is no longer developed: its patched threads and sockets "
            "fail when a connection goes silent; use gevent, threads or asyncio"
        )
