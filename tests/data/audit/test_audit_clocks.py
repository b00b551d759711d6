"""Clocks that differ, and what an audit says of bills, flows and messages that it cannot prove."""

from __future__ import annotations

import time
from datetime import UTC, datetime
from html import escape
from itertools import pairwise
from pathlib import Path

import pytest

from sbpair.audit import Verdict
from sbpair.data.audit.result.report import headline
from sbpair.pair.pairing.events import PingFailed, PingSent
from sbpair.pair.syphon.events import ClockDiffers
from tests.data.audit.audited import audited
from tests.data.audit.story import Cast


@pytest.mark.spec("R-75")
@pytest.mark.parametrize("ahead", [-10.0, 10.0])
def test_a_known_syphon_clock_error_loses_no_message(tmp_path: Path, ahead: float) -> None:
    """Its journal says that the secondary's clock is ``ahead`` of its own: it writes so much too early."""
    cast = Cast.of(tmp_path / "journals")
    cast.syphon.journal.write(ClockDiffers(cast.syphon.at, ahead))
    cast.story.now = 100.0
    cast.sender.parked("waits", "is home")
    cast.story.now = 97.0 - ahead  # at 97 by the right clock
    cast.syphon.drained()
    cast.story.now = 104.0
    cast.receiver.emptied()
    cast.story.now = 110.0 - ahead  # and at 110
    cast.syphon.forwarded("is home")
    cast.story.end()

    found = audited(tmp_path / "journals", tmp_path / "out")

    assert {row.message_id: row.verdict for row in found.rows("messages")} == {
        "waits": Verdict.WAITING.value,
        "is home": Verdict.ACCEPTED.value,
    }
    assert [clock.shift for clock in found.summary.clocks] == [ahead]


@pytest.mark.spec("R-75")
def test_clocks_that_differ_by_more_than_allowed_make_the_verdict_unproven(tmp_path: Path) -> None:
    cast = Cast.of(tmp_path / "journals")
    cast.story.now = 20.0
    cast.sender.parked("m")
    cast.story.now = 12.0
    cast.syphon.forwarded("m")
    cast.story.end()

    summary = audited(tmp_path / "journals", tmp_path / "out").summary

    assert (summary.shown, summary.is_conserved) == (8.0, False)
    assert "differ by at least 8.0 s (--skew 1s)" in headline(summary)
    assert audited(tmp_path / "journals", tmp_path / "out", skew=9.0).summary.is_conserved


@pytest.mark.spec("R-79")
def test_a_ping_that_failed_is_not_billed(tmp_path: Path) -> None:
    cast = Cast.of(tmp_path / "journals")
    for number in range(3):
        cast.sender.journal.write(PingSent(1000.0, "orders", number))
    for _ in range(2):
        cast.sender.journal.write(PingFailed(1000.0, "orders", "refused"))
    cast.story.end()

    bill = audited(tmp_path / "journals", tmp_path / "out").summary.bill

    assert {charge.operations for charge in bill if charge.kind == "pings"} == {1}


@pytest.mark.spec("R-79")
def test_the_time_between_two_bursts_is_empty_in_the_flow_chart(tmp_path: Path) -> None:
    cast = Cast.of(tmp_path / "journals")
    cast.sender.parked("early", "late")
    cast.syphon.forwarded("early")
    cast.story.now = 3600.0
    cast.syphon.forwarded("late")
    cast.story.end()

    summary = audited(tmp_path / "journals", tmp_path / "out").summary

    assert [each.forwarded for each in summary.flow] == [1, *[0] * (len(summary.flow) - 2), 1]
    assert len(summary.flow) > 100
    apart = {(after.at - before.at).total_seconds() for before, after in pairwise(summary.flow)}
    assert apart == {summary.step}


@pytest.mark.spec("R-79")
@pytest.mark.parametrize("zone", ["Europe/Berlin", "America/New_York"])
def test_the_repeated_hour_at_the_end_of_summer_time_is_not_counted_twice(
    tmp_path: Path, zone: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    """02:30 local time comes twice in that night; times are in UTC throughout."""
    monkeypatch.setenv("TZ", zone)
    time.tzset()
    monkeypatch.setattr("tests.data.audit.story.NOON", 1_792_886_400.0)  # 2026-10-25T00:00:00Z
    cast = Cast.of(tmp_path / "journals")
    cast.story.now = 1800.0
    cast.sender.parked("m")
    cast.story.now = 5400.0
    cast.syphon.forwarded("m")
    cast.story.end()
    result = audited(tmp_path / "journals", tmp_path / "out")
    monkeypatch.undo()
    time.tzset()

    (row,) = result.rows("messages")
    assert (row.parked_at, row.forwarded_at) == (
        datetime(2026, 10, 25, 0, 30, tzinfo=UTC),
        datetime(2026, 10, 25, 1, 30, tzinfo=UTC),
    )
    assert [wait.longest for wait in result.summary.waits] == [3600.0]
    assert "2026-10-25 01:30:00.000" in (result.out / "report.html").read_text("utf-8")


@pytest.mark.spec("R-75")
def test_each_unproven_message_has_its_reason(tmp_path: Path) -> None:
    cast = Cast.of(tmp_path / "journals")
    cast.sender.parked("parked")
    cast.sender.spooled("spooled")
    cast.receiver.received("parked-elsewhere", path="invoices")
    cast.story.end(but=(cast.syphon.journal, cast.sender.journal))

    result = audited(tmp_path / "journals", tmp_path / "out")

    reasons = {row.message_id: row.reason for row in result.rows("messages")}
    syphon, sender = cast.syphon.journal.writer[:8], cast.sender.journal.writer[:8]
    killed = "it has no closing record: killed, or still writing"
    assert reasons == {
        "parked": f"it was parked, but was it forwarded? a journal is incomplete (syphon {syphon}: {killed})",
        "spooled": f"it was spooled, but did it leave the spool? a journal is incomplete (sender {sender}: {killed})",
        "parked-elsewhere": None,
    }
    assert sum(result.summary.reasons.values()) == 2
    assert escape(reasons["parked"]) in (result.out / "report.html").read_text("utf-8")


@pytest.mark.spec("G-2")
def test_a_dead_letter_without_a_path_belongs_to_each_entity_that_parked_its_id(
    tmp_path: Path,
) -> None:
    cast = Cast.of(tmp_path / "journals")
    cast.sender.parked("m", path="orders")
    cast.sender.parked("m", path="Orders")
    cast.sender.parked("m", path="invoices")
    cast.syphon.set_aside("m", path=None)
    cast.story.end()

    rows = audited(tmp_path / "journals", tmp_path / "out").rows("messages")

    assert {(row.path_key, row.set_aside, row.parked) for row in rows} == {
        ("orders", 1, 2),
        ("invoices", 1, 1),
    }


@pytest.mark.spec("R-75")
@pytest.mark.parametrize("is_killed", [False, True])
def test_a_forward_recorded_after_the_receive_shows_a_fast_syphon_clock(
    tmp_path: Path, is_killed: bool
) -> None:
    """Unless its journal is incomplete: then it may have forwarded the message before, unrecorded."""
    cast = Cast.of(tmp_path / "journals")
    cast.sender.sent("other")
    cast.sender.parked("m")
    cast.story.now = 5.0
    cast.receiver.received("m", "other")
    cast.story.now = 15.0  # five seconds, by the right clock
    cast.syphon.forwarded("m")
    cast.story.end(but=(cast.syphon.journal,) if is_killed else ())

    summary = audited(tmp_path / "journals", tmp_path / "out").summary

    assert (summary.shown, summary.is_conserved) == ((0.0, True) if is_killed else (10.0, False))
