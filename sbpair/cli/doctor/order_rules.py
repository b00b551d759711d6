"""The doctor's rules for ordered sessions (O-1 to O-7). Pure."""

from __future__ import annotations

from collections.abc import Iterator

from sbpair.envelope.ordering import is_ordered_backlog

from .facts import PairFacts
from .finding import ERROR, NOTE, WARNING, Finding, Rule

EVERYWHERE = 'set ordering="session" for all clients that send to sessions, and for the syphons'


def _ordered_queues(facts: PairFacts) -> Iterator[Finding]:
    if not facts.keeps_order or facts.ordered_inventory is None:
        return
    for name in facts.ordered_inventory.missing:
        what, why = "the ordered backlog queue does not exist", "its sessions cannot be parked"
        yield Finding(ERROR, name, what, why, "`sbpair backlog create --ordered`")
    for name in facts.ordered_inventory.extra:
        count = facts.stranded.get(name, 0)
        yield Finding(
            ERROR if count else WARNING,
            name,
            "the ordered backlog queue is beyond --backlogs"
            + (f", and holds {count} messages" if count else ""),
            "a session that is parked there too has two queues, which keep no order between them",
            "`sbpair syphon --ordering session --drain` once with the larger --backlogs; then delete it",
        )


def _ordering_unasked(facts: PairFacts) -> Iterator[Finding]:
    """Ordered backlog queues of other clients, when the doctor was not asked to check them."""
    if facts.keeps_order or facts.ordered_inventory is None:
        return
    names = (*facts.ordered_inventory.present, *facts.ordered_inventory.extra)
    for name in names:
        if count := facts.stranded.get(name, 0):
            what = f"it holds {count} messages of ordered sessions"
            why = "a syphon without ordering leaves them there, and their senders keep parking"
            yield Finding(WARNING, name, what, why, "`sbpair syphon --ordering session`")
    if names:
        what = f"{len(names)} ordered backlog queues exist, and were not checked"
        yield Finding(NOTE, "order", what, "some client keeps the order of sessions", "--ordering session")


def _unordered_clients(facts: PairFacts) -> Iterator[Finding]:
    for backlog in facts.backlogs:
        if facts.keeps_order and backlog.has_sessions and not is_ordered_backlog(backlog.name):
            what = "messages of sessions are parked in it, where no order is kept"
            why = "a client without ordering sends to sessions: its messages may arrive behind later ones"
            yield Finding(WARNING, backlog.name, what, why, EVERYWHERE)


def _receivers(facts: PairFacts) -> Iterator[Finding]:
    """What becomes of the order, and of copies, at the destination."""
    for each in facts.destinations if facts.keeps_order else ():
        if each.requires_session is False:
            what, why = (
                "it does not require sessions",
                "several receivers may share a session: the order ends there",
            )
            yield Finding(WARNING, each.path, what, why, "a queue that requires sessions, chosen at creation")
        if each.requires_session is not None and each.duplicate_window is None:
            what = "it does not detect duplicates"
            why = "after an outage a run of a session may come twice: 5 6 5 6 7"
            step = "a queue with duplicate detection, or consumers that skip message ids they have seen"
            yield Finding(NOTE, each.path, what, why, step)


ORDER_RULES: tuple[Rule, ...] = (_ordered_queues, _ordering_unasked, _unordered_clients, _receivers)
