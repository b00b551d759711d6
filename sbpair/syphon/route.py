"""How is a namespace reached?"""

from __future__ import annotations

from dataclasses import dataclass, field


@dataclass(frozen=True, slots=True)
class Route:
    """How namespaces are reached: whose certificates are trusted (PEM), and through what."""

    ca_file: str | None = None
    over_websocket: bool = False
    http_proxy: str | None = field(default=None, repr=False)  # it may hold a password
