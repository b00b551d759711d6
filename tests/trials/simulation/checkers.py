"""The invariants at the end of a run, checked on its history rather than on counters of the code under test."""

from __future__ import annotations

from collections.abc import Mapping

from .history import History

SETTLED_WITHIN = 2.0  # seconds after its handler returned, a message is completed


def check(history: History, expected_dead: Mapping[str, str]) -> None:
    """Add to the history's violations. ``expected_dead``: by message id, the reason to set it aside."""
    _conserved(history, expected_dead)
    _bounded(history)
    _published(history)
    _handled(history)
    _set_aside(history, expected_dead)


def _conserved(history: History, expected_dead: Mapping[str, str]) -> None:
    """G-1, G-2: what was acknowledged is delivered or set aside; what was never sent is nowhere."""
    dead = {name for name, reasons in history.dead.items() if reasons}
    came = history.delivered.keys() | dead | history.expired.keys()
    for lost in sorted(history.acknowledged - came):
        history.wrong(f"G-1 lost: {lost} was acknowledged and is nowhere")
    for stray in sorted(history.delivered.keys() - history.attempted):
        history.wrong(f"G-2 unexpected: {stray} was delivered and never sent")
    for both in sorted(expected_dead.keys() & history.delivered.keys()):
        history.wrong(f"G-2: {both} could not be delivered, and was")


def _bounded(history: History) -> None:
    """G-4: a copy more for each ambiguity event, and no more; without faults none at all."""
    for name, copies in sorted((history.delivered + history.expired).items()):
        if copies > 1:
            history.reached["duplicate"] += 1
        if copies - 1 > history.ambiguity(name):
            history.wrong(f"G-4: {name} came {copies} times, with {history.ambiguity(name)} ambiguity events")


def _published(history: History) -> None:
    """Each subscription of a topic has every copy that the topic took."""
    for name, copies in sorted(history.audited.items()):
        if copies != history.delivered[name] + history.expired[name]:
            history.wrong(f"G-2: of {name} one subscription had {copies} copies, and the other did not")


def _handled(history: History) -> None:
    """C-11, C-13: what a handler returned from is completed, unless a fault met its processor on the way."""
    for each in history.handled:
        until = each.returned + SETTLED_WITHIN
        if not each.is_completed and not history.is_disturbed(each.who, each.since, until):
            history.wrong(
                f"C-13: {each.who} handled {each.message_id} in {each.path}, and did not complete it"
            )


def _set_aside(history: History, expected_dead: Mapping[str, str]) -> None:
    """G-21: poison ends in the dead-letter queue of its backlog, for the right reason; nothing else does."""
    for name, reason in sorted(expected_dead.items()):
        if history.dead.get(name, set()) != {reason}:
            history.wrong(
                f"G-21: {name} was set aside for {sorted(history.dead.get(name, set()))}, not {reason}"
            )
    for name, reasons in sorted(history.dead.items()):
        late = {"TTLExpiredException"} if name in history.deadlines else set()
        if name not in expected_dead and not reasons <= {"DestinationDisabled", "OutOfOrder", *late}:
            history.wrong(f"G-2: {name} was set aside for {sorted(reasons)}")
