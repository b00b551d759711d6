"""The rules of a subscription: filters that select messages, and actions that modify the copies.

expression --- parser ---> syntax tree --- evaluation ---> a function of a message's properties
"""

from __future__ import annotations

from .rule import DEFAULT_RULE, CorrelationFilter, FalseFilter, Filter, Rule, SqlAction, SqlFilter, TrueFilter
from .rule_set import FilterCounts, RuleSet

__all__ = [
    "DEFAULT_RULE",
    "CorrelationFilter",
    "FalseFilter",
    "Filter",
    "FilterCounts",
    "Rule",
    "RuleSet",
    "SqlAction",
    "SqlFilter",
    "TrueFilter",
]
