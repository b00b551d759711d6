"""Into which words does the text of a filter or an action fall?"""

from __future__ import annotations

import re
from collections.abc import Iterator
from dataclasses import dataclass
from enum import Enum

from ...errors import InvalidRule

LONGEST = 1024  # characters, of a filter or of an action
_LARGEST = 2**63 - 1


class Kind(Enum):
    """What a token is."""

    NUMBER = "a number"
    TEXT = "a text"
    NAME = "a name"  # [quoted] or "quoted": never a keyword
    WORD = "a word"  # a name, or a keyword
    PARAMETER = "a parameter"
    SIGN = "a sign"
    END = "the end"


@dataclass(frozen=True, slots=True)
class Token:
    """One token: its text as written (a word in lower case, a sign as it is), its value, where it begins."""

    kind: Kind
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


def tokens_of(text: str) -> Iterator[Token]:
    """The tokens of ``text``, the end last. Raises InvalidRule."""
    if len(text) > LONGEST:
        raise InvalidRule(f"The expression has {len(text)} characters: at most {LONGEST} are allowed.")
    position = 0
    while position < len(text):
        found = _TOKEN.match(text, position)
        if found is None:
            raise InvalidRule(
                f"Nothing can begin with {text[position]!r}, character {position + 1} of {text!r}."
            )
        position, name = found.end(), found.lastgroup
        if name is not None and name != "space":
            yield _token(Kind[name], found.group(), found.start())
    yield Token(Kind.END, "", None, len(text))


def _token(kind: Kind, text: str, position: int) -> Token:
    match kind:
        case Kind.NUMBER:
            return Token(kind, text, _number(text), position)
        case Kind.TEXT:
            return Token(kind, text, text[1:-1].replace("''", "'"), position)
        case Kind.NAME:
            return Token(kind, text, text[1:-1].replace(text[-1] * 2, text[-1]), position)
        case Kind.WORD:
            return Token(kind, text.lower(), text, position)
        case _:
            return Token(kind, text, text, position)


def _number(text: str) -> int | float:
    if not text.isdigit():
        return float(text)
    number = int(text)
    if number > _LARGEST:
        raise InvalidRule(f"The number {text[:40]} is larger than {_LARGEST}.")
    return number
