"""Was anything lost, or delivered that should not have been?

The total-queue checker of jepsen, over message ids:

                    received          not received
  acknowledged      delivered         LOST
  attempted only    recovered         (the sender was told of a failure: fine)
  never attempted   UNEXPECTED

An id that arrives more often than once is *duplicated*. An attempt may be
repeated: a retry with the same id is one message, not two. The order in which
the calls arrive does not matter, so a receiver may be quicker than the answer
to the sender.

It knows nothing of queues, brokers or time.
"""

from __future__ import annotations

import threading
from collections import Counter
from collections.abc import Iterable
from dataclasses import dataclass


@dataclass(frozen=True, slots=True)
class LedgerReport:
    """What became of every message id (G-1 to G-4).

    ``sent``, ``acknowledged`` and ``delivered`` count distinct ids; ``delivered``
    those that were attempted and received. ``duplicates`` counts the extra copies.
    """

    sent: int
    acknowledged: int
    delivered: int
    lost: frozenset[str]
    duplicated: frozenset[str]
    unexpected: frozenset[str]
    recovered: frozenset[str]
    duplicates: int

    @property
    def is_conserved(self) -> bool:
        """True when nothing acknowledged is missing and nothing came from nowhere (G-1, G-2)."""
        return not self.lost and not self.unexpected

    def __str__(self) -> str:
        return (
            f"sent {self.sent}, acknowledged {self.acknowledged}, delivered {self.delivered}, "
            f"lost {len(self.lost)}, duplicated {len(self.duplicated)} (+{self.duplicates} copies), "
            f"unexpected {len(self.unexpected)}, recovered {len(self.recovered)}"
        )


class Ledger:
    """Note what was attempted, acknowledged and received, from any thread; then check."""

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._attempted: set[str] = set()
        self._acknowledged: set[str] = set()
        self._received: Counter[str] = Counter()

    def attempted(self, message_id: str) -> None:
        """Note that a send of this message begins; call it before the send."""
        with self._lock:
            self._attempted.add(message_id)

    def acknowledged(self, message_id: str) -> None:
        """Note that the send returned normally. An id never attempted counts as attempted too."""
        with self._lock:
            self._attempted.add(message_id)
            self._acknowledged.add(message_id)

    def received(self, message_id: str) -> None:
        """Note one arrival of this message."""
        with self._lock:
            self._received[message_id] += 1

    def received_all(self, message_ids: Iterable[str]) -> None:
        """Note one arrival of each of these messages."""
        with self._lock:
            self._received.update(message_ids)

    @property
    def arrivals(self) -> int:
        """How many messages arrived so far, every copy counted."""
        with self._lock:
            return self._received.total()

    @property
    def outstanding(self) -> int:
        """How many acknowledged messages have not arrived yet: lost, were the test to end now."""
        with self._lock:
            return len(self._acknowledged - self._received.keys())

    def check(self) -> LedgerReport:
        """What holds now; meaningful once senders have stopped and the queues are empty."""
        with self._lock:
            received = self._received.keys()
            return LedgerReport(
                sent=len(self._attempted),
                acknowledged=len(self._acknowledged),
                delivered=len(self._attempted & received),
                lost=frozenset(self._acknowledged - received),
                duplicated=frozenset(key for key, copies in self._received.items() if copies > 1),
                unexpected=frozenset(received - self._attempted),
                recovered=frozenset((self._attempted - self._acknowledged) & received),
                duplicates=sum(copies - 1 for copies in self._received.values()),
            )
