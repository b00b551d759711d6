"""Values in filters and actions, and how they are computed and compared.

    None                    unknown: an absent property, a null one, and whatever is made of it
    int, float              64-bit integers and doubles, promoted as in C#; integers divide towards zero
    str, bool, UUID, bytes  as they are
    datetime, timedelta     instants and spans

What C# has no operator for fails: the message is then dead-lettered, or not taken.
"""

from __future__ import annotations

import math
import operator
from collections.abc import Callable
from datetime import datetime, timedelta
from typing import Any
from uuid import UUID

Value = object
"""One of the types above; of a message whatever AMQP has, which compares with its own kind for equality."""

Truth = bool | None
"""Three-valued: None is unknown."""

_INT64 = range(-(2**63), 2**63)


class EvaluationError(Exception):
    """A filter or an action has no result for this message; the text says why."""


_KINDS: tuple[tuple[type | tuple[type, ...], str], ...] = (
    (bool, "boolean"),  # before int, which it is too
    ((int, float), "number"),
    (str, "text"),
    (datetime, "instant"),
    (timedelta, "span"),
    (UUID, "guid"),
    (bytes, "binary"),
)
_ORDERED = frozenset(("number", "text", "instant", "span"))
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
    """The name of a value's kind: what it compares with."""
    return next((name for types, name in _KINDS if isinstance(value, types)), type(value).__name__)


def compare(sign: str, left: Value, right: Value) -> Truth:
    """Three-valued comparison. Raises EvaluationError for kinds that do not compare."""
    if left is None or right is None:
        return None
    kind = kind_of(left)
    if kind != kind_of(right) or (sign not in EQUALITIES and kind not in _ORDERED):
        raise EvaluationError(f"{sign} does not compare a {kind} and a {kind_of(right)}")
    return _COMPARISONS[sign](left, right)


def compute(sign: str, left: Value, right: Value) -> Value:
    """``left`` and ``right`` by ``+ - * / %``; unknown if either is. Raises EvaluationError."""
    if left is None or right is None:
        return None
    signature = (kind_of(left), sign, kind_of(right))
    if signature[0] == signature[2] == "number":
        return _compute_numbers(sign, left, right)  # type: ignore[arg-type]
    if signature not in _OTHERS:
        raise EvaluationError(f"there is no {signature[0]} {sign} {signature[2]}")
    try:
        return _OTHERS[signature](left, right)
    except OverflowError:
        raise EvaluationError(f"{signature[0]} {sign} {signature[2]} is out of range") from None


_OTHERS: dict[tuple[str, str, str], Callable[[object, object], object]] = {
    ("text", "+", "text"): operator.add,
    ("instant", "+", "span"): operator.add,
    ("instant", "-", "span"): operator.sub,
    ("instant", "-", "instant"): operator.sub,
    ("span", "+", "span"): operator.add,
    ("span", "-", "span"): operator.sub,
}


def negate(value: Value) -> Value:
    """``-value``; unknown if it is. Raises EvaluationError."""
    if value is None:
        return None
    if kind_of(value) != "number":
        raise EvaluationError(f"a {kind_of(value)} has no sign")
    return compute("-", 0, value) if isinstance(value, int) else -value  # type: ignore[operator]


def keep_sign(value: Value) -> Value:
    """``+value``; unknown if it is. Raises EvaluationError."""
    negate(value)
    return value


def _compute_numbers(sign: str, left: float, right: float) -> float:
    if isinstance(left, int) and isinstance(right, int):
        if sign in "/%" and right == 0:
            raise EvaluationError("a whole number is divided by zero")
        result = _ON_WHOLES[sign](int(left), int(right))
        if result not in _INT64:
            raise EvaluationError(f"the result of {sign} has more than 64 bits")
        return result
    return _ON_DOUBLES[sign](float(left), float(right))


def _divided(left: int, right: int) -> int:
    quotient = abs(left) // abs(right)
    return quotient if (left < 0) == (right < 0) else -quotient


def _divided_doubles(left: float, right: float) -> float:
    if right:
        return left / right
    return (
        math.nan if not left or math.isnan(left) else math.copysign(math.inf, left) * math.copysign(1, right)
    )


def _rest_of_doubles(left: float, right: float) -> float:
    return math.nan if not right or math.isinf(left) else math.fmod(left, right)


_ON_WHOLES: dict[str, Callable[[int, int], int]] = {
    "+": operator.add,
    "-": operator.sub,
    "*": operator.mul,
    "/": _divided,
    "%": lambda left, right: left - right * _divided(left, right),
}
_ON_DOUBLES: dict[str, Callable[[float, float], float]] = {
    "+": operator.add,
    "-": operator.sub,
    "*": operator.mul,
    "/": _divided_doubles,
    "%": _rest_of_doubles,
}
