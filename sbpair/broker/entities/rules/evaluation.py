"""The evaluation of SQL filters and actions: each node of a tree is compiled once into a function.

Predicates are three-valued, as in SQL: NOT unknown is unknown, AND is false as soon as one operand is false,
OR is true as soon as one is true. A filter accepts a message when its predicate is true.
"""

from __future__ import annotations

import uuid
from collections.abc import Callable, Iterable, Mapping
from datetime import timedelta
from functools import partial
from typing import cast

from ...errors import InvalidRuleError
from . import tree
from .like_pattern import like_pattern
from .message_properties import IGNORED, REMOVABLE, SETTABLE, TIME_TO_LIVE, MessageProperties, PropertyChanges
from .parser import parse_action
from .values import EvaluationError, Truth, Value, compare, compute, keep_sign, kind_of, negate

Evaluate = Callable[[MessageProperties], Value]
Condition = Callable[[MessageProperties], Truth]


def compile_node(node: tree.Node) -> Evaluate:
    """Compile an expression or predicate to a function of properties, which may raise EvaluationError."""
    return _COMPILERS[type(node)](node)


def compile_predicate(predicate: tree.Predicate) -> Condition:
    """Compile a predicate."""
    return cast(Condition, compile_node(predicate))


def _constant(node: tree.Constant) -> Evaluate:
    return lambda _: node.value


def _property(node: tree.Property) -> Evaluate:
    name = node.name
    if node.is_system:
        return lambda properties: properties.system.get(name)
    return lambda properties: properties.of_user(name)


def _name(node: tree.Property | tree.PropertyCalled) -> Callable[[MessageProperties], str | None]:
    if isinstance(node, tree.Property):
        return lambda _: node.name
    return partial(_evaluate_name, compile_node(node.name))


def _evaluate_name(evaluate: Evaluate, properties: MessageProperties) -> str | None:
    name = evaluate(properties)
    if name is not None and not isinstance(name, str):
        raise EvaluationError(f"property() needs a string, not {kind_of(name)}")
    return name


def _property_called(node: tree.PropertyCalled) -> Evaluate:
    name_of = _name(node)

    def evaluate(properties: MessageProperties) -> Value:
        name = name_of(properties)
        return None if name is None else properties.of_user(name)

    return evaluate


def _sign(node: tree.Signed) -> Evaluate:
    operand, apply = compile_node(node.operand), negate if node.sign == "-" else keep_sign
    return lambda properties: apply(operand(properties))


def _arithmetic(node: tree.Arithmetic) -> Evaluate:
    sign, left, right = node.sign, compile_node(node.left), compile_node(node.right)
    return lambda properties: compute(sign, left(properties), right(properties))


def _comparison(node: tree.Comparison) -> Condition:
    sign, left, right = node.sign, compile_node(node.left), compile_node(node.right)
    return lambda properties: compare(sign, left(properties), right(properties))


def _is_null(node: tree.IsNull) -> Condition:
    operand = compile_node(node.operand)
    return lambda properties: operand(properties) is None


def _exists(node: tree.Exists) -> Condition:
    operand = node.operand
    if isinstance(operand, tree.Property) and operand.is_system:
        return lambda properties: properties.system.get(operand.name) is not None
    name_of = _name(operand)

    def evaluate(properties: MessageProperties) -> Truth:
        name = name_of(properties)
        return name is not None and properties.name_of(name) is not None

    return evaluate


def _in(node: tree.In) -> Condition:
    left, items = compile_node(node.left), [compile_node(item) for item in node.items]

    def evaluate(properties: MessageProperties) -> Truth:
        value = left(properties)
        if value is None:
            return None
        return _decide((compare("=", value, item(properties)) for item in items), by=True)

    return evaluate


def _like(node: tree.Like) -> Condition:
    left, pattern = compile_node(node.left), compile_node(node.pattern)
    escape = None if node.escape is None else compile_node(node.escape)

    def evaluate(properties: MessageProperties) -> Truth:
        values = [left(properties), pattern(properties)]
        if escape is not None:
            values.append(escape(properties))
        if None in values:
            return None
        for value in values:
            if not isinstance(value, str):
                raise EvaluationError(f"LIKE needs strings, not {kind_of(value)}")
        text, form, *mark = cast(list[str], values)
        return like_pattern(form, mark[0] if mark else None).matches(text)

    return evaluate


def _not(node: tree.Not) -> Condition:
    operand = compile_predicate(node.operand)

    def evaluate(properties: MessageProperties) -> Truth:
        truth = operand(properties)
        return None if truth is None else not truth

    return evaluate


def _junction(node: tree.Junction) -> Condition:
    operands, decides = [compile_predicate(operand) for operand in node.operands], node.word == "or"
    return lambda properties: _decide((operand(properties) for operand in operands), by=decides)


def _decide(truths: Iterable[Truth], *, by: bool) -> Truth:
    """Return ``by`` if any of ``truths`` is ``by``, else None if any is unknown, else ``not by``."""
    result: Truth = not by
    for truth in truths:
        if truth is by:
            return by
        if truth is None:
            result = None
    return result


_COMPILERS: dict[type, Callable[..., Callable[[MessageProperties], object]]] = {
    tree.Constant: _constant,
    tree.Property: _property,
    tree.PropertyCalled: _property_called,
    tree.NewId: lambda _: lambda _properties: uuid.uuid4(),
    tree.Signed: _sign,
    tree.Arithmetic: _arithmetic,
    tree.Comparison: _comparison,
    tree.IsNull: _is_null,
    tree.Exists: _exists,
    tree.In: _in,
    tree.Like: _like,
    tree.Not: _not,
    tree.Junction: _junction,
}


Step = Callable[[MessageProperties, PropertyChanges], None]


def compile_action(expression: str, parameters: Mapping[str, Value]) -> tuple[Step, ...]:
    """Compile an action to one step for each statement. Raises InvalidRuleError as :class:`SqlAction`."""
    return tuple(_step(statement) for statement in parse_action(expression, parameters))


def _step(statement: tree.Statement) -> Step:
    target = statement.target
    if isinstance(statement, tree.Set):
        evaluate = compile_node(statement.value)
        if not target.is_system:
            return _set_user(target.name, evaluate)
        if target.name in SETTABLE:
            return _set_system(target.name, evaluate)
    elif not target.is_system:
        return _remove_user(target.name)
    elif target.name in REMOVABLE:
        return _set_system(target.name, lambda _: None)
    verb = type(statement).__name__.upper()
    raise InvalidRuleError(f"The system property {target.name} cannot be changed by {verb}.")


def _set_user(name: str, evaluate: Evaluate) -> Step:
    def step(written: MessageProperties, changes: PropertyChanges) -> None:
        value = _convert(evaluate(written), written.of_user(name))
        spelling = written.set_user(name, value)
        changes.user[spelling] = value
        changes.removed.discard(spelling)

    return step


def _remove_user(name: str) -> Step:
    def step(written: MessageProperties, changes: PropertyChanges) -> None:
        spelling = written.remove_user(name)
        if spelling is not None:
            changes.user.pop(spelling, None)
            changes.removed.add(spelling)

    return step


def _set_system(name: str, evaluate: Evaluate) -> Step:
    def step(written: MessageProperties, changes: PropertyChanges) -> None:
        value = evaluate(written)
        if name == IGNORED:
            return  # a copy is not scheduled again
        if name == TIME_TO_LIVE:
            if value is not None and not isinstance(value, timedelta):
                raise EvaluationError(f"TimeToLive needs a duration, not {kind_of(value)}")
        elif value is not None:
            value = text_of(value)
        written.system[name] = changes.system[name] = value

    return step


def _convert(value: Value, before: Value) -> Value:
    """Convert ``value`` to the kind of the value that it replaces, if possible."""
    convert = _CONVERSIONS.get((kind_of(value), kind_of(before)))
    if convert is None:
        return value
    try:
        return convert(value, before)
    except (ValueError, OverflowError):
        return value


def text_of(value: Value) -> str:
    """Return a value as text."""
    return str(value).lower() if isinstance(value, bool) else str(value)


def _number_of(value: Value, before: Value) -> Value:
    return int(str(value)) if isinstance(before, int) else float(str(value))


def _boolean_of(value: Value, _: Value) -> Value:
    if str(value).lower() not in ("true", "false"):
        raise ValueError(value)
    return str(value).lower() == "true"


_CONVERSIONS: dict[tuple[str, str], Callable[[Value, Value], Value]] = {
    ("number", "string"): lambda value, _: text_of(value),
    ("boolean", "string"): lambda value, _: text_of(value),
    ("guid", "string"): lambda value, _: text_of(value),
    ("string", "number"): _number_of,
    ("string", "boolean"): _boolean_of,
}
