"""Each entry of the contract has a standing, and each witness of one is in the data."""

from __future__ import annotations

import re
from collections import Counter

import pytest

from sbpair.contract.book import entries
from tests.cloud.witnesses import Standing, contradicted, sources, standing_of, witnessed
from tests.tools.source import ROOT

pytestmark = [pytest.mark.client("model"), pytest.mark.spec("W-7")]


def test_witnesses_refer_to_known_entries_and_facts() -> None:
    known = {each.id for each in entries()}
    assert set(witnessed()) | set(contradicted()) <= known
    assert {each for found in witnessed().values() for each in found} <= sources().keys()


def test_no_contract_entry_is_contradicted_by_a_recording() -> None:
    assert [each.id for each in entries() if standing_of(each.id) is Standing.CONTRADICTED] == []


def test_the_readme_states_the_number_of_witnessed_entries() -> None:
    counts = Counter(standing_of(each.id) for each in entries())
    readme = " ".join((ROOT / "README.md").read_text("utf-8").split())
    told = re.search(r"(\d+) of its (\d+) assumptions", readme)
    assert told is not None
    assert [int(each) for each in told.groups()] == [counts[Standing.WITNESSED], counts.total()]
