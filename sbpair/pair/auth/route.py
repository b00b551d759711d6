"""The route to a namespace, and the HTTP proxy on it."""

from __future__ import annotations

import ssl
from collections.abc import Mapping
from dataclasses import dataclass, field
from urllib.parse import quote, unquote, urlsplit


@dataclass(frozen=True, slots=True)
class Route:
    """The way to reach a namespace: trusted authorities (PEM file), WebSocket or TCP, and an HTTP proxy.

    ``ssl_context``, if given, is used instead of one made from ``ca_file``.
    """

    ca_file: str | None = None
    over_websocket: bool = False
    http_proxy: str | None = field(default=None, repr=False)  # may contain a password
    ssl_context: ssl.SSLContext | None = field(default=None, repr=False)


@dataclass(frozen=True, slots=True)
class Proxy:
    """An HTTP proxy, convertible to the form that each client expects."""

    scheme: str
    host: str
    port: int
    username: str | None = field(default=None, repr=False)
    password: str | None = field(default=None, repr=False)

    @classmethod
    def of_url(cls, url: str) -> Proxy:
        """Return the proxy of a URL. Raises ValueError, without the URL: it may contain a password."""
        try:
            split = urlsplit(url)
            port = split.port or (443 if split.scheme == "https" else 80)
            host = split.hostname if split.port != 0 else None
        except ValueError:
            host = None
        if host is None or split.scheme not in ("http", "https"):
            raise ValueError("http_proxy must be http:// or https:// and a host")
        named = [None if each is None else unquote(each) for each in (split.username, split.password)]
        return cls(split.scheme, host, port, *named)

    @classmethod
    def of_settings(cls, settings: Mapping[str, str | int]) -> Proxy:
        """Return the proxy of a mapping in the SDK's form, whose ``proxy_hostname`` may include a scheme.

        Raises ValueError without a host and a port.
        """
        host = str(settings.get("proxy_hostname") or "").strip()
        if "://" not in host:
            host = (
                f"http://[{host}]" if host.count(":") > 1 and not host.startswith("[") else f"http://{host}"
            )
        try:
            found, port = cls.of_url(host), int(settings.get("proxy_port") or 0)
        except (TypeError, ValueError):
            found, port = None, 0
        if found is None or not 0 < port < 65_536:
            raise ValueError("http_proxy must have a proxy_hostname, and a proxy_port from 1 to 65535")
        given = [str(settings[name]) if settings.get(name) else None for name in ("username", "password")]
        username, password = given if any(given) else (found.username, found.password)
        return cls(found.scheme, found.host, port, username, password)

    @property
    def url(self) -> str:
        """The proxy's URL, including the password."""
        user = ""
        if self.username:
            user = f"{quote(self.username, safe='')}:{quote(self.password or '', safe='')}@"
        return f"{self.scheme}://{user}{self._netloc}:{self.port}"

    def settings(self, *, is_asyncio: bool) -> dict[str, str | int]:
        """Return the mapping for the SDK.

        Its asyncio client wants a URL as ``proxy_hostname``; its blocking client would take a URL for a host name.
        """
        if is_asyncio:  # it appends the port
            return {"proxy_hostname": self.url.rpartition(":")[0], "proxy_port": self.port}
        found: dict[str, str | int] = {"proxy_hostname": self.host, "proxy_port": self.port}
        named = {"username": self.username, "password": self.password}
        return found | {name: value for name, value in named.items() if value}

    @property
    def _netloc(self) -> str:
        return f"[{self.host}]" if ":" in self.host else self.host
