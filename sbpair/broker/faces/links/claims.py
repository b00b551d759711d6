"""What has this connection proved it may do?"""

from __future__ import annotations

from dataclasses import dataclass

from ...access import Verifier
from ...auth import Grant, Right, TokenRefused, make_token, split_audience
from ...errors import Unauthorized

PLAIN_HOST = "localhost"  # SASL PLAIN names no audience: the key speaks for the whole namespace
PLAIN_SPAN_S = 24 * 3600


@dataclass(frozen=True, slots=True)
class Claim:
    """A grant, for the host name under which the client asked for it."""

    host: str
    grant: Grant

    def covers(self, path: str, right: Right, now_s: int) -> bool:
        """Whether ``right`` on ``path`` is granted at ``now_s``."""
        return not self.grant.is_expired(now_s) and self.grant.covers(self.host, path, right)


class Claims:
    """The claims of one connection: put on $cbs, by SASL PLAIN, or none needed where access is open."""

    def __init__(self, verifier: Verifier, now_s: int) -> None:
        self._verifier = verifier
        self._claims: dict[str, Claim] = {}
        try:
            self._claims[""] = Claim("", verifier.verify("", now_s))
        except TokenRefused:
            pass

    def __bool__(self) -> bool:
        return bool(self._claims)

    def put(self, audience: str, token: str, now_s: int) -> None:
        """Remember what ``token`` proves for ``audience``. Raises TokenRefused."""
        grant = self._verifier.verify(token, now_s)
        host, path = split_audience(audience)
        if not any(grant.covers(host, path, right) for right in Right):
            raise TokenRefused("the token's audience does not cover the name it was put for")
        self._claims[audience.casefold()] = Claim(host, grant)

    def put_plain(self, response: bytes, now_s: int) -> bool:
        """Take a SASL PLAIN response (authzid NUL policy NUL key); False when it proves nothing."""
        fields = response.split(b"\0")
        if len(fields) != 3:
            return False
        try:
            name, key = fields[1].decode(), fields[2].decode()
            token = make_token(f"sb://{PLAIN_HOST}/", name, key, now_s + PLAIN_SPAN_S)
            self._claims["plain"] = Claim(PLAIN_HOST, self._verifier.verify(token, now_s))
        except (TokenRefused, UnicodeDecodeError):
            return False
        return True

    def require(self, path: str, rights: tuple[Right, ...], now_s: int) -> None:
        """Raises Unauthorized unless one of ``rights`` on ``path`` is held."""
        if not any(claim.covers(path, right, now_s) for claim in self._claims.values() for right in rights):
            wanted = " or ".join(right.value for right in rights)
            raise Unauthorized(
                f"Unauthorized access. '{wanted}' claim(s) are required to perform this operation."
            )

    def next_expiry(self) -> int | None:
        """When the first claim runs out, in seconds since the epoch."""
        return min((claim.grant.expires for claim in self._claims.values()), default=None)

    def drop_expired(self, now_s: int) -> None:
        """Forget what has run out."""
        self._claims = {
            name: claim for name, claim in self._claims.items() if not claim.grant.is_expired(now_s)
        }
