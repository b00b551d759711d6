"""The processor time of a message in a Python worker of Spark, beside that of the SDK by hand.

    python -m tests.trials.bench.bench_spark_worker [--rounds N] [--quick]

The work of one task without Spark around it, in this process, with a broker in a process of its own and messages of
1 KiB: ``consume`` peeks, makes Arrow columns of all 27 or of two, and completes; ``sink`` sends rows of a body and an
id. Beside them the SDK: receive and complete, the same with ten columns, send one by one, send in batches of 100. All
take turns. Each round checks that every message was completed, or has arrived. The figure is processor time of this
process per message, which a busy machine changes less than rates; ``ratio`` is how many times as much the SDK takes.
Prints its settings, then one JSON line a figure (name, unit, n, median, p95, range).
"""

from __future__ import annotations

import asyncio
import os
import platform
import time
from collections import defaultdict
from collections.abc import Callable, Iterator
from itertools import islice
from pathlib import Path
from typing import TYPE_CHECKING

from tests.trials.bench.bench_spark import consume_with_sdk, rows_with_sdk, send_with_sdk
from tests.trials.bench.bench_syphon import BACKLOGS, broker_process, fill
from tests.trials.bench.report import figure, settings
from tests.trials.bench.site import BrokerProcess

if TYPE_CHECKING:
    from pyspark.sql import Row

MESSAGES, QUICK_MESSAGES = 10_000, 400
CHUNK = 1000  # rows of the sink at a time
TWO = ("message_id", "body")


class Bench:
    """The broker, and what was measured."""

    def __init__(self, messages: int) -> None:
        self._broker = BrokerProcess(broker_process)
        self._site = self._broker.site
        self._messages = messages
        self.found: dict[str, list[float]] = defaultdict(list)

    def close(self) -> None:
        self._broker.close()

    def measure(self, work: str, *, counts: bool) -> None:
        """Prepare, do it, check it."""
        self._broker.ask("fresh")
        is_sink = work in SINKS
        if not is_sink:
            asyncio.run(fill(self._site.primary, {"orders": self._messages}))
        begun = time.process_time()
        WORK[work](self)
        spent = time.process_time() - begun
        arrived = int(self._broker.ask("arrived"))
        if arrived != (self._messages if is_sink else 0):
            raise RuntimeError(f"{work}: {arrived} messages are there")
        if counts:
            self.found[work].append(spent / self._messages * 1e6)

    def tell(self) -> None:
        for work, values in self.found.items():
            figure("spark.worker_cpu", "us/message", values, 1, work=work, messages=self._messages)
        for work, peer in PEERS:
            ratios = [one / other for one, other in zip(self.found[peer], self.found[work], strict=True)]
            figure(
                "spark.worker_cpu_ratio", "ratio", ratios, 2, work=work, over=peer, messages=self._messages
            )

    def consume(self, *columns: str) -> None:
        from pyspark.sql.pandas.types import to_arrow_schema

        from sbpair.data.spark import worker
        from sbpair.data.spark.entities import Entities
        from sbpair.data.spark.message_columns import batch_of
        from sbpair.data.spark.ranges import Mark, Piece
        from sbpair.data.spark.source_options import SourceOptions
        from tests.data.spark.message_rows import schema

        options = SourceOptions.of(
            {"connectionString": self._site.primary, "queueName": "orders", "settlement": "complete"}
        )
        entities, kinds = Entities(options), to_arrow_schema(schema(*columns), timezone="UTC")
        for messages in entities.read(Piece("orders", 1, self._messages)):
            batch_of("contoso", "orders", messages, kinds)
        entities.settle("orders", (Mark("orders", self._messages, None),))
        worker.forget(("entities", options.namespace, options.wire, None))

    def sink(self) -> None:
        from sbpair.data.spark import worker
        from sbpair.data.spark.message_sink import SinkOptions, client_of, destination
        from sbpair.data.spark.outgoing import id_maker, outgoing_rows
        from sbpair.data.spark.sending import Sending

        options = SinkOptions.of(
            {
                "connectionString": self._site.primary,
                "secondaryConnectionString": self._site.secondary,
                "primaryNamespaceName": "contoso",
                "backlogQueueCount": str(len(BACKLOGS)),
                "caFile": Path(self._site.ca_file).read_text(),
                "entityPath": "orders",
            }
        )
        rows = outgoing_rows(("body", "message_id"), self._rows())
        with Sending(destination(options), id_maker("column", "")) as sending:
            while chunk := list(islice(rows, CHUNK)):
                sending.send(chunk)
        client_of(options).close()
        worker.forget(options)
        worker.forget((options, "orders"))

    def by_hand(self, most: int) -> None:
        send_with_sdk(self._site.primary, most, self._rows())

    def consume_by_hand(self) -> None:
        consume_with_sdk(self._site.primary, iter(()))

    def rows_by_hand(self) -> None:
        list(rows_with_sdk(self._site.primary, iter(())))

    def _rows(self) -> Iterator[Row]:
        from pyspark.sql import Row

        body = "x" * 1024
        return (Row(body=body, message_id=str(number)) for number in range(self._messages))


WORK: dict[str, Callable[[Bench], None]] = {
    "consume": Bench.consume,
    "sdk_rows": Bench.rows_by_hand,
    "consume_two": lambda bench: bench.consume(*TWO),
    "sdk_consume": Bench.consume_by_hand,
    "sink": Bench.sink,
    "sdk_send": lambda bench: bench.by_hand(1),
    "sdk_batches": lambda bench: bench.by_hand(100),
}
SINKS = frozenset(("sink", "sdk_send", "sdk_batches"))
PEERS = (
    ("consume", "sdk_consume"),
    ("consume", "sdk_rows"),
    ("consume_two", "sdk_consume"),
    ("sink", "sdk_send"),
    ("sink", "sdk_batches"),
)
"""What is compared: the work of sbpair, and that of the SDK."""


def main() -> None:
    asked = settings(__doc__, 3)
    messages = QUICK_MESSAGES if asked.quick else MESSAGES
    print(
        f"# python {platform.python_version()}, {os.cpu_count()} cores, load {os.getloadavg()[0]:.1f}, "
        f"{asked.rounds} rounds of {messages} messages of 1 KiB"
    )
    bench = Bench(messages)
    try:
        for number in range(0 if asked.quick else -1, asked.rounds):
            for work in WORK:
                bench.measure(work, counts=number >= 0)
    finally:
        bench.close()
    bench.tell()


if __name__ == "__main__":
    main()
