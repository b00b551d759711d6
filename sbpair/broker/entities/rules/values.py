"""Values in filters and actions: arithmetic and comparison.

    None                    unknown: a missing or null property, and any result computed from one
    int, float              64-bit integers and doubles, promoted as in C#; integer division truncates
    str, bool, UUID, bytes  unchanged
    datetime, timedelta     instants and durations

An operation for which C# has no operator raises EvaluationError: the message is dead-lettered or not
selected.
"""

from __future__ import annotations

import math
import operator
from collections.abc import Callable
from datetime import datetime, timedelta
from typing import Any
from uuid import UUID

Value = object
"""One of the types above.

Messages may contain other AMQP types, which compare for equality within their type.
"""

Truth = bool | None
"""Three-valued: None is unknown."""

_INT64 = range(-(2**63), 2**63)


class EvaluationError(Exception):
    """A filter or an action cannot be evaluated for a message; the text says why."""


_KINDS: tuple[tuple[type | tuple[type, ...], str], ...] = (
    (bool, "boolean"),  # before int, its base class
    ((int, float), "number"),
    (str, "string"),
    (datetime, "instant"),
    (timedelta, "duration"),
    (UUID, "guid"),
    (bytes, "binary"),
)
_ORDERED = frozenset(("number", "string", "instant", "duration"))
_COMPARISONS: dict[str, Callable[[Any, Any], bool]] = {
    "=": operator.eq,
    "<>": operator.ne,
    "!=": operator.ne,
    "<": operator.lt,
    "<=": operator.le,
    ">": operator.gt,
    ">=": operator.ge,
}
EQUALITIES = frozenset(("=", "<>", "!="))
COMPARISONS = frozenset(_COMPARISONS)


def kind_of(value: Value) -> str:
    """Return the kind of a value; only values of the same kind can be compared."""
    return next((name for types, name in _KINDS if isinstance(value, types)), type(value).__name__)


def compare(sign: str, left: Value, right: Value) -> Truth:
    """Compare two values; None if either is unknown. Raises EvaluationError when they cannot be compared."""
    if left is None or right is None:
        return None
    kind = kind_of(left)
    if kind != kind_of(right) or (sign not in EQUALITIES and kind not in _ORDERED):
        raise EvaluationError(f"{kind} and {kind_of(right)} cannot be compared by {sign}")
    return _COMPARISONS[sign](left, right)


def compute(sign: str, left: Value, right: Value) -> Value:
    """Apply ``+ - * / %``; None if either operand is unknown. Raises EvaluationError."""
    if left is None or right is None:
        return None
    signature = (kind_of(left), sign, kind_of(right))
    if signature[0] == signature[2] == "number":
        return _compute_numbers(sign, left, right)  # type: ignore[arg-type]
    if signature not in _OTHER_OPERATORS:
        raise EvaluationError(f"{signature[0]} {sign} {signature[2]} is not defined")
    try:
        return _OTHER_OPERATORS[signature](left, right)
    except OverflowError:
        raise EvaluationError(f"{signature[0]} {sign} {signature[2]} is out of range") from None


MAX_TEXT = 64 * 1024  # characters of a computed string: no header of a message takes more


def _join(left: str, right: str) -> str:
    if len(left) + len(right) > MAX_TEXT:
        raise EvaluationError(f"string + string has more than {MAX_TEXT} characters")
    return left + right


_OTHER_OPERATORS: dict[tuple[str, str, str], Callable[[object, object], object]] = {
    ("string", "+", "string"): lambda left, right: _join(str(left), str(right)),
    ("instant", "+", "duration"): operator.add,
    ("instant", "-", "duration"): operator.sub,
    ("instant", "-", "instant"): operator.sub,
    ("duration", "+", "duration"): operator.add,
    ("duration", "-", "duration"): operator.sub,
}


def negate(value: Value) -> Value:
    """Return ``-value``; None if unknown. Raises EvaluationError when it is not a number."""
    if value is None:
        return None
    if kind_of(value) != "number":
        raise EvaluationError(f"a sign needs a number, not {kind_of(value)}")
    return compute("-", 0, value) if isinstance(value, int) else -value  # type: ignore[operator]


def keep_sign(value: Value) -> Value:
    """Return ``+value``; None if unknown. Raises EvaluationError when it is not a number."""
    negate(value)
    return value


def _compute_numbers(sign: str, left: float, right: float) -> float:
    if isinstance(left, int) and isinstance(right, int):
        if sign in "/%" and right == 0:
            raise EvaluationError("integer division by zero")
        result = _INTEGER_OPERATORS[sign](int(left), int(right))
        if result not in _INT64:
            raise EvaluationError(f"the result of {sign} exceeds 64 bits")
        return result
    return _DOUBLE_OPERATORS[sign](float(left), float(right))


def _divide(left: int, right: int) -> int:
    quotient = abs(left) // abs(right)
    return quotient if (left < 0) == (right < 0) else -quotient


def _divided_doubles(left: float, right: float) -> float:
    if right:
        return left / right
    return (
        math.nan if not left or math.isnan(left) else math.copysign(math.inf, left) * math.copysign(1, right)
    )


def _remainder_of_doubles(left: float, right: float) -> float:
    return math.nan if not right or math.isinf(left) else math.fmod(left, right)


_INTEGER_OPERATORS: dict[str, Callable[[int, int], int]] = {
    "+": operator.add,
    "-": operator.sub,
    "*": operator.mul,
    "/": _divide,
    "%": lambda left, right: left - right * _divide(left, right),
}
_DOUBLE_OPERATORS: dict[str, Callable[[float, float], float]] = {
    "+": operator.add,
    "-": operator.sub,
    "*": operator.mul,
    "/": _divided_doubles,
    "%": _remainder_of_doubles,
}
