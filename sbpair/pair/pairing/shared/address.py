"""The two namespaces of a pair as SDK connections: their endpoints, credentials and settings.

Connection strings are checked here before the SDK parses them, so that errors name the side ("primary",
"secondary") and the missing part, and never contain the key.
"""

from __future__ import annotations

import inspect
import math
import ssl
import time
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field, replace
from enum import Enum
from functools import cached_property
from random import Random
from typing import TYPE_CHECKING, Any, Literal, NamedTuple, cast
from urllib.parse import urlsplit

from azure.core.credentials import AzureNamedKeyCredential, AzureSasCredential, TokenCredential
from azure.core.credentials_async import AsyncTokenCredential
from azure.servicebus import ServiceBusClient, TransportType

from sbpair.pair.auth.connection_string import NamespaceAccess, at_host, fields_of, parse, resolve
from sbpair.pair.auth.credential import token_source
from sbpair.pair.auth.dialling import BoundedHandshake, CaFileUnusableError, trusting
from sbpair.pair.auth.held_failure import HeldFailure
from sbpair.pair.auth.route import Proxy, Route
from sbpair.pair.envelope.names import label_of_backlogs, namespace_label
from sbpair.pair.ground.own_copy import own_copy
from sbpair.pair.ground.side import Side

from ..decide.retry import RetryPolicy
from ..errors import CaFileError
from ..request.classify import is_of_name

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping

    from azure.servicebus import aio
    from azure.servicebus.management import ServiceBusAdministrationClient

    from sbpair.pair.pairing.shared.administration import Exchanged, Report


Credential = TokenCredential | AzureSasCredential | AzureNamedKeyCredential
AsyncCredential = AsyncTokenCredential | AzureSasCredential | AzureNamedKeyCredential

_KEYS = (AzureNamedKeyCredential, AzureSasCredential)
ADMIN_CONNECT_TIMEOUT, ADMIN_READ_TIMEOUT = 3.0, 10.0  # seconds


class Same(Enum):
    """The type of :data:`SAME`, which gives a setting of the secondary the value of the primary's."""

    SAME = "as for the primary"


SAME: Literal[Same.SAME] = Same.SAME


@dataclass(frozen=True, slots=True, kw_only=True)
class SdkSettings:
    """The keyword arguments of the SDK's client that a paired client passes on.

    Raises ValueError for values that the SDK refuses too.
    """

    transport_type: TransportType = TransportType.Amqp
    http_proxy: Mapping[str, str | int] | None = None
    user_agent: str | None = None
    connection_verify: str | None = None
    ssl_context: ssl.SSLContext | None = None
    logging_enable: bool = False
    socket_timeout: float | None = None
    retry: RetryPolicy = field(default_factory=RetryPolicy)
    try_timeout: float | None = None
    uamqp_transport: bool = False

    def __post_init__(self) -> None:
        if self.try_timeout is not None and not (math.isfinite(self.try_timeout) and self.try_timeout > 0):
            raise ValueError(
                f"try_timeout must be a finite number of seconds above 0, not {self.try_timeout}"
            )
        if self.http_proxy is not None:
            Proxy.of_settings(self.http_proxy)
        if self.uamqp_transport:
            raise ValueError("a paired client needs the SDK's own AMQP transport: remove uamqp_transport")

    @property
    def route(self) -> Route:
        """The same route for clients other than the SDK's. With a proxy it uses a WebSocket, as the SDK does."""
        proxy = None if self.http_proxy is None else Proxy.of_settings(self.http_proxy).url
        is_websocket = proxy is not None or self.transport_type is TransportType.AmqpOverWebsocket
        return Route(self.connection_verify, is_websocket, proxy, self.ssl_context)

    def for_secondary(
        self,
        transport_type: TransportType | Same,
        http_proxy: Mapping[str, str | int] | Same | None,
        connection_verify: str | Same | None,
        ssl_context: ssl.SSLContext | Same | None,
    ) -> SdkSettings:
        """Return these settings with the given values replaced; SAME keeps the primary's."""
        if connection_verify is not SAME and ssl_context is SAME:
            ssl_context = None  # the primary's would take precedence over the file
        given = {
            "transport_type": transport_type,
            "http_proxy": http_proxy,
            "connection_verify": connection_verify,
            "ssl_context": ssl_context,
        }
        different: dict[str, Any] = {name: value for name, value in given.items() if value is not SAME}
        return replace(self, **different)


class LinkSettings(NamedTuple):
    """The keyword arguments of ``get_queue_sender`` and the like that concern the link."""

    client_identifier: str | None = None
    socket_timeout: float | None = None
    keep_alive: float | None = None

    def keywords(self) -> dict[str, Any]:
        """The settings that are not None."""
        given = {
            "client_identifier": self.client_identifier,
            "socket_timeout": self.socket_timeout,
            "keep_alive": self.keep_alive,
        }
        return {name: value for name, value in given.items() if value is not None}


class NamespaceInfo(NamedTuple):
    """The short name of a namespace, and its host, with port if given."""

    label: str
    endpoint: str


def _is_asked(credential: object) -> bool:
    """Whether a credential asks a service for tokens. One with a ``token_type`` signs them itself, as the SDK's do."""
    return hasattr(credential, "get_token") and not hasattr(credential, "token_type")


class SdkNamespace:
    """One namespace of a pair, from which SDK clients are created. Opens no connection itself.

    The methods that create clients raise CaFileError when the file of ``connection_verify`` cannot be used.
    """

    def __init__(
        self,
        role: str,
        endpoint: str,
        settings: SdkSettings,
        *,
        connection_string: str | None = None,
        credential: Credential | AsyncCredential | None = None,
        use_tls: bool = True,
        custom_endpoint_address: str | None = None,
        entity_path: str | None = None,
    ) -> None:
        host = endpoint.split("://", 1)[-1].split("/", 1)[0].strip()
        if not host:
            raise ValueError(f"the {role} namespace has no host name")
        self.role = Side(role)
        self.info = NamespaceInfo(namespace_label(host), host)
        self._settings = settings
        self._connection_string = connection_string
        self._credential = credential
        self._cached: Any = credential
        if _is_asked(credential):
            from sbpair.pair.auth.caching import caching  # late: a key needs none

            self._cached = caching(credential)
        self._entity_path = entity_path  # of an entity-level connection string
        self._use_tls = use_tls
        self._custom_endpoint_address = custom_endpoint_address
        self._trust: BoundedHandshake | None = None

    @classmethod
    def from_connection_string(
        cls, role: str, text: str, settings: SdkSettings, custom_endpoint_address: str | None = None
    ) -> SdkNamespace:
        """Return the namespace of a connection string, or of a reference to one: ``env:NAME`` or ``file:PATH``.

        Raises ValueError, naming the side and the missing part.
        """
        if isinstance(text, str):
            text = resolve(text, f"the {role} connection string")
        fields = fields_of(text, f"the {role} connection string")
        entity_path = fields.get("entitypath")
        if entity_path and role == Side.SECONDARY:
            raise ValueError(
                "the secondary connection string is limited to one entity (EntityPath) and cannot open backlog "
                "queues; use one of the namespace"
            )
        return cls(
            role,
            fields["endpoint"],
            settings,
            connection_string=text,
            use_tls=fields.get("usedevelopmentemulator") != "true",  # case-sensitive, as in the SDK
            custom_endpoint_address=custom_endpoint_address,
            entity_path=entity_path,
        )

    @cached_property
    def host_name(self) -> HostName:
        """The cached look-ups of the host name."""
        return HostName()

    @property
    def retry(self) -> RetryPolicy:
        """The retry policy of failed sends, applied by this client instead of the SDK."""
        return self._settings.retry

    @property
    def settings(self) -> SdkSettings:
        """The keyword arguments passed to the SDK."""
        return self._settings

    def access(self) -> NamespaceAccess:
        """The namespace for clients other than the SDK's, with its credential and the route of its settings.

        Raises ConnectionStringError for a signature without an expiry, which the SDK takes.
        """
        if self._connection_string is not None:
            namespace = parse(self._connection_string)
        else:
            namespace = at_host(self.info.endpoint, token_source(self._cached), uses_tls=self._use_tls)
        return namespace.along(self._settings.route).dial_at(self._custom_endpoint_address)

    def location(self) -> str:
        """The identity of the namespace: host, plus port without TLS, since the SDK ignores it with TLS."""
        if self._custom_endpoint_address:
            return self._custom_endpoint_address.split("://", 1)[-1].casefold()
        host = self.info.endpoint.casefold()
        return host.rsplit(":", 1)[0] if self._use_tls and not host.endswith("]") else host

    def hosts(self) -> str | None:
        """The host name resolved on this machine to connect; None where a proxy resolves it."""
        if self._settings.http_proxy is not None:
            return None
        way = self._custom_endpoint_address or self.info.endpoint
        return urlsplit(way if "://" in way else f"sb://{way}").hostname

    def check_entity(self, what: str, name: str) -> None:
        """Raise ValueError, as the SDK does, if the connection string is limited to another entity."""
        if self._entity_path and name != self._entity_path:
            raise ValueError(
                f"{what} {name!r} does not match the EntityPath {self._entity_path!r} in the {self.role} "
                "connection string; use one of the namespace"
            )

    def check_credential(self, *, is_asyncio: bool) -> None:
        """Raise TypeError for an unknown credential, or a blocking one with asyncio, or vice versa."""
        get_token = getattr(self._credential, "get_token", None)
        if get_token is None:
            if self._connection_string is None and not isinstance(self._credential, _KEYS):
                raise TypeError(
                    f"the {self.role} credential must be a TokenCredential, an AzureNamedKeyCredential or an "
                    f"AzureSasCredential, not {type(self._credential).__name__}"
                )
            return
        is_async = inspect.iscoroutinefunction(get_token)
        if is_asyncio and not is_async and not hasattr(self._credential, "__aexit__"):
            raise TypeError(
                f"the {self.role} credential is blocking; with sbpair.aio use one of azure.identity.aio"
            )
        if is_async and not is_asyncio:
            raise TypeError(f"the {self.role} credential is for asyncio; use the client of sbpair.aio")

    def client(self, *, retry_total: int | None = 0) -> ServiceBusClient:
        """Return a new SDK client, by default without retries; with ``retry_total`` None they follow the settings."""
        context = self._bounded_handshake() or self._settings.ssl_context
        keywords = self._keywords(context, retry_total, is_asyncio=False)
        if self._connection_string is not None:
            return ServiceBusClient.from_connection_string(self._connection_string, **keywords)
        return ServiceBusClient(
            self.info.endpoint, cast("Credential", self._cached), use_tls=self._use_tls, **keywords
        )

    def asyncio_client(self, *, retry_total: int | None = 0) -> aio.ServiceBusClient:
        """Return a new asyncio SDK client; see :meth:`client`."""
        from azure.servicebus import aio

        bounded = self._bounded_handshake()
        context = self._settings.ssl_context if bounded is None else bounded.context
        if context is None and not self._use_tls:
            # Unused: without it, the SDK reads the file of authorities for each link.
            context = ssl.SSLContext(ssl.PROTOCOL_TLS_CLIENT)
        keywords = self._keywords(context, retry_total, is_asyncio=True)
        if self._connection_string is not None:
            return aio.ServiceBusClient.from_connection_string(self._connection_string, **keywords)
        return aio.ServiceBusClient(
            self.info.endpoint, cast("AsyncCredential", self._cached), use_tls=self._use_tls, **keywords
        )

    def administration(
        self,
        bridge: Callable[[AsyncTokenCredential], TokenCredential] | None = None,
        *,
        connect_timeout: float = ADMIN_CONNECT_TIMEOUT,
        report: Report | None = None,
        exchanged: Exchanged | None = None,
    ) -> ServiceBusAdministrationClient:
        """Return a new SDK administration client with short timeouts; always https, always blocking.

        It sends the elements of a description in the service's order, which the SDK does not. ``report`` is told which
        elements of an answer are not in force, ``exchanged`` each request and its response.

        ``bridge`` turns an asyncio credential into one that a thread can use. ``connect_timeout`` is in seconds, and
        includes the TLS handshake.
        """
        from azure.servicebus.management import ServiceBusAdministrationClient

        from sbpair.pair.pairing.shared.administration import AdministrationTransport, ServiceOrder

        credential: object = self._cached
        if bridge is not None and inspect.iscoroutinefunction(getattr(credential, "get_token", None)):
            credential = bridge(cast("AsyncTokenCredential", credential))
        keywords: dict[str, Any] = {
            "retry_total": 0,
            "connection_timeout": connect_timeout,
            "read_timeout": ADMIN_READ_TIMEOUT,
            "logging_policy": ServiceOrder(report, exchanged),
        }
        if self._settings.connection_verify is not None:
            _trust(self._settings.connection_verify)  # the SDK would only raise OSError
            keywords["connection_verify"] = self._settings.connection_verify
        if self._settings.user_agent is not None:
            keywords["user_agent"] = self._settings.user_agent
        if self._settings.http_proxy is not None:
            keywords["proxies"] = {"https": self._settings.route.http_proxy}
        bounds = ("connection_timeout", "read_timeout", "connection_verify")
        keywords["transport"] = AdministrationTransport(
            **{name: keywords[name] for name in bounds if name in keywords}
        )
        if self._connection_string is not None:
            return ServiceBusAdministrationClient.from_connection_string(self._connection_string, **keywords)
        return ServiceBusAdministrationClient(
            self.info.endpoint, cast("TokenCredential", credential), **keywords
        )

    def _keywords(self, context: object, retry_total: int | None, *, is_asyncio: bool) -> dict[str, Any]:
        proxy = self._settings.http_proxy
        given = {
            "http_proxy": None if proxy is None else Proxy.of_settings(proxy).settings(is_asyncio=is_asyncio),
            "user_agent": self._settings.user_agent,
            "connection_verify": self._settings.connection_verify,
            "ssl_context": context,
            **self._retries(retry_total),
            "socket_timeout": self._settings.socket_timeout,
            "try_timeout": self._settings.try_timeout,
            "custom_endpoint_address": self._custom_endpoint_address,
        }
        keywords: dict[str, Any] = {name: value for name, value in given.items() if value is not None}
        if self._settings.http_proxy is None:
            keywords["transport_type"] = self._settings.transport_type
        return {**keywords, "logging_enable": self._settings.logging_enable}

    def _retries(self, total: int | None) -> dict[str, Any]:
        if total is not None:
            return {"retry_total": total}
        retry = self._settings.retry
        return {
            "retry_total": retry.total,
            "retry_mode": retry.mode,
            "retry_backoff_factor": retry.backoff_factor,
            "retry_backoff_max": retry.backoff_max,
        }

    def _bounded_handshake(self) -> BoundedHandshake | None:
        """The TLS context for plain AMQP. Over WebSocket the SDK creates its own, from the file checked here."""
        if not self._use_tls:
            return None
        if self._trust is None:
            context = self._settings.ssl_context or _trust(self._settings.connection_verify)
            self._trust = BoundedHandshake(context)
        return None if self._settings.route.over_websocket else self._trust


def _trust(ca_file: str | None) -> ssl.SSLContext:
    try:
        return trusting(ca_file)
    except CaFileUnusableError as error:
        raise CaFileError(error.file, error.why) from error


def check_pair(primary: SdkNamespace, secondary: SdkNamespace, primary_name: str | None) -> str:
    """Return the label that prefixes the names of the backlog queues.

    Raises ValueError if the two sides are the same namespace, or their names cannot be distinguished.
    """
    if primary.location() == secondary.location():
        raise ValueError(f"primary and secondary are the same namespace ({primary.info.endpoint}); use two")
    return label_of_backlogs(primary.info.endpoint, secondary.info.endpoint, primary_name)


class HostName:
    """The cached look-ups of one host name. Thread-safe.

    A failure is remembered for a moment, so that the look-up is not repeated for each link.
    """

    def __init__(self, rng: Random | None = None) -> None:
        self._failure = HeldFailure(rng or Random())

    @contextmanager
    def opening(self) -> Iterator[None]:
        """Opens a link within this context. Raises the error of an earlier look-up while that is remembered."""
        held = self._failure.at(time.monotonic())
        if held is not None:
            raise own_copy(held)
        try:
            yield
        except Exception as error:
            if is_of_name(error):
                self._failure.failed(error, time.monotonic())
            raise
        self._failure.succeeded()
