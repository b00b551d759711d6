"""The entries are data that other pages rest on."""

from __future__ import annotations

import pytest

from sbpair.contract.book import SUBJECTS, entries, of_subject
from sbpair.contract.entry import Price
from tests.test_spec import spec_rows


@pytest.mark.spec("K-2")
def test_every_entry_has_an_id_of_its_own_a_sentence_a_source_and_what_rests_on_it() -> None:
    found = entries()
    assert len({each.id for each in found}) == len(found)
    known = {row.id for row in spec_rows()}
    for each in found:
        assert each.sentence.endswith((".", ".)")), each.id
        assert each.source, each.id
        assert each.falls, each.id
        assert set(each.falls) <= known, each.id
        assert each.price == Price() or each.price.total > 0, each.id


@pytest.mark.spec("K-3")
def test_every_subject_has_entries_numbered_from_one() -> None:
    for subject in SUBJECTS:
        numbers = [each.id for each in of_subject(subject)]
        assert numbers == [f"{subject}-{n}" for n in range(1, len(numbers) + 1)]
        assert numbers
