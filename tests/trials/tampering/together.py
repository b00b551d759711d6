"""Many audits at once on one engine: each in a thread of its own, and each step of all of them one step of the engine.

    audit 1 --scatter--.                     .--regroup--.
    audit 2 --scatter--+-- one job on Spark --+--regroup--+-- one job on Spark ...
    audit 3 --scatter--'                     '--regroup--'

So a thousand small audits cost a few jobs, and yet all they do goes through the engine.
"""

from __future__ import annotations

import threading
from bisect import bisect_right
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from sbpair.data.audit.engine import Engine, Packet, Packets, TaskResult

SHARES = 8  # groups of tasks, and partitions of packets


@dataclass(frozen=True)
class _Shared:
    """The packets of a step of several members, and the results of each."""

    packets: Packets
    answers: Mapping[int, list[Any]]


@dataclass(frozen=True)
class _Step:
    """What a member asks for: work on tasks, or on the packets of an earlier step."""

    work: Any
    tasks: Sequence[Any] = ()
    before: _Shared | None = None
    parts: int = 1


class Together:
    """Runs ``members`` audits as one; each must :meth:`leave` in the end."""

    def __init__(self, engine: Engine, members: int) -> None:
        self._engine = engine
        self._active = members
        self._wanted: dict[int, _Step] = {}
        self._found: dict[int, _Shared] = {}
        self._failed: BaseException | None = None
        self._moved = threading.Condition()
        self._first: dict[int, int] = {}  # the first part of each member
        self._open: list[Packets] = []

    def done(self, member: int, step: _Step) -> _Shared:
        """The result of the step, once all others have asked for one or left."""
        with self._moved:
            self._wanted[member] = step
            self._run_when_complete()
            self._moved.wait_for(lambda: member in self._found or self._failed is not None)
            if self._failed is not None:
                raise self._failed
            return self._found.pop(member)

    def leave(self) -> None:
        with self._moved:
            self._active -= 1
            self._run_when_complete()

    def close(self) -> None:
        for packets in self._open:
            packets.close()

    def _run_when_complete(self) -> None:
        if not self._wanted or len(self._wanted) < self._active:
            return
        wanted, self._wanted = self._wanted, {}
        try:
            self._run(wanted)
        except BaseException as error:
            self._failed = error
        self._moved.notify_all()

    def _run(self, wanted: Mapping[int, _Step]) -> None:
        before = {id(step.before): step.before for step in wanted.values()}
        for each in before.values():
            members = {member: step for member, step in wanted.items() if step.before is each}
            packets = (
                self._scatter(members) if each is None else each.packets.regroup(self._on_parts(members))
            )
            self._open.append(packets)
            answers: dict[int, list[Any]] = {member: [] for member in members}
            for member, content in packets.answers():
                answers[member].append(content)
            shared = _Shared(packets, answers)
            self._found |= dict.fromkeys(members, shared)

    def _scatter(self, members: Mapping[int, _Step]) -> Packets:
        first = 0
        for member in sorted(members):
            self._first[member] = first
            first += members[member].parts
        tasks = [
            (member, self._first[member], task, step.work)
            for member, step in members.items()
            for task in step.tasks
        ]
        groups = [tasks[start::SHARES] for start in range(min(SHARES, len(tasks)))]
        return self._engine.scatter(groups, _on_tasks, SHARES)

    def _on_parts(self, members: Mapping[int, _Step]) -> _OnParts:
        known = sorted((first, member) for member, first in self._first.items())
        return _OnParts(
            [first for first, _ in known],
            [member for _, member in known],
            {member: step.work for member, step in members.items()},
        )


def _on_tasks(group: list[tuple[int, int, Any, Any]]) -> Iterator[TaskResult | Packet]:
    for member, first, task, work in group:
        yield from _marked(member, first, work(task))


@dataclass(frozen=True)
class _OnParts:
    """Does the work of the member to whom a part belongs."""

    firsts: list[int]
    members: list[int]
    works: Mapping[int, Any]

    def __call__(self, part: int, packets: Iterator[bytes]) -> Iterator[TaskResult | Packet]:
        place = bisect_right(self.firsts, part) - 1
        member, first = self.members[place], self.firsts[place]
        if member in self.works:
            yield from _marked(member, first, self.works[member](part - first, packets))


def _marked(member: int, first: int, found: Iterator[TaskResult | Packet]) -> Iterator[TaskResult | Packet]:
    for each in found:
        if isinstance(each, Packet):
            yield Packet(first + each.part, each.content)
        else:
            yield TaskResult((member, each.content))


@dataclass
class Member:
    """One audit's engine."""

    group: Together
    number: int

    def scatter(self, tasks: Sequence[Any], work: Any, parts: int) -> Packets:
        return _MemberPackets(self, self.group.done(self.number, _Step(work, tasks, parts=parts)))


@dataclass(frozen=True)
class _MemberPackets:
    member: Member
    shared: _Shared

    def answers(self) -> Iterator[Any]:
        return iter(self.shared.answers[self.member.number])

    def regroup(self, work: Any) -> Packets:
        step = _Step(work, before=self.shared)
        return _MemberPackets(self.member, self.member.group.done(self.member.number, step))

    def close(self) -> None: ...


def at_once(engine: Engine, audits: Sequence[Callable[[Engine], Any]]) -> list[Any]:
    """The results of ``audits``, each of which gets an engine of its own; an exception for one that raised."""
    group, found = Together(engine, len(audits)), [None] * len(audits)

    def run(number: int) -> None:
        try:
            found[number] = audits[number](Member(group, number))
        except Exception as error:
            found[number] = error  # type: ignore[call-overload]
        finally:
            group.leave()

    threads = [threading.Thread(target=run, args=(number,)) for number in range(len(audits))]
    for each in threads:
        each.start()
    for each in threads:
        each.join()
    group.close()
    return found
