"""The statements of an action, ``SET`` and ``REMOVE``, as functions of a message's properties."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from datetime import timedelta

from ...errors import InvalidRule
from . import tree
from .evaluation import Evaluate, compiled
from .message_properties import MessageProperties, PropertyChanges
from .parser import parse_action
from .system_properties import IGNORED, REMOVABLE, SETTABLE, SPAN
from .values import EvaluationError, Value, kind_of

Step = Callable[[MessageProperties, PropertyChanges], None]


def steps_of(expression: str, parameters: Mapping[str, Value]) -> tuple[Step, ...]:
    """One step a statement, in their order. Raises InvalidRule, as SqlAction does."""
    return tuple(_step(statement) for statement in parse_action(expression, parameters))


def _step(statement: tree.Statement) -> Step:
    target = statement.target
    if isinstance(statement, tree.Set):
        evaluate = compiled(statement.value)
        if not target.is_system:
            return _set_user(target.name, evaluate)
        if target.name in SETTABLE:
            return _set_system(target.name, evaluate)
    elif not target.is_system:
        return _remove_user(target.name)
    elif target.name in REMOVABLE:
        return _set_system(target.name, lambda _: None)
    verb = type(statement).__name__.upper()
    raise InvalidRule(f"The system property {target.name} is not one that {verb} can change.")


def _set_user(name: str, evaluate: Evaluate) -> Step:
    def step(written: MessageProperties, changes: PropertyChanges) -> None:
        value = _converted(evaluate(written), written.of_user(name))
        spelt = written.set_user(name, value)
        changes.user[spelt] = value
        changes.removed.discard(spelt)

    return step


def _remove_user(name: str) -> Step:
    def step(written: MessageProperties, changes: PropertyChanges) -> None:
        spelt = written.remove_user(name)
        if spelt is not None:
            changes.user.pop(spelt, None)
            changes.removed.add(spelt)

    return step


def _set_system(name: str, evaluate: Evaluate) -> Step:
    def step(written: MessageProperties, changes: PropertyChanges) -> None:
        value = evaluate(written)
        if name == IGNORED:
            return  # 3.8: a copy is not scheduled again
        if name == SPAN:
            if value is not None and not isinstance(value, timedelta):
                raise EvaluationError(f"TimeToLive is set to a {kind_of(value)}: a span is needed")
        elif value is not None:
            value = text_of(value)
        written.system[name] = changes.system[name] = value

    return step


def _converted(value: Value, before: Value) -> Value:
    """``value`` as the kind of what it replaces, where that can be done."""
    convert = _CONVERSIONS.get((kind_of(value), kind_of(before)))
    if convert is None:
        return value
    try:
        return convert(value, before)
    except (ValueError, OverflowError):
        return value


def text_of(value: Value) -> str:
    """A value as a text."""
    return str(value).lower() if isinstance(value, bool) else str(value)


def _number_of(value: Value, before: Value) -> Value:
    return int(str(value)) if isinstance(before, int) else float(str(value))


def _boolean_of(value: Value, _: Value) -> Value:
    if str(value).lower() not in ("true", "false"):
        raise ValueError(value)
    return str(value).lower() == "true"


_CONVERSIONS: dict[tuple[str, str], Callable[[Value, Value], Value]] = {
    ("number", "text"): lambda value, _: text_of(value),
    ("boolean", "text"): lambda value, _: text_of(value),
    ("guid", "text"): lambda value, _: text_of(value),
    ("text", "number"): _number_of,
    ("text", "boolean"): _boolean_of,
}
