"""The claims of a connection: the grants that its tokens proved, and the namespace that a SASL PLAIN key selects.

On a shared port, a client selects a namespace:

    by the host name in sasl-init or ``open``     the namespace of that name
    by SASL PLAIN without such a name             the only namespace with this policy and key

When several namespaces have the key, the host name in ``open`` decides; a key that none has is refused.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Protocol

from ...access import Verifier
from ...auth import Grant, InvalidTokenError, Right, make_token, split_audience
from ...entities.descriptions import MAX_ADDRESS
from ...errors import ClaimRequiredError
from ..namespace_frontend import NamespaceFrontend

PLAIN_HOST = "localhost"  # SASL PLAIN has no audience: the key is for the whole namespace
PLAIN_SPAN_S = 24 * 3600
MAX_CLAIMS = 2_048
"""Maximum claims of one connection, which has at most half as many links."""


@dataclass(frozen=True, slots=True)
class HostGrant:
    """A grant, for the host name under which the client requested it."""

    host: str
    grant: Grant

    def covers(self, path: str, right: Right, now_s: int) -> bool:
        """Whether ``right`` on ``path`` is granted at ``now_s``."""
        return not self.grant.is_expired(now_s) and self.grant.covers(self.host, path, right)


class Claims:
    """The claims of one connection: from $cbs or SASL PLAIN, or unconditional with open access."""

    def __init__(self, verifier: Verifier, now_s: int) -> None:
        self._verifier = verifier
        self._claims: dict[str, HostGrant] = {}
        try:
            self._claims[""] = HostGrant("", verifier.verify("", now_s))
        except InvalidTokenError:
            pass

    def __bool__(self) -> bool:
        return bool(self._claims)

    def put(self, audience: str, token: str, now_s: int) -> None:
        """Add the grant that ``token`` proves for ``audience``; ``now_s``: seconds since the epoch.

        Raises InvalidTokenError when it proves nothing for this audience, or the connection has too many claims.
        """
        if len(audience) > MAX_ADDRESS:
            raise InvalidTokenError(f"the audience is longer than {MAX_ADDRESS} characters")
        name = audience.casefold()
        if name not in self._claims and len(self._claims) >= MAX_CLAIMS:
            raise InvalidTokenError(f"the connection has {MAX_CLAIMS} claims already")
        grant = self._verifier.verify(token, now_s)
        host, path = split_audience(audience)
        if not any(grant.covers(host, path, right) for right in Right):
            raise InvalidTokenError("the token's audience does not cover the name in the request")
        self._claims[name] = HostGrant(host, grant)

    def put_plain(self, response: bytes, now_s: int) -> bool:
        """Add the claim of a SASL PLAIN response (authzid NUL policy NUL key); return False when it proves nothing."""
        fields = response.split(b"\0")
        if len(fields) != 3:
            return False
        try:
            name, key = fields[1].decode(), fields[2].decode()
            token = make_token(f"sb://{PLAIN_HOST}/", name, key, now_s + PLAIN_SPAN_S)
            self._claims["plain"] = HostGrant(PLAIN_HOST, self._verifier.verify(token, now_s))
        except (InvalidTokenError, UnicodeDecodeError):
            return False
        return True

    def require(self, path: str, rights: tuple[Right, ...], now_s: int) -> None:
        """Raise ClaimRequiredError unless one of ``rights`` on ``path`` is granted."""
        if not any(claim.covers(path, right, now_s) for claim in self._claims.values() for right in rights):
            wanted = " or ".join(right.value for right in rights)
            raise ClaimRequiredError(path, wanted)

    def next_expiry(self) -> int | None:
        """Return when the first claim expires, in seconds since the epoch, or None."""
        return min((claim.grant.expires for claim in self._claims.values()), default=None)

    def drop_expired(self, now_s: int) -> None:
        """Remove expired claims."""
        self._claims = {
            name: claim for name, claim in self._claims.items() if not claim.grant.is_expired(now_s)
        }


class SharedPort(Protocol):
    """Moves a client's connection to one of the namespaces of its port."""

    def frontends(self) -> Sequence[NamespaceFrontend]:
        """Return the frontends of all namespaces of the port."""

    def move(self, hostname: str | None) -> NamespaceFrontend | None:
        """Move the connection to the namespace that ``hostname`` names.

        Returns its frontend; None, without a move, if there is no such namespace.
        """


def owners(port: SharedPort, plain: bytes, now_s: int) -> list[NamespaceFrontend]:
    """Return the namespaces that have the key of this SASL PLAIN response; ``now_s``: seconds since the epoch."""
    return [
        frontend for frontend in port.frontends() if Claims(frontend.verifier, now_s).put_plain(plain, now_s)
    ]


def names(frontends: Sequence[NamespaceFrontend]) -> str:
    """Return the names of the namespaces, for error texts."""
    return ", ".join(frontend.namespace.name for frontend in frontends)
