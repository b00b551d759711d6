"""The syntax tree of filters and actions: one class for each form of the documented grammar."""

from __future__ import annotations

from dataclasses import dataclass

from .values import Value


@dataclass(frozen=True, slots=True)
class Constant:
    """A number, a string, TRUE, FALSE, NULL, or the value of a parameter."""

    value: Value


@dataclass(frozen=True, slots=True)
class Property:
    """An application property or, with ``is_system``, a system property (``name`` in lower case)."""

    name: str
    is_system: bool = False


@dataclass(frozen=True, slots=True)
class PropertyCalled:
    """``property(name)``: the application property whose name an expression computes."""

    name: Expression


@dataclass(frozen=True, slots=True)
class NewId:
    """``newid()``: a new GUID on each evaluation."""


@dataclass(frozen=True, slots=True)
class Signed:
    """``+ operand`` or ``- operand``."""

    sign: str
    operand: Expression


@dataclass(frozen=True, slots=True)
class Arithmetic:
    """``left + right``, and the same with ``- * / %``."""

    sign: str
    left: Expression
    right: Expression


@dataclass(frozen=True, slots=True)
class Comparison:
    """``left = right``, and the same with ``<> != > >= < <=``."""

    sign: str
    left: Expression
    right: Expression


@dataclass(frozen=True, slots=True)
class IsNull:
    """``property IS NULL``: the property is missing or null."""

    operand: Property | PropertyCalled


@dataclass(frozen=True, slots=True)
class Exists:
    """``EXISTS (property)``: the message has the property, even if null."""

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
    """``NOT operand``; also NOT IN, NOT LIKE and IS NOT NULL."""

    operand: Predicate


@dataclass(frozen=True, slots=True)
class Junction:
    """Operands joined by ``word``: ``and`` or ``or``."""

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
