"""Each entry of the contract has a standing, and each witness of one is in the data."""

from __future__ import annotations

import re
from collections import Counter

import pytest

from sbpair.contract.book import entries
from tests.cloud.witnesses import Standing, contradicted, sources, standing_of, witnessed
from tests.tools.source import ROOT

pytestmark = [pytest.mark.client("model"), pytest.mark.spec("W-7")]


def test_witnesses_are_of_known_entries_and_known_facts() -> None:
    known = {each.id for each in entries()}
    assert set(witnessed()) | set(contradicted()) <= known
    assert {each for found in witnessed().values() for each in found} <= sources().keys()


def test_no_entry_is_contradicted() -> None:
    assert [each.id for each in entries() if standing_of(each.id) is Standing.CONTRADICTED] == []


def test_readme_says_how_many_entries_are_witnessed() -> None:
    counts = Counter(standing_of(each.id) for each in entries())
    readme = " ".join((ROOT / "README.md").read_text("utf-8").split())
    told = re.search(r"(\d+) of its (\d+) assumptions", readme)
    assert told is not None
    assert [int(each) for each in told.groups()] == [counts[Standing.WITNESSED], counts.total()]
