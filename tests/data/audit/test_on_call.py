"""What a page says of each message to the person on call: where it was last, what decides, and what to do."""

from __future__ import annotations

import os
import re
import subprocess
import sys
from datetime import timedelta
from html import unescape
from pathlib import Path

import pytest

from sbpair.audit import Summary, audit
from sbpair.data.audit.daily import audit_daily
from sbpair.data.audit.daily.days import DayRow
from sbpair.data.audit.daily.page import days_figure
from sbpair.data.audit.judge.waits import Waits
from sbpair.data.audit.read.writers import KILLED
from sbpair.data.audit.result.figures import flow_figure
from sbpair.data.audit.result.flow import FlowStep
from sbpair.data.audit.result.remedies import Remedy
from sbpair.data.audit.result.timeline import Episode
from sbpair.observation import WriterRole
from tests.data.audit.story import Story
from tests.data.audit.test_report import NOON
from tests.data.audit.world import a_day

pytestmark = pytest.mark.spec("R-229")
ROW = re.compile(r"<tr[^>]*>(.*?)</tr>", re.S)


class Night:
    """One of each: lost, waiting, unproven, misplaced, dead-lettered."""

    def __init__(self, place: Path) -> None:
        self.journals, self.out = place / "the journals", place / "out"
        story = Story(self.journals)
        sender, syphon, receiver = story.sender(), story.syphon(), story.receiver()
        sender.parked("it's lost", number=3)
        sender.parked("set aside")
        sender.parked("misplaced", session="a")
        story.pause()
        syphon.set_aside("set aside")
        syphon.forwarded("misplaced")
        syphon.drained()
        story.pause()
        sender.parked("waits", number=2)
        sender.sent("unproven", path="dollar$")
        story.pause()
        receiver.received("misplaced", session="b", numbers=(1,))
        receiver.emptied("dollar$")
        story.end()
        self.files = {role: story.file_of(role).name for role in WriterRole if role is not WriterRole.BROKER}

    def summary(self) -> Summary:
        return audit(self.journals, self.out)

    def rows(self) -> dict[str, list[str]]:
        """The cells of the rows that list a message, by its id."""
        html = (self.out / "report.html").read_text()
        rows = [re.findall(r"<td[^>]*>(.*?)</td>", row, re.S) for row in ROW.findall(html)]
        return {unescape(cells[2]): cells for cells in rows if len(cells) == 6 and "<code>" in cells[5]}


COMMANDS = {
    "it's lost": "sbpair spark replay --audit {out} --dry-run",
    "waits": "sbpair syphon --drain",
    "set aside": "sbpair backlog redrive --index 0",
    "unproven": "sbpair peek 'primary/dollar$' --count 1000000 --json | grep -F '\"unproven\"'",
    "misplaced": "grep -rhF '\"misplaced\"' '{journals}'",
}


def test_each_message_has_its_last_record_its_deciding_journal_and_a_command(tmp_path: Path) -> None:
    night = Night(tmp_path)
    night.summary()
    rows = night.rows()
    commands = {each: unescape(re.sub("<.*?>", "", cells[5])) for each, cells in rows.items()}
    names = {"out": night.out, "journals": night.journals}

    assert commands == {each: text.format(**names) for each, text in COMMANDS.items()}
    seen = re.sub("<.*?>", "", rows["it's lost"][3])
    assert re.fullmatch(
        rf"sender \w{{8}}: 2026-11-21 12:00:00 UTC, record 1 of {night.files[WriterRole.SENDER]}", seen
    )
    anchors = set(re.findall(r"id='(journal-\w{8})'", (night.out / "report.html").read_text()))
    assert set(re.findall(r"href='#(journal-\w{8})'", "".join(rows["it's lost"]))) <= anchors != set()


def test_an_unproven_message_links_to_the_journal_that_decides(tmp_path: Path) -> None:
    story = Story(tmp_path / "journals")
    syphon = story.syphon()
    story.sender().parked("m", number=7)
    story.end(but=(syphon.journal,))
    audit(tmp_path / "journals", tmp_path / "out")
    html = (tmp_path / "out" / "report.html").read_text()
    short = syphon.journal.writer[:8]

    assert f"<a href='#journal-{short}'>syphon {short}</a>: {KILLED}" in html
    assert f"<a id='journal-{short}'>" in html
    assert "sbpair backlog peek --index 7 --count 100000 --json | grep -F" in html


def test_commands_that_need_no_namespace_run_as_printed(tmp_path: Path) -> None:
    night = Night(tmp_path)
    night.summary()
    ran, path = {}, f"{Path(sys.executable).parent}:{os.environ['PATH']}"
    for each in ("it's lost", "misplaced"):
        command = unescape(re.sub("<.*?>", "", night.rows()[each][5]))
        ran[each] = subprocess.run(
            command,
            shell=True,
            capture_output=True,
            text=True,
            cwd=tmp_path / "the journals",
            check=False,
            env={**os.environ, "PATH": path},
        )

    assert (ran["it's lost"].returncode, "  orders: it's lost\n1 messages are missing" in ran["it's lost"].stdout) == (
        1, True,
    ), ran["it's lost"]  # fmt: skip
    assert ran["misplaced"].stdout.count("misplaced") == 3  # parked, forwarded, received


def test_a_daily_audit_prints_commands_that_outlive_its_next_run(tmp_path: Path) -> None:
    night = Night(tmp_path)
    audit_daily(night.journals, tmp_path / "state")
    html = (tmp_path / "state" / "current" / "days.html").read_text()

    assert f"--audit {tmp_path / 'state' / 'current'} --dry-run" in html


def test_a_page_has_one_headline(tmp_path: Path) -> None:
    night = Night(tmp_path)
    night.summary()
    html = (night.out / "report.html").read_text()

    assert len(re.findall("<h1", html)) == 1
    assert html.count("5 messages: lost 1, waiting 1") == 1


@pytest.mark.parametrize(
    ("step", "form"),
    [
        (0.05, r"\d\d:\d\d:\d\d\.\d"),
        (2.7, r"\d\d:\d\d:\d\d"),
        (30.0, r"\d\d:\d\d:\d\d"),
        (600.0, r"\d\d:\d\d"),
        (7200.0, r"\d\d-\d\d \d\d:\d\d"),
    ],
)
def test_every_label_of_a_time_axis_has_its_hour(step: float, form: str) -> None:
    flow = [FlowStep(NOON + timedelta(seconds=step * number), 1, 0, 0) for number in range(100)]
    svg = flow_figure(flow, step, [Episode("c", "o", "w", NOON, NOON, None, "")], {"w": NOON})
    labels = [each for each in re.findall(r"<!-- (.*?) -->", svg) if ":" in each and ";" not in each]

    assert len(labels) > 3
    assert all(re.fullmatch(form, each) for each in labels), labels


def test_a_bar_of_a_day_stands_over_its_day() -> None:
    days = [
        DayRow(NOON.date() + timedelta(days=number), {}, 0, 0, Waits(), 0, None, None) for number in (0, 1, 3)
    ]
    labels = re.findall(r"<!-- (\d{4}-\d\d-\d\d) -->", days_figure(days))

    assert labels == [(NOON.date() + timedelta(days=number)).isoformat() for number in range(4)]


def test_a_message_that_left_its_backlog_queue_is_searched_on_the_primary(tmp_path: Path) -> None:
    world = a_day()
    for who in ("syphon", "primary", "receiver"):
        world.drop(who, ["p05"])
    world.write(tmp_path / "journals", "all")
    (row,) = audit(tmp_path / "journals", tmp_path / "out").troubles

    assert row.remedy in (Remedy.REPLAY, Remedy.PEEK_PRIMARY)
