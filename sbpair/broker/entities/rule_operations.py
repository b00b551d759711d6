"""What may be done to the rules of a subscription, and when is it use of it? (T-21)"""

from __future__ import annotations

from ..errors import EntityAlreadyExists, EntityNotFound, TooManyEntities
from .partitioned_entities import AnySubscription
from .rules import CorrelationFilter, Rule, SqlFilter
from .stored_message import Instant

MAX_SQL_FILTERS, MAX_CORRELATION_FILTERS = 2_000, 100_000  # of one topic


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
    _check_filters(subscription, rule)
    subscription.rules.put(rule)
    subscription.touch(now)  # T-21
    return rule


def _check_filters(subscription: AnySubscription, rule: Rule) -> None:
    """Raises TooManyEntities when the topic has no room for one more filter of that kind."""
    topic, before = subscription.topic, subscription.rules.get(rule.name)
    for kind, held, most in (
        (SqlFilter, topic.filters.sql, MAX_SQL_FILTERS),
        (CorrelationFilter, topic.filters.correlation, MAX_CORRELATION_FILTERS),
    ):
        is_another = isinstance(rule.filter, kind) and not (before and isinstance(before.filter, kind))
        if is_another and held >= most:
            raise TooManyEntities(f"{kind.__name__}s on '{topic.path}'", most)
