"""A namespace that the contract is checked against, and how to reach it."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Protocol

from sbpair.pair.auth.connection_string import NamespaceAccess

if TYPE_CHECKING:
    from azure.servicebus import ServiceBusClient
    from azure.servicebus.management import ServiceBusAdministrationClient

    from sbpair.pair.pairing.shared.administration import Exchanged

    from .tapped_socket import NewTap


class MakeAdministration(Protocol):
    """Makes an administration client. ``exchanged`` is told each request and its response."""

    def __call__(self, exchanged: Exchanged | None = None) -> ServiceBusAdministrationClient: ...


class MakeSdk(Protocol):
    """Makes a client of the SDK. Each of its TLS connections gets a tap from ``new_tap``; others get none."""

    def __call__(self, new_tap: NewTap | None = None) -> ServiceBusClient: ...


@dataclass(frozen=True, slots=True)
class Target:
    """One namespace; the functions create clients of the SDK for it. The repr has no secret."""

    namespace: NamespaceAccess
    administration: MakeAdministration = field(repr=False)
    sdk: MakeSdk = field(repr=False)
