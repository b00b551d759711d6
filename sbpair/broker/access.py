"""How does a namespace judge a token: by its form and its signature, or not at all?"""

from __future__ import annotations

from collections.abc import Callable, Iterable
from typing import Protocol

from .auth import ALL_RIGHTS, NEVER_S, Grant, Right, SharedAccessPolicy, audience_path, verify
from .bearer import is_bearer, verify_bearer
from .entities.access_rule import AccessRule
from .errors import BrokerError

RulesOf = Callable[[str], Iterable[tuple[str, AccessRule]]]
"""The rules of the entities at a path and above it, each with its entity's own path."""


class Verifier(Protocol):
    """What the faces ask about a token: really checked, or open to all."""

    def verify(self, token: str, now_s: int) -> Grant:
        """The grant that ``token`` proves. Raises ``TokenRefused``."""


class SharedAccess:
    """The strict verifier: a token must be signed with a key of one of ``policies`` (names are unique).

    A shared access signature or a JWT: the token's form says which. Clients call either of them ``jwt``.
    A signature for one entity may also be of that entity's own rules, which ``rules_of`` finds.
    """

    __slots__ = ("_policies", "_rules_of")

    def __init__(self, policies: Iterable[SharedAccessPolicy], rules_of: RulesOf = lambda _: ()) -> None:
        self._policies = {policy.name: policy for policy in policies}
        self._rules_of = rules_of

    def verify(self, token: str, now_s: int) -> Grant:
        """The grant that ``token`` proves. Raises ``TokenRefused``."""
        if is_bearer(token):
            return verify_bearer(token, self._policies.values(), now_s)
        own = (_policy(path, rule) for path, rule in self._rules_of(audience_path(token)))
        return verify(token, [*self._policies.values(), *own], now_s)

    def add(self, policy: SharedAccessPolicy) -> None:
        """Take tokens of this policy of the namespace too. Raises BrokerError for a name that is taken."""
        if policy.name in self._policies:
            raise BrokerError(f"There is a policy '{policy.name}' already.")
        self._policies[policy.name] = policy

    def remove(self, name: str) -> None:
        """Take no more tokens of that policy. Raises BrokerError when there is none."""
        if self._policies.pop(name, None) is None:
            raise BrokerError(f"There is no policy '{name}'; there are: {', '.join(self._policies)}.")


def _policy(path: str, rule: AccessRule) -> SharedAccessPolicy:
    rights = frozenset(Right(right) for right in rule.rights)
    return SharedAccessPolicy(rule.name, rule.primary_key, rule.secondary_key, rights, path)


class OpenAccess:
    """The permissive verifier: any token grants everything, as the emulator's placeholder key needs."""

    __slots__ = ()

    def verify(self, token: str, now_s: int) -> Grant:
        """Everything, for ever, whatever ``token`` says."""
        return Grant(host="", path="", rights=ALL_RIGHTS, expires=NEVER_S)
