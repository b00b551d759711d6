"""How does a file write a rule's filter and action?"""

from __future__ import annotations

from ..entities.rules import CorrelationFilter, FalseFilter, Filter, Rule, SqlAction, SqlFilter, TrueFilter
from ..entities.rules.correlation_filter import SYSTEM_FIELDS
from ..entities.rules.values import Value
from ..errors import InvalidRule
from .table import Table

_FIXED: dict[str, Filter] = {"1=1": TrueFilter(), "1=0": FalseFilter()}


def rule(table: Table, name: str, sql: str | None, action: str | None, named: Table | None) -> Rule:
    """The rule of an SQL filter, or of the ``named`` properties; of neither, one that takes all.

    Raises BadConfiguration.
    """
    try:
        found: Filter = TrueFilter()
        if sql is not None:
            found = _FIXED.get(sql.replace(" ", "")) or SqlFilter(sql)
        elif named is not None:
            found = named_filter(named)
        return Rule(name, found, None if not action else SqlAction(action))
    except InvalidRule as error:
        raise table.wrong("", f"a rule that can be read: {error}") from error


def named_filter(table: Table, spelling: dict[str, str] | None = None) -> CorrelationFilter:
    """A filter of values that must all be there."""
    texts = {name: table.text((spelling or {}).get(name, name)) for name in SYSTEM_FIELDS}
    key = "Properties" if spelling else "properties"
    own = table.table(key)
    properties: dict[str, Value] = {}
    for name in list(own.values):
        value = own.take(name)
        if not isinstance(value, str | int | float):
            raise own.wrong(name, "a text, a number, or true or false")
        properties[name] = value
    table.end()
    return CorrelationFilter(**texts, properties=properties)
