"""Token verifiers: strict, against the keys of shared access policies, or open to any token."""

from __future__ import annotations

from collections.abc import Callable, Iterable
from typing import Protocol

from .auth import ALL_RIGHTS, NEVER_S, Grant, Right, SharedAccessPolicy, audience_path, verify
from .bearer import is_bearer, verify_bearer
from .entities.descriptions import AccessRule
from .errors import BrokerError

RulesOf = Callable[[str], Iterable[tuple[str, AccessRule]]]
"""Maps a path to the authorization rules of the entities at it and above it, each with its entity's path."""


class Verifier(Protocol):
    """Checks the tokens that clients present."""

    def verify(self, token: str, now_s: int) -> Grant:
        """Return the grant that ``token`` proves at ``now_s`` (seconds since the epoch).

        Raises InvalidTokenError when it is malformed, expired, or not signed with a known key.
        """


class SharedAccess:
    """Accepts only tokens signed with a key of one of ``policies`` (unique names).

    Takes shared access signatures and JWTs; the form of the token decides, because clients declare both as
    ``jwt``. A signature for one entity may also be made with that entity's own authorization rules, which
    ``rules_of`` looks up.
    """

    __slots__ = ("_policies", "_rules_of")

    def __init__(self, policies: Iterable[SharedAccessPolicy], rules_of: RulesOf = lambda _: ()) -> None:
        self._policies = {policy.name: policy for policy in policies}
        self._rules_of = rules_of

    def verify(self, token: str, now_s: int) -> Grant:
        """Return the grant that ``token`` proves. Raises InvalidTokenError."""
        if is_bearer(token):
            return verify_bearer(token, self._policies.values(), now_s)
        own = (_policy(path, rule) for path, rule in self._rules_of(audience_path(token)))
        return verify(token, [*self._policies.values(), *own], now_s)

    def add(self, policy: SharedAccessPolicy) -> None:
        """Accept tokens signed by another policy of the namespace. Raises BrokerError when the name is taken."""
        if policy.name in self._policies:
            raise BrokerError(f"The policy '{policy.name}' already exists.")
        self._policies[policy.name] = policy

    def remove(self, name: str) -> None:
        """Reject tokens signed by the policy ``name``. Raises BrokerError when there is no such policy."""
        if self._policies.pop(name, None) is None:
            raise BrokerError(f"There is no policy '{name}'; there are: {', '.join(self._policies)}.")


def _policy(path: str, rule: AccessRule) -> SharedAccessPolicy:
    rights = frozenset(Right(right) for right in rule.rights)
    return SharedAccessPolicy(rule.name, rule.primary_key, rule.secondary_key, rights, path)


class OpenAccess:
    """Accepts any token and grants everything, as the emulator's placeholder key requires."""

    __slots__ = ()

    def verify(self, token: str, now_s: int) -> Grant:
        """Return a grant of every right that never expires, for any token."""
        return Grant(host="", path="", rights=ALL_RIGHTS, expires=NEVER_S)
