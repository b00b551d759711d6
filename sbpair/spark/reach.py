"""How is a namespace reached from a task? Told by reference, opened where it is used.

What opens a namespace is pickled to every task, so it should be ``env:NAME`` or ``file:PATH``, which each
process resolves for itself. It is never part of a repr or an error.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import TYPE_CHECKING

from sbpair.pairing.names import namespace_label

from .given import Given

if TYPE_CHECKING:
    from azure.core.credentials import TokenCredential

    from sbpair.syphon.connection_string import Namespace
    from sbpair.syphon.route import Route

INSTALL = "pip install 'sbpair[identity]', or give a connection string"


@dataclass(frozen=True, slots=True)
class Reach:
    """One namespace: what names it, and what opens it."""

    option: str
    reference: str | None = field(default=None, repr=False)
    """A connection string, or where there is one."""

    host: str | None = None
    """The fully qualified name of a namespace that the ambient Azure credential opens."""

    address: str | None = None
    """``host:port`` to dial instead of its own."""

    def connection_string(self) -> str | None:
        """The connection string itself; None where there is only a name. Raises ValueError."""
        if self.reference is None:
            return None
        from sbpair.syphon.reference import resolve

        return resolve(self.reference, self.option)

    def namespace(self) -> Namespace:
        """As the raw client is to see it. Raises ValueError."""
        from sbpair.syphon.connection_string import ConnectionStringError, at_host, parse
        from sbpair.syphon.credential import token_source

        text = self.connection_string()
        try:
            made = parse(text) if text is not None else at_host(self.name, token_source(ambient()))
            return made if self.address is None else made.dialled_at(self.address)
        except ConnectionStringError as error:
            raise ValueError(f"{self.option}: {error}") from error

    @property
    def label(self) -> str:
        """The short name of the namespace. Raises ValueError."""
        return namespace_label(self.host or self.namespace().netloc)

    @property
    def name(self) -> str:
        """The namespace's host."""
        if self.host is None:
            raise ValueError(f"{self.option}: no namespace is named")
        return self.host


@dataclass(frozen=True, slots=True)
class Wire:
    """What all connections of a job have in common."""

    ca_file: str | None
    over_websocket: bool
    timeout: float
    """Seconds the peer may take to answer."""

    @property
    def route(self) -> Route:
        from sbpair.syphon.route import Route

        return Route(self.ca_file, self.over_websocket)


PRIMARY = ("connectionString", "fullyQualifiedNamespace", "endpointAddress")
SECONDARY = ("secondaryConnectionString", "secondaryFullyQualifiedNamespace", "secondaryEndpointAddress")
PAIR = (*PRIMARY, *SECONDARY, "primaryNamespaceName", "backlogQueueCount")
WIRE = ("caFile", "overWebSocket", "operationTimeoutSeconds")


def wire_of(given: Given, timeout: float) -> Wire:
    """Raises ValueError."""
    return Wire(
        given.text("caFile"),
        given.flag("overWebSocket", default=False),
        given.seconds("operationTimeoutSeconds", timeout, 1, 600),
    )


@dataclass(frozen=True, slots=True)
class PairReach:
    """The two namespaces of a pairing, and where its backlogs are."""

    primary: Reach
    secondary: Reach
    wire: Wire
    primary_namespace_name: str | None
    backlog_queue_count: int


def pair_of(given: Given, timeout: float) -> PairReach:
    """What the options PAIR and WIRE say. Raises ValueError."""
    return PairReach(
        reach_of(given, PRIMARY),
        reach_of(given, SECONDARY),
        wire_of(given, timeout),
        given.text("primaryNamespaceName"),
        given.whole("backlogQueueCount", 10, 1, 10_000),
    )


def reach_of(given: Given, names: tuple[str, str, str]) -> Reach:
    """The namespace of a string or a name, of which exactly one must be given. Raises ValueError."""
    string, name, address = names
    reference, host = given.text(string), given.text(name)
    if (reference is None) is (host is None):
        both = "both given; keep one" if reference else "missing; one of the two is needed"
        raise given.wrong(f"{string} and {name} are {both}")
    return Reach(string if reference else name, reference, host, given.text(address))


def ambient() -> TokenCredential:
    """The ambient Azure credential of this process. Raises ValueError."""
    try:
        from azure.identity import DefaultAzureCredential
    except ImportError as error:
        raise ValueError(f"a namespace by its name alone is opened by azure-identity; {INSTALL}") from error
    credential: TokenCredential = DefaultAzureCredential()
    return credential
