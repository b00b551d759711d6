"""The listener of samples/spark/lag.py on a stream that leaves messages behind."""

from __future__ import annotations

import importlib.util
import time
from pathlib import Path

import pytest
from opentelemetry.sdk.metrics import MeterProvider
from opentelemetry.sdk.metrics.export import InMemoryMetricReader

from sbpair.broker import Broker
from tests.data.spark.ledger import send, string

SAMPLE = Path(__file__).resolve().parents[3] / "samples/spark/lag.py"
spec = importlib.util.spec_from_file_location("lag", SAMPLE)
assert spec is not None
assert spec.loader is not None
lag = importlib.util.module_from_spec(spec)
spec.loader.exec_module(lag)


@pytest.mark.spec("R-239")
def test_the_lag_of_each_entity_is_a_metric(spark, tmp_path: Path) -> None:
    reader = InMemoryMetricReader()
    listener = lag.Lag(MeterProvider([reader]).get_meter("test"))

    def shown() -> dict[str, int]:
        found = reader.get_metrics_data()
        if found is None:
            return {}
        points = found.resource_metrics[0].scope_metrics[0].metrics[0].data.data_points
        return {point.attributes["entity"]: point.value for point in points}

    with Broker({"contoso": 0}) as broker:
        for queue, count in (("orders", 7), ("invoices", 3)):
            broker.namespace("contoso").create_queue(queue)
            send(broker, queue, [f"{queue}{number}" for number in range(count)])
        spark.streams.addListener(listener)
        query = (
            spark.readStream.format("sbpair")
            .options(connectionString=string(broker, "contoso"), queueName="orders,invoices")
            .options(maxMessagesPerTrigger="4", safetyLagMs="0")
            .load()
            .writeStream.format("noop")
            .trigger(processingTime="1 hour")
            .option("checkpointLocation", str(tmp_path / "state"))
            .start()
        )
        try:
            deadline = time.monotonic() + 60
            while len(shown()) < 2 and time.monotonic() < deadline:
                time.sleep(0.01)
            assert shown() == {"orders": 5, "invoices": 1}
        finally:
            query.stop()
            spark.streams.removeListener(listener)
