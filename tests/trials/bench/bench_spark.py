"""Messages that Spark reads, consumes, writes and forwards, per second and per second of a core.

    python -m tests.trials.bench.bench_spark [--rounds N] [--quick]

One task at a time (``local[1]``), a broker in a process of its own, messages of 1 KiB: ``browse`` peeks a queue into
rows, ``complete`` is a stream that consumes it, ``sink`` writes rows to a queue through the paired client, ``syphon``
forwards the backlogs. Each round checks that every message was read or is where it belongs. The same rounds measure
what one writes without a connector: ``naive_sink`` and ``naive_consume`` are a ``foreachPartition`` with the SDK that
sends, or receives and completes, message by message; ``naive_rows`` makes rows of ten columns of them, in Arrow, as a
query needs; ``batched_sink`` sends the SDK's batches. ``complete_two`` is the stream with the two columns that
``naive_consume`` reads. ``ratio`` is the connector's rate over theirs. The processor time is that of the JVM, of
Spark's Python processes and of the driver; ``per_core`` is the number of messages per second of it, without the
broker's own time. The first round is not counted. Then the same, one round, over a line with a round trip of 20 ms,
where one message at a time is slow. Prints its settings, a line per measurement while it runs, then one JSON line
per figure (name, unit, n, median, p95, range).
"""

from __future__ import annotations

import asyncio
import os
import platform
import tempfile
import time
from collections import defaultdict
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from functools import partial
from itertools import islice
from pathlib import Path
from typing import TYPE_CHECKING

from tests.trials.bench.bench_syphon import BACKLOGS, broker_process, fill
from tests.trials.bench.process import cpu_seconds_of_all
from tests.trials.bench.report import figure, settings
from tests.trials.bench.site import BrokerProcess, at_distance

if TYPE_CHECKING:
    import pyarrow as pa
    from pyspark.sql import DataFrame, Row, SparkSession

MESSAGES, QUICK_MESSAGES = 40_000, 400
BATCHES = 4  # of the stream
RTT, FAR_MESSAGES = 0.02, 2000  # seconds
SDK_BATCH = 100  # messages that the SDK sends or receives at a time, by hand


class Bench:
    """The broker, Spark, and what was measured."""

    def __init__(self, messages: int, *, is_small: bool) -> None:
        from sbpair.data.spark.session import SHORT_JOB
        from sbpair.spark import build_session

        self._broker = BrokerProcess(broker_process)
        self._site = self._broker.site
        self._spark: SparkSession = build_session(
            "bench", master="local[1]", settings=SHORT_JOB if is_small else None
        )
        self._jvm = self._spark._jvm.java.lang.ProcessHandle.current().pid()
        self._messages = messages
        self._rtt = 0.0
        self.found: dict[tuple[str, str, float, int], list[float]] = defaultdict(list)

    def close(self) -> None:
        self._spark.stop()
        self._broker.close()

    @contextmanager
    def far(self, messages: int) -> Iterator[None]:
        """Within it the broker is 20 ms away, with fewer messages."""
        near, before = self._site, self._messages
        with at_distance(near, RTT) as self._site:
            self._messages, self._rtt = messages, RTT
            yield
        self._site, self._messages, self._rtt = near, before, 0.0

    def measure(self, work: str, *, counts: bool) -> None:
        """Prepare, do it, check it."""
        self._ask("fresh")
        if fills := FILLS[work]:
            side, paths = fills
            each = dict.fromkeys(paths, self._messages // len(paths))
            asyncio.run(fill(getattr(self._site, side), each))
        brokers, spent, begun = self._broker.cpu_seconds, self._cpu(), time.perf_counter()
        moved = WORK[work](self)
        took = time.perf_counter() - begun
        spent, brokers = self._cpu() - spent, self._broker.cpu_seconds - brokers
        if moved != self._messages:
            raise RuntimeError(f"{work}: {moved} of {self._messages} messages")
        print(f"# {work}{' far away' * bool(self._rtt)}: {moved / took:.0f}/s", flush=True)
        if counts:
            where = self._rtt, self._messages
            self.found["rate", work, *where].append(moved / took)
            if not self._rtt:  # from afar workers idle and end, and their time with them
                self.found["per_core", work, *where].append(moved / spent)
            self.found["broker_cpu", work, *where].append(brokers / moved * 1e6)

    def tell(self) -> None:
        for (what, work, rtt, messages), values in self.found.items():
            unit = "us/message" if what == "broker_cpu" else "1/s"
            figure(f"spark.{what}", unit, values, 1, work=work, messages=messages, rtt=rtt)
        for what, measured, rtt, messages in [*self.found]:
            for work, peer in PEERS:
                if what == "broker_cpu" or work != measured:
                    continue
                ours, theirs = (self.found[what, each, rtt, messages] for each in (work, peer))
                ratios = [one / other for one, other in zip(ours, theirs, strict=True)]
                more = {"work": work, "over": peer, "messages": messages, "rtt": rtt}
                figure(f"spark.{what}_ratio", "ratio", ratios, 2, **more)

    def browse(self) -> int:
        from pyspark.sql import Observation
        from pyspark.sql import functions as F

        rows, seen = self._spark.read.format("sbpair").options(**self._source()).load(), Observation()
        rows.observe(seen, F.count(F.lit(1)).alias("rows")).write.format("noop").mode("overwrite").save()
        return int(seen.get["rows"])

    def complete(self) -> int:
        return self._stream(None)

    def complete_two(self) -> int:
        return self._stream("message_id string, body binary")

    def _stream(self, columns: str | None) -> int:
        more = {"settlement": "complete", "maxMessagesPerTrigger": str(self._messages // BATCHES)}
        source = self._spark.readStream.format("sbpair").options(**self._source(), **more)
        rows = (source if columns is None else source.schema(columns)).load()
        with tempfile.TemporaryDirectory() as state:
            query = (
                rows.writeStream.format("noop").option("checkpointLocation", state)
                .trigger(availableNow=True).start()
            )  # fmt: skip
            query.awaitTermination()
        return self._messages - self._ask("arrived")

    def naive_consume(self) -> int:
        self._spark.range(0, 1, 1, 1).foreachPartition(partial(consume_with_sdk, self._site.primary))
        return self._messages - self._ask("arrived")

    def naive_rows(self) -> int:
        rows = self._spark.range(0, 1, 1, 1).mapInArrow(partial(rows_with_sdk, self._site.primary), BY_HAND)
        rows.write.format("noop").mode("overwrite").save()
        return self._messages - self._ask("arrived")

    def naive_sink(self) -> int:
        self._rows().foreachPartition(partial(send_with_sdk, self._site.primary, 1))
        return self._ask("arrived")

    def batched_sink(self) -> int:
        self._rows().foreachPartition(partial(send_with_sdk, self._site.primary, SDK_BATCH))
        return self._ask("arrived")

    def _rows(self) -> DataFrame:
        return self._spark.range(self._messages).selectExpr(
            "repeat('x', 1024) AS body", "cast(id AS string) AS message_id"
        )

    def sink(self) -> int:
        rows = self._rows()
        rows.write.format("sbpair").options(**self._pair(), entityPath="orders").mode("append").save()
        return self._ask("arrived")

    def syphon(self) -> int:
        with tempfile.TemporaryDirectory() as journal:
            table = self._spark.read.format("sbpair-syphon").options(**self._pair(), journal=journal).load()
            table.collect()
        return self._ask("arrived")

    def _source(self) -> dict[str, str]:
        return {"connectionString": self._site.primary, "queueName": "orders", "safetyLagMs": "0"}

    def _pair(self) -> dict[str, str]:
        return {
            "connectionString": self._site.primary,
            "secondaryConnectionString": self._site.secondary,
            "primaryNamespaceName": "contoso",
            "backlogQueueCount": str(len(BACKLOGS)),
            "caFile": Path(self._site.ca_file).read_text(),
        }

    def _ask(self, what: str) -> int:
        return int(self._broker.ask(what))

    def _cpu(self) -> float:
        return time.process_time() + cpu_seconds_of_all(self._jvm)


def send_with_sdk(connection: str, most: int, rows: Iterator[Row]) -> None:
    """Send rows as one would by hand: a client a partition, ``most`` messages a send."""
    from azure.servicebus import ServiceBusClient, ServiceBusMessage

    with (
        ServiceBusClient.from_connection_string(connection) as client,
        client.get_queue_sender("orders") as sender,
    ):
        messages = (ServiceBusMessage(row.body, message_id=row.message_id) for row in rows)
        while part := list(islice(messages, most)):
            sender.send_messages(part if most > 1 else part[0])


def consume_with_sdk(connection: str, rows: Iterator[Row]) -> None:
    """Receive and complete as one would by hand."""
    from azure.servicebus import ServiceBusClient

    list(rows)
    with (
        ServiceBusClient.from_connection_string(connection) as client,
        client.get_queue_receiver("orders") as receiver,
    ):
        while received := receiver.receive_messages(SDK_BATCH, max_wait_time=2):
            for message in received:
                str(message)
                receiver.complete_message(message)


BY_HAND = (
    "message_id string, session_id string, sequence_number bigint, enqueued_time timestamp, delivery_count bigint, "
    "content_type string, subject string, correlation_id string, body binary, application_properties map<string,string>"
)


def rows_with_sdk(connection: str, batches: Iterator[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
    """Receive, make rows, and complete, as one would by hand."""
    import pyarrow as pa
    from azure.servicebus import ServiceBusClient

    kinds = [pa.string(), pa.string(), pa.int64(), pa.timestamp("us", tz="UTC"), pa.int64()]
    kinds += [pa.string(), pa.string(), pa.string(), pa.binary(), pa.map_(pa.string(), pa.string())]
    names = [each.split()[0] for each in BY_HAND.split(", ")]
    schema = pa.schema(list(zip(names, kinds, strict=True)))
    list(batches)
    with (
        ServiceBusClient.from_connection_string(connection) as client,
        client.get_queue_receiver("orders") as receiver,
    ):
        while received := receiver.receive_messages(SDK_BATCH, max_wait_time=2):
            rows = [
                (
                    each.message_id,
                    each.session_id,
                    each.sequence_number,
                    each.enqueued_time_utc,
                    each.delivery_count,
                    each.content_type,
                    each.subject,
                    each.correlation_id,
                    b"".join(each.body),
                    [(str(name), str(value)) for name, value in (each.application_properties or {}).items()],
                )
                for each in received
            ]
            columns = zip(*rows, strict=True)
            arrays = [pa.array(values, kind) for values, kind in zip(columns, kinds, strict=True)]
            yield pa.RecordBatch.from_arrays(arrays, schema=schema)
            for message in received:
                receiver.complete_message(message)


WORK: dict[str, Callable[[Bench], int]] = {
    "browse": Bench.browse,
    "complete": Bench.complete,
    "complete_two": Bench.complete_two,
    "naive_consume": Bench.naive_consume,
    "naive_rows": Bench.naive_rows,
    "sink": Bench.sink,
    "naive_sink": Bench.naive_sink,
    "batched_sink": Bench.batched_sink,
    "syphon": Bench.syphon,
}
PEERS = (
    ("complete", "naive_consume"),
    ("complete", "naive_rows"),
    ("complete_two", "naive_consume"),
    ("sink", "naive_sink"),
    ("sink", "batched_sink"),
)
"""What is compared: the connector's work, and that by hand."""

# Where messages wait before the work begins: a side of the pair, and its queues.
FILLS: dict[str, tuple[str, list[str]] | None] = {
    "browse": ("primary", ["orders"]),
    "complete": ("primary", ["orders"]),
    "complete_two": ("primary", ["orders"]),
    "naive_consume": ("primary", ["orders"]),
    "naive_rows": ("primary", ["orders"]),
    "sink": None,
    "naive_sink": None,
    "batched_sink": None,
    "syphon": ("secondary", BACKLOGS),
}


def main() -> None:
    asked = settings(__doc__, 5)
    messages = QUICK_MESSAGES if asked.quick else MESSAGES
    print(
        f"# python {platform.python_version()}, {os.cpu_count()} cores, load {os.getloadavg()[0]:.1f}, "
        f"{asked.rounds} rounds of {messages} messages of 1 KiB"
    )
    bench = Bench(messages, is_small=asked.quick)
    try:
        for number in range(0 if asked.quick else -1, asked.rounds):
            for work in WORK:
                bench.measure(work, counts=number >= 0)
        with bench.far(QUICK_MESSAGES if asked.quick else FAR_MESSAGES):
            for work in dict.fromkeys(each for pair in PEERS for each in pair):
                bench.measure(work, counts=True)
    finally:
        bench.close()
    bench.tell()


if __name__ == "__main__":
    main()
