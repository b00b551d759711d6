"""A signal raises an exception anywhere in the spool: the file is readable and complete, and its counts are right."""

from __future__ import annotations

from pathlib import Path
from random import Random
from types import CodeType, FunctionType

import pytest

from sbpair.pair.pairing.spool import store
from sbpair.pair.pairing.spool.store import Entry, Spool
from tests.interrupts import Interrupt, at_signals, interrupted_after

pytestmark = pytest.mark.spec("R-100", "R-2")

INSIDE: set[CodeType] = {
    each.__code__
    for owner in (store, Spool, store.Ticket)
    for each in vars(owner).values()
    if isinstance(each, FunctionType) and each.__module__ == store.__name__ and each.__name__ != "__init__"
}
OVERHEAD, BODY = store.OVERHEAD, b"message"


def entries(number: int) -> list[Entry]:
    return [Entry(f"{number}-{each}", BODY) for each in range(1 + number % 3)]


def stored(spool: Spool) -> list[str]:
    return [message.message_id for message, _ in spool.export()]


@pytest.mark.parametrize("seed", range(4))
def test_an_interrupted_spool_has_a_complete_file_and_correct_counts(tmp_path: Path, seed: int) -> None:
    random, interrupts = Random(seed), 0
    spool = Spool(tmp_path / "spool", primary="contoso")
    accepted: set[str] = set()  # by the spool, and not taken out
    doubtful: set[str] = set()  # of an append or a delete that was interrupted
    for number in range(60):
        act = random.choice(["append", "append", "delete", "refuse", "redrive"])
        oldest = spool.oldest("orders", 2)
        ids = {each.message_id for each in (entries(number) if act == "append" else oldest)}
        try:
            with interrupted_after(random.randrange(1, 90), INSIDE, at_signals()):
                match act:
                    case "append":
                        spool.append("orders", entries(number), 1)
                    case "delete" if oldest:
                        spool.delete("orders", oldest)
                    case "refuse" if oldest:
                        spool.refuse("orders", oldest[0], "no")
                    case "redrive":
                        spool.redrive()
        except Interrupt:
            interrupts += 1
            if act in ("append", "delete"):
                doubtful |= ids
                accepted -= ids
        else:
            accepted = accepted | ids if act == "append" else accepted - ids if act == "delete" else accepted
        found = stored(spool)
        assert accepted <= set(found) <= accepted | doubtful
        assert len(found) == len(set(found))
        counted = spool.waiting()
        ((waiting,),) = spool._read("SELECT count(*) FROM spooled WHERE refused IS NULL")
        undeleted = len(spool._undeleted)
        assert spool.waiting("orders") == counted == waiting - undeleted, (act, number)
        begun = sum(len(ticket.entries) for ticket in spool._tickets)  # the next append writes them
        assert spool._room.messages == waiting - undeleted + begun, (act, number)
        assert spool._room.bytes == (waiting - undeleted + begun) * (len(BODY) + OVERHEAD)
    assert interrupts > 15
    left = set(stored(spool)) - doubtful
    spool.close()
    with_others = Spool(tmp_path / "spool", primary="contoso")
    assert left <= set(stored(with_others))
    assert with_others.waiting() == with_others._room.messages
    with_others.append("orders", entries(1), 1)
    with_others.close()
