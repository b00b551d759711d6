"""What is a tree worth for a message? Each node becomes a function of the message's properties, once.

Predicates are three-valued, as in SQL: NOT unknown is unknown, AND is false as soon as one is, OR is true as
soon as one is; a message is taken when the whole is true.
"""

from __future__ import annotations

import uuid
from collections.abc import Callable, Iterable
from functools import partial
from typing import cast

from . import tree
from .like_pattern import like_pattern
from .message_properties import MessageProperties
from .values import EvaluationError, Truth, Value, compare, compute, keep_sign, kind_of, negate

Evaluate = Callable[[MessageProperties], Value]
Judge = Callable[[MessageProperties], Truth]


def compiled(node: tree.Node) -> Evaluate:
    """The function of an expression's value, or of a predicate's truth. It may raise EvaluationError."""
    return _COMPILERS[type(node)](node)


def judge(predicate: tree.Predicate) -> Judge:
    """The function of a predicate's truth."""
    return cast(Judge, compiled(predicate))


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
    return partial(_called, compiled(node.name))


def _called(evaluate: Evaluate, properties: MessageProperties) -> str | None:
    name = evaluate(properties)
    if name is not None and not isinstance(name, str):
        raise EvaluationError(f"property() is given a {kind_of(name)}: a text is needed")
    return name


def _property_called(node: tree.PropertyCalled) -> Evaluate:
    name_of = _name(node)

    def evaluate(properties: MessageProperties) -> Value:
        name = name_of(properties)
        return None if name is None else properties.of_user(name)

    return evaluate


def _signed(node: tree.Signed) -> Evaluate:
    operand, apply = compiled(node.operand), negate if node.sign == "-" else keep_sign
    return lambda properties: apply(operand(properties))


def _arithmetic(node: tree.Arithmetic) -> Evaluate:
    sign, left, right = node.sign, compiled(node.left), compiled(node.right)
    return lambda properties: compute(sign, left(properties), right(properties))


def _comparison(node: tree.Comparison) -> Judge:
    sign, left, right = node.sign, compiled(node.left), compiled(node.right)
    return lambda properties: compare(sign, left(properties), right(properties))


def _is_null(node: tree.IsNull) -> Judge:
    operand = compiled(node.operand)
    return lambda properties: operand(properties) is None


def _exists(node: tree.Exists) -> Judge:
    operand = node.operand
    if isinstance(operand, tree.Property) and operand.is_system:
        return lambda properties: properties.system.get(operand.name) is not None
    name_of = _name(operand)

    def evaluate(properties: MessageProperties) -> Truth:
        name = name_of(properties)
        return name is not None and properties.name_of(name) is not None

    return evaluate


def _in(node: tree.In) -> Judge:
    left, items = compiled(node.left), [compiled(item) for item in node.items]

    def evaluate(properties: MessageProperties) -> Truth:
        value = left(properties)
        if value is None:
            return None
        return _decided((compare("=", value, item(properties)) for item in items), by=True)

    return evaluate


def _like(node: tree.Like) -> Judge:
    left, pattern = compiled(node.left), compiled(node.pattern)
    escape = None if node.escape is None else compiled(node.escape)

    def evaluate(properties: MessageProperties) -> Truth:
        values = [left(properties), pattern(properties)]
        if escape is not None:
            values.append(escape(properties))
        if None in values:
            return None
        for value in values:
            if not isinstance(value, str):
                raise EvaluationError(f"LIKE is given a {kind_of(value)}: texts are needed")
        text, form, *mark = cast(list[str], values)
        return like_pattern(form, mark[0] if mark else None).matches(text)

    return evaluate


def _not(node: tree.Not) -> Judge:
    operand = judge(node.operand)

    def evaluate(properties: MessageProperties) -> Truth:
        truth = operand(properties)
        return None if truth is None else not truth

    return evaluate


def _junction(node: tree.Junction) -> Judge:
    operands, decides = [judge(operand) for operand in node.operands], node.word == "or"
    return lambda properties: _decided((operand(properties) for operand in operands), by=decides)


def _decided(truths: Iterable[Truth], *, by: bool) -> Truth:
    """``by`` as soon as one of the truths is, else unknown if one is, else the other."""
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
    tree.Signed: _signed,
    tree.Arithmetic: _arithmetic,
    tree.Comparison: _comparison,
    tree.IsNull: _is_null,
    tree.Exists: _exists,
    tree.In: _in,
    tree.Like: _like,
    tree.Not: _not,
    tree.Junction: _junction,
}
