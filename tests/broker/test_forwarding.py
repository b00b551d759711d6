"""Auto-forwarding in virtual time: what is forwarded, how far, and what happens on failure."""

from __future__ import annotations

from dataclasses import replace

import pytest

from sbpair.amqp.message import DataBody, Message
from sbpair.broker.entities import (
    Namespace,
    QueueDescription,
    StoredMessage,
    SubscriptionDescription,
    TopicDescription,
)
from sbpair.broker.entities.message_store import DESCRIPTION, REASON
from sbpair.broker.errors import EntityNotFoundError, ForwardingEntityError, InvalidDescriptionError

NOON = 1_800_000_000_000
SECOND = 1_000
MINUTE = 60_000
KILOBYTE = 1024
HELLO = Message(body=DataBody((b"hello",))).encode()


@pytest.fixture
def make(namespace):
    """Return a function that creates a queue with the given fields."""

    def make(path, **fields):
        return namespace.create_queue(path, replace(QueueDescription(), **fields), NOON)

    return make


@pytest.fixture
def change(namespace):
    """Return a function that updates fields of a queue."""

    def change(queue, now=NOON, **fields):
        namespace.update_queue(queue.path, replace(queue.description, **fields), now)
        namespace.forward(now)

    return change


@pytest.fixture
def send(namespace, message):
    """Return a function that sends a message and then runs forwarding."""

    def send(queue, now=NOON, **fields):
        queue.enqueue(message(**fields), now)
        namespace.forward(now)

    return send


def waiting(*queues):
    return [queue.counts(NOON).active for queue in queues]


def reason_of(dead):
    return dead.amended[REASON], dead.amended[DESCRIPTION]


class TestQueues:
    def test_a_message_goes_on_to_the_target(self, make, send):
        archive = make("archive")
        orders = make("orders", forward_to="archive")
        send(orders, bare=b"paper", session_id="a", message_id="1")

        assert waiting(orders, archive) == [0, 1]
        arrived = archive.receive(NOON)
        assert (arrived.bare, arrived.session_id, arrived.message_id) == (b"paper", "a", "1")

    def test_it_is_numbered_anew_and_tells_its_first_number(self, make, send):
        archive = make("archive")
        orders = make("orders", forward_to="archive")
        send(archive)
        send(orders)

        assert archive.receive(NOON).enqueued_sequence_number == 1
        arrived = archive.receive(NOON)
        assert (arrived.sequence_number, arrived.enqueued_sequence_number) == (2, 1)

    @pytest.mark.spec("T-1")
    def test_its_time_to_live_starts_again_where_it_arrives(self, make, send, change, namespace):
        archive = make("archive")
        orders = make("orders", forward_to="archive", status="ReceiveDisabled")
        send(orders, time_to_live=MINUTE)
        later = NOON + 30 * SECOND
        assert waiting(orders) == [1]
        change(orders, later, status="Active")

        assert archive.peek(1, 1, later)[0].expires_at == later + MINUTE

    @pytest.mark.spec("T-2", "T-4", "T-10", "T-22")
    def test_what_expired_in_the_source_does_not_go_on(self, make, send, change):
        archive = make("archive")
        orders = make(
            "orders",
            forward_to="archive",
            status="ReceiveDisabled",
            dead_lettering_on_message_expiration=True,
        )
        send(orders, time_to_live=SECOND)
        change(orders, NOON + MINUTE, status="Active")

        assert waiting(orders, archive) == [0, 0]
        assert orders.dead_letter_queue.receive(NOON + MINUTE).amended[REASON] == "TTLExpiredException"

    def test_a_scheduled_message_goes_on_when_it_is_due(self, make, send, namespace):
        archive = make("archive")
        orders = make("orders", forward_to="archive")
        send(orders, scheduled_for=NOON + MINUTE)
        assert (orders.counts(NOON).scheduled, waiting(archive)) == (1, [0])

        namespace.handle_timer(NOON + MINUTE)
        assert archive.receive(NOON + MINUTE).enqueued_at == NOON + MINUTE

    def test_what_waits_goes_on_when_forwarding_is_set_and_stays_when_it_is_taken_off(
        self, make, send, change
    ):
        archive, orders = make("archive"), make("orders")
        send(orders)
        change(orders, forward_to="archive")
        assert waiting(orders, archive) == [0, 1]

        change(orders, forward_to=None)
        send(orders)
        assert waiting(orders, archive) == [1, 1]

    def test_what_is_locked_goes_on_when_its_lock_ends(self, make, send, change, namespace):
        archive, orders = make("archive"), make("orders")
        send(orders)
        orders.receive(NOON)
        change(orders, forward_to="archive")
        assert waiting(orders, archive) == [1, 0]

        namespace.handle_timer(NOON + MINUTE)
        assert waiting(orders, archive) == [0, 1]

    def test_a_source_is_not_received_from(self, make):
        make("archive")
        orders = make("orders", forward_to="archive")

        for receive in (orders.receive, orders.receive_and_delete):
            with pytest.raises(ForwardingEntityError, match="Cannot create a message receiver"):
                receive(NOON)

    def test_a_target_that_drops_duplicates_drops_what_was_forwarded(self, make, send):
        archive = make("archive", requires_duplicate_detection=True)
        orders = make("orders", forward_to="archive")
        send(orders, message_id="1")
        send(orders, message_id="1")

        assert waiting(orders, archive) == [0, 1]

    @pytest.mark.spec("P-31")
    def test_a_ping_goes_nowhere(self, make, send):
        archive = make("archive")
        orders = make("orders", forward_to="archive")
        send(orders, is_ping=True)

        assert waiting(orders, archive) == [0, 0]

    @pytest.mark.spec("T-22")
    def test_a_source_is_never_idle_whatever_its_span(self, make, namespace):
        make("archive")
        orders = make("orders", forward_to="archive", auto_delete_on_idle=5 * MINUTE)

        assert orders.description.auto_delete_on_idle is None
        namespace.handle_timer(NOON + 600 * MINUTE)
        assert namespace.queue("orders") is orders

    @pytest.mark.spec("T-21")
    def test_what_arrives_is_use_of_the_target(self, make, send, namespace):
        make("archive", auto_delete_on_idle=5 * MINUTE)
        orders = make("orders", forward_to="archive")
        send(orders, NOON + 4 * MINUTE)

        namespace.handle_timer(NOON + 6 * MINUTE)
        assert namespace.queue("archive")
        namespace.handle_timer(NOON + 9 * MINUTE)
        with pytest.raises(EntityNotFoundError):
            namespace.queue("archive")


class TestTopics:
    @pytest.fixture
    def news(self, namespace):
        return namespace.create_topic("news", TopicDescription(), NOON)

    def subscribe(self, namespace, name, **fields):
        return namespace.create_subscription("news", name, SubscriptionDescription(**fields), NOON)

    def test_a_subscription_forwards(self, namespace, news, make, send):
        archive = make("archive")
        audit = self.subscribe(namespace, "audit", forward_to="archive")
        send(news)

        assert waiting(audit, archive) == [0, 1]
        assert archive.receive(NOON).enqueued_sequence_number == 1

    def test_a_topic_is_forwarded_to(self, namespace, news, make, send):
        audit, billing = self.subscribe(namespace, "audit"), self.subscribe(namespace, "billing")
        orders = make("orders", forward_to="news")
        send(orders)

        assert waiting(orders, audit, billing) == [0, 1, 1]

    def test_the_hops_before_a_topic_count_behind_it(self, namespace, news, make, send):
        last = make("last")
        make("c", forward_to="last")
        audit = self.subscribe(namespace, "audit", forward_to="c")
        make("b", forward_to="news")
        first = make("a", forward_to="b")
        send(first)

        assert waiting(audit, last) == [0, 1]  # a, b, audit, c: four hops

    @pytest.mark.spec("T-22")
    def test_a_topic_whose_subscription_forwards_is_in_use(self, namespace, make):
        make("archive")
        description = TopicDescription(auto_delete_on_idle=5 * MINUTE)
        namespace.create_topic("news", description, NOON)
        self.subscribe(namespace, "audit", forward_to="archive", auto_delete_on_idle=5 * MINUTE)

        namespace.handle_timer(NOON + 600 * MINUTE)
        assert namespace.subscription("news", "audit")
        assert namespace.topic("news")


class TestHops:
    def chain(self, make, length):
        """Create a chain of queues, each forwarding to the one before; q0 is the end."""
        queues = [make("q0")]
        queues += [make(f"q{n}", forward_to=f"q{n - 1}") for n in range(1, length + 1)]
        return queues

    def test_four_hops_are_made(self, make, send):
        queues = self.chain(make, 4)
        send(queues[4])

        assert waiting(*queues) == [1, 0, 0, 0, 0]

    def test_the_fifth_is_not(self, make, send):
        queues = self.chain(make, 5)
        send(queues[5])

        assert waiting(*queues) == [0] * 6
        reason, text = reason_of(queues[1].dead_letter_queue.receive(NOON))
        assert reason == "MaxTransferHopCountExceeded"
        assert "4 times" in text

    def test_a_circle_ends_in_a_dead_letter(self, make, send, change):
        there, back = make("there"), make("back")
        change(there, forward_to="back")
        change(back, forward_to="there")
        send(there)

        assert waiting(there, back) == [0, 0]
        assert there.counts(NOON).dead_letter == 1  # forth, back, forth, back, and dead-lettered at the end

    def test_each_message_counts_its_own(self, make, send):
        queues = self.chain(make, 4)
        for queue in queues:
            send(queue)

        assert waiting(*queues) == [5, 0, 0, 0, 0]


class TestFailures:
    @pytest.mark.parametrize("status", ["Disabled", "SendDisabled"])
    def test_a_disabled_target(self, make, send, change, status):
        archive = make("archive")
        orders = make("orders", forward_to="archive")
        change(archive, status=status)
        send(orders)

        assert waiting(orders, archive) == [0, 0]
        dead = orders.dead_letter_queue.receive(NOON)
        assert reason_of(dead)[0] == "MessagingEntityDisabledException"
        assert "archive" in reason_of(dead)[1]
        assert dead.dead_letter_source is None

    def test_a_deleted_target(self, make, send, namespace):
        make("archive")
        orders = make("orders", forward_to="archive")
        namespace.delete_queue("archive", NOON)
        send(orders)

        reason, text = reason_of(orders.dead_letter_queue.receive(NOON))
        assert reason == "MessagingEntityNotFoundException"
        assert "archive" in text

    def test_a_target_made_anew_is_found_again(self, make, send, namespace):
        make("archive")
        orders = make("orders", forward_to="archive")
        namespace.delete_queue("archive", NOON)
        archive = make("Archive")
        send(orders)

        assert waiting(orders, archive) == [0, 1]

    def test_a_full_target(self, make, send):
        archive = make("archive", max_size_in_megabytes=1024)
        archive.only.size = archive.description.quota_in_bytes
        orders = make("orders", forward_to="archive")
        send(orders)

        assert reason_of(orders.dead_letter_queue.receive(NOON))[0] == "QuotaExceededException"

    def test_a_target_that_takes_smaller_messages_only(self, make, send):
        make("archive", max_message_size_in_kilobytes=1)
        orders = make("orders", forward_to="archive")
        send(orders, bare=b"x" * KILOBYTE, overhead=64)
        send(orders, bare=b"x" * (KILOBYTE + 1), overhead=64)

        assert orders.counts(NOON).dead_letter == 1
        dead = orders.dead_letter_queue.receive(NOON)
        assert reason_of(dead)[0] == "MessageSizeExceededException"

    def test_a_target_that_requires_sessions_and_a_message_without_one(self, make, send):
        archive = make("archive", requires_session=True)
        orders = make("orders", forward_to="archive")
        send(orders)
        send(orders, session_id="a")

        assert waiting(orders, archive) == [0, 1]
        assert reason_of(orders.dead_letter_queue.receive(NOON)) == (
            "Session ID is null",
            "Session enabled entity doesn't allow a message whose session identifier is null.",
        )

    def test_a_disabled_source_keeps_what_it_has_until_it_is_active_again(self, make, send, change):
        archive = make("archive")
        orders = make("orders", forward_to="archive")
        change(orders, status="ReceiveDisabled")
        send(orders)
        assert waiting(orders, archive) == [1, 0]

        change(orders, status="Active")
        assert waiting(orders, archive) == [0, 1]


class TestAsTheOldDocumentationHasIt:
    """With ``legacy_forward_tdlq``, failures go to the transfer dead-letter queue, as until 2021."""

    @pytest.fixture
    def old(self):
        namespace = Namespace("contoso", legacy_forward_tdlq=True)
        for number in range(6):
            target = f"q{number - 1}" if number else None
            namespace.create_queue(f"q{number}", QueueDescription(forward_to=target), NOON)
        return namespace

    def test_what_cannot_go_on_is_in_the_transfer_dead_letter_queue(self, old):
        disabled = replace(old.queue("q0").description, status="Disabled")
        old.update_queue("q0", disabled, NOON)
        source = old.queue("q1")
        source.enqueue(StoredMessage(b"x"), NOON)
        old.forward(NOON)

        counts = source.counts(NOON)
        assert (counts.active, counts.dead_letter, counts.transfer_dead_letter) == (0, 0, 1)
        dead = old.queue("q1/$Transfer/$DeadLetterQueue").receive(NOON)
        assert reason_of(dead)[0] == "MessagingEntityDisabledException"
        assert dead.dead_letter_source is None

    def test_so_is_one_that_went_too_far(self, old):
        old.queue("q5").enqueue(StoredMessage(b"x"), NOON)
        old.forward(NOON)

        dead = old.queue("q1/$Transfer/$DeadLetterQueue").receive(NOON)
        assert reason_of(dead)[0] == "MaxTransferHopCountExceeded"
        assert old.queue("q1").counts(NOON).dead_letter == 0


class TestDeadLetters:
    def test_they_go_on_with_reason_and_source(self, make, send, namespace):
        failures = make("failures")
        orders = make("orders", forward_dead_lettered_messages_to="failures")
        send(orders)
        orders.dead_letter(orders.receive(NOON).lock_token, NOON, {REASON: "no", DESCRIPTION: "way"})
        namespace.forward(NOON)

        assert orders.counts(NOON).total == 0
        arrived = failures.receive(NOON)
        assert reason_of(arrived) == ("no", "way")
        assert (arrived.dead_letter_source, arrived.delivery_count) == ("orders", 0)

    @pytest.mark.spec("T-10")
    def test_expired_ones_too(self, make, send, namespace):
        failures = make("failures")
        orders = make(
            "orders",
            forward_dead_lettered_messages_to="failures",
            dead_lettering_on_message_expiration=True,
        )
        send(orders, time_to_live=SECOND)
        assert orders.receive(NOON + MINUTE) is None
        namespace.forward(NOON + MINUTE)

        assert failures.receive(NOON + MINUTE).amended[REASON] == "TTLExpiredException"

    def test_what_could_not_be_forwarded_goes_on_as_a_dead_letter(self, make, send, change):
        archive, failures = make("archive"), make("failures")
        orders = make("orders", forward_to="archive", forward_dead_lettered_messages_to="failures")
        change(archive, status="SendDisabled")
        send(orders)

        assert orders.counts(NOON).total == 0
        assert failures.receive(NOON).amended[REASON] == "MessagingEntityDisabledException"

    def test_the_dead_letter_queue_is_then_not_received_from_but_the_queue_is(self, make, send):
        make("failures")
        orders = make("orders", forward_dead_lettered_messages_to="failures")
        send(orders)

        with pytest.raises(ForwardingEntityError, match="DeadLetterQueue"):
            orders.dead_letter_queue.receive(NOON)
        assert orders.receive(NOON) is not None

    def test_those_that_cannot_go_on_stay_until_the_description_changes(self, make, send, change, namespace):
        failures = make("failures")
        orders = make("orders", forward_dead_lettered_messages_to="failures")
        change(failures, status="Disabled")
        send(orders)
        orders.dead_letter(orders.receive(NOON).lock_token, NOON, {REASON: "no"})
        namespace.forward(NOON)
        assert (orders.counts(NOON).dead_letter, waiting(failures)) == (1, [0])

        change(orders, forward_dead_lettered_messages_to=None)
        assert orders.dead_letter_queue.receive(NOON).amended[REASON] == "no"

    def test_they_go_on_when_the_target_is_well_again_and_the_description_is_set_anew(
        self, make, send, change, namespace
    ):
        failures = make("failures")
        orders = make("orders", forward_dead_lettered_messages_to="failures")
        change(failures, status="Disabled")
        send(orders)
        orders.dead_letter(orders.receive(NOON).lock_token, NOON, {REASON: "no"})
        namespace.forward(NOON)
        change(failures, status="Active")
        change(orders)

        assert (orders.counts(NOON).dead_letter, waiting(failures)) == (0, [1])

    def test_a_queue_that_requires_sessions_may_forward_its_dead_letters(self, make, send, namespace):
        failures = make("failures")
        orders = make("orders", requires_session=True, forward_dead_lettered_messages_to="failures")
        send(orders, session_id="a")
        lock = orders.sessions.accept("a", NOON)
        orders.dead_letter(orders.receive(NOON, lock).lock_token, NOON, {REASON: "no"})
        namespace.forward(NOON)

        assert failures.receive(NOON).session_id == "a"


@pytest.mark.spec("Q-15")
class TestPartitioned:
    KEYS = tuple(f"key-{number}" for number in range(40))

    def forwarded(self, make, send, source, target, **fields):
        """Forward a message with each of the keys; return what arrives, by key."""
        end = make("archive", enable_partitioning=target)
        orders = make("orders", enable_partitioning=source, forward_to="archive")
        for key in self.KEYS:
            send(orders, bare=key.encode(), **dict.fromkeys(fields, key))
        assert orders.counts(NOON).total == 0
        return end

    @pytest.mark.parametrize(("source", "target"), [(True, False), (False, True), (True, True)])
    def test_messages_go_from_to_and_between_them(self, make, send, source, target):
        end = self.forwarded(make, send, source, target, partition_key=True)
        arrived = [end.receive(NOON) for _ in self.KEYS]

        assert sorted(message.bare.decode() for message in arrived) == sorted(self.KEYS)
        assert all(message.partition_key == message.bare.decode() for message in arrived)

    @pytest.mark.parametrize("source", [True, False])
    def test_the_key_is_the_key_at_the_target(self, make, send, source):
        end = self.forwarded(make, send, source, True, partition_key=True)
        for key in self.KEYS:
            end.enqueue(StoredMessage(key.encode(), partition_key=key), NOON)
        homes = {}
        for _ in range(2 * len(self.KEYS)):
            message = end.receive(NOON)
            homes.setdefault(message.partition_key, set()).add(message.partition_id)

        assert len(homes) == len(self.KEYS)
        assert all(len(partitions) == 1 for partitions in homes.values())

    def test_without_a_key_they_are_spread_anew(self, make, namespace):
        end = make("archive", enable_partitioning=True)
        orders = make("orders", forward_to="archive")
        for _ in range(16):
            orders.enqueue(StoredMessage(b"x"), NOON)
        namespace.forward(NOON)

        assert {end.receive(NOON).partition_id for _ in range(16)} == set(range(16))

    def test_sessions_stay_together(self, make, send, namespace):
        end = make("archive", enable_partitioning=True, requires_session=True)
        orders = make("orders", enable_partitioning=True, forward_to="archive")
        for number in range(6):
            send(orders, session_id="ab"[number % 2], bare=str(number).encode())
        lock = end.sessions.accept("a", NOON)

        # there is no order between partitions, but a session lives in one of them
        assert [end.receive(NOON, lock).bare for _ in range(3)] == [b"0", b"2", b"4"]

    def test_what_cannot_go_on_is_a_dead_letter_of_the_source(self, make, send):
        make("archive", requires_session=True)
        orders = make("orders", enable_partitioning=True, forward_to="archive")
        send(orders)

        assert orders.counts(NOON).dead_letter == 1
        assert reason_of(orders.dead_letter_queue.receive(NOON))[0] == "Session ID is null"

    @pytest.mark.spec("T-22")
    def test_a_partitioned_source_is_never_idle(self, make, namespace):
        make("archive")
        orders = make(
            "orders", enable_partitioning=True, forward_to="archive", auto_delete_on_idle=5 * MINUTE
        )
        namespace.handle_timer(NOON + 600 * MINUTE)

        assert namespace.holds(orders)


class TestCreation:
    @pytest.mark.parametrize("field", ["forward_to", "forward_dead_lettered_messages_to"])
    def test_the_target_must_be_there(self, make, namespace, field):
        with pytest.raises(EntityNotFoundError, match=f"'archive', {field} of 'orders'") as missing:
            make("orders", **{field: "archive"})
        assert (missing.value.status, missing.value.sub_code) == (404, 40400)
        assert namespace.queues() == []

        orders = make("orders")
        with pytest.raises(EntityNotFoundError, match="archive"):
            namespace.update_queue("orders", replace(orders.description, **{field: "archive"}), NOON)

    def test_an_update_of_something_else_does_not_ask_for_the_target_again(self, make, namespace, change):
        make("archive")
        orders = make("orders", forward_to="archive")
        namespace.delete_queue("archive", NOON)
        change(orders, lock_duration=5 * SECOND)

        assert orders.description.forward_to == "archive"

    @pytest.mark.parametrize("field", ["forward_to", "forward_dead_lettered_messages_to"])
    def test_a_target_with_the_address_of_the_namespace_is_the_same(self, make, field):
        make("archive")

        assert getattr(make("orders", **{field: "sb://localhost:5672/Archive"}).description, field)

    @pytest.mark.spec("W-6")
    def test_entity_with_sessions_cannot_forward(self, make):
        make("archive")
        with pytest.raises(InvalidDescriptionError, match="an entity with sessions cannot forward"):
            make("orders", forward_to="archive", requires_session=True)

    def test_a_queue_that_forwards_to_itself_ends_as_a_circle_does(self, make, send, change):
        orders = make("orders")
        change(orders, forward_to="Orders")
        send(orders)

        assert waiting(orders) == [0]
        assert orders.counts(NOON).dead_letter == 1

    def test_a_subscription_is_no_target(self, make, namespace):
        namespace.create_topic("news", TopicDescription(), NOON)
        namespace.create_subscription("news", "all", SubscriptionDescription(), NOON)
        with pytest.raises(InvalidDescriptionError, match="name its topic"):
            make("orders", forward_to="news/Subscriptions/all")

    @pytest.mark.parametrize("target", ["archive/$DeadLetterQueue", "nowhere", "archive/$management"])
    def test_neither_is_what_is_no_entity_of_its_own(self, make, target):
        make("archive")
        with pytest.raises(EntityNotFoundError):
            make("orders", forward_to=target)
