"""The score of a round: what its facts prove about the client. Pure.

lost         acknowledged by the client or put into the queue, and neither delivered nor in the queue
duplicates   copies beyond the one of each send, less those that the client itself reported as possible
reported     the copies that it reported, where there are some
again        a message that came again, or is in the queue, although its completion had succeeded
hangs        operations without an answer in their time; the round ends with the first
unexplained  steps that failed although they began after the fault was over
failed       steps that failed while it was there
uncertain    messages that are stored although their send was reported as failed
recovery     seconds from the end of the fault to the next success; None without one
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable
from dataclasses import asdict, dataclass

from tests.trials.clients.faults import Side
from tests.trials.clients.rounds import Facts, Operation, Outcome, Step


@dataclass(frozen=True, slots=True)
class Score:
    """Counts of messages and steps; see the head of the module."""

    lost: int
    duplicates: int
    reported: int
    again: int
    hangs: int
    unexplained: int
    failed: int
    uncertain: int
    recovery: float | None
    is_expected_to_recover: bool
    has_struck: bool
    errors: tuple[str, ...]

    @property
    def is_clean(self) -> bool:
        """Whether the client neither lost, duplicated nor handled again, nor hung, and went on without an error."""
        wrong = self.lost + self.duplicates + self.again + self.hangs + self.unexplained
        return not wrong and not (self.is_expected_to_recover and self.recovery is None)

    @property
    def symbols(self) -> str:
        """The cell of the page: a letter for each defect, or a point; the seconds to recover."""
        if not self.has_struck:
            return "-"
        letters = "".join(
            letter
            for letter, amount in (
                ("L", self.lost),
                ("D", self.duplicates),
                ("A", self.again),
                ("H", self.hangs),
                ("E", self.unexplained),
                ("N", self.is_expected_to_recover and self.recovery is None and not self.hangs),
                ("d", self.reported),
                ("f", self.failed),
            )
            if amount
        )
        seconds = "" if self.recovery is None else f" {self.recovery:.1f}"
        return (letters or "·") + seconds

    def as_dict(self) -> dict[str, object]:
        return {**asdict(self), "symbols": self.symbols}


def score(facts: Facts) -> Score:
    """Judge a round."""
    operations = [operation for step in facts.steps for operation in step.operations]
    is_sender = facts.role is Side.SEND
    ledger = _of_sender(operations, facts.left) if is_sender else _of_receiver(operations, facts)
    failures = [step for step in facts.steps if _is_failure(step)]
    return Score(
        **ledger,
        hangs=sum(step.is_hang for step in facts.steps),
        unexplained=sum(not step.in_fault for step in failures),
        failed=sum(step.in_fault for step in failures),
        recovery=_recovery(facts),
        is_expected_to_recover=facts.has_struck and not facts.is_endless,
        has_struck=facts.has_struck,
        errors=tuple(dict.fromkeys(step.operations[-1].error for step in failures)),
    )


def _is_failure(step: Step) -> bool:
    return step.operations[-1].outcome is Outcome.ERROR


def _of_sender(operations: Iterable[Operation], left: Counter[str]) -> dict[str, int]:
    sends = [operation for operation in operations if operation.does == "send"]
    lost = duplicates = reported = uncertain = 0
    for send in sends:
        copies = left[str(send.message_id)]
        is_acknowledged = send.outcome is Outcome.OK
        lost += is_acknowledged and not copies
        uncertain += not is_acknowledged and copies > 0
        surplus = max(0, copies - 1)
        duplicates += max(0, surplus - send.copies)
        reported += min(surplus, send.copies)
    return {"lost": lost, "duplicates": duplicates, "reported": reported, "again": 0, "uncertain": uncertain}


def _of_receiver(operations: Iterable[Operation], facts: Facts) -> dict[str, int]:
    received: set[str] = set()
    completed: set[str] = set()
    again: set[str] = set()
    for operation in operations:
        if operation.message_id is None:
            continue
        if operation.does == "receive":
            again |= {operation.message_id} & completed
            received.add(operation.message_id)
        elif operation.outcome is Outcome.OK:
            completed.add(operation.message_id)
    again |= {name for name in completed if facts.left[name]}
    known = received | {name for name in facts.left if facts.left[name]}
    lost = sum(name not in known for name in facts.put)
    return {"lost": lost, "duplicates": 0, "reported": 0, "again": len(again), "uncertain": 0}


def _recovery(facts: Facts) -> float | None:
    if facts.over is None:
        return None
    found = [step.ended for step in facts.steps if step.is_success and step.ended >= facts.over]
    return round(min(found) - facts.over, 2) if found else None
