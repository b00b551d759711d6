"""How far each entity of a stream is behind its broker, as a metric of OpenTelemetry: `sbpair.lag`, in messages.

spark.streams.addListener(Lag(metrics.get_meter("orders")))    before the query starts
"""

import json

from opentelemetry.metrics import Meter
from pyspark.sql.streaming.listener import QueryProgressEvent, StreamingQueryListener


class Lag(StreamingQueryListener):
    def __init__(self, meter: Meter) -> None:
        self._gauge = meter.create_gauge(
            "sbpair.lag", "{message}", "Messages that wait behind the last batch."
        )

    def onQueryProgress(self, event: QueryProgressEvent) -> None:
        for source in event.progress.sources:
            read, last = (json.loads(each or "{}") for each in (source.endOffset, source.latestOffset))
            for entity in (
                each for each in last if "@" not in each
            ):  # the others are times, and the namespace
                self._gauge.set(last[entity] - read.get(entity, 0), {"entity": entity})

    def onQueryStarted(self, event: object) -> None: ...

    def onQueryTerminated(self, event: object) -> None: ...

    def onQueryIdle(self, event: object) -> None: ...
