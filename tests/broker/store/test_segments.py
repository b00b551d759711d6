"""Segments: rows written and deleted, compaction, and the packed format of messages."""

from __future__ import annotations

from pathlib import Path
from uuid import UUID

import pytest

from sbpair.broker.entities import QueueDescription, StoredMessage
from sbpair.broker.entities.queue import Queue
from sbpair.broker.entities.stored_message import MessageState
from sbpair.broker.store import message_rows
from sbpair.broker.store.columns import pack_messages, unpack_messages
from tests.broker.store.kept import NOON, Kept, contents

KIB = bytes(1024)


@pytest.fixture
def orders(kept: Kept) -> Queue:
    return kept.namespace.create_queue("orders", QueueDescription(), NOON)


def rows(kept: Kept, table: str) -> int:
    (count,) = kept.store.connection.execute(f"SELECT count(*) FROM {table}").fetchone()
    return count


def fill(kept: Kept, queue: Queue, count: int, bare: bytes = KIB) -> None:
    queue.enqueue_all([StoredMessage(bare=bare) for _ in range(count)], NOON)
    kept.store.commit()


def settle(kept: Kept, queue: Queue, count: int) -> None:
    for _ in range(count):
        queue.complete(queue.receive(NOON).lock_token, NOON)
    kept.store.commit()


def test_messages_of_one_commit_share_one_row(kept: Kept, orders: Queue) -> None:
    fill(kept, orders, 500)
    assert rows(kept, "segment") == 1


def test_a_partly_removed_segment_has_one_extra_row_and_an_empty_one_is_deleted(
    kept: Kept, orders: Queue
) -> None:
    fill(kept, orders, 500)
    for _ in range(4):
        settle(kept, orders, 100)
        assert (rows(kept, "segment"), rows(kept, "settled")) == (1, 1)
    settle(kept, orders, 100)
    assert (rows(kept, "segment"), rows(kept, "settled")) == (0, 0)


def test_a_changed_message_has_an_amendment_until_it_is_removed(kept: Kept, orders: Queue) -> None:
    fill(kept, orders, 3)
    orders.defer(orders.receive(NOON).lock_token, NOON, {"why": "later"})
    orders.abandon(orders.receive(NOON).lock_token, NOON)
    kept.store.commit()
    assert rows(kept, "amendment") == 2
    kept.reopen()
    orders = kept.namespace.queue("orders")
    assert [(each.is_deferred, each.delivery_count) for each in orders.peek(0, 9, NOON)] == [
        (True, 1),
        (False, 1),
        (False, 0),
    ]
    settle(kept, orders, 2)
    assert rows(kept, "amendment") == 1
    orders.receive_deferred([1], NOON)
    orders.complete(orders.only.message(1).lock_token, NOON)
    kept.store.commit()
    assert [rows(kept, table) for table in ("segment", "settled", "amendment")] == [0, 0, 0]


def test_the_size_of_a_segment_is_limited(kept: Kept, orders: Queue) -> None:
    fill(kept, orders, 40, bytes(100_000))
    found = kept.store.connection.execute("SELECT length(messages) FROM segment").fetchall()
    assert len(found) > 1
    assert max(size for (size,) in found) < message_rows.MAX_BYTES + 200_000


def test_deleting_a_queue_deletes_its_segments(kept: Kept, orders: Queue) -> None:
    fill(kept, orders, 3000)
    settle(kept, orders, 10)
    other = kept.namespace.create_queue("other", QueueDescription(), NOON)
    fill(kept, other, 5)
    kept.namespace.delete("orders")
    kept.store.commit()
    assert (rows(kept, "segment"), rows(kept, "settled")) == (1, 0)
    kept.reopen()
    assert kept.namespace.queue("other").counts(NOON).active == 5


@pytest.mark.spec("G-26", "F-15")
def test_few_remaining_messages_do_not_occupy_the_space_of_many(
    kept: Kept, orders: Queue, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """With one message left in each segment, the space used stays bounded, and the messages are unchanged."""
    monkeypatch.setattr(message_rows, "ALLOWED_WASTE", 100_000)
    most = 0
    for _ in range(20):
        fill(kept, orders, 200)
        first = orders.receive(NOON)
        orders.defer(first.lock_token, NOON, {"stays": True})
        settle(kept, orders, 199)
        (held,) = kept.store.connection.execute("SELECT sum(length(messages)) FROM segment").fetchone()
        most = max(most, held)
    assert most < 2 * 20 * 1100 + 100_000 + 2 * 200 * 1100
    before = contents(kept.namespace, NOON)
    crashed = kept.crashed_copy(tmp_path / "crash")
    assert contents(crashed.namespace, NOON) == before
    assert crashed.namespace.queue("orders").counts(NOON).deferred == 20
    crashed.close()


@pytest.mark.spec("R-66", "F-15")
def test_messages_removed_before_a_restart_count_as_waste_after_it(
    kept: Kept, orders: Queue, monkeypatch: pytest.MonkeyPatch
) -> None:
    fill(kept, orders, 200)
    settle(kept, orders, 150)
    kept.reopen()
    monkeypatch.setattr(message_rows, "ALLOWED_WASTE", 0)
    settle(kept, kept.namespace.queue("orders"), 1)
    ((held,),) = kept.store.connection.execute("SELECT length(messages) FROM segment").fetchall()
    assert held < 50 * 1200  # rewritten with the remaining messages
    assert rows(kept, "settled") == 0


@pytest.mark.spec("R-66")
def test_a_value_shared_by_all_messages_is_written_once() -> None:
    many = [StoredMessage(bare=b"x", sequence_number=n, session_id="s" * 100) for n in range(1, 101)]
    plain = [StoredMessage(bare=b"x", sequence_number=n) for n in range(1, 101)]
    assert len(pack_messages(many)) - len(pack_messages(plain)) == 8 + 100


def test_packing_preserves_every_field() -> None:
    key = b"\xff\x00".decode("utf-8", "surrogateescape")
    messages = [
        StoredMessage(bare=b"x", sequence_number=1, message_id="a\0b", overhead=3),
        StoredMessage(bare=b"", sequence_number=2, message_id=UUID(int=5), session_id="ä", durable=False),
        StoredMessage(
            bare=b"yy", annotations=b"zz", sequence_number=7, message_id=7, session_id="", partition_key=key,
            via_partition_key=key, time_to_live=2**64, scheduled_for=NOON, durable=True, priority=4,
            is_ping=True, enqueued_sequence_number=6, enqueued_at=NOON, expires_at=2**70,
            state=MessageState.DEFERRED, is_deferred=True, delivery_count=2, dead_letter_source="orders",
            amended={"n": 1}, hops=3,
        ),
    ]  # fmt: skip
    for run in (messages, messages[:1], messages[1:], [messages[2]] * 3):
        found = unpack_messages(pack_messages(run))
        for one, other in zip(run, found, strict=True):
            for name in StoredMessage.__slots__:
                asked = getattr(one, name)
                if name in ("time_to_live", "expires_at") and asked is not None:
                    asked = min(asked, 2**63 - 1)
                assert (getattr(other, name), type(getattr(other, name))) == (asked, type(asked)), name


@pytest.mark.parametrize("cut", [0, 7, 9, 30])
def test_a_truncated_blob_is_an_error(cut: int) -> None:
    blob = pack_messages([StoredMessage(bare=b"a body", message_id="m", sequence_number=1)])
    with pytest.raises(ValueError, match="is truncated"):
        unpack_messages(blob[:cut])
