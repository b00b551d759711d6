"""A table of a configuration file, read key by key; errors name the file, the key and the expected value."""

from __future__ import annotations

import difflib
import re
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from typing import Any, NamedTuple

from sbpair.pair.ground.entity_settings import (
    DUPLICATE_DETECTION,
    DUPLICATE_WINDOW,
    EntitySetting,
    ValueKind,
    element_name,
)

from ..clock import parse_duration
from ..entities.descriptions import AnyDescription, range_of, settings_of
from ..entities.rules import CorrelationFilter, FalseFilter, Filter, Rule, SqlAction, SqlFilter, TrueFilter
from ..entities.rules.rule import SYSTEM_FIELDS
from ..entities.rules.values import Value
from ..errors import BrokerError, InvalidRuleError

_SHORT = re.compile(r"([0-9]{1,9}(?:\.[0-9]{1,3})?)(ms|s|m|h|d)")
_NOT_IN_FILES = re.compile(r" \(\d+\)|, or None")  # milliseconds, and the meaning of a missing key
_WHOLE = re.compile("[+-]?[0-9]{1,10}")
_TRUTH = {"true": True, "false": False}
_UNITS = {"ms": 1, "s": 1_000, "m": 60_000, "h": 3_600_000, "d": 86_400_000}


class BadConfigurationError(BrokerError):
    """A configuration file is invalid; the text names the file, the key and the expected value."""


@dataclass(slots=True)
class Table:
    """The table ``values`` at ``where`` in ``file``. Keys are taken one by one; :meth:`end` rejects the rest.

    ``is_vendors``: read the table as leniently as the vendor's reader does, with keys in any case, text in place of
    numbers or booleans and the reverse, but durations in ISO 8601 only. ``warn`` is called for each key that is
    ignored; without it, such a key is an error.
    """

    file: str
    where: str
    values: dict[str, object]
    is_vendors: bool = False
    warn: Callable[[str], None] | None = None
    _known: list[str] = field(default_factory=list)
    _inner: dict[str, Table] = field(default_factory=dict)

    def wrong(self, key: str, expected: str) -> BadConfigurationError:
        """Return the error to raise for the value at ``key``, or for the table itself if that is empty."""
        return BadConfigurationError(f"{self._place(key)}: expected {expected}")

    def ignore(self, key: str, expected: str, done: str = "ignored") -> None:
        """Warn that the value at ``key`` has no effect, or a different one, which ``done`` describes.

        Raises BadConfigurationError if there is no callback for warnings.
        """
        if self.warn is None:
            raise self.wrong(key, expected)
        self.warn(f"{self._place(key)}: {done}: {expected}")

    def _place(self, key: str) -> str:
        return f"{self.file}: {f'{self.where}.{key}' if self.where and key else self.where or key}"

    def take(self, key: str) -> object:
        """Return the value of a key, None when it is missing."""
        self._known.append(key)
        if self.is_vendors and key not in self.values:
            key = next((each for each in self.values if each.casefold() == key.casefold()), key)
        return self.values.pop(key, None)

    def text(self, key: str, expected: str = "a string") -> str | None:
        """Return the string at a key, None when it is missing. Raises BadConfigurationError for another type."""
        value = self.take(key)
        if self.is_vendors:
            value = _converted(value, str)
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
        self._inner[key] = inner = self._under(key, value)
        return inner

    def plain_values(self, key: str) -> dict[str, Value]:
        """Return the table at a key whose own keys are names of properties or parameters.

        Raises BadConfigurationError unless each value is a string, a number, true or false.
        """
        inner = self.table(key)
        for name, value in inner.values.items():
            if not isinstance(value, str | int | float):
                raise inner.wrong(name, "a string, a number, or true or false")
        return {name: value for name, value in inner.values.items() if isinstance(value, str | int | float)}

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
        where = f"{self.where}.{key}" if self.where else key
        return Table(self.file, where, dict(value), self.is_vendors, self.warn)

    def key_of(self, field: str) -> str:
        """Return the key of a field of the broker's objects: its name, or as the vendor's files write it."""
        return element_name(field) if self.is_vendors else field

    def description(self, kind: type[AnyDescription]) -> AnyDescription:
        """Return the description built from the table's fields."""
        given: dict[str, Any] = {}
        for setting in settings_of(kind):
            key = self.key_of(setting.name)
            value = self.take(key)
            if value is not None and value != "":
                given[setting.name] = found = self._value(key, setting, value)
                if expected := range_of(setting, found):
                    words = _NOT_IN_FILES.sub("", expected)
                    what = "a duration, " if setting.kind is ValueKind.SPAN else ""
                    problem = f"{what}{words}, not {value!r:.60}"
                    is_needed = setting is not DUPLICATE_WINDOW or given.get(DUPLICATE_DETECTION.name)
                    if is_needed or not self.is_vendors:
                        raise self.wrong(key, problem)
                    self.ignore(key, f"{problem}; it has no effect without detection of duplicates")
                    del given[setting.name]
        return kind(**given)

    def _value(self, key: str, setting: EntitySetting, value: object) -> object:
        if setting.kind is ValueKind.SPAN:
            return self.span(key, value)
        expected = {ValueKind.FLAG: bool, ValueKind.WHOLE: int}.get(setting.kind, str)
        if self.is_vendors:
            value = _converted(value, expected)
        if type(value) is not expected:
            words = {bool: "true or false", int: "a whole number", str: "a string"}[expected]
            raise self.wrong(key, f"{words}, not {value!r:.60}")
        return value

    def span(self, key: str, value: object) -> int | None:
        """Return a duration such as ``PT5M`` or ``90s`` in milliseconds; None for the largest, which means never.

        Raises BadConfigurationError for any other value, and for ``90s`` in a file of ISO 8601 durations.
        """
        examples = '"PT5M"' if self.is_vendors else '"PT5M" or "90s"'
        expected = f"a duration such as {examples}, not {value!r:.60}"
        if not isinstance(value, str):
            raise self.wrong(key, expected)
        if not self.is_vendors and (found := _SHORT.fullmatch(value)):
            return round(float(found[1]) * _UNITS[found[2]])
        try:
            return parse_duration(value)
        except ValueError:
            raise self.wrong(key, expected) from None

    def end(self) -> None:
        """Warn of each unread key; raise BadConfigurationError in strict mode."""
        for key in self.values:
            inner = (
                f"{name}.{known}"
                for name, table in self._inner.items()
                for known in table._known
                if known.casefold() == key.casefold()
            )
            near = next(inner, None) or next(iter(difflib.get_close_matches(key, self._known, n=1)), None)
            hint = f"did you mean {near}?" if near else "one of " + ", ".join(sorted(self._known))
            self.ignore(key, f"no such key; {hint}")


def _converted(value: object, expected: type) -> object:
    """Return ``value`` converted as the vendor's binder does.

    Unchanged if the binder cannot read it as ``expected``.
    """
    if expected is str:
        return str(value) if isinstance(value, int | float) else value
    if isinstance(value, str):
        text = value.strip()
        if expected is int and _WHOLE.fullmatch(text):
            return int(text)
        if expected is bool:
            return _TRUTH.get(text.casefold(), value)
    return value


def _kind(value: object) -> str:
    names = {dict: "a table", list: "a list", str: "a string", bool: "true or false", int: "a number"}
    return names.get(type(value), type(value).__name__)


class Expression(NamedTuple):
    """An SQL expression, and the values of its ``@name`` references."""

    text: str
    parameters: dict[str, Value]


_FIXED: dict[str, Filter] = {"1=1": TrueFilter(), "1=0": FalseFilter()}


def rule(
    table: Table,
    name: str,
    sql: Expression | None = None,
    action: Expression | None = None,
    named: Table | None = None,
) -> Rule:
    """Return a rule that filters by ``sql`` or by the properties in ``named``; without either, it matches everything.

    Raises BadConfigurationError for an invalid name, filter or action.
    """
    try:
        found: Filter = TrueFilter()
        if sql is not None:
            found = _FIXED.get(sql.text.replace(" ", "")) or SqlFilter(sql.text, sql.parameters)
        elif named is not None:
            found = named_filter(named)
        return Rule(name, found, None if action is None else SqlAction(action.text, action.parameters))
    except InvalidRuleError as error:
        raise table.wrong("", f"a valid rule: {error}") from error


def named_filter(table: Table) -> CorrelationFilter:
    """Return a correlation filter, for messages that match all of the values in the table.

    Raises BadConfigurationError, and InvalidRuleError without any value.
    """
    texts = {name: table.text(table.key_of(name)) for name in SYSTEM_FIELDS}
    properties = table.plain_values(table.key_of("properties"))
    table.end()
    return CorrelationFilter(**texts, properties=properties)
