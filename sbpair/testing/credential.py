"""A ``TokenCredential`` that needs no Entra ID: its tokens are for the in-repo broker."""

from __future__ import annotations

import time
from dataclasses import dataclass, field
from typing import NamedTuple

from sbpair.broker.bearer import make_bearer

LIFE_S = 3600


class AccessToken(NamedTuple):
    """As azure-core's: the token, and when it ends in seconds since the epoch."""

    token: str
    expires_on: int


@dataclass(frozen=True, slots=True)
class BearerCredential:
    """A ``TokenCredential`` for tests: what azure-identity's are to Entra ID, this is to a broker."""

    policy_name: str
    key: str = field(repr=False)

    def get_token(self, *scopes: str, claims: str | None = None, tenant_id: str | None = None) -> AccessToken:
        """A token of an hour. ``scopes`` end in ``/.default``, as for the service. Raises ValueError."""
        if not scopes or not all(scope.endswith("/.default") for scope in scopes):
            raise ValueError(f"a scope ends in /.default, not {scopes!r}")
        expires = int(time.time()) + LIFE_S
        audience = scopes[0].removesuffix("/.default").rstrip("/")
        return AccessToken(make_bearer(self.policy_name, self.key, expires, audience), expires)

    def close(self) -> None:
        """There is nothing to close."""
