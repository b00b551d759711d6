"""What opens a namespace that a command was given: its connection string, or the ambient Azure credential.

contoso, contoso.servicebus.windows.net    azure-identity's DefaultAzureCredential: environment, workload
                                           identity, managed identity, az login ..., whichever is there
"""

from __future__ import annotations

import asyncio
import functools
import logging
from dataclasses import dataclass, field
from typing import TYPE_CHECKING

from sbpair.cli.errors import ConfigurationError

if TYPE_CHECKING:
    from azure.core.credentials import (
        AccessToken,
        AzureNamedKeyCredential,
        AzureSasCredential,
        TokenCredential,
    )

    from sbpair.aio import PairedNamespaceOptions, PairedServiceBusClient
    from sbpair.pairing.address import SdkSettings, Side
    from sbpair.syphon import Syphon, SyphonOptions
    from sbpair.syphon.connection_string import Namespace

INSTALL = "pip install 'sbpair[identity]'"


@dataclass(frozen=True, slots=True)
class Source:
    """A namespace and what opens it. Nothing is opened, and no credential is looked for, until it is used."""

    flag: str
    netloc: str
    """The host, and the port where one is named."""

    fields: dict[str, str] = field(default_factory=dict, repr=False)
    """Of the connection string, names in lower case; empty where there is none."""

    connection_string: str | None = field(default=None, repr=False)

    def namespace(self, address: str | None = None) -> Namespace:
        """As the raw client is to see it, dialled at ``address`` where there is one."""
        from sbpair.syphon.connection_string import at_host, parse
        from sbpair.syphon.credential import token_source

        if self.connection_string is not None:
            namespace = parse(self.connection_string)
        else:
            namespace = at_host(self.netloc, token_source(ambient(self.flag)))
        return namespace if address is None else namespace.dialled_at(address)

    def side(self, role: str, settings: SdkSettings) -> Side:
        """As the SDK's clients are to see it."""
        from sbpair.pairing.address import Side

        if self.connection_string is not None:
            return Side.from_connection_string(role, self.connection_string, settings)
        return Side(role, self.netloc, settings, credential=ambient(self.flag))

    def credential(self) -> TokenCredential | AzureNamedKeyCredential | AzureSasCredential:
        """What opens it, where the other side is opened by a credential."""
        from azure.core.credentials import AzureNamedKeyCredential, AzureSasCredential

        if self.connection_string is None:
            return ambient(self.flag)
        if self.fields.get("usedevelopmentemulator") == "true":
            raise ConfigurationError(f"{self.flag} is an emulator's: give both sides as connection strings")
        if self.fields.get("sharedaccesssignature"):
            return AzureSasCredential(self.fields["sharedaccesssignature"])
        return AzureNamedKeyCredential(self.fields["sharedaccesskeyname"], self.fields["sharedaccesskey"])


def ambient(flag: str) -> TokenCredential:
    """The credential of whoever runs the command. Raises ConfigurationError without azure-identity."""
    try:
        return _ambient()
    except ImportError as error:
        text = f"{flag} is the name of a namespace, which is opened by your Azure credential"
        raise ConfigurationError(f"{text}: {INSTALL}, or give a connection string") from error


@functools.cache
def _ambient() -> TokenCredential:
    from azure.identity import DefaultAzureCredential

    logging.getLogger("azure.identity").setLevel(logging.CRITICAL)  # its error says the same once more
    credential: TokenCredential = DefaultAzureCredential()
    return credential


class InThread:
    """A blocking credential for clients of asyncio: asked in a thread."""

    def __init__(self, credential: TokenCredential) -> None:
        self._credential = credential

    async def get_token(
        self,
        *scopes: str,
        claims: str | None = None,
        tenant_id: str | None = None,
        enable_cae: bool = False,
        **more: object,
    ) -> AccessToken:
        return await asyncio.to_thread(
            lambda: self._credential.get_token(
                *scopes, claims=claims, tenant_id=tenant_id, enable_cae=enable_cae
            )
        )

    async def close(self) -> None:
        """Nothing is open."""

    async def __aenter__(self) -> InThread:
        return self

    async def __aexit__(self, *what: object) -> None:
        await self.close()


def syphon_between(primary: Source, secondary: Source, options: SyphonOptions) -> Syphon:
    """A syphon between the two. Raises ValueError where they cannot be a pair."""
    from sbpair.syphon import Syphon

    if primary.connection_string is not None and secondary.connection_string is not None:
        return Syphon.from_connection_strings(
            primary.connection_string, secondary.connection_string, options=options
        )
    return Syphon(
        primary.netloc,
        secondary.netloc,
        primary.credential(),
        secondary_credential=secondary.credential(),
        options=options,
    )


def client_between(
    primary: Source, secondary: Source, options: PairedNamespaceOptions, ca_file: str | None
) -> PairedServiceBusClient:
    """A paired client of asyncio between the two. Raises ValueError where they cannot be a pair."""
    from sbpair.aio import PairedServiceBusClient

    if primary.connection_string is not None and secondary.connection_string is not None:
        return PairedServiceBusClient.from_connection_strings(
            primary.connection_string,
            secondary.connection_string,
            options=options,
            connection_verify=ca_file,
        )
    return PairedServiceBusClient(
        primary.netloc,
        secondary.netloc,
        _for_asyncio(primary),
        secondary_credential=_for_asyncio(secondary),
        options=options,
        connection_verify=ca_file,
    )


def _for_asyncio(source: Source) -> InThread | AzureNamedKeyCredential | AzureSasCredential:
    from azure.core.credentials import AzureNamedKeyCredential, AzureSasCredential

    credential = source.credential()
    if isinstance(credential, AzureNamedKeyCredential | AzureSasCredential):
        return credential
    return InThread(credential)
