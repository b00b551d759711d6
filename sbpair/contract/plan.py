"""Which entries of the contract can run, what they create and what they cost. Pure."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass

from sbpair.pair.ground.side import Side

from .entry import ONE_QUEUE, Entity, Entry, Price, Subscription, Tier
from .naming import name_of

SIDE_BY_SIDE = 12  # entries at a time
ENTITY_SECONDS = 0.3  # to create and delete one
FAR_AWAY, AT_LEAST = 4, 120.0  # how much longer a run may take than with a peer nearby, and seconds beyond


@dataclass(frozen=True, slots=True)
class Rights:
    """The rights of the keys in one namespace, and its tier."""

    manage: bool = True
    send: bool = True
    listen: bool = True
    tier: Tier | None = None
    """None if it could not be determined; then no entry is excluded because of its tier."""

    why: str = ""
    """Why Manage is missing."""

    why_not: str = ""
    """Why Send or Listen is missing, if the peer said it."""

    down: str = ""
    """Why the namespace cannot be reached, "" if it can."""

    takes_any_token: bool = False
    """It is an emulator that checks no token."""


@dataclass(frozen=True, slots=True)
class Step:
    """One entry of a run: the names of its entities by label, or why it does not run."""

    entry: Entry
    names: Mapping[str, str]
    obstacle: str = ""
    creates: bool = True
    """Whether its entities are created and deleted; if not, it uses an existing queue."""


@dataclass(frozen=True, slots=True)
class Plan:
    """A run that has not begun."""

    run: str
    steps: tuple[Step, ...]

    @property
    def runnable(self) -> tuple[Step, ...]:
        return tuple(step for step in self.steps if not step.obstacle)

    @property
    def created(self) -> tuple[tuple[Side, str], ...]:
        """The queues and topics that the run creates, with their side."""
        return tuple(
            (entity.side, step.names[entity.label])
            for step in self.runnable
            if step.creates
            for entity in step.entry.entities
            if not isinstance(entity, Subscription)
        )

    @property
    def price(self) -> Price:
        return sum((step.entry.price for step in self.runnable), Price())

    @property
    def seconds(self) -> float:
        """The approximate duration of the run in seconds, if the peer is nearby."""
        spans = [step.entry.seconds for step in self.runnable]
        at_a_time = SIDE_BY_SIDE if all(step.creates for step in self.runnable) else 1
        return max(sum(spans) / at_a_time, *spans, 0.0) + ENTITY_SECONDS * len(self.created) / at_a_time

    @property
    def bound(self) -> float:
        """The default time limit of the run in seconds."""
        return FAR_AWAY * self.seconds + AT_LEAST


def select(entries: Iterable[Entry], only: Iterable[str]) -> tuple[Entry, ...]:
    """Return the entries with these ids or of these subjects; all if ``only`` is empty.

    Raises ValueError for an unknown one.
    """
    known, wanted = tuple(entries), tuple(only)
    names = {each.id for each in known} | {each.subject for each in known}
    for name in wanted:
        if name not in names:
            raise ValueError(f"there is no entry and no subject {name!r}")
    return tuple(each for each in known if not wanted or each.id in wanted or each.subject in wanted)


def make_plan(
    entries: Iterable[Entry],
    rights: Mapping[Side, Rights],
    *,
    run: str,
    queue: str | None = None,
    budget: int | None = None,
    slow: bool = False,
) -> Plan:
    """Return the plan of a run.

    ``queue``: an empty queue of the primary, for keys without Manage. ``budget``: the maximum number of operations.
    """
    steps: list[Step] = []
    spent = 0
    for each in entries:
        step = _step(each, rights, run, queue, slow)
        if not step.obstacle and budget is not None and spent + each.price.total > budget:
            step = Step(each, {}, f"beyond the budget of {budget} operations")
        if not step.obstacle:
            spent += each.price.total
        steps.append(step)
    return Plan(run, tuple(steps))


def _step(each: Entry, rights: Mapping[Side, Rights], run: str, queue: str | None, slow: bool) -> Step:
    names = {entity.label: _name(run, each.id, entity, each.entities) for entity in each.entities}
    obstacle = _why_down(each, rights) or _obstacle(each, rights, slow)
    if obstacle:
        return Step(each, {}, obstacle)
    lacking = [side for side in _sides(each) if not rights[side].manage]
    if not lacking or not (each.entities or each.manages):
        return Step(each, names)
    why = f"the key lacks Manage on the {lacking[0]}: {rights[lacking[0]].why}"
    if each.needs_manage:
        return Step(each, {}, why)
    if queue is None:
        return Step(each, {}, f"{why}; name an empty queue with --queue")
    own = rights[Side.PRIMARY]
    for right, is_given in (("Send", own.send), ("Listen", own.listen)):
        if not is_given:
            return Step(each, {}, f"the key lacks {right} on {queue}{own.why_not and ': '}{own.why_not}")
    return Step(each, {ONE_QUEUE[0].label: queue}, creates=False)


def _why_down(each: Entry, rights: Mapping[Side, Rights]) -> str:
    sides = {entity.side for entity in each.entities} or {Side.PRIMARY}
    down = [side for side in Side if side in sides and rights[side].down]
    return f"the {down[0]} cannot be reached: {rights[down[0]].down}" if down else ""


def _sides(each: Entry) -> list[Side]:
    sides = [entity.side for entity in each.entities]
    return [side for side in Side if side in sides or (each.manages and side is Side.PRIMARY)]


def _obstacle(each: Entry, rights: Mapping[Side, Rights], slow: bool) -> str:
    if each.slow and not slow:
        return "it takes minutes: ask for it with --slow"
    if each.access and rights[Side.PRIMARY].takes_any_token:
        return "this emulator takes any token"
    tier = rights[Side.PRIMARY].tier
    if tier is not None and each.tier > tier:
        return f"the {tier.name.capitalize()} tier lacks it"
    if tier is Tier.PREMIUM and any(getattr(entity, "partitioned", None) for entity in each.entities):
        return "on Premium it is the namespace that is partitioned or not"
    return ""


def _name(run: str, entry_id: str, entity: Entity, entities: Iterable[Entity]) -> str:
    if isinstance(entity, Subscription):
        return f"{name_of(run, entry_id, entity.topic)}/Subscriptions/{entity.label}"
    return name_of(run, entry_id, entity.label)
