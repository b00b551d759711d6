"""Auto-forwarding in virtual time: what is forwarded, how far, and what happens on failure."""

from __future__ import annotations

from dataclasses import replace
from functools import partial

import pytest

from sbpair.broker.entities import (
    QueueDescription,
    StoredMessage,
    SubscriptionDescription,
    TopicDescription,
)
from sbpair.broker.entities.message_store import DESCRIPTION, REASON
from sbpair.broker.errors import EntityNotFoundError, InvalidDescriptionError
from sbpair.broker.frontends.dashboard.views import entity_row
from sbpair.pair.amqp.message import DataBody, Message

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
    def test_a_forwarded_message_gets_a_new_number_and_keeps_the_original(self, make, send):
        archive = make("archive")
        orders = make("orders", forward_to="archive")
        send(archive)
        send(orders)

        assert archive.receive(NOON).enqueued_sequence_number == 1
        arrived = archive.receive(NOON)
        assert (arrived.sequence_number, arrived.enqueued_sequence_number) == (2, 1)

    @pytest.mark.spec("T-1")
    def test_the_time_to_live_starts_again_at_the_target(self, make, send, change, namespace):
        archive = make("archive")
        orders = make("orders", forward_to="archive", status="ReceiveDisabled")
        send(orders, time_to_live=MINUTE)
        later = NOON + 30 * SECOND
        assert waiting(orders) == [1]
        change(orders, later, status="Active")

        assert archive.peek(1, 1, later)[0].expires_at == later + MINUTE

    @pytest.mark.spec("T-2", "T-4", "T-10", "T-22")
    def test_a_message_expired_in_the_source_is_not_forwarded(self, make, send, change):
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

    def test_a_scheduled_message_is_forwarded_when_it_is_due(self, make, send, namespace):
        archive = make("archive")
        orders = make("orders", forward_to="archive")
        send(orders, scheduled_for=NOON + MINUTE)
        assert (orders.counts(NOON).scheduled, waiting(archive)) == (1, [0])

        namespace.handle_timer(NOON + MINUTE)
        assert archive.receive(NOON + MINUTE).enqueued_at == NOON + MINUTE

    def test_waiting_messages_are_forwarded_when_forwarding_is_set_and_stay_when_it_is_removed(
        self, make, send, change
    ):
        archive, orders = make("archive"), make("orders")
        send(orders)
        change(orders, forward_to="archive")
        assert waiting(orders, archive) == [0, 1]

        change(orders, forward_to=None)
        send(orders)
        assert waiting(orders, archive) == [1, 1]

    def test_a_locked_message_is_forwarded_when_its_lock_ends(self, make, send, change, namespace):
        archive, orders = make("archive"), make("orders")
        send(orders)
        orders.receive(NOON)
        change(orders, forward_to="archive")
        assert waiting(orders, archive) == [1, 0]

        namespace.handle_timer(NOON + MINUTE)
        assert waiting(orders, archive) == [0, 1]

    def test_a_target_with_duplicate_detection_drops_forwarded_duplicates(self, make, send):
        archive = make("archive", requires_duplicate_detection=True)
        orders = make("orders", forward_to="archive")
        send(orders, message_id="1")
        send(orders, message_id="1")

        assert waiting(orders, archive) == [0, 1]

    @pytest.mark.spec("P-31")
    def test_a_ping_is_not_forwarded(self, make, send):
        archive = make("archive")
        orders = make("orders", forward_to="archive")
        send(orders, is_ping=True)

        assert waiting(orders, archive) == [0, 0]

    @pytest.mark.spec("T-21")
    def test_a_forwarded_arrival_counts_as_use_of_the_target(self, make, send, namespace):
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

    def test_hops_before_a_topic_count_behind_it(self, namespace, news, make, send):
        last = make("last")
        make("c", forward_to="last")
        audit = self.subscribe(namespace, "audit", forward_to="c")
        make("b", forward_to="news")
        first = make("a", forward_to="b")
        send(first)

        assert waiting(audit, last) == [0, 1]  # a, b, audit, c: four hops

    @pytest.mark.spec("T-22")
    def test_a_topic_with_a_forwarding_subscription_is_in_use(self, namespace, make):
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

    def test_a_forwarding_circle_ends_in_a_dead_letter(self, make, send, change):
        there, back = make("there"), make("back")
        change(there, forward_to="back")
        change(back, forward_to="there")
        send(there)

        assert waiting(there, back) == [0, 0]
        assert there.counts(NOON).dead_letter == 1  # forth, back, forth, back, and dead-lettered at the end

    def test_every_message_has_its_own_hop_count(self, make, send):
        queues = self.chain(make, 4)
        for queue in queues:
            send(queue)

        assert waiting(*queues) == [5, 0, 0, 0, 0]


class TestFailures:
    @pytest.mark.parametrize("status", ["Disabled", "SendDisabled"])
    def test_a_message_for_a_disabled_target_is_dead_lettered(self, make, send, change, status):
        archive = make("archive")
        orders = make("orders", forward_to="archive")
        change(archive, status=status)
        send(orders)

        assert waiting(orders, archive) == [0, 0]
        dead = orders.dead_letter_queue.receive(NOON)
        assert reason_of(dead)[0] == "MessagingEntityDisabledException"
        assert "archive" in reason_of(dead)[1]
        assert dead.dead_letter_source is None

    def test_messages_for_a_deleted_target_are_dead_lettered(self, make, send, namespace):
        make("archive")
        orders = make("orders", forward_to="archive")
        namespace.delete_queue("archive", NOON)
        send(orders)

        reason, text = reason_of(orders.dead_letter_queue.receive(NOON))
        assert reason == "MessagingEntityNotFoundException"
        assert "archive" in text

    def test_a_recreated_target_is_found_again(self, make, send, namespace):
        make("archive")
        orders = make("orders", forward_to="archive")
        namespace.delete_queue("archive", NOON)
        archive = make("Archive")
        send(orders)

        assert waiting(orders, archive) == [0, 1]

    def test_a_message_for_a_full_target_is_dead_lettered(self, make, send):
        archive = make("archive", max_size_in_megabytes=1024)
        archive.only.size = archive.description.quota_in_bytes
        orders = make("orders", forward_to="archive")
        send(orders)

        assert reason_of(orders.dead_letter_queue.receive(NOON))[0] == "QuotaExceededException"

    def test_a_target_with_a_smaller_message_limit_refuses_larger_messages(self, make, send):
        make("archive", max_message_size_in_kilobytes=1)
        orders = make("orders", forward_to="archive")
        send(orders, bare=b"x" * KILOBYTE, overhead=64)
        send(orders, bare=b"x" * (KILOBYTE + 1), overhead=64)

        assert orders.counts(NOON).dead_letter == 1
        dead = orders.dead_letter_queue.receive(NOON)
        assert reason_of(dead)[0] == "MessageSizeExceededException"

    def test_a_disabled_source_keeps_its_messages_until_it_is_active(self, make, send, change):
        archive = make("archive")
        orders = make("orders", forward_to="archive")
        change(orders, status="ReceiveDisabled")
        send(orders)
        assert waiting(orders, archive) == [1, 0]

        change(orders, status="Active")
        assert waiting(orders, archive) == [0, 1]


class TestDeadLetters:
    @pytest.mark.spec("T-10")
    def test_expired_messages_are_forwarded_as_dead_letters(self, make, send, namespace):
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

    def test_a_failed_forward_can_be_forwarded_as_a_dead_letter(self, make, send, change):
        archive, failures = make("archive"), make("failures")
        orders = make("orders", forward_to="archive", forward_dead_lettered_messages_to="failures")
        change(archive, status="SendDisabled")
        send(orders)

        assert orders.counts(NOON).total == 0
        assert failures.receive(NOON).amended[REASON] == "MessagingEntityDisabledException"

    def test_unforwardable_dead_letters_stay_until_the_description_changes(
        self, make, send, change, namespace
    ):
        failures = make("failures")
        orders = make("orders", forward_dead_lettered_messages_to="failures")
        change(failures, status="Disabled")
        send(orders)
        orders.dead_letter(orders.receive(NOON).lock_token, NOON, {REASON: "no"})
        namespace.forward(NOON)
        assert (orders.counts(NOON).dead_letter, waiting(failures)) == (1, [0])

        change(orders, forward_dead_lettered_messages_to=None)
        assert orders.dead_letter_queue.receive(NOON).amended[REASON] == "no"

    @pytest.fixture
    def dead(self, namespace, send):
        """Return a function that dead-letters messages of a queue and then runs forwarding."""

        def dead(queue, *bodies):
            for body in bodies:
                send(queue, bare=body)
                queue.dead_letter(queue.receive(NOON).lock_token, NOON, {REASON: "no"})
            namespace.forward(NOON)

        return dead

    @staticmethod
    def flags_of(queue):
        return entity_row(queue, NOON).flags

    @pytest.mark.parametrize(
        ("kind", "obstacle"),
        [
            (kind, each)
            for kind in ("queue", "topic")
            for each in ("disabled", "send disabled", "faulty", "full")
        ]
        + [("queue", "deleted")],
    )
    def test_messages_waiting_for_the_target_leave_in_order_when_it_accepts(
        self, make, dead, namespace, kind, obstacle
    ):
        failures = make("failures")
        if kind == "topic":
            namespace.create_topic("news", TopicDescription(), NOON)
            end = namespace.create_subscription("news", "all", SubscriptionDescription(), NOON)
        else:
            end = failures
        target = "news" if kind == "topic" else "failures"
        orders = make("orders", forward_dead_lettered_messages_to=target)
        update = partial(namespace.update_topic if kind == "topic" else namespace.update_queue, target)
        described = namespace.queue(target).requested if kind == "topic" else failures.description
        begin, finish = {
            "disabled": (
                lambda: update(replace(described, status="Disabled"), NOON),
                lambda: update(described, NOON),
            ),
            "send disabled": (
                lambda: update(replace(described, status="SendDisabled"), NOON),
                lambda: update(described, NOON),
            ),
            "faulty": (
                lambda: namespace.impose_status(target, "Disabled", NOON),
                lambda: namespace.impose_status(target, None, NOON),
            ),
            "full": (
                lambda: namespace.queue(target).enqueue(
                    StoredMessage(b"", overhead=failures.description.quota_in_bytes), NOON
                ),
                lambda: end.receive_and_delete(NOON),
            ),
            "deleted": (
                lambda: namespace.delete_queue(target, NOON),
                lambda: make("Failures"),
            ),
        }[obstacle]
        begin()
        dead(orders, b"1", b"2")
        assert (orders.counts(NOON).dead_letter, self.flags_of(orders)[-1].partition(": ")[0]) == (
            2,
            "2 dead letters not forwarded",
        )
        dead(orders, b"3")

        finish()
        namespace.forward(NOON)
        end = namespace.queue(end.path)
        assert [end.receive(NOON).bare for _ in range(3)] == [b"1", b"2", b"3"]
        assert orders.counts(NOON).dead_letter == 0
        assert self.flags_of(orders) == ()

    def test_a_message_too_large_for_the_target_waits_and_lets_others_pass(self, make, dead, change):
        failures = make("failures", max_message_size_in_kilobytes=1)
        orders = make("orders", forward_dead_lettered_messages_to="failures")
        dead(orders, b"x" * 2 * KILOBYTE, b"small")
        assert waiting(failures) == [1]
        assert self.flags_of(orders)[0].startswith("1 dead letters not forwarded: ")

        change(failures, max_message_size_in_kilobytes=4)
        assert (waiting(failures), self.flags_of(orders)) == ([2], ())

    def test_a_message_stays_at_the_fifth_hop_and_the_page_says_why(self, make, dead, send, namespace):
        make("end")
        last = make("q0", forward_dead_lettered_messages_to="end")
        for number in range(1, 5):
            make(f"q{number}", forward_to=f"q{number - 1}")
        send(namespace.queue("q4"))
        last.dead_letter(last.receive(NOON).lock_token, NOON, {REASON: "no"})
        namespace.forward(NOON)

        assert last.counts(NOON).dead_letter == 1
        (said,) = self.flags_of(last)
        assert said.startswith("1 dead letters not forwarded: ")
        assert "4 times" in said

    def test_a_session_queue_may_forward_its_dead_letters(self, make, send, namespace):
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

    def test_messages_without_a_key_get_a_new_partition_when_forwarded(self, make, namespace):
        end = make("archive", enable_partitioning=True)
        orders = make("orders", forward_to="archive")
        for _ in range(16):
            orders.enqueue(StoredMessage(b"x"), NOON)
        namespace.forward(NOON)

        assert {end.receive(NOON).partition_id for _ in range(16)} == set(range(16))

    def test_sessions_stay_together_when_forwarded(self, make, send, namespace):
        end = make("archive", enable_partitioning=True, requires_session=True)
        orders = make("orders", enable_partitioning=True, forward_to="archive")
        for number in range(6):
            send(orders, session_id="ab"[number % 2], bare=str(number).encode())
        lock = end.sessions.accept("a", NOON)

        # there is no order between partitions, but a session lives in one of them
        assert [end.receive(NOON, lock).bare for _ in range(3)] == [b"0", b"2", b"4"]

    def test_an_unforwardable_message_is_a_dead_letter_of_the_source(self, make, send):
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
    def test_the_forwarding_target_must_exist(self, make, namespace, field):
        with pytest.raises(EntityNotFoundError, match=f"'archive', {field} of 'orders'") as missing:
            make("orders", **{field: "archive"})
        assert (missing.value.status, missing.value.sub_code) == (404, 40400)
        assert namespace.queues() == []

        orders = make("orders")
        with pytest.raises(EntityNotFoundError, match="archive"):
            namespace.update_queue("orders", replace(orders.description, **{field: "archive"}), NOON)

    def test_an_unrelated_update_does_not_check_the_target_again(self, make, namespace, change):
        make("archive")
        orders = make("orders", forward_to="archive")
        namespace.delete_queue("archive", NOON)
        change(orders, lock_duration=5 * SECOND)

        assert orders.description.forward_to == "archive"

    @pytest.mark.parametrize("field", ["forward_to", "forward_dead_lettered_messages_to"])
    def test_a_target_given_with_the_namespace_address_is_the_same(self, make, field):
        make("archive")

        assert getattr(make("orders", **{field: "sb://localhost:5672/Archive"}).description, field)

    def test_a_queue_that_forwards_to_itself_dead_letters_like_a_circle(self, make, send, change):
        orders = make("orders")
        change(orders, forward_to="Orders")
        send(orders)

        assert waiting(orders) == [0]
        assert orders.counts(NOON).dead_letter == 1

    def test_a_subscription_cannot_be_a_target(self, make, namespace):
        namespace.create_topic("news", TopicDescription(), NOON)
        namespace.create_subscription("news", "all", SubscriptionDescription(), NOON)
        with pytest.raises(InvalidDescriptionError, match="name its topic"):
            make("orders", forward_to="news/Subscriptions/all")

    @pytest.mark.parametrize("target", ["archive/$DeadLetterQueue", "nowhere", "archive/$management"])
    def test_a_subentity_cannot_forward(self, make, target):
        make("archive")
        with pytest.raises(EntityNotFoundError):
            make("orders", forward_to=target)
