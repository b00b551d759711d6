"""Connection strings, read as the SDK reads them, the namespaces they describe, and references to them.

``env:NAME`` and ``file:PATH`` name a string, or another secret, that is stored elsewhere.

``UseDevelopmentEmulator=true``, in exactly this spelling, means plain TCP at the host and port of the endpoint (5672
without one). Otherwise the connection uses TLS at port 5671, even if the endpoint has another port. Secrets never
appear in a repr or an error.
"""

from __future__ import annotations

import os
from codecs import BOM_UTF16_BE, BOM_UTF16_LE
from collections.abc import Callable
from dataclasses import dataclass, field, replace
from pathlib import Path
from urllib.parse import urlsplit

from .credential import CredentialRefusedError, SharedKey, SharedSignature, Token, TokenSource, expiry_of
from .route import Route

SHAPE = "Endpoint=sb://HOST/;SharedAccessKeyName=NAME;SharedAccessKey=KEY"
"""The form that Azure's portal shows below *Shared access policies*."""

PLAIN_PORT, TLS_PORT = 5672, 5671
MAX_FILE = 65_536  # bytes


class ConnectionStringError(ValueError):
    """A connection string or address cannot be used; the message names the part, never its value."""


@dataclass(frozen=True, slots=True)
class NamespaceAccess:
    """The address of a namespace, the source of its tokens, and the route to it."""

    name: str  # the host of the endpoint, sent to the service as the hostname
    netloc: str  # the same, with the port if the endpoint has one; part of every audience
    host: str  # the host to connect to
    port: int
    uses_tls: bool
    tokens: TokenSource = field(repr=False)
    route: Route = Route()  # noqa: RUF009 -- frozen

    def dial_at(self, address: str | None) -> NamespaceAccess:
        """Return the same namespace, reached at another ``host:port`` if one is given.

        Raises ConnectionStringError when ``address`` is not an address.
        """
        if address is None:
            return self
        host, port = host_and_port(address, "the custom endpoint address")
        return replace(self, host=host, port=port or self.port)

    def along(self, route: Route) -> NamespaceAccess:
        """Return the same namespace, reached by another route."""
        return replace(self, route=route)

    def audience(self, path: str) -> str:
        """Return the audience of a token for ``path``."""
        return f"sb://{self.netloc}/{path}"

    def address(self, path: str) -> str:
        """Return the address of ``path`` in a link's source or target."""
        return f"amqps://{self.netloc}/{path}"


def fields_of(connection_string: object, name: str = "the connection string") -> dict[str, str]:
    """Return the fields of a connection string, with keys in lower case; ``name`` stands for it in errors.

    Raises ConnectionStringError, with the name of the part but never its value, when the string is empty or malformed,
    repeats a field, lacks an endpoint with a valid address, or does not have exactly one of a key and a signature.
    """
    fields = _split(connection_string, name)
    endpoint = fields.get("endpoint", "")
    if not endpoint.partition("://")[2].strip("/"):
        raise ConnectionStringError(
            f"{name} has no Endpoint with a host, such as sb://contoso.servicebus.windows.net/"
        )
    host_and_port(endpoint, f"{name}: the Endpoint")
    policy, key = fields.get("sharedaccesskeyname"), fields.get("sharedaccesskey")
    signature = fields.get("sharedaccesssignature")
    if signature and (policy or key):
        raise ConnectionStringError(
            f"{name} has both a SharedAccessKey and a SharedAccessSignature: keep one"
        )
    if not signature and not policy:
        raise ConnectionStringError(f"{name} has no SharedAccessKeyName (or SharedAccessSignature)")
    if not signature and not key:
        raise ConnectionStringError(f"{name} has no SharedAccessKey (or SharedAccessSignature)")
    return fields


def host_and_port(address: str, name: str) -> tuple[str, int | None]:
    """Return the host of an address, with or without a scheme, and its port if it has one.

    Raises ConnectionStringError when it is not an address or has no host; ``name`` stands for it in the error.
    """
    try:
        split = urlsplit(address if "://" in address else f"sb://{address}")
        host, port = split.hostname, split.port
    except ValueError:  # its text repeats the address
        raise ConnectionStringError(f"{name} is not an address") from None
    if port == 0:
        raise ConnectionStringError(f"{name} has the port 0")
    if not host:
        raise ConnectionStringError(f"{name} has no host")
    return host, port


def _split(connection_string: object, name: str) -> dict[str, str]:
    if not isinstance(connection_string, str) or not connection_string.strip():
        raise ConnectionStringError(f"{name} is empty")
    parts = [part.partition("=") for part in connection_string.strip().rstrip(";").split(";")]
    if not all(equals for _, equals, _ in parts):
        raise ConnectionStringError(f"{name} is malformed: every part must be Name=Value, as in {SHAPE}")
    fields = {key.strip().lower(): value.strip() for key, _, value in parts}
    if len(fields) != len(parts):
        raise ConnectionStringError(f"{name} has a part twice")
    return fields


class Renewed:
    """Makes each token from a connection string that ``read`` returns anew, so that keys can be rotated."""

    def __init__(self, read: Callable[[], str]) -> None:
        self._read = read

    async def token(self, audience: str) -> Token:
        try:
            tokens = _tokens(fields_of(self._read()))
        except ConnectionStringError as error:
            raise CredentialRefusedError(str(error)) from error
        return await tokens.token(audience)


def parse(connection_string: str | Callable[[], str]) -> NamespaceAccess:
    """Parse a connection string, or the result of a callable, which is then called again for each token.

    Raises ConnectionStringError when it cannot be used.
    """
    if not isinstance(connection_string, str):
        return replace(parse(connection_string()), tokens=Renewed(connection_string))
    fields = fields_of(connection_string)
    host, port = host_and_port(fields["endpoint"], "the Endpoint")
    plain = fields.get("usedevelopmentemulator") == "true"
    return NamespaceAccess(
        name=host,
        netloc=_netloc(host, port),
        host=host,
        port=(port or PLAIN_PORT) if plain else TLS_PORT,
        uses_tls=not plain,
        tokens=_tokens(fields),
    )


def at_host(name: str, tokens: TokenSource, *, uses_tls: bool = True) -> NamespaceAccess:
    """Return the namespace with this fully qualified name. A port in the name is used only without TLS (default 5672).

    Raises ConnectionStringError when ``name`` is not a host.
    """
    if "=" in name or not name.strip():
        raise ConnectionStringError(
            "a namespace is named by its host, such as contoso.servicebus.windows.net"
        )
    host, port = host_and_port(name, "the name of the namespace")
    dialled = TLS_PORT if uses_tls else port or PLAIN_PORT
    return NamespaceAccess(host, _netloc(host, port), host, dialled, uses_tls, tokens)


def _tokens(fields: dict[str, str]) -> TokenSource:
    signature = fields.get("sharedaccesssignature")
    if not signature:
        return SharedKey(lambda: (fields["sharedaccesskeyname"], fields["sharedaccesskey"]))
    if expiry_of(signature) is None:
        raise ConnectionStringError("the SharedAccessSignature of the connection string has no expiry (se)")
    return SharedSignature(lambda: signature)


def _netloc(host: str, port: int | None) -> str:
    name = f"[{host}]" if ":" in host else host
    return name if port is None else f"{name}:{port}"


def resolve(value: str, name: str) -> str:
    """Return the text that ``value`` refers to, or ``value`` itself if it is not a reference.

    ``name`` is the option's name in errors. Raises ValueError when the variable is not set or empty, or the
    file cannot be read; the error names it and never its content.
    """
    kind, _, where = value.partition(":")
    if kind == "env":
        return _from_environment(where, name)
    if kind == "file":
        return _from_file(Path(where), name)
    return value.strip()


def _from_environment(variable: str, name: str) -> str:
    value = os.environ.get(variable, "").strip()
    if not value:
        raise ValueError(f"{name}: the environment variable {variable!r} is not set or empty")
    return value


def _from_file(path: Path, name: str) -> str:
    text = read_text(path, name, MAX_FILE).strip()
    if not text:
        raise ValueError(f"{name}: {path} is empty")
    return text


def read_text(path: Path, name: str, most: int) -> str:
    """Return the content of a text file of at most ``most`` bytes: UTF-8, or UTF-16 with a byte order mark.

    Raises ValueError with the file's name when it cannot be read, is larger, or is not in these encodings. ``name`` is
    the name of the option in the error.
    """
    try:
        with path.open("rb") as file:
            raw = file.read(most + 1)
        if len(raw) > most:
            raise ValueError(f"{name}: {path} is larger than {most} bytes")
        return raw.decode("utf-16" if raw.startswith((BOM_UTF16_BE, BOM_UTF16_LE)) else "utf-8-sig")
    except OSError as error:
        raise ValueError(f"{name}: cannot read {path}: {error.strerror or error}") from error
    except UnicodeDecodeError as error:
        raise ValueError(f"{name}: {path} is not UTF-8 text") from error
