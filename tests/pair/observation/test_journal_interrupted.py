"""A signal raises an exception while the journal writes: the next records fit those that are in the files."""

from __future__ import annotations

from pathlib import Path
from random import Random

import pytest

from sbpair.pair.observation.journal import MIN_ROLL_BYTES, Journal, JournalFile
from sbpair.pair.observation.journal_reading import journal_files, read
from sbpair.pair.observation.record import PairLabels, WriterRole
from tests.interrupts import Interrupt, at_bytecodes, interrupted_after
from tests.pair.observation.test_journal import ping

# Not those with the lock: CPython hands it over between bytecodes at which no signal is handled.
INTERRUPTED = (
    JournalFile.append,
    JournalFile.finish,
    JournalFile._content,
    Journal._write,
    Journal._put,
    Journal._end_file,
    Journal._finish,
    Journal._roll_when_full,
)


@pytest.mark.spec("R-100")
@pytest.mark.parametrize("seed", range(20))
def test_ordinals_and_counts_are_right_after_an_interrupt_at_any_bytecode(
    tmp_path: Path, pair: PairLabels, seed: int
) -> None:
    random = Random(seed)
    inside = {function.__code__ for function in INTERRUPTED}
    journal = Journal(tmp_path, role=WriterRole.SYPHON, pair=pair, roll_bytes=MIN_ROLL_BYTES)
    interrupts = 0
    for number in range(300):
        try:
            with interrupted_after(random.randrange(1, 400), inside, at_bytecodes()):
                journal.write(ping(number))
        except Interrupt:
            interrupts += 1
    journal.close()

    files = journal_files(tmp_path, with_open=True)
    records = [record for file in files for record in read(file)]
    assert interrupts > 50
    assert not [file for file in files if file.name.startswith("_open")]
    assert [record["ordinal"] for record in records] == list(range(len(records)))
    for file in files:
        of_file = list(read(file))
        assert [n for n, record in enumerate(of_file) if record["event"] == "journal_opened"] == [0]
        assert of_file[-1]["records"] == len(of_file)
