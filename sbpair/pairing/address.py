"""Where is a namespace, and how does the SDK get there?

A connection string is read here too, so that a mistake is told by its side ("primary", "secondary") and
by what is missing, and never by a text that holds the key.
"""

from __future__ import annotations

import inspect
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any, cast
from urllib.parse import quote

from azure.core.credentials import AzureNamedKeyCredential, AzureSasCredential, TokenCredential
from azure.core.credentials_async import AsyncTokenCredential
from azure.servicebus import ServiceBusClient, TransportType

from .bond import Role
from .names import label_of_backlogs, namespace_label
from .trust import BoundedHandshake, trusting

if TYPE_CHECKING:
    import ssl
    from collections.abc import Callable, Mapping

    from azure.servicebus import aio
    from azure.servicebus.management import ServiceBusAdministrationClient

Credential = TokenCredential | AzureSasCredential | AzureNamedKeyCredential
AsyncCredential = AsyncTokenCredential | AzureSasCredential | AzureNamedKeyCredential

_KEYS = (AzureNamedKeyCredential, AzureSasCredential)
ADMIN_CONNECT_TIMEOUT, ADMIN_READ_TIMEOUT = 3.0, 10.0  # seconds


@dataclass(frozen=True, slots=True, kw_only=True)
class SdkSettings:
    """The keyword arguments of the SDK's own client that a paired client takes over, by name."""

    transport_type: TransportType = TransportType.Amqp
    http_proxy: Mapping[str, str | int] | None = None
    user_agent: str | None = None
    connection_verify: str | None = None
    ssl_context: ssl.SSLContext | None = None
    logging_enable: bool = False
    socket_timeout: float | None = None


@dataclass(frozen=True, slots=True)
class NamespaceInfo:
    """One of the two namespaces: its short name, and the host (and port) it is reached at."""

    label: str
    endpoint: str


@dataclass(frozen=True, slots=True)
class Access:
    """How to get to a namespace, for one who does not use the SDK. The repr shows no secret."""

    endpoint: str
    connection_string: str | None = field(repr=False)
    credential: Credential | AsyncCredential | None = field(repr=False)
    use_tls: bool
    custom_endpoint_address: str | None
    settings: SdkSettings = field(repr=False)


class Side:
    """One namespace of a pair, as the SDK is to see it. Opens nothing itself.

    What is made of it raises CaFileError when the file of `connection_verify` cannot be used.
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
        self.role = Role(role)
        self.info = NamespaceInfo(namespace_label(host), host)
        self._settings = settings
        self._connection_string = connection_string
        self._credential = credential
        self._entity_path = entity_path  # of a connection string that is for one entity
        self._use_tls = use_tls
        self._custom_endpoint_address = custom_endpoint_address
        self._trust: BoundedHandshake | None = None

    @classmethod
    def from_connection_string(
        cls, role: str, text: str, settings: SdkSettings, custom_endpoint_address: str | None = None
    ) -> Side:
        """Raises ValueError that says which side is wrong, and what is missing."""
        fields = connection_fields(role, text)
        entity_path = fields.get("entitypath")
        if entity_path and role == Role.SECONDARY:
            raise ValueError(
                "the secondary connection string is that of one entity (EntityPath): it opens no backlog "
                "queue; use the namespace's own"
            )
        return cls(
            role,
            fields["endpoint"],
            settings,
            connection_string=text,
            use_tls=fields.get("usedevelopmentemulator") != "true",  # the SDK knows this spelling only
            custom_endpoint_address=custom_endpoint_address,
            entity_path=entity_path,
        )

    def access(self) -> Access:
        """How to get there without the SDK."""
        return Access(
            self.info.endpoint,
            self._connection_string,
            self._credential,
            self._use_tls,
            self._custom_endpoint_address,
            self._settings,
        )

    def location(self) -> str:
        """What tells two namespaces apart: with TLS the SDK ignores the port of an endpoint."""
        if self._custom_endpoint_address:
            return self._custom_endpoint_address.split("://", 1)[-1].casefold()
        host = self.info.endpoint.casefold()
        return host.rsplit(":", 1)[0] if self._use_tls and not host.endswith("]") else host

    def check_entity(self, what: str, name: str) -> None:
        """Raises ValueError for an entity that the connection string is not for, as the SDK does."""
        if self._entity_path and name != self._entity_path:
            raise ValueError(
                f"{what} {name!r} does not match the EntityPath {self._entity_path!r} in the {self.role} "
                "connection string; use the namespace's own"
            )

    def check_credential(self, *, is_asyncio: bool) -> None:
        """Raises TypeError for a credential that the skin cannot ask."""
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
                f"the {self.role} credential is a blocking one; sbpair.aio takes those of azure.identity.aio"
            )
        if is_async and not is_asyncio:
            raise TypeError(f"the {self.role} credential is one of asyncio; use the client of sbpair.aio")

    def client(self, *, retry_total: int | None = 0) -> ServiceBusClient:
        """An SDK client that does not retry by itself, or does as usual when ``retry_total`` is None."""
        keywords = self._keywords(self._bounded() or self._settings.ssl_context, retry_total)
        if self._connection_string is not None:
            return ServiceBusClient.from_connection_string(self._connection_string, **keywords)
        return ServiceBusClient(
            self.info.endpoint, cast("Credential", self._credential), use_tls=self._use_tls, **keywords
        )

    def asyncio_client(self, *, retry_total: int | None = 0) -> aio.ServiceBusClient:
        """As :meth:`client`, for asyncio."""
        from azure.servicebus import aio

        bounded = self._bounded()
        context = self._settings.ssl_context if bounded is None else bounded.context
        keywords = self._keywords(context, retry_total)
        if self._connection_string is not None:
            return aio.ServiceBusClient.from_connection_string(self._connection_string, **keywords)
        return aio.ServiceBusClient(
            self.info.endpoint, cast("AsyncCredential", self._credential), use_tls=self._use_tls, **keywords
        )

    def administration(
        self, bridge: Callable[[AsyncTokenCredential], TokenCredential] | None = None
    ) -> ServiceBusAdministrationClient:
        """An SDK administration client with bounded waiting; always https, and always blocking.

        ``bridge`` makes a credential of asyncio one that can be asked from a thread.
        """
        from azure.servicebus.management import ServiceBusAdministrationClient

        credential: object = self._credential
        if bridge is not None and inspect.iscoroutinefunction(getattr(credential, "get_token", None)):
            credential = bridge(cast("AsyncTokenCredential", credential))
        keywords: dict[str, Any] = {
            "retry_total": 0,
            "connection_timeout": ADMIN_CONNECT_TIMEOUT,
            "read_timeout": ADMIN_READ_TIMEOUT,
        }
        if self._settings.connection_verify is not None:
            trusting(self._settings.connection_verify)  # where the SDK would say no more than OSError
            keywords["connection_verify"] = self._settings.connection_verify
        if self._settings.user_agent is not None:
            keywords["user_agent"] = self._settings.user_agent
        if self._settings.http_proxy is not None:
            keywords["proxies"] = {"https": proxy_url(self._settings.http_proxy)}
        if self._connection_string is not None:
            return ServiceBusAdministrationClient.from_connection_string(self._connection_string, **keywords)
        return ServiceBusAdministrationClient(
            self.info.endpoint, cast("TokenCredential", credential), **keywords
        )

    def _keywords(self, context: object, retry_total: int | None) -> dict[str, Any]:
        given = {
            "http_proxy": self._settings.http_proxy,
            "user_agent": self._settings.user_agent,
            "connection_verify": self._settings.connection_verify,
            "ssl_context": context,
            "retry_total": retry_total,
            "socket_timeout": self._settings.socket_timeout,
            "custom_endpoint_address": self._custom_endpoint_address,
        }
        keywords: dict[str, Any] = {name: value for name, value in given.items() if value is not None}
        if self._settings.http_proxy is None:
            keywords["transport_type"] = self._settings.transport_type
        return {**keywords, "logging_enable": self._settings.logging_enable}

    def _bounded(self) -> BoundedHandshake | None:
        """The TLS of plain AMQP; over a WebSocket the SDK makes its own, of the file that was looked at."""
        if not self._use_tls:
            return None
        if self._trust is None:
            context = self._settings.ssl_context or trusting(self._settings.connection_verify)
            self._trust = BoundedHandshake(context)
        is_websocket = self._settings.transport_type is TransportType.AmqpOverWebsocket
        return None if is_websocket or self._settings.http_proxy is not None else self._trust


def connection_fields(role: str, text: str) -> dict[str, str]:
    """The fields of a connection string, keys in lower case.

    Raises ValueError that names the side and what is missing, never the text.
    """
    if not isinstance(text, str) or not text.strip():
        raise ValueError(f"the {role} connection string is empty")
    parts = [part.split("=", 1) for part in text.strip().rstrip(";").split(";")]
    if any(len(part) != 2 for part in parts):
        raise ValueError(f"the {role} connection string is malformed: every part must be Name=Value")
    fields = {name.strip().lower(): value.strip() for name, value in parts}
    if len(fields) != len(parts):
        raise ValueError(f"the {role} connection string has a part twice")
    if "://" not in fields.get("endpoint", "") or not fields["endpoint"].split("://", 1)[1].strip("/"):
        raise ValueError(f"the {role} connection string has no Endpoint=sb://... part")
    if fields.get("sharedaccesssignature"):
        return fields
    for name in ("SharedAccessKeyName", "SharedAccessKey"):
        if not fields.get(name.lower()):
            raise ValueError(f"the {role} connection string has no {name}")
    return fields


def check_pair(primary: Side, secondary: Side, primary_name: str | None) -> str:
    """The label that names the backlog queues.

    Raises ValueError when the two sides are one namespace, or could not be told apart.
    """
    if primary.location() == secondary.location():
        raise ValueError(
            f"primary and secondary are the same namespace ({primary.info.endpoint}): nothing would be gained"
        )
    return label_of_backlogs(primary.info.endpoint, secondary.info.endpoint, primary_name)


def proxy_url(proxy: Mapping[str, str | int]) -> str:
    """A proxy as the SDK's clients take it, as a URL; it may hold a password."""
    user = ""
    if proxy.get("username"):
        user = f"{quote(str(proxy['username']), safe='')}:{quote(str(proxy.get('password', '')), safe='')}@"
    return f"http://{user}{proxy['proxy_hostname']}:{proxy['proxy_port']}"
