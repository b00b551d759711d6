"""Tampered journals and incidents on both engines: a sample; all cases are `python -m tests.trials.tampering`."""

from __future__ import annotations

from pathlib import Path

import pytest

from tests.trials.tampering.__main__ import played_incidents, tampered_stories
from tests.trials.tampering.playing import played


@pytest.mark.long
@pytest.mark.trial
@pytest.mark.spec("R-141", "R-142")
@pytest.mark.parametrize(("engine", "every"), [("local", 11), ("spark", 31)])
def test_no_sampled_tampering_makes_an_audit_green(engine: str, every: int, tmp_path: Path) -> None:
    some = list(tampered_stories([7], tmp_path))[::every]
    assert played(engine, some)["wrong"] == []


@pytest.mark.long
@pytest.mark.trial
@pytest.mark.spec("R-221", "R-222", "R-223", "R-224", "R-225", "R-227")
@pytest.mark.parametrize(("engine", "every"), [("local", 7), ("spark", 5)])
def test_each_sampled_incident_gets_its_expected_audit(engine: str, every: int) -> None:
    some = list(played_incidents([11]))[::every]
    assert played(engine, some)["wrong"] == []
