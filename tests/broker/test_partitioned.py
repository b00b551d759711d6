"""Partitioned queues in virtual time where they differ from plain ones; the plain tests cover the rest."""

from __future__ import annotations

import itertools
import subprocess
import sys

import pytest

from sbpair.broker.entities import Namespace, QueueDescription, TopicDescription
from sbpair.broker.entities.partition import Health, Layout, index_of
from sbpair.broker.entities.stored_message import LockToken, StoredMessage
from sbpair.broker.errors import (
    InvalidDescriptionError,
    NoSuchMessageError,
    NotAllowedError,
    PartitionUnavailableError,
    ServerBusyError,
    TooManyEntitiesError,
)

NOON = 1_800_000_000_000
MINUTE = 60_000
SHIFT = 48


def namespace_of(layout: Layout | None = None) -> Namespace:
    tokens = itertools.count(1)
    return Namespace("contoso", new_token=lambda: LockToken(next(tokens).to_bytes(16, "big")), layout=layout)


@pytest.fixture
def namespace():
    return namespace_of()


@pytest.fixture
def make(namespace):
    def make_queue(path="orders", **fields):
        return namespace.create_queue(path, QueueDescription(enable_partitioning=True, **fields), NOON)

    return make_queue


@pytest.fixture
def queue(make):
    return make()


def message(body=b"body", **fields):
    return StoredMessage(bare=body, **fields)


def partition_of(number):
    return number >> SHIFT


def received(queue, now=NOON):
    found = []
    while (each := queue.receive(now)) is not None:
        found.append(each)
    return found


class TestPlacing:
    @pytest.mark.spec("Q-5", "Q-10")
    def test_messages_without_a_key_go_round_robin_from_a_chosen_start(self):
        layout = Layout(first=14)
        queue = namespace_of(layout).create_queue("orders", QueueDescription(enable_partitioning=True), NOON)
        numbers = [queue.enqueue(message(), NOON) for _ in range(18)]

        assert [partition_of(number) for number in numbers] == [14, 15, *range(16)]
        assert [number % 2**SHIFT for number in numbers] == [1] * 16 + [2, 2]

    @pytest.mark.spec("Q-4", "Q-6")
    @pytest.mark.parametrize(
        ("fields", "key"),
        [
            ({"session_id": "s", "message_id": "m"}, "s"),
            ({"session_id": "s", "partition_key": "s"}, "s"),
            ({"partition_key": "p", "message_id": "m"}, "p"),
            ({"message_id": "m"}, "m"),
        ],
    )
    def test_the_partition_key_is_session_id_then_partition_key_then_message_id(self, make, fields, key):
        queue = make(requires_duplicate_detection=True, duplicate_detection_history_time_window=20_000)
        numbers = [queue.enqueue(message(**fields), NOON + MINUTE * i) for i in range(3)]

        assert {partition_of(number) for number in numbers} == {index_of(key, 16)}

    @pytest.mark.spec("Q-6")
    def test_without_duplicate_detection_a_message_id_is_no_partition_key(self, queue):
        numbers = {queue.enqueue(message(message_id="m"), NOON) for _ in range(16)}
        assert {partition_of(number) for number in numbers} == set(range(16))

    @pytest.mark.spec("Q-4")
    def test_a_key_maps_to_the_same_partition_in_every_process(self):
        keys = ["", "home", "Zürich", "\N{SNOWMAN}" * 128, "k" * 128]
        script = (
            "from sbpair.broker.entities.partition import index_of; import sys;"
            "print([index_of(key, 16) for key in eval(sys.argv[1])])"
        )
        told = subprocess.run(
            [sys.executable, "-c", script, repr(keys)], capture_output=True, text=True, check=True
        )
        assert told.stdout.strip() == str([index_of(key, 16) for key in keys])

    @pytest.mark.spec("Q-6", "F-54")
    @pytest.mark.parametrize(
        ("fields", "batch", "words"),
        [
            (
                {},
                [{"partition_key": "a"}, {"partition_key": "b"}],
                "SessionId or PartitionKey is not supported",
            ),
            ({}, [{"partition_key": "a"}, {}], "SessionId or PartitionKey is not supported"),
            (
                {"requires_duplicate_detection": True},
                [{"message_id": "a"}, {"message_id": "b"}],
                "distinct SessionId, PartitionKey, or MessageId is not supported",
            ),
        ],
    )
    def test_a_batch_of_several_keys_is_refused_whole(self, make, fields, batch, words):
        queue = make(**fields)
        with pytest.raises(NotAllowedError, match=words):
            queue.enqueue_all([message(**each) for each in batch], NOON)
        assert queue.counts(NOON).total == 0

    def test_a_batch_without_keys_goes_to_one_partition(self, queue):
        numbers = queue.enqueue_all([message() for _ in range(5)], NOON)
        assert {partition_of(number) for number in numbers} == {0}


class TestOutage:
    def test_a_send_is_refused_if_no_partition_is_available(self, queue):
        for index in range(16):
            queue.set_health(index, Health.DOWN)
        with pytest.raises(PartitionUnavailableError):
            queue.enqueue(message(), NOON)
        queue.set_health(7, Health.THROTTLED)
        with pytest.raises(ServerBusyError):
            queue.enqueue(message(), NOON)

    @pytest.mark.spec("Q-1", "Q-8")
    def test_receivers_continue_with_the_remaining_partitions_and_see_the_rest_later(self, queue):
        for _ in range(16):
            queue.enqueue(message(), NOON)
        held = queue.receive(NOON)
        assert partition_of(held.sequence_number) == 0
        for index in (0, 5):
            queue.set_health(index, Health.DOWN)

        assert len(received(queue)) == 14
        with pytest.raises(PartitionUnavailableError):
            queue.complete(held.lock_token, NOON)
        for index in (0, 5):
            queue.set_health(index, Health.UP)
        queue.complete(held.lock_token, NOON)
        assert [partition_of(each.sequence_number) for each in received(queue)] == [5]

    @pytest.mark.spec("Q-17")
    def test_counts_include_unavailable_partitions(self, queue):
        for i in range(32):
            queue.enqueue(message(scheduled_for=NOON + MINUTE if i < 16 else None), NOON)
        queue.dead_letter(queue.receive(NOON).lock_token, NOON, {})
        queue.defer(queue.receive(NOON).lock_token, NOON)
        queue.set_health(5, Health.DOWN)

        counts = queue.counts(NOON)
        assert (counts.active, counts.scheduled, counts.dead_letter, counts.deferred) == (14, 16, 1, 1)
        assert (counts.total, counts.size_in_bytes) == (32, 32 * 4)


class TestNumbers:
    @pytest.mark.spec("Q-9")
    def test_peek_skips_an_unavailable_partition(self, queue):
        for _ in range(16):
            queue.enqueue(message(), NOON)
        queue.set_health(0, Health.DOWN)
        assert partition_of(queue.peek(1, 1, NOON)[0].sequence_number) == 1

    @pytest.mark.spec("Q-10")
    def test_a_missing_message_is_named_without_its_partition(self, queue):
        with pytest.raises(NoSuchMessageError, match=r"Missing sequence numbers: 1524\."):
            queue.receive_deferred([5 << SHIFT | 1524], NOON)
        for beyond in (16 << SHIFT | 7, -1):
            with pytest.raises(NoSuchMessageError):
                queue.cancel_scheduled([beyond], NOON)

    @pytest.mark.spec("Q-8")
    def test_a_cancel_of_several_cancels_none_if_one_partition_is_down(self, queue, namespace):
        numbers = [queue.enqueue(message(scheduled_for=NOON + MINUTE), NOON) for _ in range(3)]
        namespace.set_health("orders", partition_of(numbers[-1]), Health.DOWN)

        with pytest.raises(PartitionUnavailableError):
            queue.cancel_scheduled(numbers, NOON)
        assert queue.counts(NOON).scheduled == 3

    @pytest.mark.spec("Q-10")
    def test_a_scheduled_message_stays_in_its_partition(self, queue, namespace):
        first = queue.enqueue(message(scheduled_for=NOON + MINUTE, partition_key="b"), NOON)
        assert namespace.next_timer() == NOON + MINUTE
        namespace.handle_timer(NOON + MINUTE)

        assert queue.receive(NOON + MINUTE).sequence_number == first + 1


class TestSessions:
    @pytest.mark.spec("Q-12")
    def test_a_session_of_an_unavailable_partition_waits_and_others_continue(self, make):
        queue = make(requires_session=True)
        queue.enqueue(message(session_id="a"), NOON)  # partition 3
        queue.enqueue(message(session_id="b"), NOON)
        held = queue.sessions.accept("a", NOON)
        queue.set_health(3, Health.DOWN)

        with pytest.raises(PartitionUnavailableError):
            queue.receive(NOON, held)
        with pytest.raises(PartitionUnavailableError):
            queue.sessions.renew(held, NOON)
        assert queue.sessions.accept(None, NOON).session_id == "b"
        queue.set_health(3, Health.UP)
        assert queue.receive(NOON, held) is not None


class TestFrontEnd:
    @pytest.mark.spec("Q-18")
    def test_a_front_end_does_not_deliver_a_message_whose_lock_was_lost(self, queue, namespace):
        namespace.let_front_ends_cache(True)
        one, other = Connection(), Connection()
        for _ in range(2):
            queue.enqueue(message(), NOON)
        queue.source_for(one).receive(NOON)
        later = NOON + MINUTE
        theirs = queue.source_for(other).receive(later)

        assert theirs is not None
        assert queue.source_for(one).receive(later) is None


class Connection:
    """A connection, of which only the identity matters."""


class TestKinds:
    @pytest.mark.spec("Q-2")
    def test_a_premium_namespace_has_1_2_or_4_partitions(self):
        with pytest.raises(InvalidDescriptionError, match="cannot have 3 partitions: use one of"):
            Layout(premium=3)

    def test_a_partitioned_queue_reports_16_times_its_requested_size(self, namespace, make):
        queue = make(max_size_in_megabytes=5120)
        assert queue.description.max_size_in_megabytes == 81_920
        assert namespace.update_queue("orders", queue.description, NOON).description == queue.description
        with pytest.raises(InvalidDescriptionError, match="max_size_in_megabytes is 10240"):
            make("big", max_size_in_megabytes=10_240)

    @pytest.mark.spec("Q-19")
    def test_a_standard_namespace_holds_100_partitioned_entities(self, namespace, make):
        for i in range(99):
            make(f"q{i}")
        namespace.create_topic("events", TopicDescription(enable_partitioning=True), NOON)
        with pytest.raises(TooManyEntitiesError, match="100 partitioned entities"):
            make("one-too-many")
        namespace.create_queue("plain", QueueDescription(), NOON)
        namespace.delete_queue("q0", NOON)
        make("now-there-is-room")

    @pytest.mark.spec("Q-19")
    def test_partitioned_entities_count_towards_the_entity_limit(self, namespace, make, monkeypatch):
        monkeypatch.setattr("sbpair.broker.entities.quotas.MAX_ENTITIES", 2)
        make("one")
        namespace.create_queue("two", QueueDescription(), NOON)
        with pytest.raises(TooManyEntitiesError, match="2 queues and topics"):
            namespace.create_queue("three", QueueDescription(), NOON)

    def test_a_partitioned_queue_is_idle_only_if_no_partition_was_used(self, namespace, make):
        queue = make(auto_delete_on_idle=5 * MINUTE)
        queue.enqueue(message(partition_key="b"), NOON + MINUTE)
        namespace.handle_timer(NOON + 5 * MINUTE)
        assert namespace.holds(queue)
        namespace.handle_timer(NOON + 6 * MINUTE)
        assert not namespace.holds(queue)
        assert not namespace.holds(queue.partitions[3])


class TestForwarding:
    def pair(self, namespace, source, target):
        namespace.create_queue("target", QueueDescription(enable_partitioning=target), NOON)
        asked = QueueDescription(enable_partitioning=source, forward_to="target")
        return namespace.create_queue("source", asked, NOON), namespace.queue("target")

    @pytest.mark.spec("Q-15")
    @pytest.mark.parametrize(("source", "target"), [(True, True), (True, False), (False, True)])
    def test_messages_are_forwarded_between_partitioned_queues_with_their_key(
        self, namespace, source, target
    ):
        queue, destination = self.pair(namespace, source, target)
        for n in range(32):
            queue.enqueue(message(partition_key="b" if n % 2 else None), NOON)
        namespace.forward(NOON)

        found = received(destination)
        assert len(found) == 32
        assert queue.counts(NOON).total == 0
        homes = {partition_of(each.sequence_number) for each in found if each.partition_key == "b"}
        assert homes == ({index_of("b", 16)} if target else {0})

    @pytest.mark.spec("Q-15", "F-50")
    def test_a_transfer_waits_while_the_destination_partition_is_unavailable(self, namespace):
        queue, destination = self.pair(namespace, True, True)
        namespace.set_health("target", 9, Health.DOWN)  # the partition of b
        for key in ("a", "b", "b"):
            queue.enqueue(message(partition_key=key), NOON)
        namespace.forward(NOON)
        assert (queue.counts(NOON).active, destination.counts(NOON).active) == (2, 1)
        assert queue.counts(NOON).dead_letter == 0

        namespace.set_health("target", 9, Health.UP)
        namespace.forward(NOON)
        assert (queue.counts(NOON).active, destination.counts(NOON).active) == (0, 3)
