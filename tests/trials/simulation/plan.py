"""The faults of one run and their times, drawn from the seed before anything starts.

A plan is a list, so it can be printed, replayed and shrunk: a run with fewer of its faults is a run too.
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass, replace
from enum import Enum
from random import Random

WORKLOAD = 120.0  # seconds in which messages are sent and faults begin
HEALED = 240.0  # by then every fault is over
PRIMARY, SECONDARY = "contoso", "fabrikam"


class Kind(Enum):
    """A kind of fault; in brackets what ``target`` names."""

    DOWN = "refuses connections and has cut those there were [side]"
    SILENT = "hears and says nothing, and hears it all later [side]"
    ACK_LOST = "stores, then resets the connection, so often [side]"
    BUSY = "answers every send with server-busy [entity]"
    FULL = "answers every send with a quota error [entity or backlog]"
    BROKEN = "answers every send with an internal error [entity or backlog]"
    MISSING = "is deleted, if it is empty [backlog]"
    PARTITION = "has one partition down [entity or backlog: index]"
    CUT = "loses its connections to one side [syphon or processor at side]"
    STALL = (
        "is cut off from its source, after so many steps, for longer than a lock lasts [syphon or processor]"
    )
    CRASH = "dies after so many steps, and another comes [syphon or processor]"
    SENDER_CRASH = "dies after so many steps, and another comes [client]"
    DETACH = "loses one of its links, after so many steps [syphon or processor at side]"
    DISABLED = "is disabled [entity]"
    BROKER_CRASH = "dies at a commit, and comes back from its disk [side]"
    SHARE = "rejects this share of the sends, of 100 [entity or backlog]"
    THROTTLED = "answers this share of the sends with busy, and how long to wait [entity or backlog]"
    SLOW = "answers this share of the sends late [entity or backlog]"
    UNANSWERED = "stores this share of the sends, and never answers [entity or backlog]"
    LOSSY = "neither stores nor answers this share of the sends [entity or backlog]"
    PAUSED = "answers no send before it is over [entity or backlog]"
    NO_TOKEN = "gets no token [client, syphon or processor at side]"
    DETACH_IN_SEND = "stores a send, and detaches its link in place of the answer, so often [entity]"


@dataclass(frozen=True, slots=True)
class Fault:
    """From ``at`` on for ``span`` seconds; ``count``: how often, after how many steps, or which partition."""

    kind: Kind
    target: str
    at: float
    span: float
    count: int = 0

    def is_active(self, now: float) -> bool:
        return self.at <= now < self.at + self.span

    def __str__(self) -> str:
        return f"{self.at:7.2f} s  {self.span:6.2f} s  {self.target} {self.kind.value} ({self.count})"


@dataclass(frozen=True, slots=True)
class Shape:
    """The rest of what the seed decides before a run starts."""

    backlogs: int
    clients: int
    syphons: int
    messages: int
    failover_interval: float
    ping_interval: float
    redirects_suspects: bool
    spills_on_quota: bool
    busy_limit: float | None
    backlogs_are_partitioned: bool
    poison: int
    has_deadlines: bool  # ttl_policy="deadline", and messages that do not live long
    hot: str  # the entity that most messages are for, and most faults hit
    slow_after: float  # seconds
    is_durable: bool = False  # both brokers keep their namespace on disk, and can die
    has_spool: bool = False  # the senders have one
    keeps_order: bool = False  # the order of sessions is kept
    land_after: float | None = None  # of a syphon that may land on the secondary; seconds
    twins: tuple[str, ...] = ()  # the entities that the secondary has too
    processors: int = 0  # processes that consume with processors
    processed: tuple[str, ...] = ()  # the entities that they consume, on both sides
    deduplicate: float | None = None  # seconds, of the processors
    burst: int = 0  # messages beyond the others, for the hot entity, soon after something began
    token_life: int | None = None  # seconds


TOPIC = "prices"
ENTITIES = ("orders", "ordered", "parts", "parts-ordered", TOPIC)


COUNTS = {
    Kind.ACK_LOST: (1, 3),
    Kind.CRASH: (0, 9),
    Kind.STALL: (0, 9),
    Kind.DETACH: (0, 30),
    Kind.SENDER_CRASH: (1, 6),
    Kind.PARTITION: (0, 5),  # those that messages without a key come to first
}
GREY = (
    Kind.SHARE,
    Kind.THROTTLED,
    Kind.SLOW,
    Kind.UNANSWERED,
    Kind.LOSSY,
    Kind.PAUSED,
    Kind.NO_TOKEN,
    Kind.DETACH_IN_SEND,
)
_DRAWN = tuple(kind for kind in Kind if kind not in (Kind.BROKER_CRASH, Kind.DETACH, *GREY))
"""The others have draws of their own: :func:`drawn_crashes`, :func:`drawn_detachments`, and those of grey.py."""
BY_STEPS = frozenset((Kind.CRASH, Kind.STALL, Kind.SENDER_CRASH, Kind.DETACH))
"""They begin after a number of steps of a target that has messages in flight, so that they affect these."""


def drawn_landing(rng: Random, shape: Shape) -> Shape:
    """The same world with a syphon that may land: at once, or after a while, where there is an entity to land in."""
    twins = tuple(path for path in ENTITIES if path == shape.hot or rng.random() < 0.8)
    return replace(shape, land_after=rng.choice((0.0, 5.0, 20.0, 60.0)), twins=twins)


def drawn_outage(rng: Random, shape: Shape) -> list[Fault]:
    """What landing is for: the primary is gone for long, and what lands is disturbed meanwhile."""
    at, span = rng.uniform(5, 40), rng.uniform(40, 110)
    syphon = f"syphon-{rng.randrange(shape.syphons)}"
    targets = {
        Kind.ACK_LOST: SECONDARY,
        Kind.CUT: f"{syphon} {SECONDARY}",
        Kind.SILENT: SECONDARY,
        Kind.DOWN: SECONDARY,
        Kind.CRASH: syphon,
        Kind.STALL: syphon,
    }
    kinds = [rng.choice((*targets, Kind.ACK_LOST, Kind.CRASH)) for _ in range(rng.randint(0, 3))]
    disturbances = [
        Fault(
            kind,
            targets[kind],
            at + rng.uniform(0, span),
            rng.uniform(1, 30) if kind is not Kind.STALL else rng.uniform(61, 90),
            rng.randint(*COUNTS.get(kind, (0, 0))),
        )
        for kind in kinds
    ]
    return [Fault(Kind.DOWN, PRIMARY, at, span), *disturbances]


def drawn_processing(rng: Random, shape: Shape) -> Shape:
    """The same world with processors as the consumers of the hot entity, and of some others."""
    paths = tuple(path for path in ENTITIES if path == shape.hot or rng.random() < 0.25)
    window = rng.choice((None, 30.0, 600.0, 600.0))
    return replace(shape, processors=rng.choice((1, 1, 2)), processed=paths, deduplicate=window)


def drawn_interruptions(rng: Random, shape: Shape) -> list[Fault]:
    """What hits processors: they die, and lose connections and confirmations, with messages in hand."""
    drawn = []
    for _ in range(rng.randint(1, 4)):
        kind = rng.choice((Kind.CRASH, Kind.CRASH, Kind.CUT, Kind.STALL, Kind.ACK_LOST, Kind.ACK_LOST))
        side = rng.choice((PRIMARY, PRIMARY, SECONDARY))
        processor = f"processor-{rng.randrange(shape.processors)}"
        target = {Kind.CUT: f"{processor} {side}", Kind.ACK_LOST: side}.get(kind, processor)
        span = rng.uniform(61, 90) if kind is Kind.STALL else rng.uniform(1, 30)
        at, count = rng.uniform(0, WORKLOAD), rng.randint(*COUNTS.get(kind, (0, 0)))
        drawn.append(Fault(kind, target, at, span, count))
    return drawn


def drawn_shape(rng: Random) -> Shape:
    shape = Shape(
        backlogs=rng.randint(1, 3),
        clients=rng.randint(1, 3),
        syphons=rng.choice((1, 1, 2)),
        messages=rng.randint(4, 14),
        failover_interval=rng.choice((0.0, 5.0, 20.0)),
        ping_interval=rng.choice((5.0, 20.0, 60.0)),
        redirects_suspects=rng.random() < 0.2,
        spills_on_quota=rng.random() < 0.3,
        busy_limit=rng.choice((None, None, 15.0)),
        backlogs_are_partitioned=rng.random() < 0.25,
        poison=rng.choice((0, 0, 1, 3)),
        has_deadlines=rng.random() < 0.3,
        hot=rng.choice(ENTITIES),
        slow_after=10.0,
    )
    return replace(shape, slow_after=2.0) if shape.messages % 2 else shape


def drawn_crashes(rng: Random, plan: Iterable[Fault]) -> list[Fault]:
    """Deaths of brokers: some soon after something else began, when there is much to lose."""
    began = [fault.at for fault in plan if fault.at < WORKLOAD]
    return [
        Fault(
            Kind.BROKER_CRASH,
            rng.choice((PRIMARY, SECONDARY)),
            rng.choice(began) + rng.uniform(0, 10)
            if began and rng.random() < 0.5
            else rng.uniform(0, WORKLOAD),
            rng.uniform(0, 10),
            rng.randint(0, 11),
        )
        for _ in range(rng.randint(1, 3))
    ]


def drawn_detachments(rng: Random, shape: Shape, plan: Iterable[Fault]) -> list[Fault]:
    """Links that a broker ends while their connection stays open, many of them soon after something else began."""
    began = [fault.at for fault in plan if fault.at < WORKLOAD]
    hosts = [f"syphon-{index}" for index in range(shape.syphons)]
    hosts += [f"processor-{index}" for index in range(shape.processors)]
    drawn = []
    for _ in range(rng.randint(1, 8)):
        target = f"{rng.choice(hosts)} {rng.choice((PRIMARY, SECONDARY, SECONDARY))}"  # some land there
        is_soon = began and rng.random() < 0.7
        at = rng.choice(began) + rng.uniform(0, 30) if is_soon else rng.uniform(0, WORKLOAD)
        drawn.append(Fault(Kind.DETACH, target, at, 0.0, rng.randint(*COUNTS[Kind.DETACH])))
    return drawn


def drawn_shortages(rng: Random, shape: Shape) -> list[Fault]:
    """What a spool is for: both sides are gone, and a sender may die meanwhile, or while it replays."""
    at, span = rng.uniform(5, 60), rng.uniform(20, 90)
    senders = [f"client-{rng.randrange(shape.clients)}" for _ in range(rng.randint(0, 2))]
    deaths = [
        Fault(Kind.SENDER_CRASH, name, at + rng.uniform(0, span + 10), 0.0, rng.randint(1, 4))
        for name in senders
    ]
    return [Fault(Kind.DOWN, PRIMARY, at, span), Fault(Kind.DOWN, SECONDARY, at, span), *deaths]


def drawn_disorder(rng: Random, shape: Shape, ordered: Iterable[str]) -> list[Fault]:
    """What hits ordered sessions: their entities and backlogs, both sides in turn, syphons that lose the session."""
    backlogs = tuple(ordered)
    at, drawn = rng.uniform(2, 20), []
    for _ in range(rng.randint(2, 5)):  # both sides flap
        side, span = rng.choice((PRIMARY, PRIMARY, SECONDARY)), rng.uniform(1, 25)
        drawn.append(Fault(rng.choice((Kind.DOWN, Kind.DOWN, Kind.SILENT)), side, at, span))
        at += span * rng.uniform(0.3, 1.5) + rng.uniform(0, 15)
    targets = {
        Kind.BROKEN: (*backlogs, "ordered", "parts-ordered"),
        Kind.FULL: (*backlogs, "ordered"),
        Kind.BUSY: ("ordered", "parts-ordered"),
        Kind.MISSING: backlogs,
        Kind.STALL: tuple(f"syphon-{index}" for index in range(shape.syphons)),
        Kind.CRASH: tuple(f"syphon-{index}" for index in range(shape.syphons)),
        Kind.SENDER_CRASH: tuple(f"client-{index}" for index in range(shape.clients)),
        Kind.ACK_LOST: (PRIMARY, SECONDARY),
    }
    for _ in range(rng.randint(1, 4)):
        kind = rng.choice(tuple(targets))
        span = rng.uniform(61, 90) if kind is Kind.STALL else rng.uniform(1, 30)
        begins = rng.uniform(2, WORKLOAD)
        drawn.append(
            Fault(kind, rng.choice(targets[kind]), begins, span, rng.randint(*COUNTS.get(kind, (0, 0))))
        )
    return [fault for fault in drawn if fault.at < WORKLOAD]


def drawn_entity(rng: Random, shape: Shape) -> str:
    return shape.hot if rng.random() < 0.7 else rng.choice(ENTITIES)


def drawn_plan(rng: Random, shape: Shape, backlogs: Iterable[str]) -> list[Fault]:
    """A few faults, drawn one by one; one run in twenty has none, and must then be flawless."""
    if rng.random() < 0.05:
        return []
    drawn = [_drawn(rng, shape, tuple(backlogs)) for _ in range(rng.randint(1, 5))]
    if rng.random() < 0.6:  # what the project is for
        drawn.append(Fault(Kind.DOWN, PRIMARY, rng.uniform(5, 60), rng.uniform(10, 90)))
    if rng.random() < 0.15:  # nobody takes anything
        at, span = rng.uniform(5, 60), rng.uniform(20, 90)
        kind = rng.choice((Kind.DOWN, Kind.SILENT))
        drawn += [Fault(Kind.DOWN, PRIMARY, at, span), Fault(kind, SECONDARY, at, span)]
    return sorted(drawn, key=lambda fault: fault.at)


def _drawn(rng: Random, shape: Shape, backlogs: tuple[str, ...]) -> Fault:
    kind = rng.choice((*_DRAWN, Kind.CRASH, Kind.CRASH, Kind.STALL, Kind.STALL))
    at = rng.uniform(0, WORKLOAD)
    span = min(rng.uniform(1, 100), HEALED - at)
    side, entity = rng.choice((PRIMARY, SECONDARY)), drawn_entity(rng, shape)
    syphon = f"syphon-{rng.randrange(shape.syphons)}"
    if kind is Kind.STALL:
        span = rng.uniform(61, 100)
    target = {
        Kind.DOWN: side,
        Kind.SILENT: side,
        Kind.ACK_LOST: side,
        Kind.BUSY: entity,
        Kind.FULL: rng.choice((entity, *backlogs)),
        Kind.BROKEN: rng.choice((entity, *backlogs)),
        Kind.MISSING: rng.choice(backlogs),
        Kind.PARTITION: rng.choice((entity, *backlogs)),
        Kind.CUT: f"{syphon} {side}",
        Kind.STALL: syphon,
        Kind.CRASH: syphon,
        Kind.SENDER_CRASH: f"client-{rng.randrange(shape.clients)}",
        Kind.DISABLED: entity,
    }[kind]
    return Fault(kind, target, at, span, rng.randint(*COUNTS.get(kind, (0, 0))))
