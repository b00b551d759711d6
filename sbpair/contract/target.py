"""A namespace that the contract is checked against, and how to reach it."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field
from typing import TYPE_CHECKING

from sbpair.pair.auth.connection_string import NamespaceAccess

if TYPE_CHECKING:
    from azure.servicebus import ServiceBusClient
    from azure.servicebus.management import ServiceBusAdministrationClient


@dataclass(frozen=True, slots=True)
class Target:
    """One namespace; the functions create clients of the SDK for it. The repr has no secret."""

    namespace: NamespaceAccess
    administration: Callable[[], ServiceBusAdministrationClient] = field(repr=False)
    sdk: Callable[[], ServiceBusClient] = field(repr=False)
