"""One trace from a send, through an outage, to the handler of the message."""

import sys
import threading
from datetime import timedelta

from azure.servicebus import ServiceBusMessage

from sbpair import PairedNamespaceOptions, PairedServiceBusClient
from sbpair.broker import Broker
from sbpair.tracing import use_opentelemetry

try:
    from opentelemetry import trace
    from opentelemetry.sdk.trace import TracerProvider
    from opentelemetry.sdk.trace.export import SimpleSpanProcessor
    from opentelemetry.sdk.trace.export.in_memory_span_exporter import InMemorySpanExporter
except ImportError as error:
    sys.exit(print(f"skipped: {error}"))

OPTIONS = PairedNamespaceOptions(
    failover_interval=timedelta(0), primary_namespace_name="contoso", enable_syphon=True
)


def main() -> None:
    trace.set_tracer_provider(provider := TracerProvider())
    provider.add_span_processor(SimpleSpanProcessor(exporter := InMemorySpanExporter()))  # yours: a collector
    use_opentelemetry()
    handled = threading.Event()
    with Broker({"contoso": 0, "contoso-dr": 0}) as broker:
        primary, secondary = broker.namespace("contoso"), broker.namespace("contoso-dr")
        primary.create_queue("orders")
        client = PairedServiceBusClient.from_connection_strings(
            primary.connection_string, secondary.connection_string, options=OPTIONS,
            connection_verify=str(broker.ca_file),
        )  # fmt: skip
        with client:
            primary.take_down("refuse")
            with trace.get_tracer("shop").start_as_current_span("checkout"):
                client.get_queue_sender("orders").send_messages(ServiceBusMessage("an order"))
            primary.bring_up()
            with client.get_queue_processor("orders", lambda message: handled.set()):
                assert handled.wait(60), "the message did not come home"
    for span in sorted(exporter.get_finished_spans(), key=lambda span: span.start_time or 0):
        print(f"{span.context.trace_id:032x}", span.name, [event.name for event in span.events])


if __name__ == "__main__":
    main()
