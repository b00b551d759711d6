"""Parsing of the options of sbpair's Spark formats, and references to namespaces.

Option names are case-insensitive. Options are pickled to every task, so a connection string should be given as
``env:NAME`` or ``file:PATH``, which each process resolves for itself; it never appears in a repr or an error.
"""

from __future__ import annotations

import difflib
import math
from collections.abc import Mapping
from dataclasses import dataclass, field
from functools import cache
from typing import TYPE_CHECKING

from sbpair.pair.envelope.names import check_namespace_name, namespace_label
from sbpair.pair.ground.extras import install_line

from .checkpoint import origin_name

if TYPE_CHECKING:
    from azure.core.credentials import TokenCredential

    from sbpair.pair.auth.connection_string import NamespaceAccess
    from sbpair.pair.auth.route import Route
    from sbpair.pair.pairing.shared.address import SdkNamespace, SdkSettings

FOREVER, MAX_PATIENCE_SECONDS = "forever", 10.0**9  # seconds
SPARKS_OWN = frozenset({"checkpointlocation", "queryname"})  # Spark passes these on to every sink
PRIMARY = ("connectionString", "fullyQualifiedNamespace", "endpointAddress")
SECONDARY = ("secondaryConnectionString", "secondaryFullyQualifiedNamespace", "secondaryEndpointAddress")
PAIR = (*PRIMARY, *SECONDARY, "primaryNamespaceName", "backlogQueueCount")
WIRE = ("caFile", "overWebSocket", "operationTimeoutSeconds")


class FormatOptions:
    """The values of ``.option(...)``. Every method raises ValueError with the format and the option."""

    def __init__(self, form: str, options: Mapping[str, str], known: tuple[str, ...]) -> None:
        self._form = form
        self._options = {name.lower(): value for name, value in options.items()}
        by_key = {name.lower(): name for name in known}
        for name in sorted(self._options.keys() - by_key.keys() - SPARKS_OWN):
            near = difflib.get_close_matches(name, by_key, n=1, cutoff=0.5)
            hint = f"did you mean {by_key[near[0]]}?" if near else f"the options are {', '.join(known)}"
            raise self.wrong(f"unknown option {name!r}; {hint}")

    @property
    def is_empty(self) -> bool:
        """Whether Spark passed no option but its own."""
        return not self._options.keys() - SPARKS_OWN

    def wrong(self, text: str) -> ValueError:
        """A ValueError for this format; ``text`` must not contain a secret."""
        return ValueError(f"{self._form}: {text}")

    def text(self, name: str) -> str | None:
        """The value; None if it is missing or empty."""
        return self._options.get(name.lower(), "").strip() or None

    def require(self, name: str) -> str:
        value = self.text(name)
        if value is None:
            raise self.wrong(f"the option {name} is missing")
        return value

    def whole(self, name: str, default: int, least: int, most: int) -> int:
        """An integer from ``least`` to ``most``."""
        value = self.text(name)
        if value is None:
            return default
        if not (value.isascii() and value.isdigit() and least <= int(value) <= most):
            raise self.wrong(f"{name} must be a whole number from {least} to {most}, not {value!r}")
        return int(value)

    def seconds(self, name: str, default: float, least: float, most: float) -> float:
        """A number of seconds from ``least`` to ``most``."""
        value = self.text(name)
        if value is None:
            return default
        try:
            number = float(value)
        except ValueError:
            number = -1.0
        if not least <= number <= most:
            raise self.wrong(f"{name} must be a number of seconds from {least:g} to {most:g}, not {value!r}")
        return number

    def patience(self, name: str) -> float | None:
        """A number of seconds, infinity for ``forever``, or None if it is missing."""
        value = self.text(name)
        if value is None or value.lower() == FOREVER:
            return None if value is None else math.inf
        return self.seconds(name, 0, 0, MAX_PATIENCE_SECONDS)

    def flag(self, name: str, default: bool) -> bool:
        """A boolean, given as ``true`` or ``false``."""
        return self.choice(name, "true" if default else "false", ("true", "false")) == "true"

    def choice(self, name: str, default: str, choices: tuple[str, ...]) -> str:
        """One of ``choices``, case-insensitive."""
        value = (self.text(name) or default).lower()
        if value not in choices:
            raise self.wrong(f"{name} must be one of {', '.join(choices)}, not {value!r}")
        return value

    def several(self, name: str) -> tuple[str, ...]:
        """A comma-separated list."""
        return tuple(part.strip() for part in (self.text(name) or "").split(",") if part.strip())


@dataclass(frozen=True, slots=True)
class NamespaceReference:
    """A namespace, given by a connection string or by name.

    Every method and property raises ValueError when the reference cannot be resolved.
    """

    option: str
    reference: str | None = field(default=None, repr=False)
    """A connection string, env:NAME or file:PATH."""

    host: str | None = None
    """The fully qualified name of the namespace, to connect with the ambient Azure credential."""

    address: str | None = None
    """``host:port`` to connect to instead of the namespace's own."""

    def connection_string(self) -> str | None:
        """The resolved connection string; None for a namespace given by name."""
        if self.reference is None:
            return None
        from sbpair.pair.auth.connection_string import resolve

        return resolve(self.reference, self.option)

    def namespace(self) -> NamespaceAccess:
        """The namespace for the AMQP client."""
        from sbpair.pair.auth.connection_string import ConnectionStringError, at_host, parse
        from sbpair.pair.auth.credential import token_source

        text = self.connection_string()
        try:
            made = parse(text) if text is not None else at_host(self.name, token_source(ambient()))
            return made.dial_at(self.address)
        except ConnectionStringError as error:
            raise ValueError(f"{self.option}: {error}") from error

    def of_the_sdk(self, role: str, settings: SdkSettings) -> SdkNamespace:
        """The namespace as ``role`` of a pair, for clients of the SDK."""
        from sbpair.pair.pairing.shared.address import SdkNamespace

        text = self.connection_string()
        if text is not None:
            return SdkNamespace.from_connection_string(role, text, settings, self.address)
        return SdkNamespace(
            role, self.name, settings, credential=ambient(), custom_endpoint_address=self.address
        )

    @property
    def label(self) -> str:
        """The short name of the namespace."""
        return namespace_label(self.origin)

    @property
    def origin(self) -> str:
        """The name of the namespace in an offset."""
        return origin_name(self.host or self.namespace().netloc)

    def known_origin(self) -> str | None:
        """The origin; None for a reference that this process cannot resolve, though the tasks may.

        Raises ValueError for an invalid connection string or address.
        """
        from sbpair.pair.auth.connection_string import host_and_port

        try:
            text = self.connection_string()
        except ValueError:
            return None
        if text is None:
            host_and_port(self.address or self.name, f"{self.option}: the custom endpoint address")
        return self.origin

    @property
    def name(self) -> str:
        """The namespace's host."""
        if self.host is None:
            raise ValueError(f"{self.option}: the namespace has no name")
        return self.host


@dataclass(frozen=True, slots=True)
class ConnectionOptions:
    """The connection options shared by all namespaces of a job."""

    ca_file: str | None
    over_websocket: bool
    timeout: float
    """Seconds to wait for a response of the peer."""

    @property
    def route(self) -> Route:
        from sbpair.pair.auth.route import Route

        return Route(self.ca_file, self.over_websocket)


def wire_options(given: FormatOptions, timeout: float) -> ConnectionOptions:
    """The connection options; ``timeout`` is the default in seconds. Raises ValueError when they are invalid."""
    return ConnectionOptions(
        given.text("caFile"),
        given.flag("overWebSocket", default=False),
        given.seconds("operationTimeoutSeconds", timeout, 1, 600),
    )


@dataclass(frozen=True, slots=True)
class PairReference:
    """The two namespaces of a pairing, and the name and number of its backlog queues."""

    primary: NamespaceReference
    secondary: NamespaceReference
    wire: ConnectionOptions
    primary_namespace_name: str | None
    backlog_queue_count: int

    def namespaces(self) -> tuple[NamespaceAccess, NamespaceAccess]:
        """Both namespaces for the AMQP client, by the route of the job."""
        primary, secondary = self.primary.namespace(), self.secondary.namespace()
        return primary.along(self.wire.route), secondary.along(self.wire.route)


def pair_reference(given: FormatOptions, timeout: float) -> PairReference:
    """The pair given by the options PAIR and WIRE. Raises ValueError when they are invalid."""
    primary, secondary = namespace_reference(given, PRIMARY), namespace_reference(given, SECONDARY)
    name, known = primary_name(given), primary.known_origin()
    other = secondary.known_origin()
    if known is not None and known == other:
        raise given.wrong(f"{primary.option} and {secondary.option} name the same namespace: a pair has two")
    if known and other and name is None and namespace_label(known) == namespace_label(other):
        raise given.wrong(
            f"primary and secondary are both called {namespace_label(known)!r}; set primaryNamespaceName, for senders "
            "and syphons alike"
        )
    count = given.whole("backlogQueueCount", 10, 1, 10_000)
    return PairReference(primary, secondary, wire_options(given, timeout), name, count)


def primary_name(given: FormatOptions) -> str | None:
    """The option ``primaryNamespaceName``. Raises ValueError when no backlog queue can carry it."""
    name = given.text("primaryNamespaceName")
    try:
        check_namespace_name(name)
    except ValueError as error:
        raise given.wrong(str(error).replace("primary_namespace_name", "primaryNamespaceName")) from None
    return name


def namespace_reference(given: FormatOptions, names: tuple[str, str, str]) -> NamespaceReference:
    """The namespace given by the options ``names``: connection string, host name, address.

    Raises ValueError unless exactly one of the first two is given.
    """
    string, name, address = names
    reference, host = given.text(string), given.text(name)
    if (reference is None) is (host is None):
        both = "both given; keep one" if reference else "missing; give one of the two"
        raise given.wrong(f"{string} and {name} are {both}")
    return NamespaceReference(string if reference else name, reference, host, given.text(address))


@cache
def ambient() -> TokenCredential:
    """The ambient Azure credential, one for the process. Raises ValueError when azure-identity is not installed."""
    try:
        from azure.identity import DefaultAzureCredential
    except ImportError as error:
        what = f"{install_line('identity')}, or give a connection string"
        raise ValueError(f"a namespace given by name needs azure-identity: {what}") from error
    credential: TokenCredential = DefaultAzureCredential()
    return credential
