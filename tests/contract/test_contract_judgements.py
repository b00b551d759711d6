"""What was judged of mutants that the contract does not find is still about lines that are there."""

from __future__ import annotations

import ast
import json
from collections import Counter
from pathlib import Path

import pytest

from tests.tools.proofs import ROOT

JUDGEMENTS = ROOT / "tests" / "trials" / "mutation" / "judgements.jsonl"
BROKER = ROOT / "sbpair" / "broker"


def text_of(module: Path, function: str) -> str:
    """A function's lines as a judgement has them: each stripped, with a space between."""
    name, _, inner = function.rstrip("'").partition(".")
    source = module.read_text("utf-8")
    nodes = [node for node in ast.parse(source).body if getattr(node, "name", None) == name]
    if inner:
        nodes = [
            each
            for node in nodes
            for each in ast.iter_child_nodes(node)
            if getattr(each, "name", None) == inner
        ]
    lines = source.splitlines()
    return " ".join(line.strip() for node in nodes for line in lines[node.lineno - 1 : node.end_lineno])


@pytest.mark.spec("R-170")
def test_every_judgement_cites_a_line_of_its_function_and_what_shows_or_hides_it() -> None:
    judged = [json.loads(line) for line in JUDGEMENTS.read_text("utf-8").splitlines()]

    stale = [each for each in judged if each["was"] not in text_of(BROKER / each["module"], each["function"])]
    assert stale == []
    where = {"module", "function", "was", "now"}
    for each in judged:
        assert set(each) - where in ({"hidden"}, {"shows", "missed"})
    keys = Counter((each["module"], each["function"], each["was"], each["now"]) for each in judged)
    assert [key for key, count in keys.items() if count > 1] == []
