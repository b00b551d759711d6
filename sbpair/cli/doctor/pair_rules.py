"""What can be wrong with the two namespaces, the keys, and the syphon? Pure."""

from __future__ import annotations

from collections.abc import Iterator

from sbpair.cli.backlog.ages import age_text

from .facts import NOT_FOUND, UNAUTHORIZED, Facts, Ping, Refusal
from .finding import ERROR, NOTE, WARNING, Finding, Rule

READY = ("running", "draining")
PATIENCE = 300.0  # seconds a message may wait in a backlog while the primary answers
CREATE = "`sbpair backlog create`, or let senders with Manage create it"


def _names(facts: Facts) -> Iterator[Finding]:
    if facts.is_one_namespace:
        what = "primary and secondary are the same namespace"
        yield Finding(ERROR, "pair", what, "an outage takes both", "pair it with another one")
    elif facts.label == facts.secondary_label and not facts.has_given_name:
        yield Finding(
            ERROR,
            "pair",
            f"primary and secondary are both called {facts.label!r}",
            "the client refuses such a pair: the name is the prefix of the backlog queues",
            "set primary_namespace_name for senders and syphon",
        )
    elif not facts.has_given_name and (facts.label == "localhost" or facts.label.replace(".", "").isdigit()):
        yield Finding(
            WARNING,
            "pair",
            f"the backlog queues are named after {facts.label!r}",
            "every namespace reached by that host would share them",
            "set primary_namespace_name for senders and syphon",
        )


def _reach(facts: Facts) -> Iterator[Finding]:
    why = {"primary": "nothing comes home", "secondary": "nothing can be parked"}
    for side, what in facts.unreachable.items():
        yield Finding(ERROR, side, what, why[side], "check the address, the network and --ca-file")


def _rights(facts: Facts) -> Iterator[Finding]:
    """One finding for all the entities of a side that are refused for the same reason."""
    missing = set(facts.inventory.missing) if facts.inventory else set()
    alike: dict[tuple[str, str, str, str], list[Refusal]] = {}
    for each in facts.refusals:
        if each.path not in missing:
            of_its_own = each.path if each.condition != UNAUTHORIZED else ""
            alike.setdefault((each.side, each.right, each.condition, of_its_own), []).append(each)
    for refusals in alike.values():
        first, more = refusals[0], len(refusals) - 1
        about = f"{first.side} {first.path}" + (f" and {more} more" if more else "")
        yield Finding(ERROR, about, *_refused(first))


def _refused(refusal: Refusal) -> tuple[str, str, str]:
    is_secondary = refusal.side == "secondary"
    if refusal.condition == NOT_FOUND and is_secondary:
        return "the backlog queue does not exist", "senders cannot park there", CREATE
    if refusal.condition == NOT_FOUND:
        return "the queue does not exist", "what is parked for it will be dead-lettered", "create it"
    why = {
        ("primary", "Send"): "neither a sender nor the syphon can deliver to it",
        ("secondary", "Send"): "a sender cannot park there",
        ("secondary", "Listen"): "a syphon cannot take messages from there",
    }.get((refusal.side, refusal.right), "the ping cannot be tried")
    if refusal.condition == UNAUTHORIZED:
        return f"the key may not {refusal.right} there", why, f"give it {refusal.right}, or check --role"
    return f"{refusal.right} is refused: {refusal.text}", why, "see the reason"


def _syphon(facts: Facts) -> Iterator[Finding]:
    seen = facts.syphon
    if seen is None:
        yield from _signs_of_a_syphon(facts)
    elif seen.trouble is not None:
        what = f"no syphon answers: {seen.trouble}"
        yield Finding(ERROR, "syphon", what, "without one nothing comes home", "start `sbpair syphon`")
    elif seen.state not in READY:
        what = f"the syphon is {seen.state}: {seen.reason or 'no reason given'}"
        yield Finding(WARNING, "syphon", what, "it moves nothing now", "see its log")
    if seen is not None and seen.trouble is None:
        yield from _disagreement(facts, seen.backlogs)


def _signs_of_a_syphon(facts: Facts) -> Iterator[Finding]:
    """Without its status page a syphon shows only by what it does."""
    oldest = max((each.oldest_age or 0.0 for each in facts.backlogs), default=0.0)
    if oldest > PATIENCE and "primary" not in facts.unreachable:
        yield Finding(
            WARNING,
            "syphon",
            f"a message has waited {age_text(oldest)}, though the primary answers",
            "perhaps no syphon runs, or it is held up",
            "start `sbpair syphon`, or ask the one there is: --syphon-status URL",
        )
    else:
        what = "whether a syphon runs was not looked at"
        yield Finding(NOTE, "syphon", what, "without one nothing comes home", "--syphon-status URL")


def _disagreement(facts: Facts, backlogs: tuple[str, ...]) -> Iterator[Finding]:
    """F-49: senders and syphon that do not agree leave messages where nobody reads."""
    wanted, read = {each.name.casefold() for each in facts.backlogs}, {each.casefold() for each in backlogs}
    unread = [each.name for each in facts.backlogs if each.name.casefold() not in read]
    if wanted and unread:
        yield Finding(
            ERROR,
            "syphon",
            f"it does not read {len(unread)} of the backlog queues, such as {unread[0]}",
            "what senders park there is stranded",
            "give it the senders' --backlogs and --primary-namespace-name",
        )


def _unseen(facts: Facts) -> Iterator[Finding]:
    why = {
        "primary": "disabled queues, windows and times to live are not checked",
        "secondary": "a sender without Manage cannot create them: it needs assume_backlogs_exist",
    }
    for side, cause in (facts.undescribed or {}).items():
        what = f"the properties of its queues were not looked at: {cause}"
        yield Finding(NOTE, side, what, why[side], "run it once with a key that has Manage")
    if facts.ping is None:
        yield Finding(
            NOTE,
            "ping",
            "whether the primary hides pings was not tried",
            "if it does not, consumers see them after a failover",
            "--scratch-queue NAME, an empty queue of the primary, or --create-scratch with Manage",
        )


def _ping(facts: Facts) -> Iterator[Finding]:
    if facts.ping is Ping.DELIVERED:
        yield Finding(
            WARNING,
            "ping",
            "the primary delivers pings to receivers",
            "each failed-over client sends one every ping_primary_interval",
            'set probe="link" for the senders, or let consumers skip application/vnd.ms-servicebus-ping',
        )
    elif facts.ping is Ping.NOT_EMPTY:
        what = "the scratch queue is not empty: not probed"
        yield Finding(WARNING, "ping", what, "the probe would receive what is in it", "give an empty one")


PAIR_RULES: tuple[Rule, ...] = (_names, _reach, _rights, _syphon, _ping, _unseen)
