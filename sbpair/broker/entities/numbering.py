"""Messages by sequence number: given out in order, found by number, walked from any number on."""

from __future__ import annotations

from bisect import bisect_left, insort
from collections.abc import Iterator
from typing import Generic, TypeVar

Item = TypeVar("Item")


class Numbering(Generic[Item]):
    """Numbers after ``base``, never given twice; the walk skips what is gone, unseen what waits."""

    __slots__ = ("_gone", "_items", "_last", "_numbers")

    def __init__(self, base: int = 0) -> None:
        self._last = base
        self._items: dict[int, Item] = {}
        self._numbers: list[int] = []  # ascending; may hold numbers that are gone
        self._gone = 0  # so many of the first are: found once, passed over from then on

    def __len__(self) -> int:
        return len(self._items)

    @property
    def last(self) -> int:
        """The number that was given out last."""
        return self._last

    def go_on_after(self, number: int) -> None:
        """Give out higher numbers than this one, from now on."""
        self._last = max(self._last, number)

    def reserve(self) -> int:
        """A number for an item that is to come, or will never."""
        self._last += 1
        return self._last

    def add(self, item: Item, reserved: int | None = None) -> int:
        """Give ``item`` the next number, or the one that was reserved for it."""
        if reserved is not None:
            self._items[reserved] = item
            insort(self._numbers, reserved)
            self._gone = 0
            return reserved
        self._last = number = self._last + 1
        self._items[number] = item
        self._numbers.append(number)
        return number

    def get(self, number: int) -> Item | None:
        """The item of that number, or None."""
        return self._items.get(number)

    def remove(self, number: int) -> Item | None:
        """Forget the item of that number and return it, or None."""
        items = self._items
        item = items.pop(number, None)
        if len(self._numbers) > 2 * len(items) + 1024:
            self._numbers = [number for number in self._numbers if number in items]
            self._gone = 0
        return item

    def numbers_from(self, start: int) -> Iterator[int]:
        """The numbers given out from ``start`` on, in order; some may be gone."""
        numbers, items = self._numbers, self._items
        while self._gone < len(numbers) and numbers[self._gone] not in items:
            self._gone += 1
        return (numbers[index] for index in range(bisect_left(numbers, start, self._gone), len(numbers)))
