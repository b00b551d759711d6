"""The flags that name a pair of namespaces, and what they resolve to.

Each namespace is given as a connection string, a name, `env:NAME` or `file:PATH`. A connection string opens it
with its key; a name opens it with the ambient Azure credential (azure-identity's DefaultAzureCredential:
environment, workload identity, managed identity, az login). Values are validated field by field before
anything is opened, and are never echoed.
"""

from __future__ import annotations

import asyncio
import functools
import logging
import re
from collections.abc import Callable
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, TypeVar

import click
from click.core import ParameterSource

from sbpair.pair.auth.connection_string import resolve
from sbpair.pair.cli.errors import ConfigurationError
from sbpair.pair.cli.output import remember
from sbpair.pair.cli.parameters import PlainName
from sbpair.pair.ground.extras import install_line

if TYPE_CHECKING:
    import ssl

    from azure.core.credentials import AccessToken, TokenCredential
    from azure.servicebus import ServiceBusClient
    from azure.servicebus.management import ServiceBusAdministrationClient

    from sbpair.aio import PairedNamespaceOptions, PairedServiceBusClient
    from sbpair.pair.auth.connection_string import NamespaceAccess
    from sbpair.pair.pairing.shared.address import SdkNamespace
    from sbpair.pair.pairing.shared.administration import Exchanged, Report
    from sbpair.pair.syphon.daemon import Syphon
    from sbpair.pair.syphon.options import SyphonOptions

SHAPE = "Endpoint=sb://NAME.servicebus.windows.net/;SharedAccessKeyName=...;SharedAccessKey=..."
EXPECTED = f"{SHAPE}, the name of a namespace, env:NAME or file:PATH"
NAME = re.compile(r"[A-Za-z0-9](?:[A-Za-z0-9.-]{0,251}[A-Za-z0-9])?(?::\d{1,5})?")
FILE = "file:"
PUBLIC_CLOUD = ".servicebus.windows.net"
SECRET_FIELDS = ("sharedaccesskey", "sharedaccesssignature")
Command = TypeVar("Command", bound=Callable[..., object])
MAX_BACKLOGS = 10_000  # backlog queues
ADMIN_CONNECT_TIMEOUT = 10.0  # seconds: an operator can wait longer than a send
name_option = click.option(
    "--primary-namespace-name",
    type=PlainName(),
    help="The prefix of the backlog queues, if it differs from the primary's host name.",
)
backlogs_option = click.option(
    "--backlogs",
    type=click.IntRange(1, MAX_BACKLOGS),
    default=10,
    show_default=True,
    help="The number of backlog queues, the same as for the senders.",
)
ca_file_option = click.option(
    "--ca-file",
    envvar="SBPAIR_CA_FILE",
    show_envvar=True,
    help="A PEM file of trusted certificates, used instead of the system's.",
)


def pair_options(command: Command) -> Command:
    """Add --primary and --secondary; the command receives two NamespaceArguments."""
    return namespace_option("primary")(namespace_option("secondary")(command))


def namespace_option(side: str, *, required: bool = True) -> Callable[[Command], Command]:
    """Add --primary, --secondary or --namespace; the command receives a NamespaceArgument, or None."""
    kind = side if side == "namespace" else f"{side} namespace"
    return click.option(
        f"--{side}",
        required=required,
        envvar=f"SBPAIR_{side.upper()}",
        metavar="SOURCE",
        callback=_resolve,
        help=f"The {kind}: env:NAME, file:PATH, its name, or a connection string.",
        show_envvar=True,
    )


def _resolve(
    context: click.Context, parameter: click.Parameter, value: str | None
) -> NamespaceArgument | None:
    if value is None:
        return None
    is_visible = context.get_parameter_source(parameter.name or "") is ParameterSource.COMMANDLINE
    return namespace_argument(value, parameter.opts[0], is_visible=is_visible)


def namespace_argument(value: str, flag: str, *, is_visible: bool) -> NamespaceArgument:
    """Return the namespace that ``value`` names; errors call it ``flag``.

    ``is_visible``: other users see the value in the process list, and a key in it causes a warning. Raises
    ConfigurationError.
    """
    text = fetch(value, flag)
    if NAME.fullmatch(text):
        return NamespaceArgument(flag, _host(text))
    fields = parse_fields(text, flag)
    secrets = [fields[name] for name in SECRET_FIELDS if name in fields]
    for secret in [*secrets, text]:
        remember(secret)
    if text == value and secrets and is_visible:
        warning = f"warning: the key in {flag} is visible in the process list; use env:NAME or file:PATH"
        click.echo(f"sbpair: {warning}", err=True)
    netloc = fields["endpoint"].split("://", 1)[1].split("/", 1)[0]
    reread = ConnectionStringFile(value, flag, text) if value.startswith(FILE) else None
    return NamespaceArgument(flag, netloc, text, reread)


class ConnectionStringFile:
    """The connection string in a file, read again at each call: keys are rotated while a process runs."""

    def __init__(self, value: str, flag: str, text: str) -> None:
        self._value, self._flag, self._text = value, flag, text

    def __call__(self) -> str:
        """Return the current content, or the last usable one if the file is unusable or now names another namespace."""
        try:
            text = fetch(self._value, self._flag)
            fields = parse_fields(text, self._flag)
            is_the_same = fields["endpoint"] == parse_fields(self._text, self._flag)["endpoint"]
        except ConfigurationError:
            return self._text
        if is_the_same:
            for secret in (*(fields[name] for name in SECRET_FIELDS if name in fields), text):
                remember(secret)
            self._text = text
        return self._text


def _host(name: str) -> str:
    """Return the host of ``name``: a bare name is a namespace in the public cloud."""
    return name if "." in name or ":" in name else f"{name}{PUBLIC_CLOUD}"


def fetch(value: str, flag: str) -> str:
    """Resolve `env:NAME` and `file:PATH`; any other value is returned as it is.

    Raises ConfigurationError with the variable or the file when it cannot be read.
    """
    try:
        return resolve(value, flag)
    except ValueError as error:
        raise ConfigurationError(str(error)) from error


def parse_fields(text: str, flag: str) -> dict[str, str]:
    """Parse a connection string into its fields, names in lower case.

    Raises ConfigurationError when it is malformed; the message names the field and never contains a value.
    """
    from sbpair.pair.auth.connection_string import ConnectionStringError, fields_of

    try:
        fields = fields_of(text, flag)
    except ConnectionStringError as error:
        raise ConfigurationError(f"{error}; expected {EXPECTED}") from None
    if fields.get("entitypath"):
        text = "this is the string of one entity (EntityPath); use the namespace's own"
        raise ConfigurationError(f"{flag}: {text}")
    return fields


@dataclass(frozen=True, slots=True)
class NamespaceArgument:
    """A namespace named on the command line. Credentials are resolved when first used, not before."""

    flag: str
    netloc: str
    """The host, with its port if one is given."""

    connection_string: str | None = field(default=None, repr=False)

    reread: Callable[[], str] | None = field(default=None, repr=False, compare=False)
    """Reads the connection string again when it comes from a file, whose key may have been rotated."""

    def namespace(self, ca_file: str | None = None) -> NamespaceAccess:
        """Return the namespace for the AMQP client; ``ca_file`` holds trusted certificates."""
        from sbpair.pair.auth.connection_string import at_host, parse
        from sbpair.pair.auth.credential import token_source
        from sbpair.pair.auth.route import Route

        if self.connection_string is not None:
            namespace = parse(self.reread or self.connection_string)
        else:
            namespace = at_host(self.netloc, token_source(ambient(self.flag)))
        return namespace.along(Route(ca_file))

    def administration(
        self,
        role: str,
        ca_file: str | None,
        report: Report | None = None,
        exchanged: Exchanged | None = None,
    ) -> ServiceBusAdministrationClient:
        """Return the SDK's administration client for the namespace, as ``role`` of a pair.

        ``report`` is told which elements of the descriptions that it reads are not in force, ``exchanged`` each
        request and its response.
        """
        sdk = self.of_the_sdk(role, ca_file)
        return sdk.administration(connect_timeout=ADMIN_CONNECT_TIMEOUT, report=report, exchanged=exchanged)

    def client(
        self, role: str, ca_file: str | None, context: ssl.SSLContext | None = None
    ) -> ServiceBusClient:
        """Return the SDK's client for the namespace, as ``role`` of a pair, without retries.

        ``context`` is that of its connections, if it is not to be made from ``ca_file``.
        """
        return self.of_the_sdk(role, ca_file, context=context).client()

    def of_the_sdk(
        self,
        role: str,
        ca_file: str | None,
        *,
        is_asyncio: bool = False,
        context: ssl.SSLContext | None = None,
    ) -> SdkNamespace:
        """Return the namespace as ``role`` of a pair, for clients of the SDK."""
        from sbpair.pair.pairing.shared.address import SdkNamespace, SdkSettings

        settings = SdkSettings(connection_verify=ca_file, ssl_context=context)
        if self.connection_string is not None:
            return SdkNamespace.from_connection_string(role, self.connection_string, settings)
        found = ambient(self.flag)
        return SdkNamespace(role, self.netloc, settings, credential=InThread(found) if is_asyncio else found)


def ambient(flag: str) -> TokenCredential:
    """Return the ambient Azure credential. Raises ConfigurationError when azure-identity is not installed."""
    try:
        return _ambient()
    except ImportError as error:
        text = f"{flag} is the name of a namespace, which is opened by your Azure credential"
        raise ConfigurationError(
            f"{text}: {install_line('identity')}, or give a connection string"
        ) from error


@functools.cache
def _ambient() -> TokenCredential:
    from azure.identity import DefaultAzureCredential

    logging.getLogger("azure.identity").setLevel(logging.CRITICAL)  # its error repeats these lines
    credential: TokenCredential = DefaultAzureCredential()
    return credential


class InThread:
    """A blocking credential adapted to asyncio: tokens are requested in a thread."""

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
        """Do nothing: there is nothing to close."""

    async def __aenter__(self) -> InThread:
        return self

    async def __aexit__(self, *what: object) -> None:
        await self.close()


def syphon_between(
    primary: NamespaceArgument, secondary: NamespaceArgument, options: SyphonOptions
) -> Syphon:
    """Create a syphon between the two. Raises ValueError when they cannot be a pair."""
    from sbpair.pair.syphon.daemon import Syphon

    return Syphon.between(primary.namespace(), secondary.namespace(), options=options)


def client_between(
    primary: NamespaceArgument,
    secondary: NamespaceArgument,
    options: PairedNamespaceOptions,
    ca_file: str | None,
) -> PairedServiceBusClient:
    """Create an asyncio paired client for the two. Raises ValueError when they cannot be a pair."""
    from sbpair.aio import PairedServiceBusClient

    return PairedServiceBusClient.between(
        primary.of_the_sdk("primary", ca_file, is_asyncio=True),
        secondary.of_the_sdk("secondary", ca_file, is_asyncio=True),
        options=options,
    )
