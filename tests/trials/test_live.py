"""The results of the SDK's own tests are classified and stored correctly."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from tests.trials.live import record
from tests.trials.live.report import known_failures

LISTED = next(iter(known_failures(is_paired=False)))


def kept(path: Path, **outcomes: str) -> Path:
    """What `--keep` would have written: some tests of this outcome, beside all that are listed."""
    lines = dict.fromkeys(known_failures(is_paired=False), "failed") if path.stem == "run" else {}
    lines |= {f"test_queues.py::{name}": outcome for name, outcome in outcomes.items()}
    notes = [{"test": test, "outcome": outcome, "seconds": 1.0, "why": ""} for test, outcome in lines.items()]
    path.write_text("".join(json.dumps(note) + "\n" for note in notes))
    return path


@pytest.fixture
def results(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.setattr(record, "RESULTS", tmp_path / "results.json")
    return tmp_path / "results.json"


GOOD = {f"good_{number}": "passed" for number in range(200)}


def test_a_run_with_an_unlisted_failure_is_not_stored(
    results: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    run = kept(tmp_path / "run.jsonl", **GOOD, bad="failed")
    assert record.main(["plain", str(run)]) == 1
    assert "FAILED test_queues.py::bad" in capsys.readouterr().out
    assert not results.exists()


def test_a_listed_failure_that_passes_is_reported(tmp_path: Path) -> None:
    lines = kept(tmp_path / "run.jsonl", **GOOD).read_text().replace("failed", "passed")
    (tmp_path / "all.jsonl").write_text(lines)
    verdict, _ = record.merged([tmp_path / "all.jsonl"], is_paired=False)
    assert f"PASSED, but known.txt lists it: {LISTED}" in verdict.complaints()


def test_a_rerun_failure_counts_by_its_second_result_and_is_reported(results: Path, tmp_path: Path) -> None:
    run = kept(tmp_path / "run.jsonl", **GOOD, starved="failed", left="skipped")
    again = kept(tmp_path / "again.jsonl", starved="passed")
    assert record.main(["plain", str(run), str(again)]) == 0
    told = record.read()["plain"]
    assert told["again"] == 1
    assert told["files"]["messages"]["passed"] == len(GOOD) + 1
    assert told["files"]["messages"]["listed"] == len(known_failures(is_paired=False))
    assert told["files"]["messages"]["skipped"] == 1
    assert "starved" not in results.read_text()


def test_only_failed_tests_may_be_rerun(tmp_path: Path) -> None:
    run, again = kept(tmp_path / "run.jsonl", **GOOD), kept(tmp_path / "again.jsonl", good_1="failed")
    with pytest.raises(ValueError, match=r"had passed: test_queues\.py::good_1"):
        record.merged([run, again], is_paired=False)
