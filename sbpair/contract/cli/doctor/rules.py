"""The doctor's rules: each turns facts into findings, with a severity, a reason and a next step. Pure."""

from __future__ import annotations

from collections.abc import Iterator

from sbpair.pair.cli.output import age_text
from sbpair.pair.envelope.names import is_ordered_backlog
from sbpair.pair.ground.entity_settings import (
    DUPLICATE_DETECTION,
    FORWARD_TO,
    PARTITIONING,
    SESSIONS,
    STATUS,
)

from .facts import NOT_FOUND, UNAUTHORIZED, PairFacts, Ping, PrimaryEntity, Refusal
from .finding import ERROR, NOTE, WARNING, Finding, Rule, Severity

READY = ("running", "landing", "draining")
PATIENCE = 300.0  # seconds a message may wait in a backlog while the primary is reachable
NAMESPACE = ""  # the path of a refusal that concerns the whole namespace
CREATE_ORDERED = "`sbpair backlog create --ordered`, or let senders with Manage create it"
CREATE = "`sbpair backlog create`, or let senders with Manage create it"
EVERYWHERE = 'set ordering="session" for all clients that send to sessions, and for the syphons'
MEBIBYTE = 1_048_576
ENVELOPE = 600  # bytes that parking adds at most
UNUSABLE = {
    SESSIONS.name: "parking does not work with it",
    FORWARD_TO.name: "parking does not work with it",
    "status is SendDisabled": "senders cannot park there",
    "status is ReceiveDisabled": "a syphon cannot take messages from there",
    STATUS.name: "senders cannot park there, and a syphon cannot take messages from there",
    DUPLICATE_DETECTION.name: "a parked message is lost if one of another entity has its id",
    PARTITIONING.name: "a peek may be answered by one partition, and the fence may open too early",
}
"""Settings that a backlog queue must not have, and why; the first match counts."""

MIN_LOCK_SECONDS = 30.0  # seconds: half the lock duration that sbpair creates
LONG_TIMEOUT = 30.0  # seconds: a caller that waits longer has usually given up


def _names(facts: PairFacts) -> Iterator[Finding]:
    if facts.is_one_namespace:
        what = "primary and secondary are the same namespace"
        yield Finding(ERROR, "pair", what, "an outage takes down both", "pair it with another one")
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


def _reachability(facts: PairFacts) -> Iterator[Finding]:
    why = {"primary": "nothing comes home", "secondary": "nothing can be parked"}
    for side, what in facts.unreachable.items():
        yield Finding(ERROR, side, what, why[side], "check the address, the network and --ca-file")


def _rights(facts: PairFacts) -> Iterator[Finding]:
    """Yield one finding for all entities of a side that are refused for the same reason."""
    missing = {name for each in facts.inventories for name in each.missing}
    alike: dict[tuple[object, ...], list[Refusal]] = {}
    for each in facts.refusals:
        if each.path not in missing:
            of_its_own = each.path if each.condition != UNAUTHORIZED else ""
            reason = each.side, each.right, each.condition, each.is_of_key, of_its_own
            alike.setdefault(reason, []).append(each)
    for refusals in alike.values():
        first, more = refusals[0], len(refusals) - 1
        about = f"{first.side} {first.path}".strip() + (f" and {more} more" if more else "")
        yield Finding(ERROR, about, *_explain_refusal(first))


def _explain_refusal(refusal: Refusal) -> tuple[str, str, str]:
    is_secondary = refusal.side == "secondary"
    if refusal.path == NAMESPACE and refusal.condition == UNAUTHORIZED:
        what = "the namespace refuses the key"
        step = "check the key; if it is for single queues, name them with --queue"
        return what, "nothing can be sent to it", step
    if refusal.condition == NOT_FOUND and is_secondary:
        step = CREATE_ORDERED if is_ordered_backlog(refusal.path) else CREATE
        return "the backlog queue does not exist", "senders cannot park there", step
    if refusal.condition == NOT_FOUND:
        return "the entity does not exist", "messages parked for it will be dead-lettered", "create it"
    why = {
        ("primary", "Send"): "neither a sender nor the syphon can deliver to it",
        ("secondary", "Send"): "a sender cannot park there",
        ("secondary", "Listen"): "a syphon cannot take messages from there",
    }.get((refusal.side, refusal.right), "the ping cannot be sent")
    if refusal.right == "Listen" and is_ordered_backlog(refusal.path):
        why = "a sender cannot see that it is empty, and keeps parking; a syphon cannot take messages from there"
    if refusal.is_of_key:
        step = "check the key and its name, and that it is for this queue"
        if "expired" in refusal.text.casefold():
            step = "set this machine's clock, or renew the signature; the key is not the cause"
        return f"the key is refused: {refusal.text}", why, step
    if refusal.condition == UNAUTHORIZED:
        return f"the key may not {refusal.right} there", why, f"give it {refusal.right}, or check --role"
    return f"{refusal.right} is refused: {refusal.text}", why, "see the reason"


def _syphon(facts: PairFacts) -> Iterator[Finding]:
    seen = facts.syphon
    if seen is None:
        yield from _signs_of_a_syphon(facts)
    elif seen.trouble is not None:
        what = f"no syphon answers: {seen.trouble}"
        yield Finding(ERROR, "syphon", what, "without one nothing comes home", "start `sbpair syphon`")
    elif seen.state not in READY:
        what = f"the syphon is {seen.state}: {seen.reason or 'no reason given'}"
        yield Finding(WARNING, "syphon", what, "it moves no messages now", "see its log")
    if seen is not None and seen.trouble is None:
        yield from _disagreement(facts, seen.backlogs)


def _signs_of_a_syphon(facts: PairFacts) -> Iterator[Finding]:
    """Without its status page a syphon is visible only through its effects."""
    oldest = max((each.oldest_age or 0.0 for each in facts.backlogs), default=0.0)
    if oldest > PATIENCE and "primary" not in facts.unreachable:
        yield Finding(
            WARNING,
            "syphon",
            f"a message has waited {age_text(oldest)}, though the primary is reachable",
            "perhaps no syphon runs, or it is blocked",
            "start `sbpair syphon`, or check the running one with --syphon-status URL",
        )
    else:
        what = "not checked whether a syphon runs"
        yield Finding(NOTE, "syphon", what, "without one nothing comes home", "--syphon-status URL")


def _disagreement(facts: PairFacts, backlogs: tuple[str, ...]) -> Iterator[Finding]:
    """If senders and syphon disagree, messages are parked in queues that no syphon reads."""
    wanted, read = {each.name.casefold() for each in facts.backlogs}, {each.casefold() for each in backlogs}
    unread = [each.name for each in facts.backlogs if each.name.casefold() not in read]
    if wanted and unread:
        yield Finding(
            ERROR,
            "syphon",
            f"it does not read {len(unread)} of the backlog queues, such as {unread[0]}",
            "messages parked there are stranded",
            "give it the senders' --backlogs, --primary-namespace-name and --ordering",
        )


def _unseen(facts: PairFacts) -> Iterator[Finding]:
    why = {
        "primary": "disabled queues, windows and times to live are not checked",
        "secondary": "a sender without Manage cannot create them: it needs assume_backlogs_exist",
    }
    for side, cause in (facts.untrusted or {}).items():
        what = f"the certificate of its administration endpoint is not trusted: {cause}"
        yield Finding(ERROR, side, what, why[side], "--ca-file FILE, or SBPAIR_CA_FILE")
    for side, cause in (facts.undescribed or {}).items():
        what = f"the properties of its queues were not checked: {cause}"
        yield Finding(NOTE, side, what, why[side], "run the doctor once with a key that has Manage")
    if facts.ping is None and "primary" not in facts.unreachable:
        yield Finding(
            NOTE,
            "ping",
            "not checked whether the primary hides pings",
            "if it does not, consumers receive them after a failover",
            "--scratch-queue NAME, an empty queue of the primary, or --create-scratch with Manage",
        )


def _ping(facts: PairFacts) -> Iterator[Finding]:
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
        yield Finding(WARNING, "ping", what, "the probe would receive its messages", "give an empty queue")


def _backlog_queues(facts: PairFacts) -> Iterator[Finding]:
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


def _backlogs(facts: PairFacts) -> Iterator[Finding]:
    for backlog in facts.backlogs:
        for difference in backlog.differences:
            bad = next((why for name, why in UNUSABLE.items() if difference.startswith(name)), None)
            why = bad or "it differs from the queues sbpair creates; used unchanged"
            step = "correct the queue, unless this is intended"
            yield Finding(ERROR if bad else WARNING, backlog.name, difference, why, step)
        if backlog.has_dead_letters:
            why, step = (
                "they stay until redriven or purged",
                "`sbpair backlog peek --dead-letter`, then redrive or purge",
            )
            if is_ordered_backlog(backlog.name):
                why += "; a redriven one arrives behind the later ones of its session"
                step = "`sbpair backlog peek --ordered --dead-letter`, then redrive or purge with --ordered"
            yield Finding(WARNING, backlog.name, "it has dead letters", why, step)
        if backlog.has_untransferred:
            what = "landed messages were refused on the secondary after all"
            why = "they are not received: they are in its transfer dead-letter queue until redriven"
            yield Finding(WARNING, backlog.name, what, why, "`sbpair backlog redrive --transfer`")
        age, limit = backlog.oldest_age, backlog.time_to_live
        if age is not None and limit is not None and age > limit / 2:
            what = f"the oldest message has waited {age_text(age)} of its {age_text(limit)}"
            step = "run a syphon before it expires"
            yield Finding(ERROR, backlog.name, what, "it is dead-lettered when it expires", step)


def _room(facts: PairFacts) -> Iterator[Finding]:
    """Report how long senders can park messages at the given rate."""
    load, known = facts.load, [each for each in facts.backlogs if each.capacity is not None]
    if load is None:
        return
    if not known:
        why = "how long they last cannot be estimated"
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


def _sizes(facts: PairFacts) -> Iterator[Finding]:
    """A message that the primary accepts but is too large for a backlog queue raises at send."""
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


def _destinations(facts: PairFacts) -> Iterator[Finding]:
    for each in facts.destinations:
        if each.status not in (None, "Active"):
            severity = WARNING if each.status == "ReceiveDisabled" else ERROR
            why = (
                "consumers get nothing" if severity is WARNING else "messages parked for it are dead-lettered"
            )
            step = "make it Active before messages come home"
            yield Finding(severity, each.path, f"it is {each.status}", why, step)
        yield from _ages(each)


def _ages(each: PrimaryEntity) -> Iterator[Finding]:
    age = each.oldest_age
    if age is not None and each.duplicate_window is not None and age > each.duplicate_window:
        yield Finding(
            WARNING,
            each.path,
            f"a message for it was parked {age_text(age)} ago; its duplicate detection remembers "
            f"{age_text(each.duplicate_window)}",
            "duplicates will not be recognised",
            "lengthen the window, or let consumers check message ids",
        )
    if age is not None and each.time_to_live is not None and age > each.time_to_live:
        yield Finding(
            WARNING,
            each.path,
            f"a message for it was parked {age_text(age)} ago, "
            f"longer than the queue's time to live of {age_text(each.time_to_live)}",
            "it will arrive late, with a new time to live",
            "let consumers check the creation time",
        )


def _locks(facts: PairFacts) -> Iterator[Finding]:
    for each in facts.backlogs:
        if each.lock is not None and each.lock < MIN_LOCK_SECONDS:
            yield Finding(
                WARNING,
                each.name,
                f"its lock duration is only {age_text(each.lock)}",
                "a syphon that takes longer delivers the message twice",
                "set its lock duration to one minute",
            )


def _twins(facts: PairFacts) -> Iterator[Finding]:
    """Landing needs an entity with the same path and kind on the secondary."""
    for twin in facts.twins:
        if twin.is_missing:
            what = "the secondary has no entity of this path"
            why = "messages for it cannot land: they wait for the primary"
            yield Finding(WARNING, twin.path, what, why, "`sbpair backlog create --twins`")
        for difference in twin.differences:
            is_kind = difference.startswith((SESSIONS.name, STATUS.name))
            why = (
                "messages may not fit into its twin, and then wait for the primary"
                if is_kind
                else "the two sides treat duplicates or sizes differently"
            )
            step = "make the twin as the primary's entity is; sessions can be chosen at creation only"
            yield Finding(
                ERROR if is_kind else WARNING, f"{twin.path} on the secondary", difference, why, step
            )


# -- ordered sessions


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
    """Report ordered backlog queues of other clients, if the doctor was not asked to check them."""
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


def _ordered_destinations(facts: PairFacts) -> Iterator[Finding]:
    """Report a destination that does not keep the order or does not drop copies."""
    for each in facts.destinations if facts.keeps_order else ():
        if each.needs_sessions is False:
            what, why = (
                "it does not require sessions",
                "several receivers may share a session: the order ends there",
            )
            yield Finding(WARNING, each.path, what, why, "a queue that requires sessions, chosen at creation")
        if each.needs_sessions is not None and each.duplicate_window is None:
            what = "it does not detect duplicates"
            why = "after an outage a run of a session may come twice: 5 6 5 6 7"
            step = "a queue with duplicate detection, or consumers that skip message ids they have seen"
            yield Finding(NOTE, each.path, what, why, step)


def _not_in_force(facts: PairFacts) -> Iterator[Finding]:
    for each in sorted(facts.not_in_force):
        what = f"{each.element} is shown and not in force"
        why = "it came too late in the description that was sent, so the service kept it as text and did not read it"
        step = "set it by a template or in the portal, and do not update the entity with azure-servicebus"
        severity = ERROR if each.element.startswith("Forward") else NOTE
        yield Finding(severity, f"{each.side} {each.path}", what, why, step)


def _sender(facts: PairFacts) -> Iterator[Finding]:
    seen = facts.sender
    if seen is None:
        return
    if seen.trouble is not None:
        what = f"no sender answers: {seen.trouble}"
        yield Finding(ERROR, "sender", what, "its options are not checked", "check --sender-status")
        return
    if seen.backlogs_missing is not None:
        what = f"it could not make sure of its backlog queues: {seen.backlogs_missing}"
        step = (
            "`sbpair backlog create`, and assume_backlogs_exist=True; or give it Manage and a way to port 443"
        )
        yield Finding(ERROR, "sender", what, "in an outage it may have nowhere to park", step)
    if seen.failover_share is not None and seen.failover_share >= 1.0:
        what = "failover_share is 1.0: it fails over only after an interval without any success"
        why = "a primary that rejects 95 of 100 sends is never left, and those sends raise"
        yield Finding(WARNING, "sender", what, why, "leave failover_share at its default of 0.5")
    budget = seen.operation_timeout
    if budget is not None and budget >= LONG_TIMEOUT:
        what = f"a send without a timeout may take {age_text(budget)} (operation_timeout)"
        why = "while the primary is slow or silent, each caller waits that long" + (
            "" if seen.redirects_suspects else ", and in the first minute of an outage raises then"
        )
        step = "a shorter operation_timeout, or timeout= for each send, as long as its caller waits"
        yield Finding(NOTE, "sender", what, why, step)


def _syphon_pace(facts: PairFacts) -> Iterator[Finding]:
    if facts.syphon is not None and facts.syphon.is_unpaced:
        what = "no rate limits the syphon (max_rate)"
        why = "after an outage its pace grows until the primary is busy, and only then leaves room for live sends"
        step = "if the primary throttles: `sbpair syphon --max-rate`, below what it can take beyond your load"
        yield Finding(NOTE, "syphon", what, why, step)


RULES: tuple[Rule, ...] = (
    _names,
    _reachability,
    _rights,
    _syphon,
    _ping,
    _unseen,
    _backlog_queues,
    _backlogs,
    _locks,
    _room,
    _sizes,
    _destinations,
    _twins,
    _not_in_force,
    _ordered_queues,
    _ordering_unasked,
    _unordered_clients,
    _ordered_destinations,
    _sender,
    _syphon_pace,
)


def diagnose(facts: PairFacts) -> list[Finding]:
    """Return all findings, the most severe first."""
    found = [finding for rule in RULES for finding in rule(facts)]
    return sorted(found, key=lambda finding: list(Severity).index(finding.severity))
