"""`sbpair syphon --otel`: the spans and metrics of a real process, as a collector receives them."""

from __future__ import annotations

import http.server
import threading
from collections import defaultdict
from collections.abc import Iterator

import pytest
from opentelemetry.proto.collector.metrics.v1.metrics_service_pb2 import ExportMetricsServiceRequest
from opentelemetry.proto.collector.trace.v1.trace_service_pb2 import ExportTraceServiceRequest

from sbpair.broker import Broker
from tests.pair.cli.conftest import Run
from tests.pair.cli.parking import FLAGS, park


@pytest.fixture
def collector() -> Iterator[tuple[str, dict[str, list[bytes]]]]:
    """A collector on loopback: its address and the received bodies, by path."""
    got: dict[str, list[bytes]] = defaultdict(list)

    class Collector(http.server.BaseHTTPRequestHandler):
        def do_POST(self) -> None:
            got[self.path].append(self.rfile.read(int(self.headers["Content-Length"])))
            self.send_response(200)
            self.end_headers()

        def log_message(self, *arguments: object) -> None:
            pass

    with http.server.ThreadingHTTPServer(("127.0.0.1", 0), Collector) as server:
        thread = threading.Thread(target=server.serve_forever)
        thread.start()
        try:
            yield f"http://127.0.0.1:{server.server_port}", got
        finally:
            server.shutdown()
            thread.join()


@pytest.mark.spec("R-192", "R-193")
def test_a_drain_exports_a_span_for_each_message_and_its_counters(
    sbpair: Run, broker: Broker, keys: dict[str, str], collector: tuple[str, dict[str, list[bytes]]]
) -> None:
    url, got = collector
    parent = "00-0af7651916cd43dd8448eb211c80319c-b7ad6b7169203331-01"
    park(broker, 3, properties={"traceparent": parent})

    flags = ("--drain", "--otel", "--status-port", "0", *FLAGS)
    done = sbpair("syphon", *flags, OTEL_EXPORTER_OTLP_ENDPOINT=url, OTEL_SERVICE_NAME="ours", **keys)

    assert done.returncode == 0, done.stderr
    resources = [
        resource
        for body in got["/v1/traces"]
        for resource in ExportTraceServiceRequest.FromString(body).resource_spans
    ]
    for resource in resources:
        names = {each.key: each.value.string_value for each in resource.resource.attributes}
        assert names["service.name"] == "ours"
    spans = [span for resource in resources for scope in resource.scope_spans for span in scope.spans]
    assert [span.name for span in spans] == ["forward orders"] * 3
    assert {span.trace_id.hex() for span in spans} == {parent.split("-")[1]}
    exported = ExportMetricsServiceRequest.FromString(got["/v1/metrics"][-1])
    values = {
        metric.name: sum(point.as_double + point.as_int for point in metric.sum.data_points)
        for each in exported.resource_metrics
        for scope in each.scope_metrics
        for metric in scope.metrics
    }
    assert values["sbpair.syphon_forwarded"] == 3
