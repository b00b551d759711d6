"""Expressions of Azure Resource Manager templates: ``[format('{0}/{1}', parameters('namespace'), 'orders')]``.

Only functions that do not need Azure are evaluated: those in FUNCTIONS, and ``parameters``, ``variables`` and
``copyIndex``. Any other function is an error that names it. Pure.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field, replace

MAX_TEXT = 100_000  # characters of an expression or of its value
_TOKEN = re.compile(r"\s*(?:('(?:[^']|'')*')|(-?\d{1,18})|([A-Za-z_]\w*)|([()\[\],.]))")
_PLACE = re.compile(r"\{(\d{1,3})\}|\{\{|\}\}|\{[^{}]*\}")


class BadExpressionError(ValueError):
    """An expression cannot be evaluated; the text says why."""


@dataclass(frozen=True, slots=True)
class Scope:
    """The values of the names in an expression: evaluated parameters, and variables that are evaluated on use.

    ``copy_index``: the index in a copy loop, None outside of one. ``evaluating``: the variables being evaluated.
    """

    parameters: Mapping[str, object] = field(default_factory=dict)
    variables: Mapping[str, object] = field(default_factory=dict)
    copy_index: int | None = None
    evaluating: tuple[str, ...] = ()

    def at(self, copy_index: int) -> Scope:
        """Return the scope of one element of a copy loop."""
        return replace(self, copy_index=copy_index)


def evaluate(value: object, scope: Scope) -> object:
    """Return ``value`` with every expression in it evaluated. Raises BadExpressionError."""
    match value:
        case str():
            return _text(value, scope)
        case list():
            return [evaluate(each, scope) for each in value]
        case dict():
            return {key: evaluate(each, scope) for key, each in value.items()}
    return value


def _text(value: str, scope: Scope) -> object:
    if not value.startswith("[") or not value.endswith("]"):
        return value
    if value.startswith("[["):
        return value[1:]  # an escaped bracket: not an expression
    if len(value) > MAX_TEXT:
        raise BadExpressionError(f"it is longer than {MAX_TEXT} characters")
    reader = _Reader(_tokens(value[1:-1]), scope)
    found = reader.expression()
    if reader.left:
        raise BadExpressionError(f"{value!r:.200}: unexpected {reader.left[0]!r}")
    if isinstance(found, str) and len(found) > MAX_TEXT:
        raise BadExpressionError(f"its value is longer than {MAX_TEXT} characters")
    return found


def _tokens(text: str) -> list[str]:
    tokens: list[str] = []
    at, text = 0, text.rstrip()
    while at < len(text):
        match = _TOKEN.match(text, at)
        if match is None:
            raise BadExpressionError(f"{text!r:.200}: invalid from {text[at:]!r:.40} on")
        tokens.append(match[0].strip())
        at = match.end()
    return tokens


class _Reader:
    """Reads and evaluates one expression, token by token."""

    def __init__(self, tokens: list[str], scope: Scope) -> None:
        self.left = tokens
        self._scope = scope

    def expression(self) -> object:
        found = self._operand()
        while self.left and self.left[0] in (".", "["):
            found = self._part_of(found)
        return found

    def _take(self, expected: str | None = None) -> str:
        if not self.left or (expected is not None and self.left[0] != expected):
            there = repr(self.left[0]) if self.left else "the end"
            raise BadExpressionError(f"expected {expected or 'a value'!r}, not {there}")
        return self.left.pop(0)

    def _operand(self) -> object:
        token = self._take()
        if token.startswith("'"):
            return token[1:-1].replace("''", "'")
        if token.lstrip("-").isdigit():
            return int(token)
        if not token[0].isalpha() and token[0] != "_":
            raise BadExpressionError(f"expected a value, not {token!r}")
        self._take("(")
        given: list[object] = []
        while self.left and self.left[0] != ")":
            given.append(self.expression())
            if self.left and self.left[0] == ",":
                self._take(",")
                if self.left and self.left[0] == ")":
                    raise BadExpressionError("expected a value after ','")
            elif self.left and self.left[0] != ")":
                raise BadExpressionError(f"expected ',' or ')', not {self.left[0]!r}")
        self._take(")")
        return self._call(token, given)

    def _part_of(self, found: object) -> object:
        if self._take() == ".":
            key: object = self._take()
        else:
            key = self.expression()
            self._take("]")
        if isinstance(found, dict) and isinstance(key, str) and key in found:
            return found[key]
        if isinstance(found, list) and isinstance(key, int) and 0 <= key < len(found):
            return found[key]
        raise BadExpressionError(f"there is no {key!r:.60} in {type(found).__name__} {found!r:.60}")

    def _call(self, name: str, given: list[object]) -> object:
        own: dict[str, Callable[..., object]] = {
            "parameters": self._parameter,
            "variables": self._variable,
            "copyindex": self._copy_index,
        }
        function = own.get(name.casefold()) or FUNCTIONS.get(name.casefold())
        if function is None:
            known = ", ".join(sorted(SPELLED))
            raise BadExpressionError(f"{name}() needs Azure or is unknown; supported functions: {known}")
        try:
            return function(*given)
        except (TypeError, ValueError, AttributeError) as error:
            if isinstance(error, BadExpressionError):
                raise
            raise BadExpressionError(f"{name}() does not accept {given!r:.100}") from error

    def _parameter(self, name: str) -> object:
        if name not in self._scope.parameters:
            raise BadExpressionError(f"parameter {name!r:.60} has no value: use --parameter {name:.60}=VALUE")
        return self._scope.parameters[name]

    def _variable(self, name: str) -> object:
        if name not in self._scope.variables:
            raise BadExpressionError(f"there is no variable {name!r:.60}")
        if name in self._scope.evaluating:
            raise BadExpressionError(f"variable {name!r:.60} refers to itself")
        inner = replace(self._scope, evaluating=(*self._scope.evaluating, name))
        return evaluate(self._scope.variables[name], inner)

    def _copy_index(self, *given: object) -> object:
        offset = next((each for each in given if isinstance(each, int)), 0)  # the loop's name may precede it
        if self._scope.copy_index is None:
            raise BadExpressionError("copyIndex() outside of a copy loop")
        return self._scope.copy_index + offset


def _concat(*parts: object) -> object:
    if parts and all(isinstance(each, list) for each in parts):
        return [item for each in parts if isinstance(each, list) for item in each]
    return "".join(map(_string, parts))


def _string(value: object) -> str:
    if isinstance(value, bool):
        return str(value)  # as .NET spells it
    if isinstance(value, str | int):
        return str(value)
    raise BadExpressionError(f"{value!r:.60} is not a string")


def _format(pattern: str, *parts: object) -> str:
    def place(match: re.Match[str]) -> str:
        if match[1] is None:
            if match[0] in ("{{", "}}"):
                return match[0][0]
            raise BadExpressionError(f"format() does not support {match[0]!r:.40}")
        if int(match[1]) >= len(parts):
            raise BadExpressionError(f"format() has no value for {match[0]}")
        return _string(parts[int(match[1])])

    return _PLACE.sub(place, pattern)


FUNCTIONS: dict[str, Callable[..., object]] = {
    "concat": _concat,
    "format": _format,
    "tolower": lambda text: text.lower(),
    "toupper": lambda text: text.upper(),
    "string": _string,
    "int": int,
    "length": len,
    "true": lambda: True,
    "false": lambda: False,
    "null": lambda: None,
    "createarray": lambda *each: list(each),
}
SPELLED = (
    *("parameters", "variables", "copyIndex", "concat", "format", "toLower", "toUpper", "string", "int"),
    *("length", "true", "false", "null", "createArray"),
)
