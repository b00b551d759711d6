"""Host names: the namespace of a shared port that a name selects, and whether a name is this broker's at all.

    contoso.servicebus.windows.net, contoso:5672, CONTOSO        contoso
    localhost, 127.0.0.1, no name                                undecided, unless there is only one namespace

AMQP carries the name in ``open`` (and may in ``sasl-init``), HTTP in ``Host``.

A web page can have its own host name resolve to 127.0.0.1 (DNS rebinding), and can open a WebSocket to any host;
``Host`` and ``Origin`` then carry the page's name. This is harmless when keys are required. With open access, the name
is all that distinguishes the page from a client on this machine.
"""

from __future__ import annotations

from collections.abc import Iterable
from ipaddress import ip_address
from typing import Generic, Protocol, TypeVar
from urllib.parse import urlsplit

from ..frontends.namespace_frontend import NamespaceFrontend


class Neighbour(Protocol):
    """A server with a namespace."""

    frontend: NamespaceFrontend


N = TypeVar("N", bound=Neighbour)


class Neighbours(Generic[N]):
    """The namespaces that share a port; the first one owns it."""

    def __init__(self) -> None:
        self.all: list[N] = []

    @property
    def are_several(self) -> bool:
        """Whether clients must name the namespace they mean."""
        return len(self.all) > 1

    @property
    def names(self) -> str:
        """The names of all namespaces, for error texts."""
        return ", ".join(each.frontend.namespace.name for each in self.all)

    def select(self, hostname: str | None) -> N | None:
        """Return the namespace that ``hostname`` selects, or None."""
        if not self.are_several:
            return self.all[0]
        label = (hostname or "").partition(":")[0].partition(".")[0].casefold()
        return next((each for each in self.all if each.frontend.namespace.name.casefold() == label), None)


LOOPBACK_NAMES = ("localhost", "127.0.0.1", "::1")
CLOUD = ".servicebus.windows.net"
_MAX_NAME = 300  # characters of a name with its port


def names_this_broker(authority: str, listens_at: str, namespaces: Iterable[str]) -> bool:
    """Whether ``authority`` (``host`` or ``host:port``) names the loopback or this broker.

    The broker's names are its namespaces' names, alone or in the cloud's domain. A broker that listens beyond
    the loopback also answers to its address and to names that no web page can have: addresses, and names
    without a dot.
    """
    name = _host_of(authority)
    if name == "localhost" or name.endswith(".localhost"):
        return True
    if name.removesuffix(CLOUD) in {each.casefold() for each in namespaces}:
        return True
    is_open = listens_at.casefold() not in LOOPBACK_NAMES
    try:
        return ip_address(name).is_loopback or is_open
    except ValueError:
        return is_open and name != "" and (name == listens_at.casefold() or "." not in name)


def comes_from_this_broker(origin: str | None, listens_at: str, namespaces: Iterable[str]) -> bool:
    """Whether a request has no ``Origin``, or one whose host is this broker."""
    return origin is None or names_this_broker(origin.partition("://")[2], listens_at, namespaces)


def _host_of(authority: str) -> str:
    """Return the host in lower case; "" when there is none."""
    if len(authority) > _MAX_NAME:
        return ""
    try:
        return (urlsplit(f"//{authority}").hostname or "").casefold()
    except ValueError:
        return ""
