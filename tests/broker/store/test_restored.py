"""What a restart restores of each kind of row, what counts as damage, and when segments are rewritten."""

from __future__ import annotations

import sqlite3
from contextlib import closing
from pathlib import Path
from zlib import crc32

import pytest

from sbpair.broker.entities import QueueDescription, StoredMessage
from sbpair.broker.entities.descriptions import AccessRule
from sbpair.broker.entities.partition import Layout
from sbpair.broker.entities.queue import Queue
from sbpair.broker.errors import StoreDamagedError
from sbpair.broker.store import message_rows
from sbpair.broker.store.message_rows import Segment, Segments, segment_row
from sbpair.broker.store.schema import with_checksum
from tests.broker.store.kept import NOON, Kept, contents

pytestmark = pytest.mark.spec("R-66", "G-26")


def queue_of(kept: Kept, path: str = "orders") -> Queue:
    return kept.namespace.queue(path)


def fill(kept: Kept, count: int, size: int = 10) -> Queue:
    queue = queue_of(kept)
    queue.enqueue_all([StoredMessage(bare=bytes(size)) for _ in range(count)], NOON)
    kept.store.commit()
    return queue


def complete(queue: Queue, count: int) -> None:
    for _ in range(count):
        message = queue.receive(NOON)
        assert message is not None
        assert message.lock_token is not None
        queue.complete(message.lock_token, NOON)


def rows(kept: Kept, table: str) -> list[tuple[object, ...]]:
    return list(kept.store.connection.execute(f"SELECT * FROM {table} ORDER BY 1"))


@pytest.fixture
def orders(kept: Kept) -> Queue:
    kept.namespace.create_queue("orders", QueueDescription(), NOON)
    return queue_of(kept)


def test_the_state_of_a_session_is_restored_with_its_id_and_time(kept: Kept) -> None:
    kept.namespace.create_queue("carts", QueueDescription(requires_session=True), NOON)
    sessions = queue_of(kept, "carts").sessions
    assert sessions is not None
    for name, state in (("a", b"one"), ("b", b"two")):
        lock = sessions.accept(name, NOON)
        sessions.set_state(lock, state, NOON + 5)
        sessions.release(lock, NOON)
    kept.store.commit()
    before = contents(kept.namespace, NOON)
    kept.reopen()
    assert contents(kept.namespace, NOON) == before
    restored = queue_of(kept, "carts").sessions
    assert restored is not None
    assert {each.id: (each.state, each.state_set_at) for each in restored.browse()} == {
        "a": (b"one", NOON + 5),
        "b": (b"two", NOON + 5),
    }


def test_the_messages_of_each_partition_keep_their_numbers(tmp_path: Path) -> None:
    kept = Kept(tmp_path / "data", layout=Layout())
    kept.namespace.create_queue("spread", QueueDescription(enable_partitioning=True), NOON)
    entity = kept.namespace.queue("spread")
    for number in range(40):
        entity.enqueue(StoredMessage(bare=b"x", partition_key=f"k{number}"), NOON)
    kept.store.commit()
    before = contents(kept.namespace, NOON)
    parts = entity.all_partitions()
    assert len([part for part in parts if part.counts(NOON).active]) > 3
    numbers = [[each.sequence_number for each in part.peek(0, 99, NOON)] for part in parts]
    kept.reopen()
    assert contents(kept.namespace, NOON) == before
    restored = kept.namespace.queue("spread")
    assert [
        [each.sequence_number for each in part.peek(0, 99, NOON)] for part in restored.all_partitions()
    ] == numbers
    kept.close()


def test_the_keys_of_an_entity_are_restored(kept: Kept) -> None:
    rule = AccessRule("reader", ("Listen",), "one", "two")
    kept.namespace.create_queue("orders", QueueDescription(authorization_rules=(rule,)), NOON)
    kept.store.commit()
    kept.reopen()
    assert queue_of(kept).description.authorization_rules == (rule,)


def test_a_changed_message_is_restored_in_its_last_version(kept: Kept, orders: Queue) -> None:
    orders.enqueue(StoredMessage(bare=b"later", scheduled_for=NOON + 60_000), NOON)
    orders.enqueue_all([StoredMessage(bare=b"x") for _ in range(3)], NOON)
    kept.store.commit()
    first, second = orders.receive(NOON), orders.receive(NOON)
    assert first is not None
    assert second is not None
    assert first.lock_token is not None
    assert second.lock_token is not None
    orders.defer(first.lock_token, NOON, {"why": "later"})
    orders.abandon(second.lock_token, NOON)
    kept.store.commit()
    before = contents(kept.namespace, NOON)
    kept.reopen()
    assert contents(kept.namespace, NOON) == before
    found = {each.sequence_number: each for each in queue_of(kept).peek(0, 9, NOON)}
    assert [(number, found[number].is_deferred, found[number].amended) for number in sorted(found)] == [
        (1, False, None),
        (2, True, {"why": "later"}),
        (3, False, None),
        (4, False, None),
    ]


def test_a_message_changed_and_removed_in_one_commit_leaves_no_row(kept: Kept, orders: Queue) -> None:
    fill(kept, 2)
    message = orders.receive(NOON)
    assert message is not None
    assert message.lock_token is not None
    orders.abandon(message.lock_token, NOON)
    complete(orders, 2)
    kept.store.commit()
    assert [rows(kept, table) for table in ("segment", "settled", "amendment")] == [[], [], []]


def test_settled_messages_do_not_return_after_a_restart(kept: Kept, orders: Queue) -> None:
    fill(kept, 300)
    complete(orders, 290)
    kept.store.commit()
    before = contents(kept.namespace, NOON)
    kept.reopen()
    assert contents(kept.namespace, NOON) == before
    assert [each.sequence_number for each in queue_of(kept).peek(0, 99, NOON)] == list(range(291, 301))


def test_the_checksum_of_a_segment_covers_its_row_id_in_eight_bytes() -> None:
    message = StoredMessage(bare=b"x", sequence_number=7)
    row, blob, checksum = segment_row(2**40 + 7, [message])
    assert row == 2**40 + 7
    assert checksum == crc32(blob, crc32((2**40 + 7).to_bytes(8, "little")))


# --- damage


def changed(kept: Kept, statement: str, *values: object) -> None:
    kept.close()
    with closing(sqlite3.connect(kept.file)) as connection, connection:
        connection.execute(statement, values)


def test_an_invalid_description_is_reported_with_its_reason(kept: Kept, orders: Queue) -> None:
    kept.store.commit()
    ((number, kind, topic, name, text, *values, _),) = rows(kept, "entity")
    wrong = str(text).replace('"max_delivery_count": 10', '"max_delivery_count": 0')
    assert wrong != text
    row = with_checksum(number, kind, topic, name, wrong, *values)
    changed(kept, f"INSERT OR REPLACE INTO entity VALUES ({', '.join('?' * len(row))})", *row)
    with pytest.raises(
        StoreDamagedError, match=rf"^The file {kept.file} is damaged: .*[Dd]elivery.?[Cc]ount"
    ):
        kept.open()


def test_rows_of_a_missing_segment_are_reported_with_its_number(kept: Kept, orders: Queue) -> None:
    fill(kept, 3)
    complete(orders, 1)
    kept.store.commit()
    ((number, *_),) = rows(kept, "segment")
    changed(kept, "DELETE FROM segment")
    with pytest.raises(StoreDamagedError, match=f"the segment of {number} is missing"):
        kept.open()


def test_parts_of_a_missing_entity_are_reported(kept: Kept, orders: Queue) -> None:
    kept.store.commit()
    ((number, *_),) = rows(kept, "entity")
    changed(kept, "DELETE FROM entity")
    with pytest.raises(StoreDamagedError, match=f"the entity {number} is missing"):
        kept.open()


def test_an_entity_without_its_parts_or_stored_twice_is_reported_by_name(kept: Kept, orders: Queue) -> None:
    kept.store.commit()
    ((number, kind, topic, name, *values, _),) = rows(kept, "entity")
    parts = rows(kept, "part")
    changed(kept, "DELETE FROM part")
    told = f"the entity {name} has 0 parts where it needs {len(parts)}"
    with pytest.raises(StoreDamagedError, match=told):
        kept.open()
    row = with_checksum(number + 1, kind, topic, name, *values)
    with closing(sqlite3.connect(kept.file)) as connection, connection:
        connection.executemany(f"INSERT INTO part VALUES ({', '.join('?' * len(parts[0]))})", parts)
        connection.execute(f"INSERT INTO entity VALUES ({', '.join('?' * len(row))})", row)
    with pytest.raises(StoreDamagedError, match=f"the entity {name} is stored twice"):
        kept.open()


def test_a_database_of_another_namespace_is_reported_by_its_mark(tmp_path: Path) -> None:
    kept, other = Kept(tmp_path / "data"), Kept(tmp_path / "other")
    kept.close()
    other.close()
    kept.file.write_bytes(other.file.read_bytes())
    told = f"^The file {kept.file} is damaged: it is not the database that {kept.file.name}-mark belongs to"
    with pytest.raises(StoreDamagedError, match=told):
        kept.open()


# --- segments


def segment(first: int, count: int, size: int = 1000) -> Segment:
    run = [StoredMessage(bare=b"", sequence_number=first + each) for each in range(count)]
    return Segment(None, first, run, size)  # type: ignore[arg-type]


def test_the_waste_of_a_segment_is_the_size_of_its_removed_messages(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(message_rows, "ALLOWED_WASTE", 0)
    all_segments = Segments()
    one, two = segment(1, 10), segment(2000, 10)
    all_segments.add(one)
    all_segments.add(two)
    for row in range(1, 10):
        assert all_segments.mark_removed(row) is one
    assert (one.remaining, one.waste, one.is_sparse) == (1, 900, True)
    assert all_segments.next_to_rewrite() is None  # 900 of 2000 bytes
    for row in (2000, 2001):
        assert all_segments.mark_removed(row) is two
    assert all_segments.next_to_rewrite() is one  # 1100 of 2000
    all_segments.remove(one)
    assert list(all_segments) == [two]
    assert all_segments.next_to_rewrite() is None  # 200 of 1000
    for row in range(2002, 2007):
        all_segments.mark_removed(row)
    assert all_segments.next_to_rewrite() is two


def test_a_segment_knows_the_range_of_its_numbers() -> None:
    one = segment(5, 3)
    assert (one.first, one.span, one.count) == (5, 3, 3)
    run = [StoredMessage(bare=b"", sequence_number=each) for each in (5, 9)]
    assert Segment(None, 5, run, 10).span == 5  # type: ignore[arg-type]


def test_a_commit_rewrites_at_most_its_share(
    kept: Kept, orders: Queue, monkeypatch: pytest.MonkeyPatch
) -> None:
    for _ in range(4):
        fill(kept, 10, 1000)
    size = max(len(blob) for _, blob, _ in rows(kept, "segment"))  # type: ignore[arg-type]
    monkeypatch.setattr(message_rows, "MAX_REWRITE", int(1.5 * size))
    for _ in range(4):
        complete(orders, 9)
        kept_one = orders.receive(NOON)
        assert kept_one is not None
        assert kept_one.lock_token is not None
        orders.defer(kept_one.lock_token, NOON, {})
    kept.store.commit()
    monkeypatch.setattr(message_rows, "ALLOWED_WASTE", 0)

    def large() -> int:
        return sum(len(blob) > 5000 for _, blob, _ in rows(kept, "segment"))  # type: ignore[arg-type]

    assert large() == 4
    left = []
    for _ in range(3):
        fill(kept, 1)
        left.append(large())
    assert left == [2, 0, 0]
