"""The evidence on each pair: which journals are complete, and when queues were found empty.

Times are in microseconds since the epoch. The evidence is derived from facts collected while journals are read
(:mod:`.facts`).
"""

from __future__ import annotations

from bisect import bisect_right
from collections.abc import Iterable, Mapping
from dataclasses import dataclass

from ..read.clocks import MICROS
from ..read.writers import KILLED, SHORT, WriterFacts, greatest, smallest

MAX_NAMED = 3  # writers named in a reason


@dataclass(frozen=True, slots=True)
class SyphonFacts:
    """The record of one syphon about one pair."""

    first_at: int | None
    last_at: int | None
    drained_at: int | None  # when it last found all backlog queues empty
    stranded_from: int | None  # the first backlog index that it does not read


@dataclass(frozen=True, slots=True)
class KilledSyphon:
    """A syphon whose journal lacks nothing but its closing record."""

    writer: str
    last_at: int  # of its last record
    dead_by: int | None  # when the next syphon of its pair started; None if none did


@dataclass(frozen=True, slots=True)
class BrokerCoverage:
    """The journal of a namespace's broker: whether it is complete, and the period that it certainly covers."""

    is_whole: bool
    start: int | None
    until: int | None


@dataclass(frozen=True, slots=True)
class PairEvidence:
    """The evidence on the messages of one entity that were parked on one secondary. None: unknown."""

    senders_whole: bool | None = None
    senders_tell: bool | None = None  # whether senders record healthy sends
    syphons_whole: bool | None = None
    syphons_cover: bool | None = None  # whether a syphon of this very pair keeps a journal
    receivers_whole: bool | None = None
    primary_kept: bool | None = None
    secondary_kept: bool | None = None
    stranded_from: int | None = None
    drained_at: int | None = None
    emptied_at: int | None = None
    passed_at: int | None = None  # of the last message of the entity that a receiver received
    primary_from: int | None = None
    primary_until: int | None = None
    secondary_from: int | None = None
    secondary_until: int | None = None

    def facts(self) -> tuple[bool | None, ...]:
        """The values of :data:`.verdict.EVIDENCE`, in order."""
        return (
            self.senders_whole, self.senders_tell, self.syphons_whole, self.syphons_cover, self.receivers_whole,
            self.primary_kept, self.secondary_kept, self.stranded_from is not None,
        )  # fmt: skip


class Evidence:
    """The evidence of an audit. ``skew`` is the tolerated difference between two machines' clocks in seconds."""

    def __init__(
        self,
        writers: Iterable[WriterFacts],
        syphons: Mapping[tuple[str | None, str | None], Mapping[str, SyphonFacts]],
        emptied: Mapping[tuple[str | None, str], int],
        passed: Mapping[tuple[str | None, str], int],
        locks_lost: Mapping[str | None, int | None],
        skew: float,
    ) -> None:
        self._skew = round(skew * MICROS)
        self._writers = list(writers)
        self._files = {each.writer: each.file for each in self._writers}
        self._by_primary = {
            primary: self._of_primary(primary)
            for primary in {each.primary for each in self._writers}
            if primary is not None
        }
        self._kept = {name: self._coverage_of(name) for name in self._namespaces()}
        self._drained = {pair: self._drain_by(found.values()) for pair, found in syphons.items()}
        self._killed = {pair: self._find_killed_among(found) for pair, found in syphons.items()}
        self._emptied = {place: at - self._skew for place, at in emptied.items()}
        self._passed = {place: at - self._skew for place, at in passed.items()}
        self._locks_lost = dict(locks_lost)

    def of(self, primary: str | None, path: str, secondary: str | None) -> PairEvidence:
        """Return the evidence on messages of the entity ``path``; path and namespaces are in lower case."""
        whole = self._by_primary.get(primary or "", {})
        stranded_from, drained_at = self._drained.get((primary, secondary), (None, None))
        if primary is None or secondary is None:
            stranded_from = drained_at = None
        here = self._kept.get(primary or "")
        there = self._kept.get(secondary or "")
        return PairEvidence(
            senders_whole=whole.get("sender"),
            senders_tell=whole.get("tell"),
            syphons_whole=whole.get("syphon"),
            syphons_cover=None not in (primary, secondary) and (primary, secondary) in self._drained,
            receivers_whole=whole.get("receiver"),
            primary_kept=None if here is None else here.is_whole,
            secondary_kept=None if there is None else there.is_whole,
            stranded_from=stranded_from,
            drained_at=drained_at,
            emptied_at=None if primary is None else self._emptied.get((primary, path)),
            passed_at=None if primary is None else self._passed.get((primary, path)),
            primary_from=None if here is None else here.start,
            primary_until=None if here is None else here.until,
            secondary_from=None if there is None else there.start,
            secondary_until=None if there is None else there.until,
        )

    def emptied_at(self, primary: str | None, path: str) -> int | None:
        """Return when a receiver last found this queue or subscription empty."""
        return None if primary is None else self._emptied.get((primary, path))

    def locks_lost(self, primary: str | None) -> int | None:
        """Return how many messages syphons forwarded without removing them, by their last counters.

        None if a syphon has no counters.
        """
        return self._locks_lost.get(primary)

    @property
    def kept(self) -> frozenset[str | None]:
        """Return the namespaces whose broker recorded everything."""
        return frozenset(name for name, each in self._kept.items() if each.is_whole)

    @property
    def skew(self) -> int:
        """The tolerated difference of two clocks in microseconds."""
        return self._skew

    def find_killed(self, primary: str | None, secondary: str) -> tuple[KilledSyphon, ...]:
        """Return the syphons of this pair that were killed, or are still writing."""
        return () if primary is None else self._killed.get((primary, secondary), ())

    def file_of(self, writer: str) -> str:
        """Return the first file of a writer's journal, with its folders, which often name the machine that wrote it."""
        return self._files.get(writer) or "?"

    def traced_primaries(self) -> frozenset[str]:
        """Return the primaries whose senders and syphons recorded everything they did."""
        wanted = ("tell", "sender", "syphon")
        found = (
            primary for primary, whole in self._by_primary.items() if all(whole[each] for each in wanted)
        )
        return frozenset(found)

    def fill_in(self, question: str, primary: str | None, secondary: str | None) -> str:
        """Return ``question`` with each role, such as {sender}, replaced by the defect of its journals."""
        if not question:
            return ""
        whose = {"sender": primary, "syphon": primary, "broker": primary, "secondary": secondary}
        blamed = {
            role: self._blame(namespace, role.replace("secondary", "broker"))
            for role, namespace in whose.items()
            if f"{{{role}}}" in question
        }
        if "{way}" in question:
            blamed["way"] = self._blame_way(primary, secondary)
        return question.format(**blamed)

    def _blame_way(self, primary: str | None, secondary: str | None) -> str:
        """Return why the syphons' journals do not cover the messages on ``secondary``.

        Pass None for a secondary that has several names.
        """
        if secondary is None:
            return f"the secondary of {primary} has several names in these journals: name one by an alias"
        known = sorted(
            {there or "?" for here, there in self._drained if here == primary and there != secondary}
        )
        if known and (primary, secondary) not in self._drained:
            return f"the syphons of {primary} name another secondary, {', '.join(known)}: not {secondary}"
        return self._blame(primary, "syphon")

    def _of_primary(self, primary: str) -> dict[str, bool]:
        """Whether all journals of a role exist and are complete; a damaged journal may lack its primary or role."""
        found = [each for each in self._writers if each.primary in (primary, None)]
        whole = {
            role: any(each.role == role for each in found)
            and all(each.is_whole for each in found if each.role in (role, None))
            for role in ("sender", "syphon", "receiver")
        }
        sends = [each.sends > 0 for each in found if each.role == "sender"]
        return whole | {"tell": bool(sends) and all(sends)}

    def _namespaces(self) -> set[str]:
        return {each.primary for each in self._writers if each.role == "broker" and each.primary is not None}

    def _coverage_of(self, namespace: str) -> BrokerCoverage:
        """Complete means one journal of one run: events between two runs are unknown."""
        found = [each for each in self._writers if each.role == "broker" and each.primary == namespace]
        is_known = all(each.role is not None for each in self._writers)
        first = smallest(each.first_at for each in found)
        last = greatest(each.last_at for each in found)
        return BrokerCoverage(
            len(found) == 1 and found[0].is_whole and is_known,
            None if first is None else first + self._skew,
            None if last is None else last - self._skew,
        )

    def _drain_by(self, syphons: Iterable[SyphonFacts]) -> tuple[int | None, int | None]:
        """Return the first backlog index that no syphon reads, and when the backlogs were last found empty.

        Messages that another syphon holds at that time may return, so every syphon running then must have found the
        queues empty too.
        """
        found = list(syphons)
        stranded = smallest(each.stranded_from for each in found)
        latest = greatest(each.drained_at for each in found)
        if latest is None:
            return stranded, None
        running = [
            each
            for each in found
            if each.first_at is not None
            and each.last_at is not None
            and each.first_at <= latest + self._skew
            and each.last_at >= latest - self._skew
        ]
        earliest = smallest(each.drained_at for each in running)
        if earliest is None or any(each.drained_at is None for each in running):
            return stranded, None
        return stranded, earliest - self._skew

    def _find_killed_among(self, syphons: Mapping[str, SyphonFacts]) -> tuple[KilledSyphon, ...]:
        """Return the killed syphons; one that starts after the last record of another counts as its successor."""
        killed = {each.writer for each in self._writers if each.reason == KILLED}
        starts = sorted(each.first_at for each in syphons.values() if each.first_at is not None)
        found = []
        for writer in sorted(killed & syphons.keys()):
            last = syphons[writer].last_at
            if last is not None:
                later = starts[bisect_right(starts, last) :]
                found.append(KilledSyphon(writer, last, later[0] if later else None))
        return tuple(found)

    def _blame(self, namespace: str | None, role: str) -> str:
        """Return the defect of the journals of ``role`` that name ``namespace`` as their primary."""
        found = [each for each in self._writers if each.primary in (namespace, None)]
        found.sort(key=lambda each: each.writer or "")  # whichever was read first, the sentence is one
        whose = [each for each in found if each.role == role]
        broken = [each for each in found if each.role in (role, None) and not each.is_whole]
        if not whose and not broken:
            return f"there is no journal of a {role} of {namespace}"
        if not broken:
            return f"the journals of its {role}s do not say"
        named = [f"{_name(each)}: {each.reason}" for each in broken[:MAX_NAMED]]
        more = f"; and {len(broken) - MAX_NAMED} more" if len(broken) > MAX_NAMED else ""
        return f"a journal is incomplete ({'; '.join(named)}{more})"


def _name(writer: WriterFacts) -> str:
    return f"{writer.role} {writer.writer[:SHORT]}" if writer.role else writer.writer
