"""The parser of SQL filters and actions: a tokenizer and a Pratt parser.

The binding powers of the operators:

    OR 10 · AND 20 · NOT 30 · = <> != < <= > >= IS IN LIKE 40 · + - 50 · * / % 60 · sign 70

Expressions and predicates are distinct: ``TRUE`` alone is not a filter, ``paid = TRUE`` is. The input is
limited in length (``MAX_LENGTH``), nesting (``MAX_DEPTH``, ``MAX_OPERATORS``) and, for actions, statements
(``MAX_STATEMENTS``).
"""

from __future__ import annotations

import re
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass
from enum import Enum
from typing import TypeVar

from ...errors import InvalidRuleError
from . import tree
from .message_properties import canonical
from .values import COMPARISONS, Value

MAX_LENGTH = 1024  # characters of a filter or action
_MAX_INTEGER = 2**63 - 1


class TokenKind(Enum):
    """The kind of a token, as named in error messages."""

    NUMBER = "a number"
    TEXT = "a string"
    NAME = "a name"  # [quoted] or "quoted": never a keyword
    WORD = "a word"  # a name, or a keyword
    PARAMETER = "a parameter"
    SIGN = "an operator"
    END = "the end"


@dataclass(frozen=True, slots=True)
class SqlToken:
    """A token: its text (words in lower case), its value and its position in the input."""

    kind: TokenKind
    text: str
    value: object
    position: int


_TOKEN = re.compile(
    r"""(?P<space>\s+)
      | (?P<NUMBER>[0-9]+(?:\.[0-9]+)?(?:[eE][+-]?[0-9]+)?)
      | (?P<TEXT>'(?:[^']|'')*')
      | (?P<NAME>\[(?:[^\]]|\]\])+\]|"(?:[^"]|"")+")
      | (?P<WORD>[^\W\d_]\w*)
      | (?P<PARAMETER>@\w+)
      | (?P<SIGN><>|!=|>=|<=|[=<>+\-*/%(),.;])""",
    re.VERBOSE,
)


def tokens_of(text: str) -> Iterator[SqlToken]:
    """Iterate over the tokens of ``text``, END last. Raises InvalidRuleError."""
    if len(text) > MAX_LENGTH:
        raise InvalidRuleError(
            f"The expression has {len(text)} characters: at most {MAX_LENGTH} are allowed."
        )
    position = 0
    while position < len(text):
        found = _TOKEN.match(text, position)
        if found is None:
            raise InvalidRuleError(f"Unexpected {text[position]!r} at character {position + 1} of {text!r}.")
        position, name = found.end(), found.lastgroup
        if name is not None and name != "space":
            yield _token(TokenKind[name], found.group(), found.start())
    yield SqlToken(TokenKind.END, "", None, len(text))


def _token(kind: TokenKind, text: str, position: int) -> SqlToken:
    match kind:
        case TokenKind.NUMBER:
            return SqlToken(kind, text, _number(text), position)
        case TokenKind.TEXT:
            return SqlToken(kind, text, text[1:-1].replace("''", "'"), position)
        case TokenKind.NAME:
            return SqlToken(kind, text, text[1:-1].replace(text[-1] * 2, text[-1]), position)
        case TokenKind.WORD:
            return SqlToken(kind, text.lower(), text, position)
        case _:
            return SqlToken(kind, text, text, position)


def _number(text: str) -> int | float:
    if not text.isdigit():
        return float(text)
    number = int(text)
    if number > _MAX_INTEGER:
        raise InvalidRuleError(f"The number {text[:40]} is larger than {_MAX_INTEGER}.")
    return number


MAX_DEPTH = 64
MAX_OPERATORS = 128  # of + - * / %, which nest without parentheses
MAX_STATEMENTS = 32
SIGN_POWER, NOT_POWER = 70, 30
_POWERS = {
    **dict.fromkeys(("or",), 10),
    **dict.fromkeys(("and",), 20),
    **dict.fromkeys((*COMPARISONS, "is", "in", "like", "not"), 40),
    **dict.fromkeys("+-", 50),
    **dict.fromkeys("*/%", 60),
}
_CONSTANTS = {"true": True, "false": False, "null": None}
RESERVED = frozenset(
    ("and", "escape", "exists", "false", "in", "is", "like", "not", "null", "or", "remove", "set", "true")
)
_END_OF_STATEMENT = frozenset((";", ","))
Read = TypeVar("Read")


def parse_filter(text: str, parameters: Mapping[str, Value]) -> tree.Predicate:
    """Parse a filter; ``parameters`` are the values of its ``@name`` references. Raises InvalidRuleError."""
    parser = _Parser(text, parameters)
    predicate = parser.predicate(0)
    parser.take(TokenKind.END)
    return predicate


def parse_action(text: str, parameters: Mapping[str, Value]) -> tuple[tree.Statement, ...]:
    """Parse an action into its statements, at least one. Raises InvalidRuleError."""
    parser = _Parser(text, parameters)
    statements = [parser.statement()]
    while parser.next.kind is not TokenKind.END:
        if len(statements) == MAX_STATEMENTS:
            raise InvalidRuleError(f"The action has more than {MAX_STATEMENTS} statements.")
        statements.append(parser.statement())
    return tuple(statements)


class _Parser:
    def __init__(self, text: str, parameters: Mapping[str, Value]) -> None:
        self._text = text
        self._parameters = {name.lower(): value for name, value in parameters.items()}
        self._tokens = tokens_of(text)
        self.next = next(self._tokens)
        self._depth = self._operators = 0

    # -- tokens

    def advance(self) -> SqlToken:
        token = self.next
        if token.kind is not TokenKind.END:
            self.next = next(self._tokens)
        return token

    def take(self, kind: TokenKind) -> SqlToken:
        if self.next.kind is not kind:
            raise self.error_here(kind.value)
        return self.advance()

    def sees(self, *texts: str) -> bool:
        return self.next.kind in (TokenKind.WORD, TokenKind.SIGN) and self.next.text in texts

    def accept(self, text: str) -> bool:
        if not self.sees(text):
            return False
        self.advance()
        return True

    def expect(self, text: str) -> None:
        if not self.accept(text):
            raise self.error_here(text.upper())

    def error_here(self, expected: str) -> InvalidRuleError:
        found = repr(self.next.text) if self.next.text else "the end"
        where = f"character {self.next.position + 1} of {self._text!r}"
        return InvalidRuleError(f"Expected {expected}, found {found} at {where}.")

    # -- grammar

    def predicate(self, power: int) -> tree.Predicate:
        start = self.next
        node = self.node(power)
        if not isinstance(node, tree.Predicate):
            raise self.error_at(start, "is not a predicate: use one such as a = 1")
        return node

    def expression(self, power: int) -> tree.Expression:
        start = self.next
        return self.as_expression(self.node(power), start)

    def as_expression(self, node: tree.Node, start: SqlToken) -> tree.Expression:
        if isinstance(node, tree.Predicate):
            raise self.error_at(start, "is a predicate, where a value is needed")
        return node

    def as_predicate(self, node: tree.Node, start: SqlToken) -> tree.Predicate:
        if not isinstance(node, tree.Predicate):
            raise self.error_at(start, "is a value, where a predicate such as a = 1 is needed")
        return node

    def error_at(self, start: SqlToken, why: str) -> InvalidRuleError:
        return InvalidRuleError(f"The part of {self._text!r} at character {start.position + 1} {why}.")

    def node(self, power: int) -> tree.Node:
        self._depth += 1
        if self._depth > MAX_DEPTH:
            raise InvalidRuleError(f"The expression is nested deeper than {MAX_DEPTH} levels.")
        start, left = self.next, self.prefix()
        while self.next.kind in (TokenKind.WORD, TokenKind.SIGN) and _POWERS.get(self.next.text, 0) > power:
            left = self.infix(left, start, self.advance())
        self._depth -= 1
        return left

    def prefix(self) -> tree.Node:
        token = self.advance()
        match token.kind:
            case TokenKind.NUMBER | TokenKind.TEXT:
                return tree.Constant(token.value)
            case TokenKind.PARAMETER:
                return tree.Constant(self.parameter(token.text))
            case TokenKind.NAME:
                return tree.Property(str(token.value))
            case TokenKind.WORD:
                return self.word(token)
        if token.text == "(":
            return self.read_to_parenthesis(lambda: self.node(0))
        if token.text in ("+", "-"):
            return tree.Signed(token.text, self.expression(SIGN_POWER))
        self.next = token
        raise self.error_here("a value")

    def word(self, token: SqlToken) -> tree.Node:
        if token.text in _CONSTANTS:
            return tree.Constant(_CONSTANTS[token.text])
        if token.text == "not":
            return tree.Not(self.predicate(NOT_POWER))
        if token.text == "exists":
            self.expect("(")
            return tree.Exists(self.read_to_parenthesis(self.reference))
        self.check_not_reserved(token)
        if self.sees("("):
            return self.call(token)
        return self.property_from(token)

    def infix(self, left: tree.Node, start: SqlToken, token: SqlToken) -> tree.Node:
        if token.text in ("and", "or"):
            return self.junction(token.text, self.as_predicate(left, start))
        value = self.as_expression(left, start)
        power = _POWERS[token.text]
        if token.text in COMPARISONS:
            return tree.Comparison(token.text, value, self.expression(power))
        if token.text == "is":
            return self.is_null(value, start)
        if token.text == "not":
            return tree.Not(self.in_or_like(value, self.advance()))
        if token.text in ("in", "like"):
            return self.in_or_like(value, token)
        self._operators += 1
        if self._operators > MAX_OPERATORS:
            raise InvalidRuleError(f"The expression has more than {MAX_OPERATORS} arithmetic operators.")
        return tree.Arithmetic(token.text, value, self.expression(power))

    def junction(self, word: str, left: tree.Predicate) -> tree.Junction:
        right = self.predicate(_POWERS[word])
        before = left.operands if isinstance(left, tree.Junction) and left.word == word else (left,)
        return tree.Junction(word, (*before, right))

    def is_null(self, operand: tree.Expression, start: SqlToken) -> tree.Predicate:
        if not isinstance(operand, tree.Property | tree.PropertyCalled):
            raise self.error_at(start, "is not a property, which IS NULL needs")
        is_negated = self.accept("not")
        self.expect("null")
        return tree.Not(tree.IsNull(operand)) if is_negated else tree.IsNull(operand)

    def in_or_like(self, left: tree.Expression, token: SqlToken) -> tree.Predicate:
        power = _POWERS["like"]
        if token.text == "in":
            self.expect("(")
            return tree.In(left, self.read_to_parenthesis(self.items))
        if token.text != "like":
            self.next = token
            raise self.error_here("IN or LIKE")
        pattern = self.expression(power)
        return tree.Like(left, pattern, self.expression(power) if self.accept("escape") else None)

    def items(self) -> tuple[tree.Expression, ...]:
        items = [self.expression(0)]
        while self.accept(","):
            items.append(self.expression(0))
        return tuple(items)

    def read_to_parenthesis(self, read: Callable[[], Read]) -> Read:
        found = read()
        self.expect(")")
        return found

    # -- names

    def call(self, token: SqlToken) -> tree.NewId | tree.PropertyCalled:
        self.expect("(")
        if token.text == "newid":
            self.expect(")")
            return tree.NewId()
        if token.text in ("property", "p"):
            return tree.PropertyCalled(self.read_to_parenthesis(lambda: self.expression(0)))
        raise self.error_at(token, f"calls the unknown function {token.value}: use newid() or property(name)")

    def reference(self) -> tree.Property | tree.PropertyCalled:
        start = self.next
        node = self.node(SIGN_POWER)
        if not isinstance(node, tree.Property | tree.PropertyCalled):
            raise self.error_at(start, "is not a property")
        return node

    def property_from(self, token: SqlToken) -> tree.Property:
        if token.text not in ("sys", "user") or not self.accept("."):
            return tree.Property(str(token.value))
        name = self.advance()
        if name.kind is TokenKind.WORD:
            if token.text == "user":
                self.check_not_reserved(name)
        elif name.kind is not TokenKind.NAME:
            self.next = name
            raise self.error_here("the name of a property")
        if token.text == "user":
            return tree.Property(str(name.value))
        known = canonical(str(name.value))
        if known is None:
            raise InvalidRuleError(f"There is no system property {str(name.value)!r:.100}.")
        return tree.Property(known, is_system=True)

    def parameter(self, name: str) -> Value:
        if name.lower() not in self._parameters:
            raise InvalidRuleError(f"The parameter {name[:100]} has no value.")
        return self._parameters[name.lower()]

    def check_not_reserved(self, token: SqlToken) -> None:
        if token.text in RESERVED:
            raise self.error_at(
                token,
                f"is the keyword {token.text.upper()}: write [{token.value}] for a property of that name",
            )

    # -- actions

    def statement(self) -> tree.Statement:
        if self.accept("set"):
            target = self.target()
            self.expect("=")
            statement: tree.Statement = tree.Set(target, self.expression(_POWERS["="]))
        else:
            if not self.accept("remove"):
                raise self.error_here("SET or REMOVE")
            statement = tree.Remove(self.target())
        if self.sees(*_END_OF_STATEMENT):
            self.advance()
        return statement

    def target(self) -> tree.Property:
        token = self.advance()
        if token.kind is TokenKind.NAME:
            return tree.Property(str(token.value))
        if token.kind is not TokenKind.WORD:
            self.next = token
            raise self.error_here("a property")
        self.check_not_reserved(token)
        return self.property_from(token)
