"""How the sink sends rows: batches by session, concurrency, types and bad rows, without a JVM."""

from __future__ import annotations

import json
import threading
from collections import Counter
from collections.abc import Iterator
from pathlib import Path

import pyarrow as pa
import pytest

from sbpair.broker import Broker
from sbpair.data.spark import sending, worker
from sbpair.data.spark.bad_records import BadRecords
from sbpair.data.spark.message_sink import MessageWriter, SinkOptions, client_of, destination
from sbpair.data.spark.message_source import MessageReader
from sbpair.data.spark.outgoing import EVERY, id_maker, outgoing, outgoing_rows, property_types
from sbpair.data.spark.sending import Sending
from sbpair.data.spark.source_options import SourceOptions
from sbpair.data.spark.typed_values import ENCODED, sendable, text_of, type_name
from tests.data.spark import message_rows
from tests.data.spark.ledger import bodies_in, string


@pytest.fixture
def broker() -> Iterator[Broker]:
    with Broker({"contoso": 0, "contoso-dr": 0}) as running:
        running.namespace("contoso").create_queue("orders")
        yield running


@pytest.fixture
def options(broker: Broker) -> Iterator[SinkOptions]:
    read = SinkOptions.of(given(broker))
    yield read
    client_of(read).close()
    worker.forget(read)


def given(broker: Broker, **more: str) -> dict[str, str]:
    return {
        "connectionString": string(broker, "contoso"),
        "secondaryConnectionString": string(broker, "contoso-dr"),
        "primaryNamespaceName": "contoso",
        "backlogQueueCount": "1",
        "caFile": str(broker.ca_file),
        "entityPath": "orders",
    } | more


def rows_in(broker: Broker, path: str) -> list[dict[str, object]]:
    options = SourceOptions.of({"connectionString": string(broker, "contoso"), "queueName": path})
    reader = MessageReader(options, message_rows.schema())
    return message_rows.rows(batch for partition in reader.partitions() for batch in reader.read(partition))


class Sends:
    """Count the sends, and wait until ``together`` are concurrent."""

    def __init__(self, monkeypatch: pytest.MonkeyPatch, together: int = 1) -> None:
        self.count = 0
        self._inner = sending.send_with_retries
        self._barrier = threading.Barrier(together)
        monkeypatch.setattr(sending, "send_with_retries", self)

    def __call__(self, *args: object) -> object:
        self.count += 1
        self._barrier.wait(30)
        return self._inner(*args)  # type: ignore[arg-type]


@pytest.mark.spec("R-78")
def test_batches_mix_sessions_and_four_are_in_flight_at_a_time(
    broker: Broker, options: SinkOptions, monkeypatch: pytest.MonkeyPatch
) -> None:
    broker.namespace("contoso").create_queue("sessions", requires_session=True)
    sends = Sends(monkeypatch, together=4)
    rows = [
        outgoing(("body", "session_id", "entity_path"), (f"{turn}", f"s{session}", "sessions"))
        for turn in range(2)
        for session in range(200)
    ]
    with Sending(destination(options), id_maker("unique", "w")) as task:
        task.send(rows)

    assert sends.count == 4, "one batch a lane, not one a session"
    assert (task.sent.messages, task.sent.primary) == (400, 400)
    arrived: dict[object, list[object]] = {}
    for row in rows_in(broker, "sessions"):
        arrived.setdefault(row["session_id"], []).append(row["body"])
    assert len(arrived) == 200
    assert all(bodies == [b"0", b"1"] for bodies in arrived.values()), "each session in its order"


@pytest.mark.spec("R-78")
@pytest.mark.parametrize("deduplicates", [False, True])
def test_an_entity_that_refuses_mixed_batches_gets_single_session_batches(
    broker: Broker, options: SinkOptions, monkeypatch: pytest.MonkeyPatch, deduplicates: bool
) -> None:
    path = f"parts-{deduplicates}"
    broker.namespace("contoso").create_queue(
        path, enable_partitioning=True, requires_duplicate_detection=deduplicates
    )
    sends = Sends(monkeypatch)
    columns = ("body", "session_id", "entity_path")
    sessions = [None if deduplicates else f"s{number % 5}" for number in range(20)]
    rows = [outgoing(columns, (f"m{number}", session, path)) for number, session in enumerate(sessions)]
    with Sending(destination(options), id_maker("unique", "w")) as task:
        task.send(rows)
        assert Counter(bodies_in(broker, path)) == {f"m{number}": 1 for number in range(20)}
        sends.count = 0
        task.send(rows)

    assert sends.count == (20 if deduplicates else 5), "nothing is refused again"
    assert task.sent.messages == 40


@pytest.mark.spec("R-79")
def test_a_null_body_is_an_empty_message(broker: Broker, options: SinkOptions) -> None:
    with Sending(destination(options), id_maker("unique", "w")) as task:
        task.send([outgoing(("body",), (None,)), outgoing(("body",), ("x",))])

    assert [row["body"] for row in rows_in(broker, "orders")] == [b"", b"x"]


@pytest.mark.spec("R-79")
def test_unsendable_rows_are_set_aside_with_the_reason_and_the_others_are_sent(
    broker: Broker, options: SinkOptions, tmp_path: Path
) -> None:
    columns = ("body", "message_id", "time_to_live", "subject")
    rows = [
        outgoing(columns, ("good", "m1", 60, "s")),
        outgoing(columns, (b"\xff", None, None, None)),
        outgoing(columns, ("x" * 300_000, "m3", None, None)),
        outgoing(columns, ("x", "m" * 129, None, None)),
        outgoing(columns, ("good too", "m5", None, None)),
        outgoing((*columns, "application_properties"), ("x", "m6", None, None, {"x-ms-path": "q"})),
    ]
    strict = Sending(destination(options), id_maker("column", ""))
    with strict, pytest.raises(ValueError, match="message_id of a row is null or empty"):
        strict.send(rows[1:2])
    bad = BadRecords(str(tmp_path / "bad"), "query:7:0")
    with Sending(destination(options), id_maker("column", ""), bad_records=bad) as task:
        task.send(rows)
    bad.close()

    assert bodies_in(broker, "orders") == ["good", "good too"]
    assert (task.sent.messages, task.sent.bad) == (2, 4)
    (file,) = (tmp_path / "bad").iterdir()
    assert file.name.startswith("query-7-0-")
    found = [json.loads(line) for line in file.read_text().splitlines()]
    reasons = {each["row"].get("message_id"): each["reason"] for each in found}
    assert reasons[None] == "the message_id of a row is null or empty; see messageIdStrategy"
    assert "more than 128 characters" in reasons["m" * 129]
    assert "size" in reasons["m3"].lower()
    assert reasons["m6"] == "the application property 'x-ms-path' is reserved for parked messages"
    assert {"body_base64": "/w=="} in [each["row"] for each in found]


def test_a_directory_for_bad_rows_is_an_absolute_path_or_uri(broker: Broker) -> None:
    assert SinkOptions.of(given(broker, badRecordsPath="/var/bad")).bad_records_path == "/var/bad"
    uri = "abfss://lake@contoso.dfs.core.windows.net/bad"
    assert SinkOptions.of(given(broker, badRecordsPath=uri)).bad_records_path == uri
    with pytest.raises(ValueError, match="badRecordsPath must be an absolute path or a URI"):
        SinkOptions.of(given(broker, badRecordsPath="bad"))


TYPED = {
    "boolean": "true",
    "ubyte": "255",
    "ushort": "65535",
    "uint": "4294967295",
    "ulong": "18446744073709551615",
    "byte": "-128",
    "short": "-32768",
    "int": "-2147483648",
    "long": "-9223372036854775808",
    "float": "1.5",
    "double": "0.1",
    "timestamp": "2026-11-22T10:00:00.500000Z",
    "uuid": "0dcd6d7c-3c3e-4f67-8d5c-1a1a1a1a1a1a",
    "binary": "00ff",
    "symbol": "name",
    "string": "7",
}


@pytest.mark.spec("R-79")
@pytest.mark.parametrize("is_parked", [False, True])
def test_properties_keep_their_types_both_ways(broker: Broker, options: SinkOptions, is_parked: bool) -> None:
    assert TYPED.keys() == ENCODED.keys()
    typed = {f"p-{kind}": {"type": kind, "value": text} for kind, text in TYPED.items()}
    typed["nothing"] = {"type": "null", "value": None}
    if is_parked:
        client_of(options).hold("orders")
    with Sending(destination(options), id_maker("unique", "w")) as task:
        task.send([outgoing(("body", "typed_properties"), ("x", typed))] * 2)
    where = "contoso-dr" if is_parked else "contoso"
    path = "contoso/x-servicebus-transfer/0" if is_parked else "orders"
    given = SourceOptions.of({"connectionString": string(broker, where), "queueName": path})
    reader = MessageReader(given, message_rows.schema("typed_properties"))
    rows = message_rows.rows(batch for task in reader.partitions() for batch in reader.read(task))

    assert len(rows) == 2, "the first of a batch is encoded by the SDK, the others are not"
    for row in rows:
        read = row["typed_properties"]
        assert isinstance(read, dict)
        assert {name: read[name] for name in typed} == typed


@pytest.mark.spec("R-79")
def test_a_struct_or_a_map_of_properties_is_sent_with_the_types_of_its_columns(
    broker: Broker, options: SinkOptions
) -> None:
    struct = property_types("struct<n:bigint,b:boolean>", {"n": "bigint", "b": "boolean", "gone": "int"})
    values = {"n": 2**40, "b": True, "gone": None}
    with Sending(destination(options), id_maker("unique", "w"), struct) as task:
        task.send([outgoing(("body", "application_properties"), ("x", values))])
    every = property_types("map<string,double>", {EVERY: "double"})
    with Sending(destination(options), id_maker("unique", "w"), every) as task:
        task.send(
            [outgoing(("body", "application_properties"), ("x", [("d", 1.0)]))]
        )  # as Arrow passes a map

    first, second = (row["typed_properties"] for row in rows_in(broker, "orders"))
    assert first == {
        "n": {"type": "long", "value": str(2**40)},
        "b": {"type": "boolean", "value": "true"},
    }
    assert second == {"d": {"type": "double", "value": "1.0"}}


@pytest.mark.parametrize(
    ("kind", "value", "text"),
    [
        ("int", "2147483648", "is not from"),
        ("boolean", "yes", "neither true nor false"),
        ("uuid", "x", "not of the type uuid"),
        ("decimal128", "00", "cannot be sent; the types are boolean"),
        ("timestamp", "soon", "not of the type timestamp"),
    ],
)
def test_a_mistyped_value_is_refused(kind: str, value: str, text: str) -> None:
    with pytest.raises(ValueError, match=text):
        sendable(kind, value)
    assert type_name(object()) == "described"
    assert text_of(None) is None


def test_unsendable_property_columns_are_refused_by_type(broker: Broker) -> None:
    def of(schema: str) -> MessageWriter:
        return MessageWriter.of(given(broker), _schema(schema), overwrite=False)

    for right in ("map<string,bigint>", "struct<a:int,b:string>"):
        assert of(f"body string, application_properties {right}")
    for wrong in ("map<string,array<int>>", "string", "map<int,string>", "struct<a:decimal(10,2)>"):
        with pytest.raises(ValueError, match="must be a map from strings, or a struct, of simple types"):
            of(f"body string, application_properties {wrong}")
    typed = "typed_properties map<string,struct<type:string,value:string>>"
    with pytest.raises(ValueError, match="application_properties or typed_properties, not both"):
        of(f"body string, application_properties map<string,string>, {typed}")


def _schema(text: str):
    from pyspark.sql.types import (
        ArrayType,
        DataType,
        DecimalType,
        IntegerType,
        LongType,
        MapType,
        StringType,
        StructField,
        StructType,
    )

    simple: dict[str, DataType] = {
        "string": StringType(),
        "bigint": LongType(),
        "int": IntegerType(),
        "array<int>": ArrayType(IntegerType()),
        "decimal(10,2)": DecimalType(10, 2),
        "struct<type:string,value:string>": StructType(
            [StructField("type", StringType()), StructField("value", StringType())]
        ),
    }

    def of(kind: str) -> DataType:
        if kind in simple:
            return simple[kind]
        inner = kind[kind.index("<") + 1 : -1]
        if kind.startswith("map"):
            key, value = inner.split(",", 1)
            return MapType(simple[key], of(value))
        pairs = [each.split(":") for each in inner.replace("10,2", "10;2").split(",")]
        return StructType([StructField(name, of(each.replace(";", ","))) for name, each in pairs])

    return StructType(
        [StructField(name, of(kind)) for name, kind in (e.split(" ") for e in text.split(", "))]
    )


def test_single_rows_and_arrow_batches_give_the_same_messages() -> None:
    columns = ("body", "subject", "application_properties")
    data = [("a", None, {"n": 1}), ("b", "s", None)]
    kind = pa.map_(pa.string(), pa.int64())
    arrays = [pa.array([row[0] for row in data]), pa.array([row[1] for row in data])]
    arrays.append(pa.array([None if row[2] is None else list(row[2].items()) for row in data], kind))
    batch = pa.RecordBatch.from_arrays(arrays, names=list(columns))

    by_row, by_batch = list(outgoing_rows(columns, data)), list(outgoing_rows(columns, [batch]))  # type: ignore[list-item]
    hashed = id_maker("hash", "")
    assert [hashed(row, 0) for row in by_row] == [hashed(row, 0) for row in by_batch]
    assert [row.body for row in by_batch] == [b"a", b"b"]
