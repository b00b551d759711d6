"""Where is a namespace, and how do we prove who we are? Read as the SDK reads it.

``UseDevelopmentEmulator=true``, exactly so, means plain TCP at the host and port of the endpoint (5672 when
there is none); otherwise it is TLS at port 5671, whatever port the endpoint names. A secret is never part of
a repr or of an error.
"""

from __future__ import annotations

import base64
import hashlib
import hmac
import re
from dataclasses import dataclass, field, replace
from urllib.parse import quote_plus, urlsplit

PLAIN_PORT, TLS_PORT = 5672, 5671
TOKEN_SPAN = 3600  # seconds a token we sign is good for


class ConnectionStringError(ValueError):
    """A connection string that cannot be used; the text names the part, never its value."""


@dataclass(frozen=True, slots=True)
class Namespace:
    """One namespace and the shared access that opens it."""

    name: str  # the host of the endpoint: what the service is told we are looking for
    netloc: str  # the same, with the port when the endpoint names one: tokens are made out to it
    host: str  # where to dial
    port: int
    uses_tls: bool
    policy: str | None = field(default=None, repr=False)
    key: str | None = field(default=None, repr=False)
    signature: str | None = field(default=None, repr=False)

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

    def token(self, path: str, now: int) -> tuple[str, int]:
        """A token for ``path`` and the second it expires at; ``now`` in seconds since the epoch."""
        if self.signature is not None:
            return self.signature, _expiry_of(self.signature)
        assert self.policy is not None  # noqa: S101  (parse() lets no other kind through)
        assert self.key is not None  # noqa: S101
        expires = now + TOKEN_SPAN
        return sign(self.audience(path), self.policy, self.key, expires), expires


def sign(audience: str, policy: str, key: str, expires: int) -> str:
    """A shared access signature; the key is used as the text it is, not as the bytes base64 says."""
    resource = quote_plus(audience)
    digest = hmac.new(key.encode(), f"{resource}\n{expires}".encode(), hashlib.sha256).digest()
    signature = quote_plus(base64.b64encode(digest))
    return f"SharedAccessSignature sr={resource}&sig={signature}&se={expires}&skn={quote_plus(policy)}"


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
    policy, key = parts.get("sharedaccesskeyname"), parts.get("sharedaccesskey")
    signature = parts.get("sharedaccesssignature")
    if signature is None and not (policy and key):
        raise ConnectionStringError(
            "the connection string needs SharedAccessKeyName and SharedAccessKey, or SharedAccessSignature"
        )
    if signature is not None and (policy or key):
        raise ConnectionStringError("the connection string has both a key and a SharedAccessSignature")
    plain = parts.get("usedevelopmentemulator") == "true"
    return Namespace(
        name=host,
        netloc=_netloc(host, port),
        host=host,
        port=(port or PLAIN_PORT) if plain else TLS_PORT,
        uses_tls=not plain,
        policy=policy,
        key=key,
        signature=signature,
    )


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


def _expiry_of(signature: str) -> int:
    found = re.search(r"[& ]se=(\d{1,15})(?:&|$)", signature)
    if found is None:
        raise ConnectionStringError("the SharedAccessSignature of the connection string has no expiry (se)")
    return int(found.group(1))
