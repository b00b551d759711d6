"""What only the brokers' own journals can prove; all stories are audited once."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path

import pytest

from sbpair.audit import Verdict
from sbpair.broker.entities.audit_recorder import Arrival, Removal
from tests.data.audit import oracle
from tests.data.audit.audited import Audited, audited
from tests.data.audit.story import EXPIRED, Broker, Receiver, Sender, Story, Syphon

DEAD, GONE = Removal.DEAD_LETTERED, Removal.EXPIRED


@dataclass
class Cast:
    """A pair in which every participant writes a journal, including the brokers."""

    sender: Sender
    syphon: Syphon
    receiver: Receiver
    here: Broker
    there: Broker

    @classmethod
    def of(cls, story: Story) -> Cast:
        brokers = story.broker(), story.broker(f"{story.primary}-dr")
        return cls(story.sender(), story.syphon(), story.receiver(), *brokers)

    def accepted(self, key: str, **fields: str) -> None:
        self.sender.sent(key)
        self.here.stored(key, **fields)

    def parked(self, key: str) -> None:
        self.sender.parked(key)
        self.there.stored(key, number=0)

    def brought_home(self, key: str) -> None:
        self.parked(key)
        self.here.stored(key)
        self.syphon.forwarded(key)
        self.there.removed(key, number=0)


def steps(*made: Callable[[Cast, str], object]) -> Callable[[Cast, str], None]:
    def told(cast: Cast, key: str) -> None:
        for each in made:
            each(cast, key)

    return told


ACCEPTED, PARKED, HOME = Cast.accepted, Cast.parked, Cast.brought_home
TAKEN = lambda c, m: c.here.removed(m)  # noqa: E731
# Each: the verdict with brokers' journals that are whole, with ones that broke off, and what happened.
CASES: dict[str, tuple[Verdict, Verdict, Callable[[Cast, str], object]]] = {
    "completed": (Verdict.DELIVERED, Verdict.DELIVERED, steps(ACCEPTED, TAKEN)),
    "completed-after-a-detour": (Verdict.DELIVERED, Verdict.DELIVERED, steps(HOME, TAKEN)),
    "received-and-deleted": (
        Verdict.DELIVERED,
        Verdict.DELIVERED,
        steps(ACCEPTED, lambda c, m: c.here.removed(m, how=Removal.RECEIVED)),
    ),
    "raised-and-there": (
        Verdict.RECOVERED,
        Verdict.RECOVERED,
        steps(lambda c, m: c.sender.raised(m, ambiguous=True), lambda c, m: c.here.stored(m), TAKEN),
    ),
    "raised-and-nowhere": (Verdict.NOT_ACCEPTED, Verdict.NOT_ACCEPTED, lambda c, m: c.sender.raised(m)),
    "raised-and-parked": (
        Verdict.WAITING,
        Verdict.UNPROVEN,
        steps(lambda c, m: c.sender.raised(m), lambda c, m: c.there.stored(m, number=0)),
    ),
    "in-its-queue": (Verdict.WAITING, Verdict.ACCEPTED, ACCEPTED),
    "home-in-its-queue": (Verdict.WAITING, Verdict.ACCEPTED, HOME),
    "in-its-backlog": (Verdict.WAITING, Verdict.WAITING, PARKED),
    "acknowledged-and-never-stored": (Verdict.LOST, Verdict.ACCEPTED, lambda c, m: c.sender.sent(m)),
    "parked-and-never-stored": (Verdict.LOST, Verdict.WAITING, lambda c, m: c.sender.parked(m)),
    "completed-on-its-backlog-and-not-forwarded": (
        Verdict.LOST,
        Verdict.WAITING,
        steps(PARKED, lambda c, m: c.there.removed(m, number=0)),
    ),
    "forwarded-and-never-stored": (
        Verdict.LOST,
        Verdict.ACCEPTED,
        steps(PARKED, lambda c, m: c.syphon.forwarded(m), lambda c, m: c.there.removed(m, number=0)),
    ),
    "landed-on-the-secondary": (
        Verdict.ACCEPTED,
        Verdict.ACCEPTED,
        steps(PARKED, lambda c, m: c.syphon.landed(m), lambda c, m: c.there.removed(m, number=0)),
    ),
    "dropped-as-a-duplicate": (
        Verdict.ACCEPTED,
        Verdict.ACCEPTED,
        steps(lambda c, m: c.sender.sent(m), lambda c, m: c.here.dropped(m)),
    ),
    "dead": (
        Verdict.DEAD_LETTERED,
        Verdict.DEAD_LETTERED,
        steps(ACCEPTED, lambda c, m: c.here.removed(m, how=DEAD, reason="MaxDeliveryCountExceeded")),
    ),
    "dead-and-looked-after": (
        Verdict.DELIVERED,
        Verdict.DELIVERED,
        steps(
            ACCEPTED,
            lambda c, m: c.here.removed(m, how=DEAD, reason="poison"),
            lambda c, m: c.here.removed(m, dead=True),
        ),
    ),
    "expired": (Verdict.EXPIRED, Verdict.EXPIRED, steps(ACCEPTED, lambda c, m: c.here.removed(m, how=GONE))),
    "expired-and-kept": (
        Verdict.EXPIRED,
        Verdict.EXPIRED,
        steps(ACCEPTED, lambda c, m: c.here.removed(m, how=DEAD, reason=EXPIRED)),
    ),
    "dead-on-its-backlog": (
        Verdict.DEAD_LETTERED,
        Verdict.DEAD_LETTERED,
        steps(PARKED, lambda c, m: c.there.removed(m, number=0, how=DEAD, reason="MissingPath")),
    ),
    "expired-on-its-backlog": (
        Verdict.EXPIRED,
        Verdict.EXPIRED,
        steps(PARKED, lambda c, m: c.there.removed(m, number=0, how=GONE)),
    ),
    "redriven": (
        Verdict.WAITING,
        Verdict.DEAD_LETTERED,
        steps(
            PARKED,
            lambda c, m: c.there.removed(m, number=0, how=DEAD, reason="MissingPath"),
            lambda c, m: c.there.stored(m, number=0),
            lambda c, m: c.there.removed(m, number=0, dead=True),
        ),
    ),
    "deleted": (
        Verdict.DELETED,
        Verdict.DELETED,
        steps(ACCEPTED, lambda c, m: c.here.removed(m, how=Removal.DELETED)),
    ),
    "one-of-two-completed-one-there": (Verdict.WAITING, Verdict.DELIVERED, steps(ACCEPTED, HOME, TAKEN)),
    "published": (
        Verdict.WAITING,
        Verdict.ACCEPTED,
        steps(
            ACCEPTED,
            lambda c, m: c.here.stored(m, path="orders/Subscriptions/a", how=Arrival.PUBLISHED),
            lambda c, m: c.here.removed(m, how=Removal.PUBLISHED),
        ),
    ),
    "forwarded-here-by-another-queue": (
        Verdict.DELIVERED,
        Verdict.DELIVERED,
        steps(lambda c, m: c.here.stored(m, how=Arrival.FORWARDED), TAKEN),
    ),
    "nobody's": (Verdict.UNEXPECTED, Verdict.UNEXPECTED, lambda c, m: c.here.stored(m)),
}


@pytest.fixture(scope="module")
def found(tmp_path_factory: pytest.TempPathFactory) -> tuple[Path, dict, Audited]:
    """The verdicts of all cases, of a primary whose brokers ended well, and of one whose were killed."""
    directory = tmp_path_factory.mktemp("journals")
    told = {name: Story(directory, name) for name in ("whole", "broken")}
    for story in told.values():
        cast = Cast.of(story)
        story.pause()
        for name, (_, _, happened) in CASES.items():
            happened(cast, name)
        story.pause()
        story.end(but=() if story.primary == "whole" else (cast.here.journal, cast.there.journal))
    result = audited(directory, tmp_path_factory.mktemp("out"))
    return directory, {(row.primary, row.message_id): row for row in result.rows("messages")}, result


@pytest.mark.spec("G-1", "G-2")
@pytest.mark.parametrize("name", CASES)
def test_broker_records_and_missing_records_decide_verdicts(found, name: str) -> None:
    _, rows, _ = found
    whole, broken, _ = CASES[name]
    assert rows["whole", name].verdict == whole.value
    assert rows["broken", name].verdict == broken.value
    assert {rows[primary, name].path for primary in ("whole", "broken")} == {"orders"}


@pytest.mark.spec("G-2")
def test_two_engines_agree_on_the_proofs_from_broker_journals(found) -> None:
    directory, rows, _ = found
    ours = Counter((primary, row.verdict) for (primary, _), row in rows.items())

    assert ours == oracle.verdicts_of_brokers(directory)


@pytest.mark.spec("G-4")
def test_copies_seen_only_by_the_broker_are_reported(found) -> None:
    *_, result = found
    twice = {(row.message_id, row.copies) for row in result.rows("duplicates")}
    assert twice == {("one-of-two-completed-one-there", 2)}


@pytest.mark.spec("G-2")
def test_a_restarted_broker_proves_only_by_its_records(tmp_path: Path) -> None:
    story = Story(tmp_path / "journals")
    cast = Cast.of(story)
    story.pause()
    cast.accepted("m")
    cast.sender.sent("nowhere")
    story.pause()
    story.broker()
    story.end()
    found = audited(tmp_path / "journals", tmp_path / "out").summary.verdicts
    assert {verdict: count for verdict, count in found.items() if count} == {Verdict.ACCEPTED: 2}
