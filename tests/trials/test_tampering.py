"""Tampered journals on Spark: a sample; all cases are `python -m tests.trials.tampering`."""

from __future__ import annotations

import pytest

from tests.audit.tampering import cases
from tests.trials.tampering.__main__ import played


@pytest.mark.trial
@pytest.mark.spec("R-141", "R-142")
@pytest.mark.parametrize("engine", ["local", "spark"])
def test_of_a_sample_of_tamperings_no_audit_is_green_by_mistake(engine: str) -> None:
    some = list(cases([7]))[::11]
    assert played(engine, some)["wrong"] == []
