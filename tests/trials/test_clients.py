"""The trial of :mod:`tests.trials.clients`, with few faults and every client."""

from __future__ import annotations

import pytest

from tests.trials.clients.contestants import CONTESTANTS
from tests.trials.clients.table import Settings, run

FAULTS = ("twice-answer", "r-reset-message")


@pytest.mark.interop
@pytest.mark.timeout(240)
@pytest.mark.spec("E-7")
def test_every_client_meets_a_fault_and_ours_continues_unharmed() -> None:
    names = tuple(contestant.name for contestant in CONTESTANTS)
    found = run(Settings(names, FAULTS, messages=1, jobs=8), show=lambda line: None)["rounds"]
    assert {(each["fault"], each["client"]) for each in found} == {
        (fault, client) for fault in FAULTS for client in names
    }
    assert [each for each in found if not each.get("has_struck")] == []
    assert [each for each in found if each["lost"]] == []
    ours = [each for each in found if each["client"].startswith("sbpair")]
    assert [each for each in ours if each["duplicates"] or each["again"] or each["hangs"]] == []
