"""The cached token and failure of one credential.

    no valid token                     the caller asks, unless a failure is held
    a token before 80 % of its life    used
    a token after 80 % of its life     used, and renewed in the background, unless a failure is held

Times are arguments: a token's life is measured by the wall clock, a failure's by a monotonic one.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, NamedTuple, Protocol

from .held_failure import HeldFailure
from .transient import TokenUnavailableError, is_transient, names_refusal

if TYPE_CHECKING:
    from random import Random

RENEWAL_SHARE = 0.8
"""The part of its life after which a token is renewed."""
MIN_LIFE_SECONDS = 1.0  # before a renewal, however short the token lives


class GivenToken(Protocol):
    """A token with the attributes of azure-core's; ``expires_on`` in seconds since the epoch."""

    @property
    def token(self) -> str: ...
    @property
    def expires_on(self) -> int: ...


class Answer(NamedTuple):
    """The cached answer to a request: a token, an error, or neither when the caller must ask the credential.

    ``is_due`` says that the credential should be asked now, in the background if there is a token.
    """

    token: GivenToken | None
    error: Exception | None
    is_due: bool


class TokenMemory:
    """The token and the failure of one credential for one scope."""

    def __init__(self, rng: Random) -> None:
        self._held: tuple[GivenToken, float] | None = None  # with the time of its renewal: replaced as one
        self._failure = HeldFailure(rng)
        self._has_worked = False

    def answer(self, now: float, wall: float) -> Answer:
        """Return the cached answer to a request at this time."""
        held, failure = self._held, self._failure.at(now)
        if held is not None and wall < held[0].expires_on:
            return Answer(held[0], None, is_due=failure is None and wall >= held[1])
        return Answer(None, failure, is_due=failure is None)

    def gained(self, token: GivenToken, wall: float) -> None:
        """Record a token from the credential."""
        life = token.expires_on - wall
        self._held = token, wall + max(MIN_LIFE_SECONDS, RENEWAL_SHARE * life)
        self._has_worked = True
        self._failure.succeeded()

    def failed(self, error: Exception, now: float) -> Exception:
        """Record a failure of the credential; return the error to raise."""
        if self._has_worked and not (is_transient(error) or names_refusal(error)):
            away = TokenUnavailableError(
                f"the credential worked before, and fails now: {type(error).__name__}: {error}"
            )
            away.__cause__ = error
            error = away
        self._failure.failed(error, now)
        return error
