"""Tampered journals on Spark: a sample; all cases are `python -m tests.trials.tampering`."""

from __future__ import annotations

import pytest

from tests.data.audit.tampering import cases
from tests.trials.tampering.__main__ import played


@pytest.mark.long
@pytest.mark.trial
@pytest.mark.spec("R-141", "R-142")
@pytest.mark.parametrize(("engine", "every"), [("local", 11), ("spark", 31)])
def test_of_a_sample_of_tamperings_no_audit_is_green_by_mistake(engine: str, every: int) -> None:
    some = list(cases([7]))[::every]
    assert played(engine, some)["wrong"] == []
