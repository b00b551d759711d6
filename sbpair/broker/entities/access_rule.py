"""Who has a key to one entity, and what does it open?

A rule of an entity is part of its description: the service's AuthorizationRules. It goes with the entity, and
opens nothing else; the keys to a whole namespace are the broker's own.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass, field

from ..errors import InvalidDescription

RIGHTS = ("Manage", "Send", "Listen")
MOST_RULES = 12
LONGEST_NAME, LONGEST_KEY = 256, 256


@dataclass(frozen=True, slots=True)
class AccessRule:
    """A named pair of keys with some of the rights Manage, Send and Listen; repr shows neither key."""

    name: str
    rights: tuple[str, ...]
    primary_key: str = field(repr=False)
    secondary_key: str = field(repr=False)


def check_rules(rules: object) -> None:
    """Raises InvalidDescription for rules that an entity cannot have."""
    if not isinstance(rules, tuple) or not all(isinstance(rule, AccessRule) for rule in rules):
        raise InvalidDescription(f"authorization_rules is a {type(rules).__name__}: a tuple of AccessRule.")
    if len(rules) > MOST_RULES:
        raise InvalidDescription(f"An entity has at most {MOST_RULES} authorization rules, not {len(rules)}.")
    names: Sequence[str] = [rule.name.casefold() for rule in rules]
    for rule in rules:
        if not 0 < len(rule.name) <= LONGEST_NAME or names.count(rule.name.casefold()) > 1:
            raise InvalidDescription(
                f"The authorization rule name {rule.name[:100]!r} is empty, too long, or given twice."
            )
        if not all(0 < len(key) <= LONGEST_KEY for key in (rule.primary_key, rule.secondary_key)):
            raise InvalidDescription(f"A key of the authorization rule '{rule.name}' is empty or too long.")
        check_rights(rule.name, rule.rights)


def check_rights(name: str, rights: Iterable[str]) -> None:
    """Raises InvalidDescription for rights that a rule or a policy of that name cannot have."""
    given = set(rights)
    if not given or not given <= set(RIGHTS):
        raise InvalidDescription(
            f"The rights of the authorization rule '{name}' are some of {', '.join(RIGHTS)}."
        )
    if "Manage" in given and given != set(RIGHTS):
        raise InvalidDescription(f"Manage permission should also include Send and Listen: rule '{name}'.")
