"""How does a namespace judge a token: by its form and its signature, or not at all?"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Protocol

from .auth import ALL_RIGHTS, NEVER_S, Grant, SharedAccessPolicy, verify
from .bearer import is_bearer, verify_bearer


class Verifier(Protocol):
    """What the faces ask about a token: really checked, or open to all."""

    def verify(self, token: str, now_s: int) -> Grant:
        """The grant that ``token`` proves. Raises ``TokenRefused``."""


@dataclass(frozen=True, slots=True)
class SharedAccess:
    """The strict verifier: a token must be signed with a key of one of ``policies`` (names are unique).

    A shared access signature or a JWT: the token's form says which. Clients call either of them ``jwt``.
    """

    policies: tuple[SharedAccessPolicy, ...]

    def verify(self, token: str, now_s: int) -> Grant:
        """The grant that ``token`` proves. Raises ``TokenRefused``."""
        return (verify_bearer if is_bearer(token) else verify)(token, self.policies, now_s)


@dataclass(frozen=True, slots=True)
class OpenAccess:
    """The permissive verifier: any token grants everything, as the emulator's placeholder key needs."""

    def verify(self, token: str, now_s: int) -> Grant:
        """Everything, for ever, whatever ``token`` says."""
        return Grant(host="", path="", rights=ALL_RIGHTS, expires=NEVER_S)
