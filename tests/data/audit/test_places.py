"""Messages that wait are listed by place: a spool on one machine is another thing than a backlog queue."""

from __future__ import annotations

import shutil
from pathlib import Path

import pytest

from sbpair.data.audit.daily import audit_daily
from sbpair.observation import WriterRole
from tests.data.audit.audited import audited
from tests.data.audit.story import Story


@pytest.mark.spec("R-131", "R-146")
def test_waiting_messages_are_listed_by_entity_backlog_queue_and_spool(tmp_path: Path) -> None:
    story = Story(tmp_path / "journals")
    sender, other, primary, secondary = (
        story.sender(),
        story.sender(),
        story.broker(),
        story.broker("contoso-dr"),
    )
    story.syphon()
    story.pause()
    for each in (sender, other):
        each.sent("m0")
    sender.sent("e1", path="Orders")
    primary.stored("m0", "e1", path="Orders")
    primary.removed("m0")
    sender.parked("b1", "b2", number=3)
    secondary.stored("b1", "b2", number=3)
    sender.spooled("s1", "s2", "s3")
    other.spooled("s4")
    story.pause()
    story.end()
    by_host = {}
    for name, each in (("host-7", sender), ("host-8", other)):
        (file,) = story.directory.glob(f"*{each.journal.writer}*")
        (story.directory / name).mkdir()
        shutil.move(file, story.directory / name)
        by_host[name] = f"{each.journal.writer}, whose journal is {name}/{file.name}"

    result = audited(tmp_path / "journals", tmp_path / "out")
    expected = {
        f"the spool of the sender {by_host['host-7']}": 3,
        "the backlog queue contoso/x-servicebus-transfer/3 on contoso-dr": 2,
        "the entity Orders on contoso": 1,
        f"the spool of the sender {by_host['host-8']}": 1,
    }

    assert result.summary.waiting == expected
    assert audit_daily(tmp_path / "journals", tmp_path / "state").summary.waiting == expected
    html = (result.out / "report.html").read_text("utf-8")
    assert all(f"<td>{place}</td><td class=n>{count}</td>" in html for place, count in expected.items())
    places = {row.message_id: row.place for row in result.rows("messages")}
    assert (places["e1"], places["m0"]) == ("the entity Orders on contoso", None)


@pytest.mark.spec("R-146")
def test_a_spool_keeps_its_name_when_the_journal_is_closed(tmp_path: Path) -> None:
    story = Story(tmp_path / "journals")
    syphon, sender = story.syphon(), story.sender()
    sender.parked("b1")
    audit_daily(tmp_path / "journals", tmp_path / "state")
    sender.spooled("s1")
    syphon.drained()
    story.end()
    (file,) = story.directory.glob(f"*{sender.journal.writer}*")
    assert story.file_of(WriterRole.SENDER) == file

    daily = audit_daily(tmp_path / "journals", tmp_path / "state").summary

    assert daily.waiting == audited(tmp_path / "journals", tmp_path / "out").summary.waiting
    assert f"the spool of the sender {sender.journal.writer}, whose journal is {file.name}" in daily.waiting


def test_a_message_spooled_by_two_senders_is_listed_in_one_spool(tmp_path: Path) -> None:
    story = Story(tmp_path / "journals")
    for _ in range(2):
        story.sender().spooled("s1")
    story.end()

    summary = audited(tmp_path / "journals", tmp_path / "out").summary

    assert summary.waiting == {"the spool of one of several senders of contoso": 1}
