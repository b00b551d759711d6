"""A syphon that is killed between the primary's acceptance and its own record explains the copy that follows."""

from __future__ import annotations

import random
import signal
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

from sbpair.audit import audit
from sbpair.broker import Broker
from sbpair.data.audit.daily import audit_daily
from sbpair.data.audit.result.report import killed_syphons
from sbpair.observation import Journal, MessagesReceived, PairLabels, SendAccepted, WriterRole
from sbpair.pair.auth.connection_string import parse
from sbpair.pair.envelope.names import namespace_label
from sbpair.pair.pairing.events import MessageParked
from tests.data.audit import oracle
from tests.data.audit.audited import audited
from tests.data.audit.story import Receiver, Sender, Story, Syphon
from tests.pair.syphon.pair import BACKLOGS, Pair, message_id, parked, start_syphon, take
from tests.waiting import until


class Scene:
    """A sender, a receiver, a syphon that will be killed, and others that start when they are asked for."""

    def __init__(self, directory: Path) -> None:
        self.story = Story(directory)
        self.sender: Sender = self.story.sender()
        self.receiver: Receiver = self.story.receiver()
        self.doomed: Syphon = self.story.syphon()
        self.killed = [self.doomed.journal]
        self._numbers = iter(range(1, 10**6))

    def later(self) -> None:
        self.story.pause()

    def parks(self, key: str = "m") -> None:
        self.sender.sent(f"healthy-{key}")
        self.arrives(1, f"healthy-{key}")
        self.sender.parked(key)

    def another(self) -> Syphon:
        self.later()
        return self.story.syphon()

    def arrives(self, times: int, key: str = "m") -> None:
        for _ in range(times):
            self.receiver.received(key, numbers=(next(self._numbers),))

    def ends(self) -> None:
        self.story.end(but=tuple(self.killed))


def _forwarded_by_its_successor(scene: Scene) -> None:
    scene.parks()
    scene.another().forwarded("m")
    scene.arrives(2)


def _held_by_one_that_was_silent_since_its_start(scene: Scene) -> None:
    scene.story.now += 3600.0
    _forwarded_by_its_successor(scene)


def _killed_twice(scene: Scene) -> None:
    scene.parks()
    second = scene.another()
    scene.killed.append(second.journal)
    scene.another().forwarded("m")
    scene.arrives(3)


def _killed_twice_and_not_forwarded_yet(scene: Scene) -> None:
    scene.parks()
    scene.killed.append(scene.another().journal)
    scene.arrives(2)


def _recorded_before_it_was_killed(scene: Scene) -> None:
    scene.parks()
    scene.doomed.forwarded("m")
    scene.another().forwarded("m")
    scene.arrives(2)


def _one_copy_more_than_kills(scene: Scene) -> None:
    scene.parks()
    scene.another().forwarded("m")
    scene.arrives(3)


def _recorded_and_one_more(scene: Scene) -> None:
    scene.parks()
    scene.doomed.forwarded("m")
    scene.another().forwarded("m")
    scene.arrives(3)


def _forwarded_by_nobody_else(scene: Scene) -> None:
    scene.parks()
    scene.doomed.forwarded("m")
    scene.arrives(2)


def _parked_after_its_successor_began(scene: Scene) -> None:
    successor = scene.another()
    scene.later()
    scene.parks()
    scene.later()
    successor.forwarded("m")
    scene.arrives(2)


def _still_writing_after_it_was_forwarded(scene: Scene) -> None:
    scene.parks()
    scene.another().forwarded("m")
    scene.later()
    scene.doomed.forwarded("other")
    scene.sender.parked("other")
    scene.arrives(2)


def _ended_as_it_should(scene: Scene) -> None:
    scene.killed.clear()
    _forwarded_by_its_successor(scene)


def _of_another_secondary(scene: Scene) -> None:
    scene.parks()
    scene.killed[0].abandon()
    other = scene.story.journal(WriterRole.SYPHON, PairLabels("contoso", "elsewhere"))
    Syphon(scene.story, other).drained()
    scene.killed = [other]
    scene.story.journals.remove(scene.doomed.journal)
    for file in scene.story.directory.glob(f"*{scene.doomed.journal.writer}*"):
        file.unlink()
    scene.another().forwarded("m")
    scene.arrives(2)


def _never_parked(scene: Scene) -> None:
    scene.sender.sent("m")
    scene.another()
    scene.arrives(2)


EXPLAINED: tuple[Callable[[Scene], None], ...] = (
    _forwarded_by_its_successor,
    _held_by_one_that_was_silent_since_its_start,
    _killed_twice,
    _killed_twice_and_not_forwarded_yet,
    _recorded_before_it_was_killed,
)
UNEXPLAINED: tuple[Callable[[Scene], None], ...] = (
    _one_copy_more_than_kills,
    _recorded_and_one_more,
    _forwarded_by_nobody_else,
    _parked_after_its_successor_began,
    _still_writing_after_it_was_forwarded,
    _ended_as_it_should,
    _of_another_secondary,
    _never_parked,
)


def _name(scene: Callable[[Scene], None]) -> str:
    return scene.__name__[1:].replace("_", " ")


@pytest.mark.spec("G-4")
@pytest.mark.parametrize("play", EXPLAINED, ids=_name)
def test_a_copy_that_a_kill_explains_is_green(tmp_path: Path, play: Callable[[Scene], None]) -> None:
    scene = Scene(tmp_path / "journals")
    play(scene)
    scene.ends()

    summary = audited(tmp_path / "journals", tmp_path / "out").summary

    assert (summary.duplicated, summary.unexplained) == (1, 0)
    assert oracle.duplicates(tmp_path / "journals") == {"m": False}


@pytest.mark.spec("G-4")
@pytest.mark.parametrize("play", UNEXPLAINED, ids=_name)
def test_a_copy_that_no_kill_explains_stays_red(tmp_path: Path, play: Callable[[Scene], None]) -> None:
    scene = Scene(tmp_path / "journals")
    play(scene)
    scene.ends()

    summary = audited(tmp_path / "journals", tmp_path / "out").summary

    assert (summary.unexplained, summary.is_conserved) == (1, False)
    if play is not _of_another_secondary:  # the independent one knows one pair
        assert oracle.duplicates(tmp_path / "journals") == {"m": True}


@pytest.mark.spec("G-4", "R-141")
def test_the_syphon_whose_kill_explains_a_copy_is_named(tmp_path: Path) -> None:
    scene = Scene(tmp_path / "journals")
    _forwarded_by_its_successor(scene)
    scene.ends()

    result = audited(tmp_path / "journals", tmp_path / "out")
    (row,) = result.rows("duplicates")
    (sentence,) = killed_syphons(result.summary)

    assert row.killed == [scene.doomed.journal.writer]
    assert sentence.startswith(
        f"1 messages have a copy that the end of the syphon {scene.doomed.journal.writer} explains: its "
        "journal stops at 2026-11-21 12:00:00 UTC without a closing record"
    )
    assert sentence in (result.out / "report.html").read_text("utf-8")


@pytest.mark.spec("G-4", "R-146")
def test_a_kill_of_yesterday_explains_todays_copy_in_the_daily_audit(tmp_path: Path) -> None:
    scene = Scene(tmp_path / "journals")
    scene.parks()
    scene.arrives(1)
    assert audit_daily(tmp_path / "journals", tmp_path / "state").summary.is_conserved
    scene.story.now += 86_400.0
    scene.another().forwarded("m")
    scene.arrives(1)
    scene.ends()

    today = audit_daily(tmp_path / "journals", tmp_path / "state").summary

    assert (today.duplicated, today.unexplained, today.is_conserved) == (1, 0, True)
    assert today.killed == {scene.doomed.journal.writer: 1}


@pytest.mark.spec("G-4", "R-146")
def test_a_syphon_found_alive_explains_nothing_in_the_next_run(tmp_path: Path) -> None:
    scene = Scene(tmp_path / "journals")
    scene.parks()
    scene.another().forwarded("m")
    scene.arrives(2)
    assert audit_daily(tmp_path / "journals", tmp_path / "state").summary.unexplained == 0
    scene.later()
    scene.killed.clear()
    scene.ends()  # it only waited

    assert audit_daily(tmp_path / "journals", tmp_path / "state").summary.unexplained == 1


@pytest.mark.spec("G-4", "R-146")
def test_a_late_journal_of_a_kill_explains_a_red_copy(tmp_path: Path) -> None:
    scene = Scene(tmp_path / "journals")
    _forwarded_by_its_successor(scene)
    scene.ends()
    (of_doomed,) = (tmp_path / "journals").glob(f"*{scene.doomed.journal.writer}*")
    late = of_doomed.rename(tmp_path / of_doomed.name)
    assert audit_daily(tmp_path / "journals", tmp_path / "state").summary.unexplained == 1
    late.rename(of_doomed)

    assert audit_daily(tmp_path / "journals", tmp_path / "state").summary.unexplained == 0


@pytest.mark.spec("G-4")
@pytest.mark.parametrize("seed", range(3))
def test_two_engines_agree_on_the_copies_of_many_messages_and_kills(tmp_path: Path, seed: int) -> None:
    scene, luck = Scene(tmp_path / "journals"), random.Random(seed)
    syphon = scene.doomed
    for number in range(600):
        key = f"m{number}"
        scene.story.now += luck.random() * 2
        if number % 100 == 99:
            if luck.random() < 0.4:
                scene.killed.remove(syphon.journal)  # it stops as it should
            syphon = scene.story.syphon()
            scene.killed.append(syphon.journal)
        scene.sender.parked(key, ambiguous=luck.random() < 0.1)
        for _ in range(luck.choice((0, 1, 1, 1, 2))):
            scene.story.now += luck.random()
            syphon.forwarded(key)
        scene.arrives(luck.choice((1, 1, 2, 3)), key)
    scene.ends()

    found = audited(tmp_path / "journals", tmp_path / "out")
    ours = {row.message_id: not row.is_explained for row in found.rows("duplicates")}

    assert ours == oracle.duplicates(tmp_path / "journals")
    assert {True, False} == set(ours.values())
    assert found.summary.killed


MESSAGES, WINDOW, LOCK = 4000, 100, 5000


@pytest.fixture
def pair() -> Iterator[Pair]:
    with Broker({"contoso": 0, "contoso-dr": 0}) as broker:
        pair = Pair(broker.namespace("contoso"), broker.namespace("contoso-dr"))
        pair.primary.create_queue("orders")
        for index in range(BACKLOGS):
            pair.secondary.create_queue(pair.backlog(index), max_delivery_count=2**31 - 1, lock_duration=LOCK)
        yield pair


@pytest.mark.slow
@pytest.mark.spec("G-4", "F-16")
async def test_the_audit_of_a_day_with_two_real_kills_is_green(pair: Pair, tmp_path: Path) -> None:
    journals = tmp_path / "journals"
    await _park(pair, journals)
    flags = ("--window", str(WINDOW), "--journal", str(journals))
    for kill in range(2):
        process = await start_syphon(pair, *flags)
        goal = MESSAGES * (kill + 1) // 4
        await until(lambda goal=goal: pair.primary.counts("orders").active >= goal)
        process.send_signal(signal.SIGKILL)
        await process.wait()
        assert pair.waiting() > 0, "the drain ended before the kill, so the test proves nothing"
    process = await start_syphon(pair, *flags, "--drain")
    _, said = await process.communicate()
    assert process.returncode == 0, said.decode()
    await _receive(pair, journals)

    summary = audit(journals, tmp_path / "out", aliases=_names(pair))

    assert summary.messages == MESSAGES + 1
    assert summary.duplicated > 0, "nothing was in flight: the test proves nothing"
    assert (summary.unexplained, summary.is_conserved) == (0, True)


def _names(pair: Pair) -> dict[str, str]:
    ends = {"contoso": pair.primary, "contoso-dr": pair.secondary}
    return {namespace_label(parse(end.connection_string).netloc): name for name, end in ends.items()}


async def _park(pair: Pair, journals: Path) -> None:
    """Park all messages, and keep the journal of a sender that did it."""
    with Journal(journals, role=WriterRole.SENDER, pair=PairLabels("contoso", "contoso-dr")) as journal:
        journal.write(SendAccepted("orders", "primary", None, ("healthy",), False))
        for index in range(BACKLOGS):
            numbers = range(index, MESSAGES, BACKLOGS)
            await pair.park([parked(number) for number in numbers], index)
            ids = tuple(f"m{number}" for number in numbers)
            journal.write(MessageParked(0.0, "orders", index, len(ids), ids))


async def _receive(pair: Pair, journals: Path) -> None:
    """Receive all messages, and keep the journal of a receiver that did it."""
    arrived = await take(pair.primary, "orders", pair.primary.counts("orders").active)
    ids = tuple(message_id(each) for each in arrived)
    with Journal(journals, role=WriterRole.RECEIVER, pair=PairLabels("contoso", "contoso-dr")) as journal:
        for number, key in enumerate((*ids, "healthy"), 1):
            journal.write(MessagesReceived("orders", (key,), ("",), (number,)))
