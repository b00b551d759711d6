"""What a replay sends at a time, and reads ahead."""

from __future__ import annotations

import threading
from collections.abc import Iterator
from pathlib import Path

import pytest
from azure.servicebus import ServiceBusMessage, ServiceBusMessageBatch

from sbpair.pair.pairing.request.request import SpooledRequest, prepare
from sbpair.pair.pairing.shared.threads import Workers
from sbpair.pair.pairing.spool.codec import to_bytes
from sbpair.pair.pairing.spool.store import Entry, Spool, Spooled
from sbpair.pair.pairing.spool.units import MAX_UNIT_BYTES, MAX_UNIT_MESSAGES, UnitReader, UnitSizes, unit_of
from tests.waiting import PATIENCE

pytestmark = pytest.mark.spec("A-8")


def rows(*messages: ServiceBusMessage) -> list[Spooled]:
    return [
        Spooled(n, "orders", str(n), 1, to_bytes(prepare(message, "orders")), is_intact=True)
        for n, message in enumerate(messages, 1)
    ]


def test_a_unit_has_as_many_messages_as_fit_a_batch_already_encoded() -> None:
    stored = rows(*[ServiceBusMessage(bytes(100_000)) for _ in range(4)])
    unit = unit_of(stored, 1, is_mixed=True)
    assert [each.number for each in unit.stored] == [1, 2]
    request = unit.request(SpooledRequest)
    assert isinstance(request.outgoing, ServiceBusMessageBatch)
    assert request.outgoing.size_in_bytes <= MAX_UNIT_BYTES
    assert len(request) == 2
    assert request.size() == sum(len(each.message) for each in unit.stored)


@pytest.mark.parametrize("size", [10, MAX_UNIT_BYTES])
def test_a_single_or_batch_sized_message_is_sent_as_it_is(size: int) -> None:
    stored = rows(ServiceBusMessage(bytes(size)), ServiceBusMessage("x"))
    unit = unit_of(stored[:1] if size == 10 else stored, 1, is_mixed=True)
    assert len(unit.stored) == 1
    assert unit.request(SpooledRequest).outgoing is unit.messages[0]


def test_an_unreadable_message_ends_a_unit_and_is_its_own_unit() -> None:
    good, bad = rows(ServiceBusMessage("x"), ServiceBusMessage("y"))
    bad = Spooled(2, "orders", "2", 1, b"\x00\x00", is_intact=True)
    assert [each.number for each in unit_of([good, bad], 1, is_mixed=True).stored] == [1]
    broken = unit_of([bad, good], 1, is_mixed=True)
    assert (list(broken.messages), [each.number for each in broken.stored]) == ([], [2])
    assert "not a spooled message" in broken.broken


@pytest.mark.parametrize("bad", [0, 1, 200, 510, 511])
def test_the_refused_message_of_a_unit_is_isolated_by_a_few_halvings(bad: int) -> None:
    sizes, line, tries = UnitSizes(), list(range(512)), 0
    while line:
        tries += 1
        taken = line[: sizes.next()]
        if bad not in taken:
            sizes.accepted(len(taken))
            del line[: len(taken)]
        elif len(taken) > 1:
            sizes.refused(len(taken))
        else:
            sizes.found()
            line.remove(bad)
    assert tries <= 1 + 2 * 9 + 4


def test_after_a_failure_units_start_small_and_grow_fast() -> None:
    sizes = UnitSizes()
    assert sizes.next() == MAX_UNIT_MESSAGES
    sizes.stopped()
    found = []
    for _ in range(4):
        found.append(sizes.next())
        sizes.accepted(found[-1])
    assert found == [1, 8, 64, 512]


@pytest.fixture
def spool(tmp_path: Path) -> Iterator[Spool]:
    spool = Spool(tmp_path / "spool", primary="contoso")
    encoded = to_bytes(prepare(ServiceBusMessage("x"), "orders"))
    spool.append("orders", [Entry(str(n), encoded) for n in range(10)], 1)
    yield spool
    spool.close()


def reader_of(spool: Spool, workers: Workers) -> UnitReader:
    return UnitReader(spool, "orders", workers, lambda: True)


def ids(unit: object) -> list[str]:
    return [each.message_id for each in unit.stored]  # type: ignore[attr-defined]


def test_the_next_unit_is_read_while_one_is_being_sent(spool: Spool) -> None:
    workers = Workers()
    reader = reader_of(spool, workers)
    first = reader.next(4)
    assert first is not None
    reader.read_ahead(first, 4)
    workers.join(PATIENCE)
    spool.accepted("orders", first.stored)
    assert ids(first) == ["0", "1", "2", "3"]
    assert ids(reader.next(4)) == ["4", "5", "6", "7"]


def test_a_unit_read_ahead_is_read_again_if_a_smaller_one_is_needed(
    spool: Spool,
) -> None:
    workers = Workers()
    reader = reader_of(spool, workers)
    first = reader.next(4)
    assert first is not None
    reader.read_ahead(first, 4)
    reader.drop()
    assert ids(reader.next(4)) == ["0", "1", "2", "3"]
    reader.read_ahead(first, 4)
    workers.join(PATIENCE)
    spool.accepted("orders", first.stored)
    assert ids(reader.next(2)) == ["4", "5"]


def test_without_a_free_thread_a_unit_is_read_on_demand(spool: Spool) -> None:
    answers = threading.Event()
    workers = Workers(1)
    workers.start("hangs", lambda: answers.wait(PATIENCE))
    reader = reader_of(spool, workers)
    first = reader.next(4)
    assert first is not None
    reader.read_ahead(first, 4)
    spool.accepted("orders", first.stored)
    assert ids(reader.next(4)) == ["4", "5", "6", "7"]
    answers.set()
    workers.join(PATIENCE)
