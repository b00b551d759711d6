"""The daily audit: every day it has the tables of one audit of everything, at the cost of a day."""

from __future__ import annotations

import shutil
from collections.abc import Iterator
from datetime import UTC, date, datetime
from pathlib import Path
from typing import Any

import pyarrow.dataset as ds
import pyarrow.parquet as pq
import pytest

from sbpair.audit import Verdict
from sbpair.data.audit import job
from sbpair.data.audit.daily import ForeignStateError, StateInUseError, Terms, audit_daily
from sbpair.data.audit.daily import job as daily_job
from sbpair.data.audit.daily.state_folder import StateFolder
from sbpair.data.audit.judge.evidence import Evidence
from sbpair.data.audit.read.writers import WriterFacts
from sbpair.data.audit.result.report import headline
from sbpair.observation import WriterRole
from sbpair.pair.syphon.events import ClockDiffers
from tests.data.audit.audited import Audited, audited
from tests.data.audit.month import DAY, month
from tests.data.audit.story import NOON, Story
from tests.data.audit.tampering import STORIES, told


@pytest.fixture(autouse=True)
def _no_page(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(job, "page", lambda *given: "")
    monkeypatch.setattr(daily_job, "page", lambda *given: "")


def rows(directory: Path, table: str) -> list[str]:
    if not (directory / table).exists():
        return []  # no message yet
    found = ds.dataset(directory / table, format="parquet").to_table().to_pylist()
    return sorted(map(repr, found))


def tables(state: Path) -> dict[str, bytes]:
    """The content of all tables."""
    return {
        path.relative_to(state / "current").as_posix(): path.read_bytes()
        for table in ("messages", "days", "order", "writers")
        for path in (state / "current" / table).rglob("*.parquet")
    }


@pytest.mark.spec("R-146")
def test_daily_audits_have_the_tables_of_one_audit_of_everything(tmp_path: Path) -> None:
    journals, state = tmp_path / "journals", tmp_path / "state"
    for day in month(journals, days=10, messages=40):
        daily = audit_daily(journals, state)
        whole: Audited = audited(journals, tmp_path / "out")

        assert rows(state / "current", "messages") == rows(tmp_path / "out", "messages"), f"day {day}"
        assert rows(state / "current", "writers") == rows(tmp_path / "out", "writers")
        assert rows(state / "current", "order") == rows(tmp_path / "out", "order")
        assert daily.summary.orders == whole.summary.orders
        assert headline(daily.summary) == headline(whole.summary)
        assert daily.summary.verdicts == whole.summary.verdicts
        assert daily.summary.waits == whole.summary.waits
        assert daily.summary.shown == whole.summary.shown
        assert daily.summary.troubles == whole.summary.troubles
        assert daily.summary.duplicates == whole.summary.duplicates
        assert [each.failed_over_at for each in daily.summary.timeline] == [
            each.failed_over_at for each in whole.summary.timeline
        ]
        before = tables(state)
        assert audit_daily(journals, state).summary == daily.summary
        assert tables(state) == before, "a day that is run twice is one day"


class Killed(BaseException):
    """Ends a run where it stands."""


def kill_at(monkeypatch: pytest.MonkeyPatch, step: int) -> Iterator[int]:
    """Let the ``step``-th change of a file in a run be its last; returns the steps that are left."""
    left = iter(range(step))

    def last(change: Any) -> Any:
        def changed(*given: Any, **more: Any) -> Any:
            found = change(*given, **more)
            if next(left, None) is None:
                raise Killed
            return found

        return changed

    for owner, name in (
        (Path, "replace"),
        (Path, "rename"),
        (Path, "unlink"),
        (Path, "mkdir"),
        (Path, "hardlink_to"),
        (Path, "symlink_to"),
        (Path, "write_bytes"),
        (pq, "write_table"),
    ):
        monkeypatch.setattr(owner, name, last(getattr(owner, name)))
    return left


def changes_of(monkeypatch: pytest.MonkeyPatch, journals: Path, state: Path) -> int:
    """How many changes of files a run makes."""
    most = 10_000
    with monkeypatch.context() as patched:
        left = kill_at(patched, most)
        audit_daily(journals, state)
        return most - sum(1 for _ in left)


@pytest.mark.spec("R-146")
def test_a_run_killed_at_any_of_twenty_moments_reruns_to_the_same_tables(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    journals, state = tmp_path / "journals", tmp_path / "state"
    days = month(journals, days=3, messages=30)
    next(days), next(days)
    audit_daily(journals, state)
    before = tables(state)
    next(days)
    whole = shutil.copytree(state, tmp_path / "whole", symlinks=True)
    audit_daily(journals, whole)
    steps = changes_of(monkeypatch, journals, shutil.copytree(state, tmp_path / "counted", symlinks=True))
    for step in {*range(0, steps, steps // 16), *range(steps - 4, steps)}:
        killed = shutil.copytree(state, tmp_path / f"killed-{step}", symlinks=True)
        with monkeypatch.context() as patched:
            kill_at(patched, step)
            with pytest.raises(Killed):
                audit_daily(journals, killed)
        assert tables(killed) in (before, tables(whole)), "no moment at which a reader sees two runs"
        audit_daily(journals, killed)
        assert tables(killed) == tables(whole), f"killed at step {step} of {steps}"


@pytest.mark.spec("R-146")
def test_a_reader_that_resolves_the_link_first_reads_one_consistent_run(tmp_path: Path) -> None:
    journals, state = tmp_path / "journals", tmp_path / "state"
    days = month(journals, days=3, messages=10)
    next(days)
    audit_daily(journals, state)
    found = (state / "current").resolve()
    first = rows(found, "messages")
    next(days)
    audit_daily(journals, state)

    assert rows(found, "messages") == first != rows(state / "current", "messages")
    next(days)
    audit_daily(journals, state)
    assert not found.exists(), "only the last two are kept"


def without_links(monkeypatch: pytest.MonkeyPatch) -> None:
    def refused(*given: object) -> None:
        raise PermissionError(1, "Operation not permitted")

    monkeypatch.setattr(Path, "hardlink_to", refused)


def test_a_file_system_without_hard_links_has_the_same_tables(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    journals = tmp_path / "journals"
    for _ in month(journals, days=2, messages=10):
        audit_daily(journals, tmp_path / "state")
        with monkeypatch.context() as patched:
            without_links(patched)
            audit_daily(journals, tmp_path / "copied")
    assert tables(tmp_path / "copied") == tables(tmp_path / "state")


def test_a_copied_result_whose_link_became_a_folder_is_refused(tmp_path: Path) -> None:
    journals, state = tmp_path / "journals", tmp_path / "state"
    next(month(journals, days=1, messages=5))
    audit_daily(journals, state)
    shutil.copytree(state, tmp_path / "copied")
    with pytest.raises(ForeignStateError, match="holds 'current', which is not of a daily audit"):
        audit_daily(journals, tmp_path / "copied")


def failing(monkeypatch: pytest.MonkeyPatch) -> None:
    def fails(*given: object) -> str:
        raise ZeroDivisionError

    monkeypatch.setattr(daily_job, "page", fails)


def test_a_failed_run_keeps_tables_and_state(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    journals, state = tmp_path / "journals", tmp_path / "state"
    days = month(journals, days=2, messages=10)
    next(days)
    audit_daily(journals, state)
    before = tables(state)
    next(days)
    with monkeypatch.context() as patched:
        failing(patched)
        with pytest.raises(ZeroDivisionError):
            audit_daily(journals, state)
    assert tables(state) == before
    assert audit_daily(journals, state).summary.messages > 10


def test_concurrent_runs_and_a_foreign_directory_are_refused(tmp_path: Path) -> None:
    journals, state = tmp_path / "journals", tmp_path / "state"
    next(month(journals, days=1, messages=5))
    audit_daily(journals, state)
    with StateFolder(state).hold(), pytest.raises(StateInUseError, match="another audit is using"):
        audit_daily(journals, state)
    with pytest.raises(ForeignStateError, match="another skew"):
        audit_daily(journals, state, terms=Terms(skew=2.0))
    with pytest.raises(ForeignStateError, match="which is not of a daily audit"):
        audit_daily(journals, journals)


def test_a_shortened_journal_is_named(tmp_path: Path) -> None:
    journals, state = tmp_path / "journals", tmp_path / "state"
    next(month(journals, days=1, messages=5))
    audit_daily(journals, state)
    (file,) = journals.rglob("receiver-*.jsonl")
    file.write_bytes(b"")
    (unread,) = audit_daily(journals, state).summary.unread
    assert unread.reason == "it is shorter than it was when it was read"


def quietly(journals: Path) -> Story:
    """A day on which all went well."""
    story = Story(journals)
    sender, syphon, receiver = story.sender(), story.syphon(), story.receiver()
    sender.parked("a")
    story.now += 10.0
    syphon.forwarded("a")
    receiver.received("a", numbers=(1,))
    return story


@pytest.mark.spec("R-147")
@pytest.mark.parametrize(
    ("heartbeats", "after", "said"),
    [
        ({"syphon": 3600.0}, 1800.0, ""),
        ({"syphon": 3600.0}, 3700.0, "the journals of syphons are silent since"),
        ({"syphon": 3600.0, "sender": 60.0}, 1800.0, "the journals of senders are silent since"),
        ({"broker": 3600.0}, 1.0, "no journal of a broker has a record"),
    ],
)
def test_silent_journals_make_the_audit_red(
    tmp_path: Path, heartbeats: dict[str, float], after: float, said: str
) -> None:
    story = quietly(tmp_path / "journals")
    at = datetime.fromtimestamp(NOON + story.now + after, UTC)
    terms = Terms(heartbeats=heartbeats)
    found = audit_daily(tmp_path / "journals", tmp_path / "state", terms=terms, at=at).summary
    story.end()

    assert found.is_conserved is not bool(said)
    assert said in headline(found)


@pytest.mark.spec("R-146")
def test_the_named_journals_do_not_depend_on_reading_order() -> None:
    """Else the row of an unproven message would change from run to run."""
    writers = [WriterFacts(f"{number}", role="syphon", primary="contoso") for number in range(5)]
    said = {
        Evidence(each, {}, {}, {}, {}, 1.0).fill_in("{syphon}", "contoso", None)
        for each in (writers, writers[::-1], writers[2:] + writers[:2])
    }
    assert len(said) == 1


@pytest.mark.spec("R-146")
def test_a_result_covers_the_days_since_the_given_one(tmp_path: Path) -> None:
    journals, state = tmp_path / "journals", tmp_path / "state"
    story = Story(journals)
    sender, syphon = story.sender(), story.syphon()
    sender.parked("lost")
    story.now = DAY
    syphon.drained()
    story.end()
    later = Story(journals, now=2 * DAY)
    later.sender().sent("a")
    later.end()
    whole = audit_daily(journals, state)
    recent = audit_daily(journals, state, terms=Terms(since=date(2026, 11, 22)))

    assert (whole.summary.is_conserved, recent.summary.is_conserved) == (False, True)
    assert ([each.bad for each in whole.days], [each.bad for each in recent.days]) == ([1, 0], [0])


@pytest.mark.spec("R-146")
def test_a_day_has_a_row_with_its_losses_waits_and_failovers(tmp_path: Path) -> None:
    journals = tmp_path / "journals"
    for _ in month(journals, days=4, messages=40):
        audit_daily(journals, tmp_path / "state")
    found = audit_daily(journals, tmp_path / "state")  # the syphon has ended, and found its backlogs empty
    table = ds.dataset(tmp_path / "state" / "current" / "days").to_table().to_pylist()
    day = table[2]

    assert [each["day"] for each in table] == [date(2026, 11, 21 + number) for number in range(4)]
    assert (day["failovers"], day["time_to_failover"], day["longest_pause"]) == (1, 30.0, 62.0)
    assert sum(each["messages"] for each in table) == found.summary.messages
    assert sum(each["lost"] for each in table) == found.summary.verdicts[Verdict.LOST] > 0
    assert 0 < day["wait_p50"] <= day["wait_p99"] <= day["wait_longest"]


def test_a_clock_correction_reopens_the_verdicts_that_depend_on_it(tmp_path: Path) -> None:
    """A syphon that measures its clock only later: earlier times are corrected too, as in one audit of everything."""
    journals, state = tmp_path / "journals", tmp_path / "state"
    story = quietly(journals)
    audit_daily(journals, state)
    (syphon,) = [each for each in story.journals if each.role is WriterRole.SYPHON]
    syphon.write(ClockDiffers(NOON + story.now, 2.5))
    audit_daily(journals, state)
    audited(journals, tmp_path / "out")
    story.end()

    assert rows(state / "current", "messages") == rows(tmp_path / "out", "messages")


@pytest.mark.spec("R-146")
@pytest.mark.parametrize("name", STORIES)
def test_incremental_reading_of_all_roles_gives_the_same_verdicts(tmp_path: Path, name: str) -> None:
    original, journals, state = told(name, tmp_path / "told"), tmp_path / "journals", tmp_path / "state"
    journals.mkdir()
    contents = {file: (tmp_path / "told" / file).read_bytes() for file in original.files.values()}
    for share in (0.3, 0.6, 0.9, 1.0):
        for file, content in contents.items():
            (journals / file).write_bytes(content[: int(len(content) * share)])
        daily, whole = audit_daily(journals, state), audited(journals, tmp_path / "out")
        assert rows(state / "current", "messages") == rows(tmp_path / "out", "messages"), share
        assert rows(state / "current", "order") == rows(tmp_path / "out", "order"), share
        assert daily.summary.verdicts == whole.summary.verdicts
        assert daily.summary.reasons == whole.summary.reasons
        assert daily.summary.sessions_broken == whole.summary.sessions_broken
        assert daily.summary.is_conserved == whole.summary.is_conserved
        assert daily.summary.holed == whole.summary.holed
        assert daily.summary.shown == whole.summary.shown


@pytest.mark.spec("R-146", "O-1")
@pytest.mark.parametrize("first_number", [1, 9])
def test_a_session_out_of_order_across_days_is_red(tmp_path: Path, first_number: int) -> None:
    """A message of the first day, and one of the third with a lower number."""
    journals, state = tmp_path / "journals", tmp_path / "state"
    story = Story(journals)
    sender, syphon, receiver = story.sender(), story.syphon(), story.receiver()
    results = []
    for day, number in enumerate((first_number, first_number + 1, 5)):
        story.now = day * DAY
        sender.parked(f"m{day}", session="s")
        story.pause()
        syphon.forwarded(f"m{day}")
        receiver.received(f"m{day}", numbers=(number,), session="s")
        results.append(audit_daily(journals, state).summary)
    story.end()
    is_kept = first_number < 5
    assert [each.is_conserved for each in results] == [True, True, is_kept]
    assert audit_daily(journals, state).summary.sessions_broken == (not is_kept)
    if not is_kept:
        (worst,) = results[-1].orders
        assert (worst.overtaking, worst.overtaken) == ("m2", "m1")
