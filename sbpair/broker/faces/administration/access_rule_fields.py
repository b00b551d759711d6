"""How do an entity's authorization rules stand in its description?"""

from __future__ import annotations

from collections.abc import Sequence
from xml.etree.ElementTree import Element

from ...auth import SharedAccessPolicy
from ...entities.access_rule import RIGHTS, AccessRule
from ...errors import InvalidDescription
from . import atom

RULES = "AuthorizationRules"
_RULE, _RIGHT = "AuthorizationRule", "AccessRights"
_TYPE = {"i:type": "SharedAccessAuthorizationRule"}


def read_access_rules(found: Element) -> tuple[AccessRule, ...]:
    """The rules under the element. Raises InvalidDescription; what they say is not checked."""
    return tuple(_read(child) for child in found)


def _read(rule: Element) -> AccessRule:
    texts = {child.tag.rpartition("}")[2]: (child.text or "").strip() for child in rule}
    name = texts.get("KeyName", "")
    if rule.tag.rpartition("}")[2] != _RULE or not name:
        raise InvalidDescription(f"The element {RULES} holds something else than a {_RULE} with a KeyName.")
    found = {(right.text or "").strip() for right in rule.iter() if right.tag.rpartition("}")[2] == _RIGHT}
    rights = tuple(right for right in RIGHTS if right in found)
    fresh = SharedAccessPolicy.generate()  # a key that is not given is made
    return AccessRule(
        name,
        (*rights, *sorted(found.difference(RIGHTS))),
        texts.get("PrimaryKey") or fresh.primary_key,
        texts.get("SecondaryKey") or fresh.secondary_key,
    )


def write_access_rules(rules: Sequence[AccessRule]) -> str:
    """The element around the rules."""
    return atom.element(RULES, "".join(_write(rule) for rule in rules))


def _write(rule: AccessRule) -> str:
    rights = "".join(atom.element(_RIGHT, atom.plain(right)) for right in rule.rights)
    parts = (
        atom.element("ClaimType", "SharedAccessKey"),
        atom.element("ClaimValue", "None"),
        atom.element("Rights", rights),
        atom.element("KeyName", atom.plain(rule.name)),
        atom.element("PrimaryKey", atom.plain(rule.primary_key)),
        atom.element("SecondaryKey", atom.plain(rule.secondary_key)),
    )
    return atom.element(_RULE, "".join(parts), _TYPE)
