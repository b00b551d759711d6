"""Transactions on entities: the effects of a commit, and operations that cannot take part."""

from __future__ import annotations

from dataclasses import replace

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from sbpair.broker.entities import Namespace, QueueDescription, StoredMessage, TopicDescription
from sbpair.broker.entities.descriptions import SubscriptionDescription
from sbpair.broker.entities.partition import Health
from sbpair.broker.entities.transaction import (
    MAX_MESSAGES,
    Anchor,
    Settlement,
    SettlementVerb,
    Transaction,
)
from sbpair.broker.errors import (
    EntityDisabledError,
    LockLostError,
    NotAllowedError,
    QuotaExceededError,
    SessionRequiredError,
    TransactionRolledBackError,
)

NOON = 1_800_000_000_000


@pytest.fixture
def orders(make_queue):
    return make_queue()


@pytest.fixture
def transaction(namespace):
    return Transaction(namespace, Anchor())


def keyed(bare=b"body", **fields):
    """Create a message with a partition key and a via key, as partitioned entities require (Q-13)."""
    return StoredMessage(bare=bare, partition_key="home", via_partition_key="home", **fields)


def messages(count=1):
    return [keyed() for _ in range(count)]


def locked(queue, count=1):
    """Send and receive ``count`` messages; return their lock tokens."""
    queue.enqueue_all(messages(count), NOON)
    return [queue.receive(NOON).lock_token for _ in range(count)]


def counts(queue, now=NOON):
    held = queue.counts(now)
    return held.active, held.deferred, held.dead_letter


class TestCommit:
    def test_a_sent_message_gets_its_number_and_time_at_the_commit(self, orders, transaction):
        transaction.send(orders, messages(), NOON)
        orders.enqueue_all(messages(), NOON + 1)
        transaction.commit(NOON + 2)
        first, second = orders.peek(0, 9, NOON + 2)

        assert (first.sequence_number, first.enqueued_at) == (1, NOON + 1)
        assert (second.sequence_number, second.enqueued_at) == (2, NOON + 2)

    def test_a_message_settled_meanwhile_undoes_the_transaction(self, orders, transaction):
        (token,) = locked(orders)
        transaction.send(orders, messages(), NOON)
        transaction.settle(Settlement(orders, token, SettlementVerb.COMPLETE), NOON)
        orders.complete(token, NOON)
        with pytest.raises(TransactionRolledBackError):
            transaction.commit(NOON)

        assert counts(orders) == (0, 0, 0)

    def test_an_entity_disabled_or_deleted_before_the_commit_undoes_the_transaction(
        self, namespace, orders, transaction
    ):
        transaction.send(orders, messages(), NOON)
        namespace.update_queue("orders", replace(orders.description, status="SendDisabled"), NOON)
        with pytest.raises(TransactionRolledBackError, match="currently disabled"):
            transaction.commit(NOON)
        namespace.delete_queue("orders", NOON)
        with pytest.raises(TransactionRolledBackError, match="could not be found"):
            transaction.commit(NOON)

    def test_messages_that_fit_singly_but_not_together_are_refused(self, make_queue, transaction):
        orders = make_queue(max_size_in_megabytes=1024)
        big = [keyed(overhead=600 * 1024 * 1024)]
        transaction.send(orders, big, NOON)
        transaction.send(orders, big, NOON)  # the last one may exceed the quota
        with pytest.raises(QuotaExceededError):
            transaction.send(orders, big, NOON)
        transaction.commit(NOON)

        assert counts(orders) == (2, 0, 0)

    def test_a_message_due_at_the_commit_follows_those_sent_meanwhile(self, orders, transaction):
        late = keyed(scheduled_for=NOON + 1)
        promised = orders.reserve(late)
        transaction.send(orders, [late], NOON)
        earlier = orders.enqueue(keyed(), NOON)
        transaction.commit(NOON + 1)
        assert orders.receive(NOON + 1).sequence_number == earlier
        assert promised < earlier < orders.receive(NOON + 1).sequence_number


class TestLimits:
    def test_a_transaction_holds_at_most_a_hundred_messages(self, orders, transaction):
        transaction.send(orders, messages(MAX_MESSAGES - 1), NOON)
        transaction.send(orders, messages(), NOON)
        with pytest.raises(
            NotAllowedError, match="Can't send more than 100 messages in a single transaction"
        ):
            transaction.send(orders, messages(), NOON)
        transaction.commit(NOON)

        assert counts(orders) == (100, 0, 0)

    def test_a_message_is_settled_once(self, orders, transaction):
        (token,) = locked(orders)
        transaction.settle(Settlement(orders, token, SettlementVerb.COMPLETE), NOON)
        with pytest.raises(LockLostError):
            transaction.settle(Settlement(orders, token, SettlementVerb.DEFER), NOON)
        transaction.commit(NOON)

        assert counts(orders) == (0, 0, 0)

    def test_a_refused_operation_is_not_part_of_the_transaction(self, orders, transaction):
        with pytest.raises(LockLostError):
            transaction.settle(Settlement(orders, b"x" * 16, SettlementVerb.COMPLETE), NOON)
        dead = orders.dead_letter_queue
        (token,) = locked(orders)
        orders.dead_letter(token, NOON, {})
        with pytest.raises(NotAllowedError, match="dead-lettered out of"):
            transaction.settle(
                Settlement(dead, dead.receive(NOON).lock_token, SettlementVerb.DEAD_LETTER), NOON
            )
        transaction.commit(NOON)

        assert counts(orders) == (0, 0, 1)


class TestOneEntity:
    def test_a_queue_and_its_dead_letter_queue_share_a_transaction(self, orders, transaction):
        (token,) = locked(orders)
        orders.dead_letter(token, NOON, {})
        dead = orders.dead_letter_queue.receive(NOON)
        transaction.settle(
            Settlement(orders.dead_letter_queue, dead.lock_token, SettlementVerb.COMPLETE), NOON
        )
        transaction.send(orders, messages(), NOON)
        transaction.commit(NOON)

        assert counts(orders) == (1, 0, 0)

    def test_a_topic_and_its_subscriptions_share_a_transaction(self, namespace, transaction):
        topic = namespace.create_topic("events", TopicDescription(), NOON)
        billing = namespace.create_subscription("events", "billing", SubscriptionDescription(), NOON)
        topic.enqueue_all(messages(), NOON)
        token = billing.receive(NOON).lock_token
        transaction.settle(Settlement(billing, token, SettlementVerb.COMPLETE), NOON)
        transaction.send(topic, messages(2), NOON)
        transaction.commit(NOON)

        assert counts(billing) == (2, 0, 0)


class TestVia:
    @pytest.fixture
    def bills(self, namespace):
        return namespace.create_queue("bills", QueueDescription(), NOON)

    @pytest.mark.parametrize("how", ["disabled", "deleted", "full"])
    def test_a_message_refused_by_its_destination_is_in_the_transfer_dead_letter_queue(
        self, namespace, orders, bills, transaction, how
    ):
        transaction.send(bills, messages(), NOON, via=orders)
        if how == "disabled":
            namespace.update_queue("bills", replace(bills.description, status="Disabled"), NOON)
        elif how == "deleted":
            namespace.delete_queue("bills", NOON)
        else:
            bills.enqueue(keyed(b"", overhead=1024 * 1024 * 1024), NOON)
        transaction.commit(NOON)

        (failed,) = namespace.queue("Orders/$Transfer/$DeadLetterQueue").peek(0, 9, NOON)
        reason = {
            "disabled": "MessagingEntityDisabledException",
            "deleted": "MessagingEntityNotFoundException",
            "full": "QuotaExceededException",
        }[how]
        assert failed.amended["DeadLetterReason"] == reason
        assert "'bills'" in failed.amended["DeadLetterErrorDescription"]
        assert failed.dead_letter_source is None
        held = orders.counts(NOON)
        assert (held.active, held.dead_letter, held.transfer_dead_letter, held.total) == (0, 0, 1, 1)

    def test_a_failed_transfer_is_not_forwarded(self, namespace, bills, transaction):
        namespace.create_queue("failures", QueueDescription(), NOON)
        described = QueueDescription(forward_dead_lettered_messages_to="failures")
        orders = namespace.create_queue("orders", described, NOON)
        transaction.send(bills, messages(), NOON, via=orders)
        namespace.delete_queue("bills", NOON)
        transaction.commit(NOON)
        namespace.forward(NOON)

        assert orders.transfer_dead_letter_queue.receive(NOON) is not None

    def test_deleting_the_via_entity_before_the_commit_undoes_the_transaction(
        self, namespace, orders, bills, transaction
    ):
        transaction.send(bills, messages(), NOON, via=orders)
        namespace.delete_queue("orders", NOON)
        with pytest.raises(TransactionRolledBackError, match="'orders' could not be found"):
            transaction.commit(NOON)

        assert counts(bills) == (0, 0, 0)

    def test_a_receive_only_entity_cannot_be_a_via_entity(self, namespace, orders, bills, transaction):
        namespace.update_queue("orders", replace(orders.description, status="SendDisabled"), NOON)
        with pytest.raises(EntityDisabledError):
            transaction.send(bills, messages(), NOON, via=orders)


class TestKeys:
    """Partition keys of messages in a partitioned entity."""

    @pytest.fixture
    def make_partitioned(self, namespace):
        def make(path="orders", **fields):
            return namespace.create_queue(path, QueueDescription(enable_partitioning=True, **fields), NOON)

        return make

    @pytest.mark.spec("Q-13")
    def test_all_sends_of_a_transaction_have_one_partition_key(self, make_partitioned, transaction):
        orders = make_partitioned()
        for _ in range(3):
            transaction.send(orders, [StoredMessage(bare=b"x", partition_key="a")], NOON)
        assert counts(orders) == (0, 0, 0)
        transaction.commit(NOON)

        numbers = [orders.receive(NOON).sequence_number for _ in range(3)]
        assert len({number >> 48 for number in numbers}) == 1

    @pytest.mark.spec("Q-13")
    @pytest.mark.parametrize(
        ("fields", "words"),
        [({}, "needs a session id"), ({"message_id": "m"}, "needs"), ({"partition_key": "b"}, "'a' and 'b'")],
    )
    def test_a_message_without_the_partition_key_is_refused(
        self, make_partitioned, transaction, fields, words
    ):
        orders = make_partitioned()
        transaction.send(orders, [StoredMessage(bare=b"x", partition_key="a")], NOON)
        with pytest.raises(NotAllowedError, match=words):
            transaction.send(orders, [StoredMessage(bare=b"x", **fields)], NOON)

    @pytest.mark.spec("Q-13")
    def test_with_duplicate_detection_a_message_id_is_a_key(self, make_partitioned, transaction):
        orders = make_partitioned(requires_duplicate_detection=True)
        transaction.send(orders, [StoredMessage(bare=b"x", message_id="a")], NOON)
        transaction.send(orders, [StoredMessage(bare=b"x", partition_key="a", message_id="b")], NOON)
        with pytest.raises(NotAllowedError, match="'a' and 'c'"):
            transaction.send(orders, [StoredMessage(bare=b"x", message_id="c")], NOON)

    @pytest.mark.spec("Q-14")
    def test_all_messages_of_a_transaction_have_one_session(self, make_partitioned, transaction):
        orders = make_partitioned(requires_session=True)
        transaction.send(orders, [StoredMessage(bare=b"x", session_id="a")], NOON)
        with pytest.raises(SessionRequiredError):
            transaction.send(orders, [StoredMessage(bare=b"x", partition_key="a")], NOON)
        with pytest.raises(NotAllowedError, match="both to the same value"):
            transaction.send(orders, [StoredMessage(bare=b"x", session_id="a", partition_key="b")], NOON)
        with pytest.raises(NotAllowedError, match="'a' and 'b'"):
            transaction.send(orders, [StoredMessage(bare=b"x", session_id="b")], NOON)
        transaction.commit(NOON)

        assert counts(orders) == (1, 0, 0)

    @pytest.mark.spec("Q-14")
    def test_a_plain_entity_allows_several_sessions_in_a_transaction(self, namespace, transaction):
        orders = namespace.create_queue("orders", QueueDescription(requires_session=True), NOON)
        for session in "ab":
            transaction.send(orders, [StoredMessage(bare=b"x", session_id=session)], NOON)
        transaction.commit(NOON)

        assert counts(orders) == (2, 0, 0)

    @pytest.mark.spec("Q-13")
    def test_a_send_via_a_partitioned_entity_needs_a_via_partition_key(
        self, namespace, make_partitioned, transaction
    ):
        orders, bills = make_partitioned(), namespace.create_queue("bills", QueueDescription(), NOON)
        transaction.send(bills, [StoredMessage(bare=b"x", via_partition_key="a")], NOON, via=orders)
        with pytest.raises(NotAllowedError, match="via-partition-key"):
            transaction.send(bills, [StoredMessage(bare=b"x", partition_key="a")], NOON, via=orders)
        transaction.commit(NOON)

        assert counts(bills) == (1, 0, 0)

    def test_an_unavailable_partition_at_the_commit_undoes_the_transaction(
        self, make_partitioned, transaction
    ):
        orders = make_partitioned()
        transaction.send(orders, [StoredMessage(bare=b"x", partition_key="a")], NOON)
        orders.partition_of("a").partition.set(Health.DOWN)
        with pytest.raises(TransactionRolledBackError):
            transaction.commit(NOON)


STEPS = st.lists(
    st.tuples(st.sampled_from(["send", *(verb.value for verb in SettlementVerb)]), st.integers(0, 5)),
    max_size=12,
)


@given(steps=STEPS, commits=st.booleans())
@settings(max_examples=80, deadline=None)
def test_a_commit_equals_immediate_execution_and_a_rollback_equals_none(steps, commits):
    def play(do_send, do_settle, queue):
        tokens = locked(queue, 6)
        for step, which in steps:
            try:
                if step == "send":
                    do_send(queue, messages(which))
                else:
                    do_settle(Settlement(queue, tokens[which], SettlementVerb(step)))
            except LockLostError:
                pass

    def state(queue):
        return [
            (each.sequence_number, each.state, each.delivery_count) for each in queue.peek(0, 99, NOON)
        ], queue.counts(NOON)

    together, one_by_one = (Namespace(name) for name in ("together", "one-by-one"))
    here, there = (space.create_queue("q", QueueDescription(), NOON) for space in (together, one_by_one))
    transaction = Transaction(together, Anchor())
    play(
        lambda queue, sent: transaction.send(queue, sent, NOON),
        lambda settlement: transaction.settle(settlement, NOON),
        here,
    )
    if commits:
        transaction.commit(NOON)
        play(
            lambda queue, sent: queue.enqueue_all(sent, NOON),
            lambda settlement: settlement.apply(NOON),
            there,
        )
    else:
        locked(there, 6)

    assert state(here) == state(there)
