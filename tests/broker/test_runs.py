"""Messages that are stored, delivered and settled together behave as if each were alone."""

from __future__ import annotations

from dataclasses import replace
from itertools import count

import pytest
from hypothesis import given
from hypothesis import strategies as st

from sbpair.broker.entities.descriptions import QueueDescription
from sbpair.broker.entities.indexes import NumberedItems
from sbpair.broker.entities.locked_store import Locks
from sbpair.broker.entities.namespace import TOKEN_SIZE, Namespace, random_tokens
from sbpair.broker.entities.queue import Queue
from sbpair.broker.entities.stored_message import LockToken, StoredMessage
from sbpair.broker.faults import FaultRule, Full, NoCredit, Operation, Withhold
from sbpair.broker.frontends import delivered_message
from sbpair.pair.amqp.events import DispositionReceived, MessageReceived
from sbpair.pair.amqp.message import DataBody, Message, Properties
from sbpair.pair.amqp.performatives import ACCEPTED, RELEASED, Accepted, Rejected
from tests.broker.test_links import NOON


@pytest.fixture
def held(lab):
    """A client and five deliveries that it has not settled."""
    lab.queue(lock_duration=30_000)
    client = lab.client()
    sender = client.sender("orders")
    for number in range(5):
        client.send(sender, Message(properties=Properties(message_id=f"m{number}")).encode())
    client.receiver("orders", credit=5)
    return client, client.take(MessageReceived)


def settle_each(lab, client, deliveries, states) -> dict[int, object]:
    """Settle one by one, in one chunk of bytes; the answers by delivery."""
    for delivery, state in zip(deliveries, states, strict=True):
        delivery.link.dispose(delivery.delivery_id, delivery.delivery_id, state, settled=False)
        client.session.flush_acks()
    lab.run()
    return {
        number: answer.state
        for answer in client.take(DispositionReceived)
        for number in range(answer.first, answer.last + 1)
    }


def test_dispositions_that_arrive_together_are_each_answered(lab, held):
    client, deliveries = held

    answers = settle_each(lab, client, deliveries, [ACCEPTED] * 5)

    assert answers == {delivery.delivery_id: ACCEPTED for delivery in deliveries}
    assert lab.namespace.queue("orders").counts(NOON).total == 0


def test_a_lost_lock_in_a_run_is_refused_and_the_others_are_completed(lab, held):
    client, deliveries = held
    queue = lab.namespace.queue("orders")
    queue.release(LockToken(deliveries[2].tag), NOON)

    answers = list(settle_each(lab, client, deliveries, [ACCEPTED] * 5).values())

    assert [type(answer) for answer in answers] == [Accepted, Accepted, Rejected, Accepted, Accepted]
    assert queue.counts(NOON).total == 1


def test_deliveries_in_different_states_stay_separate(lab, held):
    client, deliveries = held
    states = [ACCEPTED, RELEASED, ACCEPTED, ACCEPTED, RELEASED]

    assert list(settle_each(lab, client, deliveries, states).values()) == states
    assert lab.namespace.queue("orders").counts(NOON).active == 2


def test_a_fault_still_applies_to_each_disposition(lab, held):
    client, deliveries = held
    lab.frontend.set_fault(FaultRule(Withhold(), operation=Operation.SETTLE, times=1), 0.0)

    answers = list(settle_each(lab, client, deliveries, [ACCEPTED] * 5).values())

    assert len(answers) == 4  # the first is withheld


@pytest.mark.parametrize(
    "rule",
    [
        FaultRule(Full(), entity="stuck-*", operation=Operation.SEND),
        FaultRule(NoCredit(), entity="stuck-*", operation=Operation.ATTACH),
        FaultRule(Withhold(), entity="stuck-*", operation=Operation.RECEIVE),
    ],
    ids=["send", "attach", "receive"],
)
@pytest.mark.spec("R-44")
def test_a_fault_on_other_entities_does_not_slow_this_one(lab, rule):
    lab.queue("orders")
    lab.queue("stuck-1")
    lab.frontend.set_fault(rule, 0.0)

    operation = rule.operation
    assert not lab.frontend.needs_single_messages(operation, "orders")
    assert lab.frontend.needs_single_messages(operation, "STUCK-1")


@pytest.mark.spec("R-44")
def test_dispositions_are_joined_while_a_fault_on_sends_is_set(lab, held, monkeypatch):
    client, deliveries = held
    lab.frontend.set_fault(FaultRule(Full(), entity="orders", operation=Operation.SEND), 0.0)
    spans = []
    complete_all = Queue.complete_all
    monkeypatch.setattr(
        Queue,
        "complete_all",
        lambda queue, tokens, now: spans.append(len(tokens)) or complete_all(queue, tokens, now),
    )

    settle_each(lab, client, deliveries, [ACCEPTED] * 5)

    assert spans == [5]


@given(
    token=st.binary(min_size=16, max_size=16),
    number=st.integers(1, 2**62),
    at=st.integers(0, 2**50),
    until=st.integers(0, 2**50),
    durable=st.sampled_from([None, True, False]),
    ttl=st.none() | st.integers(1, 2**31),
    failed=st.integers(0, 9),
)
def test_the_fast_encoding_of_a_delivery_gives_the_same_bytes(token, number, at, until, durable, ttl, failed):
    queue = Namespace("contoso").create_queue("orders", QueueDescription(), 0)
    message = StoredMessage(
        Message(application_properties={"n": 1}, body=DataBody((b"x",))).encode(),
        durable=durable,
        time_to_live=ttl,
        sequence_number=number,
        enqueued_sequence_number=number,
        enqueued_at=at,
        delivery_count=failed,
        lock_token=LockToken(token),
        locked_until=until,
    )
    amended = replace(message, amended={})  # by nothing: the long way

    assert delivered_message.encode_delivered(message, queue) == delivered_message.encode_delivered(
        amended, queue
    )


def test_random_tokens_have_the_size_of_a_guid_and_do_not_repeat():
    tokens = random_tokens()
    drawn = [next(tokens) for _ in range(1000)]

    assert len(set(drawn)) == 1000
    assert {len(token) for token in drawn} == {TOKEN_SIZE}


STEPS = st.lists(
    st.tuples(st.sampled_from(["take", "renew", "end", "expire"]), st.integers(0, 9), st.integers(0, 50)),
    max_size=60,
)


@given(STEPS)
def test_locks_expire_at_their_deadline_after_any_mix_of_operations(steps):
    numbers = count(1)
    locks = Locks(lambda: LockToken(next(numbers).to_bytes(16, "big")))
    held: dict[LockToken, StoredMessage] = {}
    for what, which, at in steps:
        chosen = sorted(held)[which % len(held)] if held else None
        if what == "take":
            messages = [StoredMessage(b"") for _ in range(which)]
            held.update(zip(locks.take(messages, at), messages, strict=True))
        elif what == "renew" and chosen is not None:
            locks.extend(held[chosen], at)
        elif what == "end" and chosen is not None:
            assert locks.end(chosen) is held.pop(chosen)
        elif what == "expire":
            lapsed = locks.pop_expired(at, 3)
            due = sorted(message.locked_until for message in held.values() if message.locked_until <= at)
            assert [message.locked_until for message in lapsed] == due[:3]
            held = {token: message for token, message in held.items() if message.lock_token is not None}
        assert locks.next() == min((message.locked_until for message in held.values()), default=None)


def test_ended_locks_leave_no_state():
    numbers = count(1)
    locks = Locks(lambda: LockToken(next(numbers).to_bytes(16, "big")))
    (first,) = locks.take([StoredMessage(b"")], 1)  # stays, so that the line keeps its head
    for _ in range(50):
        for token in locks.take([StoredMessage(b"") for _ in range(100)], 2):
            locks.end(token)

    assert len(locks._line) < 1300
    assert locks.next() == locks.get(first).locked_until == 1


KINDS = [
    {},
    {"time_to_live": 5_000},
    {"scheduled_for": NOON + 1_000},
    {"scheduled_for": NOON - 1},
    {"is_ping": True},
    {"annotations": b"abc", "overhead": 67},
]


@given(st.lists(st.sampled_from(KINDS), min_size=2, max_size=6))
def test_storing_messages_together_equals_storing_them_singly(kinds):
    queues = []
    for is_together in (True, False):
        namespace = Namespace("contoso")
        queue = namespace.create_queue("orders", QueueDescription(), 0)
        messages = [StoredMessage(b"body", **fields) for fields in kinds]
        runs = [messages] if is_together else [[message] for message in messages]
        numbers = [number for run in runs for number in queue.enqueue_all(run, NOON)]
        assert numbers == [message.sequence_number for message in messages] == list(range(1, len(kinds) + 1))
        fields = [
            (each.enqueued_at, each.enqueued_sequence_number, each.expires_at, each.state)
            for each in messages
        ]
        queues.append(
            (fields, queue.counts(NOON), namespace.next_timer(), len(queue.only.receive_batch(9, NOON)))
        )

    assert queues[0] == queues[1]


def test_restored_messages_are_unchanged_whatever_else_the_queue_holds():
    kinds = [{}, {"expires_at": None}, {"time_to_live": 5_000}, {}]
    queue = Namespace("contoso").create_queue("orders", QueueDescription(), 0)
    for first, fields in enumerate(kinds):
        queue.only.restore_all(
            [StoredMessage(b"body", sequence_number=10 * first + n, **fields) for n in (1, 2)]
        )

    assert [message.sequence_number for message in queue.browse(0, 99)] == [1, 2, 11, 12, 21, 22, 31, 32]
    assert [message.sequence_number for message in queue.only.receive_batch(99, NOON)] == [
        1,
        2,
        11,
        12,
        31,
        32,
    ]
    assert queue.size_in_bytes == 6 * len(b"body")  # two had expired


def test_restored_numbers_are_in_order_even_if_their_rows_were_not():
    items = NumberedItems[str]()
    items.restore_all([1, 5], "ae")
    items.restore_all([3], "c")
    items.restore_all([], "")

    assert list(items.numbers_from(2)) == [3, 5]
    assert [items.get(number) for number in items.numbers_from(0)] == ["a", "c", "e"]
