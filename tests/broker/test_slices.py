"""Bulk work is done in slices: one turn of the loop is bounded, and the rest follows (R-44)."""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator
from dataclasses import replace

import pytest
from hypothesis import given
from hypothesis import strategies as st

from sbpair.broker import Broker
from sbpair.broker.clock import ManualClock
from sbpair.broker.entities import Namespace, QueueDescription, StoredMessage
from sbpair.broker.entities.indexes import SEGMENT_BITS, NumberedItems
from sbpair.broker.entities.queue import Queue
from sbpair.broker.entities.queue_context import SLICE, SLICE_BYTES
from sbpair.pair.amqp.events import MessageReceived
from sbpair.pair.amqp.limits import Limits
from tests.waiting import wait_until

NOON = 1_800_000_000_000
LATER = NOON + 60_000
MANY = 10 * SLICE
SEGMENT = 2**SEGMENT_BITS
pytestmark = pytest.mark.spec("R-44")


def filled(queue: Queue, count: int = MANY, **fields: object) -> Queue:
    queue.enqueue_all([StoredMessage(bare=b"x", **fields) for _ in range(count)], NOON)
    return queue


def turns(namespace: Namespace, turn: Callable[[], object]) -> Iterator[int]:
    """Return how much each turn did, until one does nothing."""
    before = -1
    while before != namespace.work_done:
        before = namespace.work_done
        turn()
        yield namespace.work_done - before


def test_messages_are_forwarded_in_slices(namespace: Namespace) -> None:
    source = filled(namespace.create_queue("orders", QueueDescription(), NOON))
    archive = namespace.create_queue("archive", QueueDescription(), NOON)
    namespace.update_queue("orders", replace(source.description, forward_to="archive"), NOON)
    counts = []
    while namespace.forward(NOON, SLICE):
        counts.append(archive.counts(NOON).active)
    assert counts == list(range(SLICE, MANY, SLICE)) or counts == list(range(SLICE, MANY + 1, SLICE))
    assert archive.counts(NOON).active == MANY
    assert [each.sequence_number for each in archive.peek(0, MANY, NOON)] == list(range(1, MANY + 1))


def test_scheduled_messages_become_active_in_slices(namespace: Namespace) -> None:
    queue = filled(namespace.create_queue("orders", QueueDescription(), NOON), scheduled_for=LATER)
    done = list(turns(namespace, lambda: namespace.handle_timer(LATER)))
    assert max(done) <= SLICE
    assert sum(done) == queue.counts(LATER).active == MANY
    assert namespace.next_timer() is None


def test_an_unfinished_slice_makes_the_next_timer_due_now(namespace: Namespace) -> None:
    filled(namespace.create_queue("orders", QueueDescription(), NOON), scheduled_for=LATER)
    namespace.handle_timer(LATER)
    assert namespace.next_timer() == LATER


def test_schedules_of_many_queues_share_a_slice(namespace: Namespace) -> None:
    for number in range(10):
        filled(namespace.create_queue(f"q{number}", QueueDescription(), NOON), SLICE, scheduled_for=LATER)
    done = list(turns(namespace, lambda: namespace.handle_timer(LATER)))
    assert max(done) < 2 * SLICE
    assert sum(done) == 10 * SLICE


def test_locks_expire_in_slices_and_none_is_valid_meanwhile(namespace: Namespace) -> None:
    queue = filled(namespace.create_queue("orders", QueueDescription(), NOON))
    held = [queue.receive(NOON) for _ in range(MANY)]
    done = list(turns(namespace, lambda: namespace.handle_timer(LATER)))
    assert max(done) <= SLICE
    assert sum(done) == MANY
    assert {each.delivery_count for each in held if each is not None} == {1}


def test_a_receive_expires_at_most_one_slice(namespace: Namespace) -> None:
    queue = filled(namespace.create_queue("orders", QueueDescription(), NOON), scheduled_for=LATER)
    message = queue.receive(LATER)
    assert message is not None
    assert namespace.work_done <= SLICE


def test_messages_expire_in_slices(namespace: Namespace) -> None:
    for fields, own in (({"default_message_time_to_live": 1000}, {}), ({}, {"time_to_live": 1000})):
        name = "entity" if fields else "own"
        queue = filled(namespace.create_queue(name, QueueDescription(**fields), NOON), **own)
        queue.enqueue(StoredMessage(bare=b"fresh"), LATER)
        found, rounds = None, 0
        while found is None:
            before, rounds = namespace.work_done, rounds + 1
            found = queue.receive(LATER)
            assert namespace.work_done - before <= 2 * SLICE
        assert found.bare == b"fresh"
        assert rounds >= MANY // (2 * SLICE)


def test_a_large_credit_is_served_in_slices(lab) -> None:
    filled(lab.queue())
    client = lab.client()
    receiver = client.receiver("orders")
    receiver.flow(500_000)
    client.server.receive_data(client.engine.data_to_send(), lab.now)
    counts = []
    more = True
    while more:
        more = lab.frontend.deliver(lab.now)
        client.engine.receive_data(b"".join(client.server.pieces_to_send()), lab.now.connection)
        client.events += client.engine.events()
        counts.append(len(client.take(MessageReceived)))
    assert max(counts) <= SLICE
    assert sum(counts) == MANY


def test_large_messages_limit_a_slice_by_bytes(lab) -> None:
    queue = lab.queue()
    queue.enqueue_all([StoredMessage(bare=bytes(200_000)) for _ in range(20)], NOON)
    client = lab.client()
    client.receiver("orders").flow(1000)
    client.server.receive_data(client.engine.data_to_send(), lab.now)
    while lab.frontend.deliver(lab.now):
        assert len(b"".join(client.server.pieces_to_send())) <= SLICE_BYTES + 2 * 200_100


def test_a_lone_receiver_gives_others_their_turn(lab) -> None:
    filled(lab.queue("many"))
    filled(lab.queue("few"), 1)
    busy, other = lab.client(), lab.client()
    for client, path in ((busy, "many"), (other, "few")):
        client.receiver(path).flow(MANY)
        client.server.receive_data(client.engine.data_to_send(), lab.now)
    for _ in range(2):  # whichever is looked at first
        lab.frontend.deliver(lab.now)
    other.engine.receive_data(b"".join(other.server.pieces_to_send()), lab.now.connection)
    assert sum(isinstance(event, MessageReceived) for event in other.engine.events()) == 1


def test_a_receiver_that_does_not_read_gets_at_most_its_window(lab) -> None:
    queue = filled(lab.queue())
    client = lab.client(limits=Limits(incoming_window=10))
    receiver = client.receiver("orders")
    receiver.flow(500_000)
    client.server.receive_data(client.engine.data_to_send(), lab.now)
    while lab.frontend.deliver(lab.now):
        pass
    locked = MANY - sum(each.lock_token is None for each in queue.peek(0, MANY, NOON))
    assert locked <= 10 + SLICE
    lab.run()  # reading opens its window again and again
    assert len(client.take(MessageReceived)) == MANY


def test_a_drain_of_a_large_credit_delivers_all_messages(lab) -> None:
    filled(lab.queue())
    client = lab.client()
    receiver = client.receiver("orders")
    receiver.flow(MANY + 10, drain=True)
    lab.run()
    while receiver.credit:
        lab.advance(connection=0.01)
        lab.run()
    assert len(client.take(MessageReceived)) == MANY


@pytest.mark.parametrize("is_driven", [True, False])
def test_a_broker_handles_every_slice(is_driven: bool) -> None:
    clock = ManualClock(NOON) if is_driven else None
    with Broker({"contoso": 0}, clock=clock) as broker:
        contoso = broker.namespace("contoso")
        contoso.create_queue("archive")
        contoso.create_queue("orders", forward_to="archive")
        now = NOON if is_driven else int(time.time() * 1000)
        queue = contoso.server.frontend.namespace.queue("orders")
        messages = [StoredMessage(bare=b"x", scheduled_for=now + 500) for _ in range(MANY)]

        def enqueue() -> None:
            queue.enqueue_all(messages, now)
            contoso.server.end_turn()

        broker._in_loop(enqueue)
        if is_driven:
            broker.advance(500)
            assert contoso.counts("archive").active == MANY
        wait_until(lambda: contoso.counts("archive").active == MANY)


def segments(items: NumberedItems[str]) -> list[int]:
    """The number of items in each segment."""
    return [len(each) for each in items._segments.values()]


def test_runs_of_any_length_do_not_let_emptied_segments_accumulate() -> None:
    run = 4 * SEGMENT
    items = NumberedItems[str]()
    waiting = items.add_all(["x"] * run)
    for _ in range(100):
        arriving = items.add_all(["x"] * run)
        items.remove_all(waiting)
        assert len(segments(items)) <= 6
        waiting = arriving
    assert list(items.numbers_from(0)) == waiting


STEPS = st.lists(
    st.tuples(
        st.sampled_from(["add", "add reserved", "reserve", "restore", "remove", "remove some", "read"]),
        st.integers(0, 5000),
    ),
    max_size=40,
)


@given(STEPS)
def test_numbered_items_are_found_whatever_was_removed_and_added_meanwhile(
    steps: list[tuple[str, int]],
) -> None:
    items, expected, reserved, free = NumberedItems[int](), {}, [], []
    for what, number in [("add", 3000), ("remove some", 2), *steps, ("read", 0)]:
        if what == "add":
            added = items.add_all(range(number))
            expected.update(zip(added, range(number), strict=True))
        elif what == "reserve":
            reserved.append(items.reserve())
            free.append(items.reserve())
        elif what == "add reserved" and reserved:
            expected[items.add(number, reserved.pop())] = number
        elif what == "restore" and free:
            expected[free[0]] = number
            items.restore_all([free.pop(0)], [number])
        elif what == "remove" and expected:
            gone = sorted(expected)[number % len(expected)]
            assert items.remove(gone) == expected.pop(gone)
            assert items.remove(gone) is None
        elif what == "remove some":
            gone = set(list(expected)[:: number % 7 + 1])
            items.remove_all(gone)
            expected = {each: item for each, item in expected.items() if each not in gone}
        elif what == "read":
            assert list(items.numbers_from(number)) == sorted(each for each in expected if each >= number)
            assert all(items.get(each) == item for each, item in expected.items())
    assert len(items) == len(expected)
