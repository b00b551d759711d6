"""Does a text look like a pattern? ``%`` is any text, ``_`` any one character, what is escaped is itself.

A pattern is cut at its ``%``: each piece is looked for behind the one before it, leftmost first, and never
again. So no text and no pattern make it try every way to cut the text.
"""

from __future__ import annotations

import re
from functools import lru_cache

from .values import EvaluationError


@lru_cache(maxsize=256)
def like_pattern(pattern: str, escape: str | None) -> LikePattern:
    """The compiled pattern. Raises EvaluationError for an escape that is not one character."""
    if escape is not None and len(escape) != 1:
        raise EvaluationError(f"the escape character {escape[:20]!r} is not one character")
    return LikePattern(pattern, escape)


class LikePattern:
    """The pieces of one pattern, each with its length."""

    def __init__(self, pattern: str, escape: str | None) -> None:
        pieces: list[list[str]] = [[]]
        characters = iter(pattern)
        for character in characters:
            if character == escape:
                pieces[-1].append(re.escape(next(characters, character)))
            elif character == "%":
                pieces.append([])
            else:
                pieces[-1].append("." if character == "_" else re.escape(character))
        compiled = [(re.compile("".join(piece), re.DOTALL), len(piece)) for piece in pieces]
        self._first, *self._middle = compiled
        self._last = self._middle.pop() if self._middle else None

    def matches(self, text: str) -> bool:
        """Whether all of ``text`` is what the pattern says."""
        first, length = self._first
        if self._last is None:
            return len(text) == length and first.match(text) is not None
        last, tail = self._last
        end = len(text) - tail
        if end < length or not first.match(text):
            return False
        position = length
        for piece, _ in self._middle:
            found = piece.search(text, position, end)
            if found is None:
                return False
            position = found.end()
        return last.match(text, end) is not None
