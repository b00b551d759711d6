"""What share of visible mutants the contract finds: which are tried, and how the share is counted."""

from __future__ import annotations

import ast

import pytest

pytest.importorskip("mutmut", reason="it comes with the group mutation")

from tests.trials.mutation import contract
from tests.trials.mutation.contract import (
    AREAS,
    BROKER,
    FOUND,
    SURVIVED,
    UNKNOWN,
    Mutant,
    Outcome,
    measure,
    report,
)

pytestmark = pytest.mark.spec("R-170")
ONE, OTHER = (Mutant("entities/sessions.py", f"{each}", "a", "b") for each in ("one", "other"))


def test_every_mutated_module_is_in_an_area() -> None:
    for module in contract.sources():
        name = module.relative_to(BROKER).as_posix()
        assert Mutant(name, "", "", "").area in AREAS


def test_a_mutant_is_a_different_program_that_differs_in_the_named_lines() -> None:
    module = BROKER / "entities" / "allowed_use.py"
    made = [make() for _, make in contract.mutants(module)]
    found = [each for each in made if each is not None]

    assert found
    for mutant, text in found:
        ast.parse(text)
        assert mutant.was != mutant.now
        assert text != module.read_text("utf-8")


@pytest.mark.parametrize(
    ("judged", "code", "said"),
    [
        ({}, 1, "without a judgement"),
        ({OTHER: {"hidden": "nobody sees it"}}, 0, "100.0%  1 of 1"),
        ({OTHER: {"shows": "receive_messages"}}, 1, "50.0%  1 of 2"),
    ],
)
def test_the_share_counts_differences_that_a_client_can_see(
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
    judged: dict[Mutant, dict[str, str]],
    code: int,
    said: str,
) -> None:
    monkeypatch.setattr(contract, "judgements", lambda: judged)

    assert report(measure([Outcome(ONE, FOUND, "sessions-1"), Outcome(OTHER, SURVIVED)])) == code
    assert said in capsys.readouterr().out
    assert report(measure([Outcome(ONE, FOUND, "sessions-1"), Outcome(OTHER, UNKNOWN)])) == code
