"""Where is a namespace, and how do we prove who we are? Read as the SDK reads it.

``UseDevelopmentEmulator=true``, exactly so, means plain TCP at the host and port of the endpoint (5672 when
there is none); otherwise it is TLS at port 5671, whatever port the endpoint names. A secret is never part of
a repr or of an error.
"""

from __future__ import annotations

from dataclasses import dataclass, field, replace
from urllib.parse import urlsplit

from .credential import SharedKey, SharedSignature, TokenSource, expiry_of

PLAIN_PORT, TLS_PORT = 5672, 5671


class ConnectionStringError(ValueError):
    """A connection string that cannot be used; the text names the part, never its value."""


@dataclass(frozen=True, slots=True)
class Namespace:
    """One namespace and what opens it."""

    name: str  # the host of the endpoint: what the service is told we are looking for
    netloc: str  # the same, with the port when the endpoint names one: tokens are made out to it
    host: str  # where to dial
    port: int
    uses_tls: bool
    tokens: TokenSource = field(repr=False)

    def dialled_at(self, address: str) -> Namespace:
        """The same namespace, reached at another ``host:port``. Raises ConnectionStringError."""
        try:
            split = urlsplit(address if "://" in address else f"sb://{address}")
            host, port = split.hostname, split.port
        except ValueError as error:
            raise ConnectionStringError("the custom endpoint address is not an address") from error
        if not host:
            raise ConnectionStringError("the custom endpoint address names no host")
        return replace(self, host=host, port=port or self.port)

    def audience(self, path: str) -> str:
        """What a token for ``path`` is made out to."""
        return f"sb://{self.netloc}/{path}"

    def address(self, path: str) -> str:
        """The address of ``path`` as links name it."""
        return f"amqps://{self.netloc}/{path}"


def parse(connection_string: str) -> Namespace:
    """Read a connection string. Raises ConnectionStringError."""
    parts = _parts(connection_string)
    endpoint = parts.get("endpoint")
    if not endpoint:
        raise ConnectionStringError("the connection string has no Endpoint")
    try:
        split = urlsplit(endpoint if "://" in endpoint else f"sb://{endpoint}")
        host, port = split.hostname, split.port
    except ValueError as error:
        raise ConnectionStringError("the Endpoint of the connection string is not an address") from error
    if not host:
        raise ConnectionStringError("the Endpoint of the connection string names no host")
    plain = parts.get("usedevelopmentemulator") == "true"
    return Namespace(
        name=host,
        netloc=_netloc(host, port),
        host=host,
        port=(port or PLAIN_PORT) if plain else TLS_PORT,
        uses_tls=not plain,
        tokens=_tokens(parts),
    )


def at_host(name: str, tokens: TokenSource, *, uses_tls: bool = True) -> Namespace:
    """The namespace of that fully qualified name. Raises ConnectionStringError."""
    try:
        split = urlsplit(name if "://" in name else f"sb://{name}")
        host, port = split.hostname, split.port
    except ValueError as error:
        raise ConnectionStringError("the name of the namespace is not an address") from error
    if not host or "=" in name:
        raise ConnectionStringError("a namespace is named by its host, as contoso.servicebus.windows.net")
    dialled = TLS_PORT if uses_tls else port or PLAIN_PORT
    return Namespace(host, _netloc(host, port), host, dialled, uses_tls, tokens)


def _tokens(parts: dict[str, str]) -> TokenSource:
    policy, key = parts.get("sharedaccesskeyname"), parts.get("sharedaccesskey")
    signature = parts.get("sharedaccesssignature")
    if signature is None:
        if not policy or not key:
            raise ConnectionStringError(
                "the connection string needs SharedAccessKeyName and SharedAccessKey, "
                "or SharedAccessSignature"
            )
        return SharedKey(lambda: (policy, key))
    if policy or key:
        raise ConnectionStringError("the connection string has both a key and a SharedAccessSignature")
    if expiry_of(signature) is None:
        raise ConnectionStringError("the SharedAccessSignature of the connection string has no expiry (se)")
    return SharedSignature(lambda: signature)


def _netloc(host: str, port: int | None) -> str:
    name = f"[{host}]" if ":" in host else host
    return name if port is None else f"{name}:{port}"


def _parts(connection_string: str) -> dict[str, str]:
    parts: dict[str, str] = {}
    for part in filter(None, connection_string.strip().split(";")):
        name, separator, value = part.partition("=")
        if not separator:
            raise ConnectionStringError("a part of the connection string has no '='")
        key = name.strip().lower()
        if key in parts:
            raise ConnectionStringError(f"the connection string says {name.strip()} twice")
        parts[key] = value.strip()
    return parts
