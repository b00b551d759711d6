"""A ledger of message ids that detects loss and duplication, after Jepsen's total-queue checker.

                    received          not received
  acknowledged      delivered         LOST
  attempted only    recovered         (the send failed: fine)
  never attempted   UNEXPECTED

A failed send is *ambiguous*: the message may have been stored nevertheless. Each ambiguous send allows one extra
copy; copies beyond that are *unexplained*.

An id received more than once is *duplicated*. Repeated attempts with one id count as one message. The order of
calls does not matter, so a receiver may be faster than the sender's acknowledgement. The exception is a session:
its messages must arrive in the order in which they were acknowledged.

The ledger is independent of queues, brokers and time.
"""

from __future__ import annotations

import threading
from collections import Counter
from collections.abc import Iterable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass

SHOWN = 5  # ids of each kind in a report's repr


@dataclass(frozen=True, slots=True)
class Inversion:
    """The first violation of a session's order: ``message_id`` first arrived after ``later``, which was sent later."""

    session: str
    message_id: str
    later: str


@dataclass(frozen=True, slots=True, repr=False)
class LedgerReport:
    """The fate of every message id, and the order of sessions.

    ``sent``, ``acknowledged`` and ``delivered`` (attempted and received) count distinct ids; ``duplicates`` counts
    extra copies, which do not affect the order. ``inversions`` has at most one for each of the ``sessions``.
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
    sessions: int = 0
    inversions: tuple[Inversion, ...] = ()

    @property
    def is_ordered(self) -> bool:
        """Whether the messages of every session first arrived in the order sent."""
        return not self.inversions

    @property
    def is_bounded(self) -> bool:
        """Whether no message has more extra copies than ambiguous sends."""
        return not self.unexplained

    @property
    def is_conserved(self) -> bool:
        """Whether nothing acknowledged is missing and nothing unexpected arrived."""
        return not self.lost and not self.unexpected

    def __repr__(self) -> str:
        """Lists the offending ids first, since pytest truncates the repr in a failed assertion."""
        wrong = (
            ("lost", self.lost),
            ("unexpected", self.unexpected),
            ("more copies than ambiguities", self.unexplained),
            ("out of order", frozenset(each.message_id for each in self.inversions)),
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
    """Records what was attempted, acknowledged and received, then checks it. Thread-safe."""

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._attempted: set[str] = set()
        self._acknowledged: set[str] = set()
        self._received: Counter[str] = Counter()
        self._ambiguous: Counter[str] = Counter()
        self._sessions: dict[str, dict[str, int]] = {}  # the place of each message in its session

    def attempted(self, message_id: str) -> None:
        """Record an attempt. Call it before the send."""
        with self._lock:
            self._attempted.add(message_id)

    def acknowledged(self, message_id: str, session: str | None = None) -> None:
        """Record a send that returned normally. Implies an attempt.

        With ``session``, the message belongs to that session, after those acknowledged earlier. The messages of a
        session must be sent by one sender, one after the other; a send that raises is repeated before the next one.
        """
        with self._lock:
            self._attempted.add(message_id)
            self._acknowledged.add(message_id)
            if session is not None:
                places = self._sessions.setdefault(session, {})
                places.setdefault(message_id, len(places))

    def ambiguous(self, message_id: str, times: int = 1) -> None:
        """Record ``times`` sends after which an unacknowledged copy may be stored."""
        with self._lock:
            self._ambiguous[message_id] += times

    @contextmanager
    def sending(self, message_id: str, session: str | None = None) -> Iterator[None]:
        """Record the send in the ``with`` block: acknowledged if it returns, ambiguous if it raises."""
        self.attempted(message_id)
        try:
            yield
        except BaseException:
            self.ambiguous(message_id)
            raise
        self.acknowledged(message_id, session)

    def received(self, message_id: str) -> None:
        """Record one arrival."""
        with self._lock:
            self._received[message_id] += 1

    def received_all(self, message_ids: Iterable[str]) -> None:
        """Record one arrival of each message."""
        with self._lock:
            self._received.update(message_ids)

    @property
    def arrivals(self) -> int:
        """Number of arrivals so far, duplicates included."""
        with self._lock:
            return self._received.total()

    @property
    def outstanding(self) -> int:
        """Number of acknowledged messages that have not arrived yet."""
        with self._lock:
            return len(self._acknowledged - self._received.keys())

    def check(self) -> LedgerReport:
        """The report as of now; meaningful once senders have stopped and the queues are empty."""
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
                sessions=len(self._sessions),
                inversions=tuple(self._inversions()),
            )

    def _inversions(self) -> Iterator[Inversion]:
        """Yield the first inversion of each session that has one; first arrivals are in the order of ``_received``."""
        place = {
            key: (session, number) for session, ids in self._sessions.items() for key, number in ids.items()
        }
        latest: dict[str, tuple[int, str]] = {}
        broken: set[str] = set()
        for key in self._received:
            session, number = place.get(key, ("", -1))
            if number < 0 or session in broken:
                continue
            greatest, later = latest.get(session, (-1, ""))
            if number < greatest:
                broken.add(session)
                yield Inversion(session, key, later)
            else:
                latest[session] = number, key
