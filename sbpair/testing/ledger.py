"""Was anything lost, or delivered that should not have been?

The total-queue checker of jepsen, over message ids:

                    received          not received
  acknowledged      delivered         LOST
  attempted only    recovered         (the sender was told of a failure: fine)
  never attempted   UNEXPECTED

A send that failed is *ambiguous*: a copy may be stored all the same. A message may have one extra copy for
each of these (G-4); what has more is *unexplained*.

An id that arrives more often than once is *duplicated*. An attempt may be
repeated: a retry with the same id is one message, not two. The order in which
the calls arrive does not matter, so a receiver may be quicker than the answer
to the sender.

It knows nothing of queues, brokers or time.
"""

from __future__ import annotations

import threading
from collections import Counter
from collections.abc import Iterable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass

SHOWN = 5  # ids of each kind, in a report's repr


@dataclass(frozen=True, slots=True, repr=False)
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
    unexplained: frozenset[str] = frozenset()

    @property
    def is_bounded(self) -> bool:
        """True when no message has more extra copies than ambiguities it met (G-4)."""
        return not self.unexplained

    @property
    def is_conserved(self) -> bool:
        """True when nothing acknowledged is missing and nothing came from nowhere (G-1, G-2)."""
        return not self.lost and not self.unexpected

    def __repr__(self) -> str:
        """What pytest shows of a check that failed, and cuts short: first what is wrong, by its ids."""
        wrong = (
            ("lost", self.lost),
            ("unexpected", self.unexpected),
            ("more copies than ambiguities", self.unexplained),
        )
        return f"<{''.join(f'{title}: {_some(ids)}; ' for title, ids in wrong if ids)}{self}>"

    def __str__(self) -> str:
        return (
            f"sent {self.sent}, acknowledged {self.acknowledged}, delivered {self.delivered}, "
            f"lost {len(self.lost)}, duplicated {len(self.duplicated)} (+{self.duplicates} copies), "
            f"unexpected {len(self.unexpected)}, recovered {len(self.recovered)}"
        )


def _some(ids: frozenset[str]) -> str:
    shown = sorted(map(str, ids))
    more = f" and {len(shown) - SHOWN} more" if len(shown) > SHOWN else ""
    return ", ".join(shown[:SHOWN]) + more


class Ledger:
    """Note what was attempted, acknowledged and received, from any thread; then check."""

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._attempted: set[str] = set()
        self._acknowledged: set[str] = set()
        self._received: Counter[str] = Counter()
        self._ambiguous: Counter[str] = Counter()

    def attempted(self, message_id: str) -> None:
        """Note that a send of this message begins; call it before the send."""
        with self._lock:
            self._attempted.add(message_id)

    def acknowledged(self, message_id: str) -> None:
        """Note that the send returned normally. An id never attempted counts as attempted too."""
        with self._lock:
            self._attempted.add(message_id)
            self._acknowledged.add(message_id)

    def ambiguous(self, message_id: str, times: int = 1) -> None:
        """Note that a copy of this message may have been stored though its sender was not told so."""
        with self._lock:
            self._ambiguous[message_id] += times

    @contextmanager
    def sending(self, message_id: str) -> Iterator[None]:
        """Note one send, around its call: acknowledged when that returns, ambiguous when it raises."""
        self.attempted(message_id)
        try:
            yield
        except BaseException:
            self.ambiguous(message_id)
            raise
        self.acknowledged(message_id)

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
                unexplained=frozenset(
                    key for key, copies in self._received.items() if copies - 1 > self._ambiguous[key]
                ),
            )
