"""The daily audit in short: like one audit of everything on each day, and after real kills."""

from __future__ import annotations

from pathlib import Path

import pytest

from sbpair.data.audit.daily import audit_daily
from tests.data.audit.audited import audited
from tests.data.audit.month import month
from tests.data.audit.test_daily import rows
from tests.trials.daily import measured


@pytest.mark.long
@pytest.mark.trial
@pytest.mark.spec("R-146")
def test_on_every_day_the_tables_are_those_of_one_audit_of_everything(tmp_path: Path) -> None:
    journals, state = tmp_path / "journals", tmp_path / "state"
    for day in month(journals, days=10, messages=60):
        daily, whole = audit_daily(journals, state), audited(journals, tmp_path / "out")
        assert rows(state / "current", "messages") == rows(tmp_path / "out", "messages"), f"day {day}"
        assert rows(state / "current", "order") == rows(tmp_path / "out", "order")
        assert daily.summary.verdicts == whole.summary.verdicts


@pytest.mark.long
@pytest.mark.trial
@pytest.mark.spec("R-146")
def test_a_run_that_is_killed_at_a_random_moment_repeats_to_the_same_tables(tmp_path: Path) -> None:
    report = measured(tmp_path, days=3, messages=2000, kills=4, seed=7)
    assert report.differing == 0
    assert report.ended_before < report.kills


@pytest.mark.long
@pytest.mark.trial
@pytest.mark.spec("R-146")
def test_simulated_daily_audits_equal_one_audit_of_everything(tmp_path: Path) -> None:
    report = measured(tmp_path, days=2, runs=2, kills=1, seed=1)
    assert (report.unequal, report.differing) == (0, 0)
    assert report.messages > 30
