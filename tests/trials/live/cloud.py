"""The substitute for Azure in the SDK's tests: a broker in this process, and the entities that each test needs.

tests -> servicebus_preparer (theirs) -> azure.mgmt.servicebus (stand_ins) -> Cloud -> the broker
"""

from __future__ import annotations

from pathlib import Path

from azure.core.credentials import AccessToken

from sbpair.broker import Broker, NamespaceControl
from sbpair.broker.testing.pair import BearerCredential

from .resolver import SUFFIX

TESTED, SECONDARY = "live", "live-dr"
"""The namespace of the tests, and the one that a paired client has beside it."""


class Cloud:
    """One broker with the namespaces that the tests live in. ``tls``: where its authority is kept."""

    def __init__(self, tls: Path) -> None:
        self.broker = Broker({TESTED: 0, SECONDARY: 0}, tls_directory=tls)

    def ports(self) -> dict[str, int]:
        """Each namespace's port."""
        return {namespace.name: namespace.port for namespace in self.broker.namespaces}

    def namespace(self, name: str = TESTED) -> NamespaceControl:
        """The namespace of that name."""
        return self.broker.namespace(name)

    def key(self, name: str = TESTED) -> tuple[str, str]:
        """The root policy of a namespace, and its key."""
        return name_and_key(self.namespace(name).connection_string)

    def connection_string(self, policy: str, key: str, name: str = TESTED, entity: str = "") -> str:
        """As the portal shows it: no port, no word of an emulator."""
        path = f";EntityPath={entity}" if entity else ""
        return f"Endpoint=sb://{name}{SUFFIX}/;SharedAccessKeyName={policy};SharedAccessKey={key}{path}"

    def credential(self, name: str = TESTED) -> BearerCredential:
        """What azure-identity would make."""
        return BearerCredential(*self.key(name))


def name_and_key(connection_string: str) -> tuple[str, str]:
    """The policy that a connection string names, and its key."""
    fields = dict(part.split("=", 1) for part in connection_string.split(";"))
    return fields["SharedAccessKeyName"], fields["SharedAccessKey"]


class AsyncCredential:
    """A credential for asyncio."""

    def __init__(self, credential: BearerCredential) -> None:
        self._credential = credential

    async def get_token(self, *scopes: str, **_: object) -> AccessToken:
        return self._credential.get_token(*scopes)

    async def close(self) -> None:
        """There is nothing to close."""

    async def __aenter__(self) -> AsyncCredential:
        return self

    async def __aexit__(self, *_: object) -> None:
        """There is nothing to close."""


_cloud: list[Cloud] = []


def open_cloud(tls: Path) -> Cloud:
    """Start this process's broker."""
    cloud = Cloud(tls)
    cloud.broker.start()
    _cloud.append(cloud)
    return cloud


def the_cloud() -> Cloud:
    """This process's broker, as the plugin has started it."""
    return _cloud[-1]
