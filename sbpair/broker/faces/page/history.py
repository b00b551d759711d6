"""How did a number go, of late? A few samples of what is looked at; when nobody looks, none is taken."""

from __future__ import annotations

from collections import OrderedDict, deque
from collections.abc import Sequence

SAMPLES = 90
EVERY = 900  # milliseconds at least between two samples: several people may look
MOST_KEYS = 400

Sample = tuple[int, tuple[int, ...]]


class History:
    """The last samples by key; the key that was not looked at for longest makes room."""

    def __init__(self) -> None:
        self._kept: OrderedDict[str, deque[Sample]] = OrderedDict()

    def add(self, key: str, at: int, values: Sequence[int]) -> list[Sample]:
        """Take a sample at ``at`` (milliseconds) unless one was just taken; all there are of that key."""
        samples = self._kept.setdefault(key, deque(maxlen=SAMPLES))
        self._kept.move_to_end(key)
        if not samples or at - samples[-1][0] >= EVERY:
            samples.append((at, tuple(values)))
        while len(self._kept) > MOST_KEYS:
            self._kept.popitem(last=False)
        return list(samples)
