"""What can a filter or an action say? One class for each form of the documented grammar."""

from __future__ import annotations

from dataclasses import dataclass

from .values import Value


@dataclass(frozen=True, slots=True)
class Constant:
    """A number, a text, TRUE, FALSE, NULL, or what a parameter stands for."""

    value: Value


@dataclass(frozen=True, slots=True)
class Property:
    """``name`` of the sender's properties, or of the message's own if ``is_system`` (then in lower case)."""

    name: str
    is_system: bool = False


@dataclass(frozen=True, slots=True)
class PropertyCalled:
    """``property(name)``: the sender's property that an expression names."""

    name: Expression


@dataclass(frozen=True, slots=True)
class NewId:
    """``newid()``: another guid each time."""


@dataclass(frozen=True, slots=True)
class Signed:
    """``+ operand`` or ``- operand``."""

    sign: str
    operand: Expression


@dataclass(frozen=True, slots=True)
class Arithmetic:
    """``left + right``, and by ``- * / %``."""

    sign: str
    left: Expression
    right: Expression


@dataclass(frozen=True, slots=True)
class Comparison:
    """``left = right``, and by ``<> != > >= < <=``."""

    sign: str
    left: Expression
    right: Expression


@dataclass(frozen=True, slots=True)
class IsNull:
    """``property IS NULL``: it is absent, or null."""

    operand: Property | PropertyCalled


@dataclass(frozen=True, slots=True)
class Exists:
    """``EXISTS (property)``: the message has it, be it null."""

    operand: Property | PropertyCalled


@dataclass(frozen=True, slots=True)
class In:
    """``left IN (items)``."""

    left: Expression
    items: tuple[Expression, ...]


@dataclass(frozen=True, slots=True)
class Like:
    """``left LIKE pattern ESCAPE escape``."""

    left: Expression
    pattern: Expression
    escape: Expression | None = None


@dataclass(frozen=True, slots=True)
class Not:
    """``NOT operand``, and what NOT before IN, LIKE and NULL means."""

    operand: Predicate


@dataclass(frozen=True, slots=True)
class Junction:
    """All of the operands, joined by ``and`` or by ``or``."""

    word: str
    operands: tuple[Predicate, ...]


Expression = Constant | Property | PropertyCalled | NewId | Signed | Arithmetic
Predicate = Comparison | IsNull | Exists | In | Like | Not | Junction
Node = Expression | Predicate


@dataclass(frozen=True, slots=True)
class Set:
    """``SET target = value``."""

    target: Property
    value: Expression


@dataclass(frozen=True, slots=True)
class Remove:
    """``REMOVE target``."""

    target: Property


Statement = Set | Remove
