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
    ReroutingError,
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


def key_for(index, partitions=16):
    return next(key for i in itertools.count() if index_of(key := f"key-{i}", partitions) == index)


class TestPlacing:
    @pytest.mark.spec("Q-5", "Q-10")
    def test_messages_without_a_key_go_round_all_partitions_from_a_start_that_can_be_chosen(self):
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
    def test_the_key_is_session_then_partition_key_then_message_id(self, make, fields, key):
        queue = make(requires_duplicate_detection=True, duplicate_detection_history_time_window=20_000)
        numbers = [queue.enqueue(message(**fields), NOON + MINUTE * i) for i in range(3)]

        assert {partition_of(number) for number in numbers} == {index_of(key, 16)}

    @pytest.mark.spec("Q-6")
    def test_a_message_id_is_no_key_where_duplicates_are_not_detected(self, queue):
        numbers = {queue.enqueue(message(message_id="m"), NOON) for _ in range(16)}
        assert {partition_of(number) for number in numbers} == set(range(16))

    @pytest.mark.spec("Q-4")
    def test_a_key_has_the_same_partition_in_every_process(self):
        keys = ["", "home", "Zürich", "\N{SNOWMAN}" * 128, "k" * 128]
        script = (
            "from sbpair.broker.entities.partition import index_of; import sys;"
            "print([index_of(key, 16) for key in eval(sys.argv[1])])"
        )
        told = subprocess.run(
            [sys.executable, "-c", script, repr(keys)], capture_output=True, text=True, check=True
        )
        assert told.stdout.strip() == str([index_of(key, 16) for key in keys])

    @pytest.mark.spec("Q-7")
    def test_a_session_id_and_a_partition_key_that_differ_are_refused(self, queue, namespace):
        plain = namespace.create_queue("plain", QueueDescription(), NOON)
        for entity in (queue, plain):
            with pytest.raises(NotAllowedError, match="'s' and the partition key 'p' of a message differ"):
                entity.enqueue(message(session_id="s", partition_key="p"), NOON)
        assert queue.counts(NOON).total == plain.counts(NOON).total == 0

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

    @pytest.mark.spec("Q-11")
    def test_copies_meet_inside_a_partition_only(self, make):
        queue = make(requires_duplicate_detection=True)
        for key in ("a", "a", "b", "b"):  # of partitions 3 and 9
            queue.enqueue(message(message_id="m", partition_key=key), NOON)
        assert queue.counts(NOON).total == 2

        for _ in range(2):
            queue.enqueue(message(message_id="n"), NOON)
        assert queue.counts(NOON).total == 3


class TestOutage:
    @pytest.mark.spec("Q-4", "F-50")
    def test_a_key_whose_partition_is_down_or_throttled_is_refused_and_others_go_on(self, queue):
        queue.set_health(3, Health.DOWN)
        queue.set_health(9, Health.THROTTLED)

        with pytest.raises(PartitionUnavailableError, match="Partition 3 of the entity 'orders'"):
            queue.enqueue(message(partition_key=key_for(3)), NOON)
        with pytest.raises(ServerBusyError, match="50009"):
            queue.enqueue(message(partition_key=key_for(9)), NOON)
        assert partition_of(queue.enqueue(message(partition_key=key_for(4)), NOON)) == 4

    @pytest.mark.spec("Q-1", "Q-5", "F-50")
    def test_messages_without_a_key_pass_over_what_is_not_available(self, queue):
        queue.set_health(0, Health.DOWN)
        queue.set_health(1, Health.THROTTLED)
        numbers = [queue.enqueue(message(), NOON) for _ in range(15)]

        assert [partition_of(number) for number in numbers] == [*range(2, 16), 2]

    def test_nothing_is_left_to_take_a_message(self, queue):
        for index in range(16):
            queue.set_health(index, Health.DOWN)
        with pytest.raises(PartitionUnavailableError):
            queue.enqueue(message(), NOON)
        queue.set_health(7, Health.THROTTLED)
        with pytest.raises(ServerBusyError):
            queue.enqueue(message(), NOON)

    @pytest.mark.spec("Q-1", "Q-8")
    def test_receivers_go_on_with_what_is_left_and_find_the_rest_when_it_is_back(self, queue):
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

    @pytest.mark.spec("Q-16")
    def test_a_message_whose_turn_meets_a_fresh_outage_is_moved_after_a_while(self, queue):
        queue.set_health(0, Health.DOWN, known_from=NOON + 15_000)

        with pytest.raises(ReroutingError) as caught:
            queue.enqueue(message(), NOON)
        assert caught.value.at == NOON + 15_000
        numbers = [queue.enqueue(message(), NOON) for _ in range(15)]  # the other messages do not wait for it
        assert [partition_of(number) for number in numbers] == [*range(1, 16)]
        assert partition_of(queue.enqueue(message(), NOON + 15_000)) == 1

    @pytest.mark.spec("Q-17", "F-52")
    def test_management_needs_every_partition(self, namespace, queue):
        description = QueueDescription(enable_partitioning=True, lock_duration=30_000)
        assert queue.availability == "Available"
        queue.set_health(5, Health.DOWN)

        assert queue.availability == "Limited"
        with pytest.raises(PartitionUnavailableError):
            namespace.update_queue("orders", description, NOON)
        with pytest.raises(PartitionUnavailableError):
            namespace.delete_queue("orders", NOON)
        queue.set_health(5, Health.UP)
        assert namespace.update_queue("orders", description, NOON).description.lock_duration == 30_000

    @pytest.mark.spec("Q-17", "F-52")
    def test_a_store_that_is_down_is_so_under_every_partitioned_entity(self, namespace, queue, make):
        topic = namespace.create_topic("events", TopicDescription(enable_partitioning=True), NOON)
        namespace.create_queue("plain", QueueDescription(), NOON)
        namespace.set_store_health(5, Health.DOWN)

        assert [queue.availability, topic.availability] == ["Limited", "Limited"]
        assert namespace.queue("plain").availability == "Available"
        with pytest.raises(PartitionUnavailableError):
            make("another")
        namespace.create_queue("another-plain", QueueDescription(), NOON)
        namespace.set_store_health(5, Health.UP)
        assert make("another").availability == "Available"

    @pytest.mark.spec("Q-17")
    def test_counts_are_of_all_partitions_healthy_or_not(self, queue):
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
    def test_peek_shows_one_partition_at_a_time_and_from_page_to_page_all(self, queue):
        sent = {queue.enqueue(message(), NOON) for _ in range(40)}
        shown, start = [], 1
        while page := queue.peek(start, 2, NOON):
            assert len({partition_of(each.sequence_number) for each in page}) == 1
            shown += [each.sequence_number for each in page]
            start = shown[-1] + 1

        assert len(shown) == len(set(shown)) == 40
        assert set(shown) == sent
        assert len(queue.peek(1, 100, NOON)) == 3  # fewer than requested and than available

    @pytest.mark.spec("Q-9")
    def test_peek_passes_over_a_partition_that_is_down(self, queue):
        for _ in range(16):
            queue.enqueue(message(), NOON)
        queue.set_health(0, Health.DOWN)
        assert partition_of(queue.peek(1, 1, NOON)[0].sequence_number) == 1

    @pytest.mark.spec("Q-10")
    def test_what_is_not_there_is_named_without_its_partition(self, queue):
        with pytest.raises(NoSuchMessageError, match=r"Missing sequence numbers: 1524\."):
            queue.receive_deferred([5 << SHIFT | 1524], NOON)
        for beyond in (16 << SHIFT | 7, -1):
            with pytest.raises(NoSuchMessageError):
                queue.cancel_scheduled([beyond], NOON)

    @pytest.mark.spec("Q-8")
    def test_deferred_messages_of_several_partitions_are_received_all_or_none(self, queue):
        for _ in range(3):
            queue.enqueue(message(), NOON)
        numbers = [each.sequence_number for each in received(queue)]
        for token in [each.lock_token for each in map(held_by(queue), numbers)]:
            queue.defer(token, NOON)

        with pytest.raises(NoSuchMessageError):
            queue.receive_deferred([*numbers, 7 << SHIFT | 1], NOON)
        found = queue.receive_deferred(list(reversed(numbers)), NOON)
        assert [each.sequence_number for each in found] == list(reversed(numbers))

    @pytest.mark.spec("Q-8")
    def test_scheduled_messages_of_several_partitions_are_cancelled_all_or_none(self, queue):
        numbers = [queue.enqueue(message(scheduled_for=NOON + MINUTE), NOON) for _ in range(3)]

        with pytest.raises(NoSuchMessageError):
            queue.cancel_scheduled([*numbers, 7 << SHIFT | 1], NOON)
        assert queue.counts(NOON).scheduled == 3
        queue.cancel_scheduled(numbers, NOON)
        assert queue.counts(NOON).scheduled == 0

    @pytest.mark.spec("Q-8")
    def test_none_of_them_is_cancelled_while_the_partition_of_one_is_down(self, queue, namespace):
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


def held_by(queue):
    return lambda number: queue.partitions[partition_of(number)].message(number)


class TestSessions:
    @pytest.mark.spec("Q-12")
    def test_a_session_lives_in_one_partition_with_its_order_and_its_state(self, make):
        queue = make(requires_session=True)
        for i in range(40):
            queue.enqueue(message(body=b"%d" % i, session_id=f"s{i % 20}"), NOON)
        assert len(queue.sessions) == 20

        lock = queue.sessions.accept("s7", NOON)
        queue.sessions.set_state(lock, b"half", NOON)
        bodies = [queue.receive(NOON, lock).bare for _ in range(2)]
        queue.sessions.release(lock, NOON)
        again = queue.sessions.accept("s7", NOON)
        assert bodies == [b"7", b"27"]
        assert queue.sessions.state(again, NOON) == b"half"

        others = []
        while (lock := queue.sessions.accept(None, NOON)) is not None:
            others.append(lock.session_id)
        assert sorted([*others, "s7"]) == sorted(f"s{i}" for i in range(20))

    @pytest.mark.spec("Q-12")
    def test_a_session_whose_partition_is_down_waits_and_the_others_go_on(self, make):
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
    @pytest.mark.spec("Q-8", "Q-18")
    def test_what_the_other_partitions_gave_is_kept_for_the_next_requests_of_the_connection(
        self, queue, namespace
    ):
        namespace.let_front_ends_cache(True)
        one, other = Connection(), Connection()
        for _ in range(3):
            queue.enqueue(message(), NOON)

        first = queue.source_for(one).receive(NOON)
        assert queue.source_for(other).receive(NOON) is None  # locked and cached by another frontend
        rest = [queue.source_for(one).receive(NOON) for _ in range(2)]
        assert len({each.sequence_number for each in (first, *rest)}) == 3
        assert queue.source_for(one).receive(NOON) is None

    @pytest.mark.spec("Q-18")
    def test_what_is_kept_comes_back_as_its_lock_ends(self, queue, namespace):
        namespace.let_front_ends_cache(True)
        one, other = Connection(), Connection()
        for _ in range(3):
            queue.enqueue(message(), NOON)
        queue.complete(queue.source_for(one).receive(NOON).lock_token, NOON)
        del one

        namespace.handle_timer(NOON + MINUTE)
        found = [queue.source_for(other).receive(NOON + MINUTE) for _ in range(3)]
        assert [each is not None for each in found] == [True, True, False]

    @pytest.mark.spec("Q-18")
    def test_a_front_end_does_not_hand_over_what_it_no_longer_holds(self, queue, namespace):
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
    def test_a_standard_namespace_holds_both_kinds_with_16_partitions(self, namespace, queue):
        plain = namespace.create_queue("plain", QueueDescription(), NOON)
        assert len(queue.partitions) == 16
        assert (queue.description.enable_partitioning, plain.description.enable_partitioning) == (True, False)

    @pytest.mark.spec("Q-2")
    @pytest.mark.parametrize("count", [1, 2, 4])
    def test_on_a_partitioned_premium_namespace_every_entity_is(self, count):
        namespace = namespace_of(Layout(premium=count))
        queue = namespace.create_queue("orders", QueueDescription(enable_partitioning=True), NOON)

        assert {partition_of(queue.enqueue(message(), NOON)) for _ in range(8)} == set(range(count))
        for create, description in (
            (namespace.create_queue, QueueDescription()),
            (namespace.create_topic, TopicDescription()),
        ):
            with pytest.raises(InvalidDescriptionError, match="EnablePartitioning must be set to true"):
                create("plain", description, NOON)

    @pytest.mark.spec("Q-2")
    def test_a_premium_namespace_has_1_2_or_4_partitions(self):
        with pytest.raises(InvalidDescriptionError, match="cannot have 3 partitions: use one of"):
            Layout(premium=3)

    @pytest.mark.spec("Q-3")
    @pytest.mark.parametrize("was", [True, False])
    def test_the_choice_is_for_ever(self, namespace, was):
        namespace.create_queue("orders", QueueDescription(enable_partitioning=was), NOON)
        namespace.create_topic("events", TopicDescription(enable_partitioning=was), NOON)

        with pytest.raises(InvalidDescriptionError, match="Partitioning cannot be changed for"):
            namespace.update_queue("orders", QueueDescription(enable_partitioning=not was), NOON)
        with pytest.raises(InvalidDescriptionError, match="Partitioning cannot be changed for"):
            namespace.update_topic("events", TopicDescription(enable_partitioning=not was), NOON)

    def test_the_size_is_16_times_what_was_asked_and_an_update_may_say_so(self, namespace, make):
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
    def test_partitioned_entities_count_to_the_entities_of_the_namespace(self, namespace, make, monkeypatch):
        monkeypatch.setattr("sbpair.broker.entities.quotas.MAX_ENTITIES", 2)
        make("one")
        namespace.create_queue("two", QueueDescription(), NOON)
        with pytest.raises(TooManyEntitiesError, match="2 queues and topics"):
            namespace.create_queue("three", QueueDescription(), NOON)

    @pytest.mark.spec("Q-19")
    def test_a_message_on_a_partitioned_premium_namespace_has_a_megabyte_at_most(self):
        namespace = namespace_of(Layout(premium=4))
        with pytest.raises(InvalidDescriptionError, match="at most 1024 on a partitioned namespace"):
            namespace.create_queue(
                "orders",
                QueueDescription(enable_partitioning=True, max_message_size_in_kilobytes=1025),
                NOON,
            )

    @pytest.mark.spec("Q-20")
    def test_a_send_and_a_receive_are_one_operation_each(self, namespace, queue):
        queue.enqueue(message(), NOON)
        queue.receive(NOON)
        queue.receive(NOON)
        operations = namespace.operations
        assert (operations.sends, operations.receives, operations.billed) == (1, 1, 2)

    def test_a_partitioned_queue_is_deleted_when_nobody_has_used_any_partition(self, namespace, make):
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
    def test_messages_go_on_from_to_and_between_partitioned_queues_with_their_key(
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
    def test_what_the_destinations_partition_cannot_take_now_waits_for_it(self, namespace):
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
