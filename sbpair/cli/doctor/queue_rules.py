"""What can be wrong with the backlog queues, and with the entities messages are for? Pure."""

from __future__ import annotations

from collections.abc import Iterator

from sbpair.cli.backlog.ages import age_text

from .facts import Destination, Facts
from .finding import ERROR, NOTE, WARNING, Finding, Rule
from .pair_rules import CREATE

MEBIBYTE = 1_048_576
ENVELOPE = 600  # bytes that parking adds, at most


def _backlog_queues(facts: Facts) -> Iterator[Finding]:
    if facts.inventory is None:
        return
    for name in facts.inventory.missing:
        yield Finding(ERROR, name, "the backlog queue does not exist", "senders cannot park there", CREATE)
    for name in facts.inventory.extra:
        count = facts.stranded.get(name, 0)
        yield Finding(
            ERROR if count else WARNING,
            name,
            "the backlog queue is beyond --backlogs" + (f", and holds {count} messages" if count else ""),
            "no syphon of this count drains it",
            "`sbpair syphon --drain` once with a larger --backlogs; then delete it",
        )


def _backlogs(facts: Facts) -> Iterator[Finding]:
    for backlog in facts.backlogs:
        for difference in backlog.differences:
            bad = difference.startswith(("requires_session", "forward_to"))
            why = (
                "parking does not work with it"
                if bad
                else "it differs from what we create; used as it is (P-14)"
            )
            yield Finding(
                ERROR if bad else WARNING, backlog.name, difference, why, "intended? else correct the queue"
            )
        if backlog.has_dead_letters:
            step = "`sbpair backlog peek --dead-letter`, then redrive or purge"
            yield Finding(
                WARNING, backlog.name, "there are dead letters", "they wait for you, for ever", step
            )
        age, limit = backlog.oldest_age, backlog.time_to_live
        if age is not None and limit is not None and age > limit / 2:
            what = f"the oldest message has waited {age_text(age)} of its {age_text(limit)}"
            step = "run a syphon before it expires"
            yield Finding(ERROR, backlog.name, what, "then it is dead-lettered", step)


def _room(facts: Facts) -> Iterator[Finding]:
    """How long can senders park at the rate they send with?"""
    load, known = facts.load, [each for each in facts.backlogs if each.capacity is not None]
    if load is None:
        return
    if not known:
        why = "how long the backlog queues last was not computed"
        yield Finding(
            NOTE, "room", "the sizes of the backlog queues are not known", why, "use a key with Manage"
        )
        return
    free = sum(max(0, (each.capacity or 0) - each.used) for each in known)
    lasts = free / (load.rate * (load.size + ENVELOPE))
    what = (
        f"{len(known)} backlog queues with {free // MEBIBYTE} MiB free last {age_text(lasts)} "
        f"at {load.rate:g} messages/s of {load.size} bytes"
    )
    if lasts < load.outage:
        step = "more backlog queues, or larger ones, or a spool"
        yield Finding(WARNING, "room", what, f"an outage of {age_text(load.outage)} would fill them", step)
    else:
        yield Finding(NOTE, "room", what, f"enough for an outage of {age_text(load.outage)}", "nothing to do")


def _sizes(facts: Facts) -> Iterator[Finding]:
    """P-22: what the primary takes and a backlog queue does not is raised, not parked."""
    smallest = min((each.largest for each in facts.backlogs if each.largest), default=None)
    for each in facts.destinations:
        if smallest is not None and each.largest is not None and each.largest > smallest:
            yield Finding(
                WARNING,
                each.path,
                f"it takes messages of {each.largest} bytes, a backlog queue of {smallest}",
                f"one above {smallest - ENVELOPE} bytes cannot be parked: its send raises",
                "a secondary of the same tier, or smaller messages",
            )


def _destinations(facts: Facts) -> Iterator[Finding]:
    for each in facts.destinations:
        if each.status not in (None, "Active"):
            severity = WARNING if each.status == "ReceiveDisabled" else ERROR
            why = "consumers get nothing" if severity is WARNING else "what is parked for it is dead-lettered"
            step = "make it Active before messages come home"
            yield Finding(severity, each.path, f"the queue is {each.status}", why, step)
        yield from _ages(each)


def _ages(each: Destination) -> Iterator[Finding]:
    age = each.oldest_age
    if age is not None and each.duplicate_window is not None and age > each.duplicate_window:
        yield Finding(
            WARNING,
            each.path,
            f"a message for it was parked {age_text(age)} ago; its duplicate detection remembers "
            f"{age_text(each.duplicate_window)}",
            "duplicates will not be recognised",
            "lengthen the window, or let consumers look at the id",
        )
    if age is not None and each.time_to_live is not None and age > each.time_to_live:
        yield Finding(
            WARNING,
            each.path,
            f"a message for it was parked {age_text(age)} ago, "
            f"and there one lives {age_text(each.time_to_live)}",
            "it will arrive late, with its time to live begun anew",
            "let consumers look at the time it was created",
        )


def _locks(facts: Facts) -> Iterator[Finding]:
    for each in facts.backlogs:
        if each.lock is not None and each.lock < SHORTEST_LOCK:
            yield Finding(
                WARNING,
                each.name,
                f"a message is locked for {age_text(each.lock)} only",
                "a syphon that is slow for longer delivers it twice",
                "lengthen its lock duration to a minute",
            )


SHORTEST_LOCK = 30.0  # seconds: half of what we create
QUEUE_RULES: tuple[Rule, ...] = (_backlog_queues, _backlogs, _locks, _room, _sizes, _destinations)
