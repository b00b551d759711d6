"""What is wrong with a pairing, how bad is it, and what is the next step?

    facts --> rules --> findings, the worst first

An error loses or strands messages, or keeps the pairing from working; a warning may; a note says what could
not be looked at. Pure.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import dataclass
from enum import StrEnum

from sbpair.cli.backlog.ages import age_text

from .facts import NOT_FOUND, UNAUTHORIZED, Facts, Ping, Refusal


class Severity(StrEnum):
    """How bad a finding is, the worst first."""

    ERROR = "error"
    WARNING = "warning"
    NOTE = "note"


@dataclass(frozen=True, slots=True)
class Finding:
    """One thing that is not as it should be."""

    severity: Severity
    about: str
    what: str
    next_step: str


Rule = Callable[[Facts], Iterator[Finding]]


def diagnose(facts: Facts) -> list[Finding]:
    """Every finding, the worst first."""
    found = [finding for rule in RULES for finding in rule(facts)]
    return sorted(found, key=lambda finding: list(Severity).index(finding.severity))


def _names(facts: Facts) -> Iterator[Finding]:
    if facts.is_one_namespace:
        yield Finding(
            Severity.ERROR, "pair", "primary and secondary are the same namespace", "pair it with another one"
        )
    elif facts.label == facts.secondary_label and not facts.has_given_name:
        yield Finding(
            Severity.ERROR,
            "pair",
            f"primary and secondary are both called {facts.label!r}",
            "set primary_namespace_name for senders and syphon",
        )


def _reach(facts: Facts) -> Iterator[Finding]:
    for side, why in facts.unreachable.items():
        yield Finding(Severity.ERROR, side, why, "check the address, the network and --ca-file")


def _rights(facts: Facts) -> Iterator[Finding]:
    missing = set(facts.inventory.missing) if facts.inventory else set()
    for refusal in facts.refusals:
        if refusal.path not in missing:
            yield Finding(Severity.ERROR, f"{refusal.side} {refusal.path}", *_refused(refusal))


def _refused(refusal: Refusal) -> tuple[str, str]:
    if refusal.condition == NOT_FOUND and refusal.side == "secondary":
        return (
            "the backlog queue does not exist",
            "`sbpair backlog create`, or let senders with Manage create it",
        )
    if refusal.condition == NOT_FOUND:
        return "the queue does not exist: what is parked for it will be dead-lettered", "create it"
    if refusal.condition == UNAUTHORIZED:
        return f"the key may not {refusal.right} there", f"give it {refusal.right}, or check --role"
    return f"{refusal.right} is refused: {refusal.text}", "see the reason"


def _backlog_queues(facts: Facts) -> Iterator[Finding]:
    if facts.inventory is None:
        return
    for name in facts.inventory.missing:
        step = "`sbpair backlog create`, or let senders with Manage create it"
        yield Finding(Severity.ERROR, name, "the backlog queue does not exist", step)
    for name in facts.inventory.extra:
        yield Finding(
            Severity.WARNING,
            name,
            "the backlog queue is beyond --backlogs: no syphon of this count drains it",
            "see `sbpair backlog list`; drain it once with a larger --backlogs",
        )


def _backlogs(facts: Facts) -> Iterator[Finding]:
    for backlog in facts.backlogs:
        for difference in backlog.differences:
            bad = difference.startswith(("requires_session", "forward_to"))
            severity = Severity.ERROR if bad else Severity.WARNING
            yield Finding(severity, backlog.name, difference, "intended? else correct the queue")
        if backlog.has_dead_letters:
            step = "`sbpair backlog peek --dead-letter`, then redrive or purge"
            yield Finding(Severity.WARNING, backlog.name, "there are dead letters", step)
        age, limit = backlog.oldest_age, backlog.time_to_live
        if age is not None and limit is not None and age > limit / 2:
            what = f"the oldest message has waited {age_text(age)} of its {age_text(limit)}"
            yield Finding(Severity.ERROR, backlog.name, what, "run a syphon before it expires")


def _destinations(facts: Facts) -> Iterator[Finding]:
    for each in facts.destinations:
        if each.status not in (None, "Active"):
            severity = Severity.WARNING if each.status == "ReceiveDisabled" else Severity.ERROR
            step = "make it Active before messages come home"
            yield Finding(severity, each.path, f"the queue is {each.status}", step)
        age = each.oldest_age
        if age is None:
            continue
        if each.duplicate_window is not None and age > each.duplicate_window:
            what = (
                f"a message for it was parked {age_text(age)} ago; its duplicate detection remembers "
                f"{age_text(each.duplicate_window)}: duplicates will not be recognised"
            )
            yield Finding(
                Severity.WARNING, each.path, what, "lengthen the window, or let consumers look at the id"
            )
        if each.time_to_live is not None and age > each.time_to_live:
            what = (
                f"a message for it was parked {age_text(age)} ago, and there one lives "
                f"{age_text(each.time_to_live)}: it will arrive late, with its time to live begun anew"
            )
            yield Finding(Severity.WARNING, each.path, what, "let consumers look at the time it was created")


def _ping(facts: Facts) -> Iterator[Finding]:
    if facts.ping is Ping.DELIVERED:
        yield Finding(
            Severity.WARNING,
            "ping",
            "the primary delivers pings to receivers",
            "let consumers skip the content type application/vnd.ms-servicebus-ping",
        )
    elif facts.ping is Ping.NOT_EMPTY:
        yield Finding(
            Severity.WARNING, "ping", "the scratch queue is not empty: not probed", "give an empty one"
        )


def _unseen(facts: Facts) -> Iterator[Finding]:
    for side, why in (facts.undescribed or {}).items():
        what = f"the properties of its queues were not looked at: {why}"
        yield Finding(Severity.NOTE, side, what, "run it once with a key that has Manage")
    if facts.ping is None:
        what = "whether the primary hides pings was not tried"
        yield Finding(Severity.NOTE, "ping", what, "--scratch-queue NAME, an empty queue on the primary")


RULES: tuple[Rule, ...] = (
    _names,
    _reach,
    _rights,
    _backlog_queues,
    _backlogs,
    _destinations,
    _ping,
    _unseen,
)
