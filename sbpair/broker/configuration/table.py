"""A table of a configuration file, read key by key; errors name the file, the key and the expected value."""

from __future__ import annotations

import difflib
import re
from collections.abc import Iterator
from dataclasses import dataclass, field, fields
from typing import TypeVar

from ..clock import parse_duration
from ..entities.descriptions import SPANS, range_of
from ..entities.rules import CorrelationFilter, FalseFilter, Filter, Rule, SqlAction, SqlFilter, TrueFilter
from ..entities.rules.rule import SYSTEM_FIELDS
from ..entities.rules.values import Value
from ..errors import BrokerError, InvalidRuleError

RULES = "authorization_rules"  # contain keys, so not configurable: use add_policy or an administration client
_SHORT = re.compile(r"([0-9]{1,9}(?:\.[0-9]{1,3})?)(ms|s|m|h|d)")
_NOT_IN_FILES = re.compile(r" \(\d+\)|, or None")  # milliseconds, and what a missing key means
_UNITS = {"ms": 1, "s": 1_000, "m": 60_000, "h": 3_600_000, "d": 86_400_000}
_FIELDS: dict[str, type] = {"bool": bool, "int": int}  # by the annotation of the field; any other is a string
Description = TypeVar("Description")


class BadConfigurationError(BrokerError):
    """A configuration file is invalid; the text names the file, the key and the expected value."""


@dataclass(slots=True)
class Table:
    """The table ``values`` at ``where`` in ``file``. Keys are taken one by one; :meth:`end` rejects the rest.

    ``is_iso``: whether durations are ISO 8601 only, as in the files of others.
    """

    file: str
    where: str
    values: dict[str, object]
    is_iso: bool = False
    _known: list[str] = field(default_factory=list)

    def wrong(self, key: str, expected: str) -> BadConfigurationError:
        """Return the error to raise for the value at ``key``, or for the table itself if that is empty."""
        place = f"{self.where}.{key}" if self.where and key else self.where or key
        return BadConfigurationError(f"{self.file}: {place}: expected {expected}")

    def take(self, key: str) -> object:
        """Return the value of a key, None when it is missing."""
        self._known.append(key)
        return self.values.pop(key, None)

    def text(self, key: str, expected: str = "a string") -> str | None:
        """Return the string at a key, None when it is missing. Raises BadConfigurationError for another type."""
        value = self.take(key)
        if value is None or isinstance(value, str):
            return value
        raise self.wrong(key, f"{expected}, not {_kind(value)}")

    def required_text(self, key: str, expected: str = "a string") -> str:
        """Return the string at a required key. Raises BadConfigurationError when it is missing or empty."""
        value = self.text(key, expected)
        if not value:
            raise self.wrong(key, expected)
        return value

    def whole(self, key: str, allowed: range | tuple[int, ...]) -> int | None:
        """Return the whole number at a key, None when it is missing.

        Raises BadConfigurationError unless it is allowed.
        """
        value = self.take(key)
        if value is None:
            return None
        if type(value) is not int or value not in allowed:
            shown = (
                f"{allowed[0]} to {allowed[-1]}"
                if isinstance(allowed, range)
                else " or ".join(map(str, allowed))
            )
            raise self.wrong(key, f"a whole number, {shown}, not {value!r:.60}")
        return value

    def table(self, key: str) -> Table:
        """Return the table at a key; empty when it is missing."""
        value = self.take(key)
        if value is None:
            value = {}
        return self._under(key, value)

    def tables(self, key: str) -> Iterator[tuple[str, Table]]:
        """Iterate over the tables inside the table at a key, with their names."""
        inner = self.table(key)
        for name in list(inner.values):
            yield name, inner.table(name)

    def list_tables(self, key: str) -> Iterator[Table]:
        """Iterate over the tables in the list at a key.

        Raises BadConfigurationError for anything but a list of tables.
        """
        value = self.take(key)
        if value is None:
            return
        if not isinstance(value, list):
            raise self.wrong(key, f"a list, not {_kind(value)}")
        for number, each in enumerate(value):
            yield self._under(f"{key}[{number}]", each)

    def _under(self, key: str, value: object) -> Table:
        if not isinstance(value, dict):
            raise self.wrong(key, f"a table, not {_kind(value)}")
        return Table(self.file, f"{self.where}.{key}" if self.where else key, dict(value), self.is_iso)

    def description(self, kind: type[Description], spelling: dict[str, str] | None = None) -> Description:
        """Return the description built from the table's fields; ``spelling`` maps field names to the file's keys."""
        given: dict[str, object] = {}
        for each in fields(kind):  # type: ignore[arg-type]
            if each.name == RULES:
                continue
            key = (spelling or {}).get(each.name, each.name)
            value = self.take(key)
            if value is not None and value != "":
                given[each.name] = found = self._value(key, each.name, str(each.type), value)
                if expected := range_of(each.name, found):
                    words = _NOT_IN_FILES.sub("", expected)
                    what = "a duration, " if each.name in SPANS else ""
                    raise self.wrong(key, f"{what}{words}, not {value!r:.60}")
        return kind(**given)

    def _value(self, key: str, name: str, kind: str, value: object) -> object:
        if name in SPANS:
            return self.span(key, value)
        expected = _FIELDS.get(kind.removesuffix(" | None"), str)
        if type(value) is not expected:
            words = {bool: "true or false", int: "a whole number", str: "a string"}[expected]
            raise self.wrong(key, f"{words}, not {value!r:.60}")
        return value

    def span(self, key: str, value: object) -> int | None:
        """Return a duration such as ``PT5M`` or ``90s`` in milliseconds; None for the largest, which means never.

        Raises BadConfigurationError for any other value, and for ``90s`` in a file of ISO 8601 durations.
        """
        examples = '"PT5M"' if self.is_iso else '"PT5M" or "90s"'
        expected = f"a duration such as {examples}, not {value!r:.60}"
        if not isinstance(value, str):
            raise self.wrong(key, expected)
        if not self.is_iso and (found := _SHORT.fullmatch(value)):
            return round(float(found[1]) * _UNITS[found[2]])
        try:
            return parse_duration(value)
        except ValueError:
            raise self.wrong(key, expected) from None

    def end(self) -> None:
        """Raise BadConfigurationError if a key has not been taken."""
        for key in self.values:
            near = difflib.get_close_matches(key, self._known, n=1)
            hint = f"{near[0]}?" if near else "one of " + ", ".join(sorted(self._known))
            raise self.wrong(key, f"no such key; {'did you mean ' if near else ''}{hint}")


def _kind(value: object) -> str:
    names = {dict: "a table", list: "a list", str: "a string", bool: "true or false", int: "a number"}
    return names.get(type(value), type(value).__name__)


_FIXED: dict[str, Filter] = {"1=1": TrueFilter(), "1=0": FalseFilter()}


def rule(table: Table, name: str, sql: str | None, action: str | None, named: Table | None) -> Rule:
    """Return a rule that filters by ``sql`` or by the properties in ``named``; without either, it matches everything.

    Raises BadConfigurationError for an invalid name, filter or action.
    """
    try:
        found: Filter = TrueFilter()
        if sql is not None:
            found = _FIXED.get(sql.replace(" ", "")) or SqlFilter(sql)
        elif named is not None:
            found = named_filter(named)
        return Rule(name, found, None if not action else SqlAction(action))
    except InvalidRuleError as error:
        raise table.wrong("", f"a valid rule: {error}") from error


def named_filter(table: Table, spelling: dict[str, str] | None = None) -> CorrelationFilter:
    """Return a correlation filter, for messages that match all of the values in the table.

    ``spelling``: maps field names to the file's keys. Raises BadConfigurationError, and InvalidRuleError without any
    value.
    """
    texts = {name: table.text((spelling or {}).get(name, name)) for name in SYSTEM_FIELDS}
    key = (spelling or {}).get("properties", "properties")
    own = table.table(key)
    properties: dict[str, Value] = {}
    for name in list(own.values):
        value = own.take(name)
        if not isinstance(value, str | int | float):
            raise own.wrong(name, "a string, a number, or true or false")
        properties[name] = value
    table.end()
    return CorrelationFilter(**texts, properties=properties)
