"""The message source against a broker, called as Spark calls it but without Spark."""

from __future__ import annotations

import pickle
from collections.abc import Iterator
from datetime import timedelta

import pytest
from azure.servicebus import ServiceBusClient, ServiceBusMessage
from pyspark.sql.types import StructType

from sbpair import PairedNamespaceOptions, PairedServiceBusClient
from sbpair.broker import Broker
from sbpair.data.spark.checkpoint import Offset, positions_in
from sbpair.data.spark.entities import Entities
from sbpair.data.spark.message_source import MessageDataSource, MessageReader, MessageStreamReader
from sbpair.data.spark.ranges import numbers
from sbpair.data.spark.settling import Receiving
from sbpair.data.spark.source_errors import SourceError
from sbpair.data.spark.source_options import SourceOptions
from tests.data.spark import message_rows
from tests.data.spark.message_rows import schema


@pytest.fixture(scope="module")
def broker() -> Iterator[Broker]:
    with Broker({"contoso": 0, "contoso-dr": 0}) as running:
        yield running


@pytest.fixture
def queue(broker: Broker, request: pytest.FixtureRequest) -> str:
    name = f"q{abs(hash(request.node.name))}"
    broker.namespace("contoso").create_queue(name)
    return name


def options(broker: Broker, queue: str = "", side: str = "contoso", **more: str) -> SourceOptions:
    given = {"connectionString": broker.namespace(side).connection_string, "safetyLagMs": "0"}
    given["minPollIntervalSeconds"] = "0"
    return SourceOptions.of(given | ({"queueName": queue} if queue else {}) | more)


def send(broker: Broker, path: str, *bodies: str, **more: object) -> None:
    with (
        ServiceBusClient.from_connection_string(broker.namespace("contoso").connection_string) as client,
        client.get_queue_sender(path) as sender,
    ):
        sender.send_messages([ServiceBusMessage(body, message_id=body, **more) for body in bodies])


def rows_of(reader: MessageReader | MessageStreamReader, partitions: list) -> list[dict[str, object]]:
    """Read the rows like executors, with copies of the reader, one partition after another."""
    copies = [pickle.loads(pickle.dumps((reader, partition))) for partition in partitions]
    return message_rows.rows(batch for copy, partition in copies for batch in copy.read(partition))


class Engine:
    """Calls a stream's reader in the order in which Spark does, with one object to plan and another to read.

    getDefaultReadLimit, initialOffset, latestOffset(start), [offset log], commit(end before), partitions,
    read, [sink], [commit log]; after the last batch latestOffset once more.
    """

    def __init__(self, options: SourceOptions) -> None:
        self.options = options
        self.reader = MessageStreamReader(options, schema())
        self.offsets: list[Offset] = []  # the offset log
        self.done = 0  # the commit log: how many batches are through
        self.sink: list[str] = []

    def restart(self) -> None:
        self.reader = MessageStreamReader(self.options, schema())

    @property
    def start(self) -> Offset:
        if not self.offsets:
            self.initial = self.reader.initialOffset()
        return self.offsets[self.done - 1] if self.done else self.initial

    def plan(self) -> bool:
        """Write the next batch to the offset log. False when there is nothing new."""
        start = self.start
        if len(self.offsets) == self.done:
            end = self.reader.latestOffset(start, self.reader.getDefaultReadLimit())
            if end == start:
                return False
            self.offsets.append(end)
        return True

    def work(self, times: int = 1, *, crash: str = "") -> list[str]:
        """Run one batch, planned once and evaluated so many times; ``crash`` ends it early at a point."""
        start, end = self.start, self.offsets[self.done]
        self.reader.commit(start)
        planned = self.reader.partitions(start, end)
        for _ in range(times):
            bodies = [row["body"].decode() for row in rows_of(self.reader, planned)]
        if crash == "before sink":
            return []
        self.sink += bodies
        if crash == "before commit":
            return bodies
        self.done += 1
        return bodies

    def available_now(self) -> list[str]:
        self.restart()
        self.reader.prepareForTriggerAvailableNow()
        before = len(self.sink)
        while self.plan():
            self.work()
        return self.sink[before:]


def waiting(broker: Broker, path: str, side: str = "contoso") -> int:
    return broker.namespace(side).counts(path).active


def test_a_batch_reads_waiting_messages_and_leaves_them_in_the_queue(broker: Broker, queue: str) -> None:
    send(broker, queue, "a", "b", "c", subject="s", application_properties={"n": 1}, content_type="text")
    reader = MessageReader(options(broker, queue, minPartitions="2"), schema())

    rows = rows_of(reader, reader.partitions())
    again = rows_of(reader, reader.partitions())

    assert [row["body"] for row in rows] == [b"a", b"b", b"c"]
    assert rows == again
    assert waiting(broker, queue) == 3
    first = rows[0]
    assert (first["queue"], first["subject"], first["content_type"]) == (queue, "s", "text")
    assert first["application_properties"] == {"n": "1"}
    assert first["state"] == "active"
    assert first["enqueued_time"] is not None


def test_a_given_range_is_read_and_bodies_can_be_omitted(broker: Broker, queue: str) -> None:
    send(broker, queue, *"abcdef")
    ends = {
        "startingSequenceNumbers": f'{{"{queue}": 2}}',
        "endingSequenceNumbers": f'{{"{queue}": 4}}',
        "includeBody": "false",
    }
    reader = MessageReader(options(broker, queue, **ends), schema())

    rows = rows_of(reader, reader.partitions())

    assert [row["message_id"] for row in rows] == ["b", "c", "d"]
    assert {row["body"] for row in rows} == {None}


def test_only_the_requested_columns_are_read_in_their_order(broker: Broker, queue: str) -> None:
    send(broker, queue, "a", "b")
    reader = MessageReader(options(broker, queue), schema("body", "message_id"))

    rows = rows_of(reader, reader.partitions())

    assert [list(row.items()) for row in rows] == [
        [("body", b"a"), ("message_id", "a")], [("body", b"b"), ("message_id", "b")],
    ]  # fmt: skip


def test_a_settlement_of_many_pages_uses_one_link(
    broker: Broker, queue: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    bodies = [f"m{number:03}" for number in range(450)]  # three pages
    send(broker, queue, *bodies)
    opened: list[str] = []
    really = Receiving.open

    async def counted(receiving: Receiving, connection: object, path: str, session: str | None) -> None:
        opened.append(path)
        await really(receiving, connection, path, session)  # type: ignore[arg-type]

    monkeypatch.setattr(Receiving, "open", counted)

    assert Engine(options(broker, queue, settlement="complete")).available_now() == bodies
    assert waiting(broker, queue) == 0
    assert opened == [queue]


@pytest.mark.parametrize(("name", "kind", "text"), [
    ("colour", "string", "a message has no column 'colour'; the columns are namespace, queue, "),
    ("body", "string", "the column 'body' is of type binary"),
])  # fmt: skip
def test_an_unknown_message_column_is_refused_by_name(name: str, kind: str, text: str) -> None:
    source = MessageDataSource({"connectionString": "env:NOWHERE", "queueName": "orders"})
    with pytest.raises(ValueError, match=f"sbpair: {text}"):
        source.reader(StructType().add("message_id", "string").add(name, kind))


@pytest.mark.spec("R-79")
def test_a_batch_reads_messages_sent_just_before(broker: Broker, queue: str) -> None:
    send(broker, queue, "a", "b")
    given = {"connectionString": broker.namespace("contoso").connection_string, "queueName": queue}
    reader = MessageReader(SourceOptions.of(given), schema())

    assert [row["body"] for row in rows_of(reader, reader.partitions())] == [b"a", b"b"]


@pytest.mark.spec("R-79")
@pytest.mark.parametrize("option", ["startingSequenceNumbers", "endingSequenceNumbers"])
def test_a_starting_number_for_an_unread_entity_is_refused_by_name(option: str) -> None:
    given = {"connectionString": "env:NOWHERE", "queueName": "orders,returns"}
    with pytest.raises(ValueError, match=f"{option} names 'ordrs', which is not read; did you mean orders"):
        SourceOptions.of(given | {option: '{"ordrs": 41}'})
    with pytest.raises(ValueError, match="'orders#x' is not an entity, or an entity, # and a partition"):
        SourceOptions.of(given | {option: '{"orders#x": 41}'})
    read = SourceOptions.of(given | {"startingSequenceNumbers": '{"Orders": 41, "returns#3": 7}'}).starting
    assert read == {"orders": 41, "returns#3": 7}


def test_dead_letters_and_subscriptions_are_read_by_their_own_options(broker: Broker, queue: str) -> None:
    namespace = broker.namespace("contoso")
    namespace.create_topic(f"{queue}-topic")
    namespace.create_subscription(f"{queue}-topic", "all")
    send(broker, f"{queue}-topic", "news")
    send(broker, queue, "bad")
    with (
        ServiceBusClient.from_connection_string(namespace.connection_string) as client,
        client.get_queue_receiver(queue) as receiver,
    ):
        (message,) = receiver.receive_messages(max_wait_time=10)
        receiver.dead_letter_message(message, reason="poison", error_description="it stinks")

    dead = MessageReader(options(broker, queue, subQueue="deadletter"), schema())
    news = MessageReader(options(broker, topicName=f"{queue}-topic", subscriptionName="all"), schema())

    (row,) = rows_of(dead, dead.partitions())
    assert (row["dead_letter_reason"], row["dead_letter_error_description"]) == ("poison", "it stinks")
    assert [row["body"] for row in rows_of(news, news.partitions())] == [b"news"]


def test_the_original_properties_of_a_parked_message_are_shown(broker: Broker, queue: str) -> None:
    primary, secondary = broker.namespace("contoso"), broker.namespace("contoso-dr")
    with PairedServiceBusClient.from_connection_strings(
        primary.connection_string,
        secondary.connection_string,
        options=PairedNamespaceOptions(
            backlog_queue_count=2, failover_interval=timedelta(0), primary_namespace_name="contoso"
        ),
        connection_verify=str(broker.ca_file),
    ) as client:
        client.hold(queue)
        with client.get_queue_sender(queue) as sender:
            message = ServiceBusMessage("parked", session_id="s1", time_to_live=timedelta(minutes=5))
            sender.send_messages(message)
    given = options(broker, side="contoso-dr", backlogs="true", primaryNamespaceName="contoso")
    reader = MessageReader(given, schema())

    (row,) = [row for row in rows_of(reader, reader.partitions()) if row["transfer_path"] == queue]

    assert (row["transfer_session_id"], row["transfer_time_to_live"]) == ("s1", 300.0)
    assert row["session_id"] is None
    assert row["trouble"] is None
    assert str(row["queue"]).startswith("contoso/x-servicebus-transfer/")


def test_an_available_now_run_leaves_no_message_on_the_broker(broker: Broker, queue: str) -> None:
    bodies = [f"m{number}" for number in range(25)]
    send(broker, queue, *bodies)
    engine = Engine(options(broker, queue, settlement="complete", maxMessagesPerTrigger="10"))

    assert engine.available_now() == bodies
    assert engine.done == 3
    assert waiting(broker, queue) == 0


def test_nothing_is_consumed_by_default(broker: Broker, queue: str) -> None:
    send(broker, queue, "a", "b")
    engine = Engine(options(broker, queue))

    assert engine.available_now() == ["a", "b"]
    assert engine.available_now() == []
    assert waiting(broker, queue) == 2


@pytest.mark.parametrize("crash", ["before sink", "before commit"])
def test_a_batch_missing_in_the_commit_log_is_still_on_the_broker(
    broker: Broker, queue: str, crash: str
) -> None:
    send(broker, queue, *"abcdef")
    engine = Engine(options(broker, queue, settlement="complete", maxMessagesPerTrigger="3"))
    assert engine.plan()
    assert engine.work() == ["a", "b", "c"]
    assert engine.plan()
    engine.work(crash=crash)

    engine.restart()
    assert waiting(broker, queue) == 3
    assert engine.plan()
    assert engine.work() == ["d", "e", "f"]
    assert engine.available_now() == []
    assert waiting(broker, queue) == 0


def test_a_frame_that_is_evaluated_twice_reads_the_same_messages(broker: Broker, queue: str) -> None:
    send(broker, queue, *"abcdef")
    engine = Engine(options(broker, queue, settlement="complete", maxMessagesPerTrigger="3"))
    while engine.plan():
        engine.work(times=2)

    assert engine.sink == list("abcdef")
    assert waiting(broker, queue) == 0


def test_every_message_is_read_by_the_batch_or_by_another_consumer(broker: Broker, queue: str) -> None:
    send(broker, queue, *"abcdef")
    engine = Engine(options(broker, queue, settlement="complete", maxMessagesPerTrigger="3"))
    assert engine.plan()
    with (
        ServiceBusClient.from_connection_string(broker.namespace("contoso").connection_string) as client,
        client.get_queue_receiver(queue) as receiver,
    ):
        theirs = receiver.receive_messages(2, max_wait_time=10)
        for message in theirs:
            receiver.complete_message(message)
    engine.work()
    while engine.plan():
        engine.work()

    assert {str(message) for message in theirs} | set(engine.sink) == set("abcdef")
    assert waiting(broker, queue) == 0


def test_a_message_that_arrives_during_a_settlement_is_not_touched(broker: Broker, queue: str) -> None:
    send(broker, queue, "a")
    engine = Engine(options(broker, queue, settlement="complete"))
    assert engine.plan()
    engine.work()
    start = engine.start
    send(broker, queue, "late")

    MessageStreamReader(engine.options, schema())._settle_idle(
        Entities(engine.options), positions_in(start), set()
    )

    assert waiting(broker, queue) == 1
    assert engine.available_now() == ["late"]


def test_a_recreated_queue_is_named_and_not_settled(broker: Broker, queue: str) -> None:
    send(broker, queue, "a", "b", "c")
    engine = Engine(options(broker, queue, settlement="complete"))
    assert engine.plan()
    engine.work()
    broker.namespace("contoso").delete_queue(queue)
    broker.namespace("contoso").create_queue(queue)
    send(broker, queue, "other 1", "other 2")
    with pytest.raises(
        SourceError, match=f"{queue} was deleted and created again since this checkpoint was written"
    ):
        engine.available_now()

    assert waiting(broker, queue) == 2


@pytest.mark.spec("R-144")
def test_a_peeking_stream_notices_a_recreated_queue(broker: Broker, queue: str) -> None:
    send(broker, queue, *"abcde")
    first, other = Engine(options(broker, queue)), Engine(options(broker, queue, failOnDataLoss="false"))
    assert first.available_now() == other.available_now() == list("abcde")
    assert first.available_now() == [], "what was read and still waits is not new"
    broker.namespace("contoso").delete_queue(queue)
    broker.namespace("contoso").create_queue(queue)
    send(broker, queue, *(f"other {number}" for number in range(7)))

    with pytest.raises(SourceError, match=f"{queue} was deleted and created again since this checkpoint"):
        first.available_now()
    assert other.available_now()[-7:] == [f"other {number}" for number in range(7)]


def test_a_settling_task_notices_a_recreated_queue(broker: Broker, queue: str) -> None:
    send(broker, queue, "a")
    engine = Engine(options(broker, queue, settlement="complete"))
    assert engine.plan()
    engine.work()
    broker.namespace("contoso").delete_queue(queue)
    broker.namespace("contoso").create_queue(queue)
    send(broker, queue, "other 1", "other 2", "other 3")  # the last two have numbers behind the offset
    with pytest.raises(SourceError, match="Start a new checkpoint"):
        engine.available_now()

    assert waiting(broker, queue) == 3


def test_a_batch_respects_the_byte_limit_but_has_at_least_one_message(broker: Broker, queue: str) -> None:
    send(broker, queue, *"123456", application_properties={"filling": "x" * 1000})
    engine = Engine(options(broker, queue, settlement="complete", maxBytesPerTrigger="3000"))
    sizes = []
    while engine.plan():
        sizes.append(len(engine.work()))
    assert sizes == [2, 2, 2]
    assert waiting(broker, queue) == 0
    tiny = Engine(options(broker, queue, maxBytesPerTrigger="1"))
    send(broker, queue, "a", "b")
    assert tiny.plan()
    assert len(tiny.work()) == 1


def test_a_scheduled_message_is_read_when_due(broker: Broker, queue: str) -> None:
    from datetime import UTC, datetime

    send(broker, queue, "later", scheduled_enqueue_time_utc=datetime.now(UTC) + timedelta(hours=1))
    send(broker, queue, "now")
    engine = Engine(options(broker, queue, settlement="complete"))

    assert engine.available_now() == ["now"]
    assert broker.namespace("contoso").counts(queue).scheduled == 1


def test_an_entity_with_sessions_is_consumed_session_by_session(broker: Broker, queue: str) -> None:
    path = f"{queue}-sessions"
    broker.namespace("contoso").create_queue(path, requires_session=True)
    for session in ("s", "t", "u"):
        send(broker, path, f"{session}1", f"{session}2", session_id=session)
    engine = Engine(options(broker, path, settlement="complete", maxMessagesPerTrigger="3"))
    with (
        ServiceBusClient.from_connection_string(broker.namespace("contoso").connection_string) as client,
        client.get_queue_receiver(path, session_id="t"),
    ):
        assert engine.available_now() == ["s1", "s2", "t1", "t2", "u1", "u2"]
        assert waiting(broker, path) == 2, "another receiver holds one session"
    assert engine.available_now() == []
    assert waiting(broker, path) == 0


def test_a_partitioned_entity_is_consumed() -> None:
    with Broker({"premium": 0}, partitions={"premium": 4}) as broker:
        broker.namespace("premium").create_queue("parts", enable_partitioning=True)
        given = {"connectionString": broker.namespace("premium").connection_string, "queueName": "parts"}
        given |= {"safetyLagMs": "0", "minPollIntervalSeconds": "0"}
        with (
            ServiceBusClient.from_connection_string(given["connectionString"]) as client,
            client.get_queue_sender("parts") as sender,
        ):
            for number in range(60):
                sender.send_messages(ServiceBusMessage(str(number)))

        engine = Engine(SourceOptions.of(given))
        assert sorted(map(int, engine.available_now())) == list(range(60))
        assert len(numbers(positions_in(engine.offsets[-1]))) == 4

        owner = Engine(SourceOptions.of(given | {"settlement": "complete", "maxMessagesPerTrigger": "8"}))
        most = 0
        owner.restart()
        owner.reader.prepareForTriggerAvailableNow()
        while owner.plan():
            owner.work()
            rows = rows_of(reader := MessageReader(SourceOptions.of(given), schema()), reader.partitions())
            most = max(most, *(int(str(row["delivery_count"])) for row in rows), 0)
        assert sorted(map(int, owner.sink)) == list(range(60))
        assert broker.namespace("premium").counts("parts").active == 0
        assert most <= 5, "a message that is not due is given back a few times only"


@pytest.mark.spec("R-77")
@pytest.mark.parametrize("how", ["deferred", "locked"])
def test_an_unreceivable_message_does_not_lock_others(broker: Broker, queue: str, how: str) -> None:
    sent = [f"m{number:03}" for number in range(300)]
    send(broker, queue, *sent)
    engine = Engine(options(broker, queue, settlement="complete", maxMessagesPerTrigger="30"))
    with (
        ServiceBusClient.from_connection_string(broker.namespace("contoso").connection_string) as client,
        client.get_queue_receiver(queue) as receiver,
    ):
        held = receiver.receive_messages(5, max_wait_time=10)
        if how == "deferred":
            for message in held:
                receiver.defer_message(message)
        given_back = []
        while engine.plan():
            engine.work()
            reader = MessageReader(options(broker, queue), schema())
            rows = rows_of(reader, reader.partitions())
            unread = [row for row in rows if row["message_id"] not in engine.sink]
            given_back.append(sum(int(str(row["delivery_count"])) for row in unread))

        assert engine.sink == sent[5:] if how == "deferred" else engine.sink == sent
        assert max(given_back) <= (0 if how == "deferred" else 1), "of the messages that were not read"
        left = 0 if how == "deferred" else 5
        assert waiting(broker, queue) == left


def test_a_stream_restarts_on_a_recreated_entity_where_loss_is_accepted(broker: Broker, queue: str) -> None:
    send(broker, queue, "a", "b", "c")
    engine = Engine(options(broker, queue, settlement="complete", failOnDataLoss="false"))
    assert engine.available_now() == ["a", "b", "c"]
    broker.namespace("contoso").delete_queue(queue)
    assert engine.available_now() == [], "a queue that is gone is empty"
    broker.namespace("contoso").create_queue(queue)
    send(broker, queue, "other 1", "other 2")

    assert engine.available_now() == ["other 1", "other 2"]
    assert waiting(broker, queue) == 0
    send(broker, queue, "other 3")
    assert engine.available_now() == ["other 3"]
    assert waiting(broker, queue) == 0


def test_a_connection_lost_between_batches_is_reopened(broker: Broker, queue: str) -> None:
    send(broker, queue, "a")
    engine = Engine(options(broker, queue, settlement="complete"))
    assert engine.available_now() == ["a"]
    broker.namespace("contoso").take_down("reset")
    broker.namespace("contoso").bring_up()
    send(broker, queue, "b")

    assert engine.available_now() == ["b"]
    assert waiting(broker, queue) == 0


def test_a_missing_queue_is_named_and_a_missing_backlog_is_empty(broker: Broker) -> None:
    with pytest.raises(SourceError, match=r"sbpair: nowhere: .*check its name"):
        MessageReader(options(broker, "nowhere"), schema()).partitions()
    backlogs = options(broker, backlogs="true", primaryNamespaceName="fabrikam")
    assert MessageReader(backlogs, schema()).partitions() == []


def test_a_wrong_key_is_reported_without_the_key(broker: Broker, queue: str) -> None:
    good = broker.namespace("contoso").connection_string
    key = good.split("SharedAccessKey=")[1].split(";")[0]
    given = {"connectionString": good.replace(key, "bm90IHRoZSBrZXk="), "queueName": queue}
    with pytest.raises(SourceError, match="check the key and its rights") as caught:
        MessageReader(SourceOptions.of(given), schema()).partitions()
    assert "bm90" not in str(caught.value)
    assert "bm90" not in repr(SourceOptions.of(given))


def test_an_empty_queue_is_an_empty_batch_at_once(broker: Broker, queue: str) -> None:
    assert MessageReader(options(broker, queue), schema()).partitions() == []
    assert Engine(options(broker, queue)).available_now() == []


REFUSED = {
    "unknown": ({"queuName": "x"}, "unknown option 'queuname'; did you mean queueName"),
    "missing": ({}, "give one of queueName, topicName with subscriptionName, and backlogs=true"),
    "both": ({"queueName": "a", "topicName": "t", "subscriptionName": "s"}, "one of queueName"),
    "half": ({"topicName": "t"}, "give both topicName and subscriptionName, or neither"),
    "latest": (
        {"queueName": "a", "settlement": "complete", "startingSequenceNumbers": "latest"},
        "settlement=complete needs startingSequenceNumbers=earliest",
    ),
    "number": ({"queueName": "a", "minPartitions": "many"}, "minPartitions must be a whole number from 1"),
    "json": (
        {"queueName": "a", "startingSequenceNumbers": "[1]"},
        "startingSequenceNumbers must be earliest",
    ),
    "choice": ({"queueName": "a", "settlement": "always"}, "settlement must be one of none, complete"),
    "label": ({"backlogs": "true"}, "the option primaryNamespaceName is missing"),
}


@pytest.mark.parametrize("name", REFUSED)
def test_an_option_that_cannot_be_used_is_refused_by_name(name: str) -> None:
    given, text = REFUSED[name]
    with pytest.raises(ValueError, match=text):
        SourceOptions.of({"connectionString": "env:NOWHERE"} | given)


def test_a_batch_read_settles_nothing() -> None:
    given = {"connectionString": "env:NOWHERE", "queueName": "a", "settlement": "complete"}
    with pytest.raises(ValueError, match="settlement=complete is for streams"):
        MessageReader(SourceOptions.of(given), schema())
