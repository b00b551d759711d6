"""How much may a namespace be asked for within a second? (3.9)

    a message sent, received or peeked    1, and where it is published 1 for each filter that looks at it
    an operation of administration       10

Each second of entity time begins with all credits again. What begins while there are any is done, however
much it takes; what begins when there are none is refused. Deliveries cost, and are never refused: nobody
asked just then.
"""

from __future__ import annotations

from ..errors import AdministrationBusy, InvalidDescription, ServerBusy
from .entity import Entity
from .kinds import AnyTopic
from .stored_message import Instant

DOCUMENTED = 1_000
"""Credits a second of a Basic or Standard namespace, as documented."""

OF_A_MESSAGE, OF_ADMINISTRATION = 1, 10
SECOND = 1_000  # milliseconds


class Credits:
    """The credits of one namespace, so many a second; None is without limit. Raises InvalidDescription."""

    __slots__ = ("_per_second", "_second", "_used")

    def __init__(self, per_second: int | None = None) -> None:
        if per_second is not None and per_second < 1:
            raise InvalidDescription(f"credits_per_second is {per_second!r}: at least 1, or None.")
        self._per_second = per_second
        self._second: Instant = -1
        self._used = 0

    @property
    def per_second(self) -> int | None:
        """How many there are; None for no limit."""
        return self._per_second

    def charge(self, cost: int, now: Instant) -> None:
        """Take what something costs that is not refused."""
        if self._per_second is not None:
            self._turn(now)
            self._used += cost

    def check(self, now: Instant) -> None:
        """Raises ServerBusy when the credits of this second are gone."""
        if not self._has_any(now):
            raise ServerBusy

    def spend_on_administration(self, namespace: str, now: Instant) -> None:
        """Take what an operation of administration costs. Raises AdministrationBusy when nothing is left."""
        if not self._has_any(now):
            raise AdministrationBusy(namespace)
        self.charge(OF_ADMINISTRATION, now)

    def charge_messages(self, queue: Entity, count: int, now: Instant) -> None:
        """Take what it costs that ``count`` messages were sent to ``queue``."""
        if self._per_second is not None:
            self.charge(count * (OF_A_MESSAGE + _filters_of(queue)), now)

    def _has_any(self, now: Instant) -> bool:
        self._turn(now)
        return self._per_second is None or self._used < self._per_second

    def _turn(self, now: Instant) -> None:
        second = now // SECOND
        if second != self._second:
            self._second, self._used = second, 0


def _filters_of(queue: Entity) -> int:
    """How many filters look at a message that is sent to ``queue``."""
    return sum(len(each.rules) for each in queue.subscriptions.values()) if isinstance(queue, AnyTopic) else 0
