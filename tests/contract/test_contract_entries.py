"""The entries are data that other pages rest on."""

from __future__ import annotations

import pytest

from sbpair.contract.book import SUBJECTS, entries, of_subject
from sbpair.contract.entry import Price
from tests.test_spec import spec_rows
from tests.tools.blocks.contract import ARTICLE, NONE, PROMISES, resting_on
from tests.tools.source import DOCS


@pytest.mark.spec("K-2")
def test_every_entry_has_a_unique_id_a_sentence_a_source_and_its_dependents() -> None:
    found = entries()
    assert len({each.id for each in found}) == len(found)
    known = {row.id for row in spec_rows()}
    for each in found:
        assert each.sentence.endswith((".", ".)")), each.id
        assert each.source, each.id
        assert each.breaks, each.id
        assert set(each.breaks) <= known, each.id
        assert each.price == Price() or each.price.total > 0, each.id


@pytest.mark.spec("K-2")
def test_every_source_is_an_article_or_names_its_kind() -> None:
    kinds = ("the SDK", "the AMQP standard", "issues of the SDKs", "paired namespaces", "inferred", "decided")
    others = {
        each.id: each.source
        for each in entries()
        if not ARTICLE.search(each.source) and not each.source.startswith(kinds)
    }
    assert others == {}


@pytest.mark.spec("K-2", "K-5")
def test_every_guarantee_names_its_entries_or_says_that_it_needs_none() -> None:
    page = (DOCS / "explanation" / "guarantees.md").read_text("utf-8")
    promised = page.partition("## Promised")[2].partition("## Not promised")[0]
    names = [line.split("|")[1].strip() for line in promised.splitlines() if line.startswith("| ")][1:]

    assert names == list(PROMISES)
    assert {name for ids in PROMISES.values() for name in ids} <= {row.id for row in spec_rows()}
    for name, ids in PROMISES.items():
        said = ", ".join(each.id for each in resting_on(ids)) or NONE
        assert f"| {name} | {said} |" in page


@pytest.mark.spec("K-3")
def test_the_entries_of_every_subject_are_numbered_from_one() -> None:
    for subject in SUBJECTS:
        numbers = [each.id for each in of_subject(subject)]
        assert numbers == [f"{subject}-{n}" for n in range(1, len(numbers) + 1)]
        assert numbers
