"""What may be done to the rules of a subscription, and when is it use of it? (3.8, T-21)"""

from __future__ import annotations

from ..errors import EntityAlreadyExists, EntityNotFound
from .kinds import AnySubscription
from .limits import check_rules
from .rules import Rule
from .stored_message import Instant


def find_rule(subscription: AnySubscription, name: str) -> Rule:
    """The rule of that name. Raises EntityNotFound."""
    rule = subscription.rules.get(name)
    if rule is None:
        raise EntityNotFound(rule_path(subscription, name))
    return rule


def add_rule(subscription: AnySubscription, rule: Rule, now: Instant) -> Rule:
    """Publish by this rule too, from now on.

    Raises EntityAlreadyExists, TooManyEntities, PartitionUnavailable.
    """
    if subscription.rules.get(rule.name) is not None:
        raise EntityAlreadyExists(rule_path(subscription, rule.name))
    return _put(subscription, rule, now)


def update_rule(subscription: AnySubscription, rule: Rule, now: Instant) -> Rule:
    """Put this rule in the place of the one of its name. Raises EntityNotFound, and as :func:`add_rule`."""
    find_rule(subscription, rule.name)
    return _put(subscription, rule, now)


def remove_rule(subscription: AnySubscription, name: str) -> Rule:
    """Publish by that rule no longer; with the last one gone nothing comes. Raises EntityNotFound."""
    rule = find_rule(subscription, name)
    subscription.check_manageable()
    subscription.rules.drop(name)
    return rule


def rule_path(subscription: AnySubscription, name: str) -> str:
    """How a rule is named among entities."""
    return f"{subscription.path}/Rules/{name[:100]}"


def _put(subscription: AnySubscription, rule: Rule, now: Instant) -> Rule:
    subscription.check_manageable()
    check_rules(subscription, rule)
    subscription.rules.put(rule)
    subscription.touch(now)  # T-21
    return rule
