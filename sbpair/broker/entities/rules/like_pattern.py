"""LIKE: a text against a pattern with the wildcards ``%`` (any text) and ``_`` (any one character).

A pattern is cut at each ``%`` into pieces. Each piece is matched at its first occurrence after the previous one, so the
text is read only once for any pattern. A piece with ``_`` is searched bit by bit (shift-and), all others by substring
search.
"""

from __future__ import annotations

from functools import lru_cache

from .values import EvaluationError

MAX_PATTERN = 1024  # characters, as many as an expression has; a pattern may be a property of the message
ANY = None  # a character of a piece: any one


@lru_cache(maxsize=256)
def like_pattern(pattern: str, escape: str | None) -> LikePattern:
    """Return the compiled pattern.

    Raises EvaluationError when the pattern is longer than MAX_PATTERN, or ``escape`` is not one character.
    """
    if len(pattern) > MAX_PATTERN:
        raise EvaluationError(f"the pattern of LIKE has more than {MAX_PATTERN} characters")
    if escape is not None and len(escape) != 1:
        raise EvaluationError(f"the escape character {escape[:20]!r} is not one character")
    return LikePattern(pattern, escape)


class Piece:
    """The characters between two ``%`` of a pattern; some may be wildcards for one character."""

    __slots__ = ("_characters", "_literal", "_masks", "_wild")

    def __init__(self, characters: list[str | None]) -> None:
        self._characters = characters
        self._literal = None if ANY in characters else "".join(each or "" for each in characters)
        self._wild = 0  # bit i: character i may be any
        self._masks: dict[str, int] = {}  # bit i: character i is this one, or any
        if self._literal is None:
            self._wild = sum(1 << at for at, each in enumerate(characters) if each is ANY)
            for at, each in enumerate(characters):
                if each is not ANY:
                    self._masks[each] = self._masks.get(each, self._wild) | 1 << at

    def __len__(self) -> int:
        return len(self._characters)

    def is_at(self, text: str, position: int) -> bool:
        """Whether it stands at this position of ``text``."""
        if self._literal is not None:
            return text.startswith(self._literal, position)
        part = text[position : position + len(self)]
        return len(part) == len(self) and all(
            wanted is ANY or wanted == found for wanted, found in zip(self._characters, part, strict=True)
        )

    def end_in(self, text: str, start: int, end: int) -> int | None:
        """Return where the first occurrence in ``text[start:end]`` ends; None without one."""
        if self._literal is not None:
            at = text.find(self._literal, start, end)
            return None if at < 0 else at + len(self)
        if not self._masks:  # any characters
            return start + len(self) if start + len(self) <= end else None
        seen, last, masks, wild = 0, 1 << len(self) - 1, self._masks, self._wild
        for position in range(start, end):
            seen = (seen << 1 | 1) & masks.get(text[position], wild)
            if seen & last:
                return position + 1
        return None


class LikePattern:
    """A compiled LIKE pattern; matching takes time proportional to the length of the text."""

    def __init__(self, pattern: str, escape: str | None) -> None:
        pieces: list[list[str | None]] = [[]]
        characters = iter(pattern)
        for character in characters:
            if character == escape:
                pieces[-1].append(next(characters, character))
            elif character == "%":
                pieces.append([])
            else:
                pieces[-1].append(ANY if character == "_" else character)
        self._first, *self._middle = (Piece(piece) for piece in pieces)
        self._last = self._middle.pop() if self._middle else None

    def matches(self, text: str) -> bool:
        """Whether the whole of ``text`` matches."""
        position = len(self._first)
        if self._last is None:
            return len(text) == position and self._first.is_at(text, 0)
        end = len(text) - len(self._last)
        if end < position or not (self._first.is_at(text, 0) and self._last.is_at(text, end)):
            return False
        for piece in self._middle:
            found = piece.end_in(text, position, end)
            if found is None:
                return False
            position = found
        return True
