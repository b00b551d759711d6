"""A message keeps its trace through an outage: sent, parked, forwarded and handled, with both clients."""

from __future__ import annotations

import asyncio
import io
import json
import logging
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any

import pytest
from azure.core.settings import settings
from azure.servicebus import ServiceBusMessage, ServiceBusMessageBatch
from opentelemetry import trace
from opentelemetry.trace import SpanKind, StatusCode

from sbpair import ObservationOptions, StoredIn
from sbpair.events import MessageParked
from sbpair.observation import use_json_logs
from sbpair.pair.tracing import current
from sbpair.pair.tracing.current import Processing
from sbpair.processor import DeadLetter
from sbpair.tracing import use_opentelemetry
from tests.pair.outage.conftest import Either
from tests.pair.outage.emptying import emptied

from .recorded import Recorded, events, is_linked

CALLER = trace.get_tracer("test")
CONTEXT = (b"Diagnostic-Id", b"traceparent")


def contexts(either: Either, queue: str = "orders") -> list[tuple[Any, ...]]:
    """Return the creation contexts of the messages in a queue of the primary."""
    found = emptied(either.primary, queue)
    return [tuple((message.application_properties or {}).get(name) for name in CONTEXT) for message in found]


@pytest.mark.spec("R-192", "C-19")
async def test_one_trace_connects_send_outage_syphon_and_handler(either: Either, recorded: Recorded) -> None:
    client = either.client(interval=0.0, ping=60)
    either.primary.take_down("refuse")
    sender = client.get_queue_sender("orders")
    with CALLER.start_as_current_span("checkout") as span:
        receipt = await either.send(sender, ServiceBusMessage("x", message_id="m"))
        ids = span.get_span_context()
    assert receipt.stored_in is StoredIn.BACKLOG
    either.primary.bring_up()
    await either.syphon().drain()
    handled = asyncio.Event()
    loop = asyncio.get_running_loop()
    inside: list[int] = []

    def note(message: object) -> None:
        inside.append(trace.get_current_span().get_span_context().trace_id)
        loop.call_soon_threadsafe(handled.set)

    async def note_in_loop(message: object) -> None:
        note(message)

    processor = client.get_queue_processor("orders", note_in_loop if either.is_asyncio else note)
    if either.is_asyncio:
        async with processor:  # type: ignore[attr-defined]
            await asyncio.wait_for(handled.wait(), 60)
    else:
        await asyncio.to_thread(processor.__enter__)
        try:
            await asyncio.wait_for(handled.wait(), 60)
        finally:
            await asyncio.to_thread(processor.stop)

    (checkout,) = recorded.spans("checkout")
    (created,) = recorded.spans("create orders")
    (forwarded,) = recorded.spans("forward orders")
    (processed,) = recorded.spans("process orders")
    assert inside == [ids.trace_id]
    assert {each.context.trace_id for each in (checkout, created, forwarded, processed)} == {ids.trace_id}
    assert created.parent.span_id == ids.span_id
    assert [each.kind for each in (created, forwarded, processed)] == [
        SpanKind.PRODUCER,
        SpanKind.CLIENT,
        SpanKind.CONSUMER,
    ]
    for each in (forwarded, processed):
        assert each.parent.span_id == created.context.span_id
        assert is_linked(each, created)
    noted = events(checkout)
    assert list(noted) == ["sbpair.failover", "sbpair.parked"]
    assert noted["sbpair.parked"]["sbpair.backlog"] == receipt.backlog
    assert noted["sbpair.parked"]["messaging.destination.name"] == "orders"
    assert forwarded.attributes["sbpair.backlog"] == f"contoso/x-servicebus-transfer/{receipt.backlog}"
    assert forwarded.attributes["messaging.message.id"] == processed.attributes["messaging.message.id"] == "m"
    assert processed.attributes["messaging.system"] == "servicebus"
    assert processed.attributes["messaging.operation.type"] == "process"
    assert processed.attributes["messaging.servicebus.disposition_status"] == "complete"
    # Each attempt is a span of the SDK; none of them created the message again.
    attempts = recorded.spans("ServiceBus.send")
    assert attempts[-1].status.status_code is StatusCode.UNSET
    assert all(is_linked(span, created) and span.parent.span_id == ids.span_id for span in attempts)
    assert not recorded.spans("ServiceBus.message")
    assert [span.name for span in recorded.spans() if span.kind is SpanKind.PRODUCER] == ["create orders"]


@pytest.mark.spec("R-192")
@pytest.mark.parametrize("shape", ["one", "list", "batch", "schedule"])
async def test_a_message_has_one_creation_span_and_its_context_arrives(
    either: Either, recorded: Recorded, shape: str
) -> None:
    client = either.client()
    sender = client.get_queue_sender("orders")
    message = ServiceBusMessage("x", application_properties={"n": 1})
    match shape:
        case "one":
            for _ in range(2):  # the second takes the fast path
                await either.send(sender, message)
        case "list":
            await either.send(sender, [message, ServiceBusMessage("y")])
        case "batch":
            batch: Any = await either.done(sender.create_message_batch())
            batch.add_message(message)
            batch.add_message(ServiceBusMessage("y"))
            await either.send(sender, batch)
        case "schedule":
            past = datetime.now(UTC) - timedelta(minutes=1)
            await either.done(sender.schedule_messages([message, ServiceBusMessage("y")], past))
    created = {span.context.span_id for span in recorded.spans("create orders")}
    assert len(created) == 2
    assert not recorded.spans("ServiceBus.message")
    arrived = contexts(either)
    assert all(one == other for one, other in arrived)
    assert {int(one.decode().split("-")[2], 16) for one, _ in arrived} == created
    assert message.application_properties == {"n": 1}


@pytest.mark.spec("R-192")
async def test_an_existing_context_of_the_application_is_carried_unchanged(
    either: Either, recorded: Recorded
) -> None:
    own = "00-0af7651916cd43dd8448eb211c80319c-b7ad6b7169203331-01"
    sender = either.client().get_queue_sender("orders")
    await either.send(sender, ServiceBusMessage("x", application_properties={"traceparent": own}))
    assert not recorded.spans("create orders")
    assert contexts(either) == [(None, own.encode())]


@pytest.mark.spec("R-192")
async def test_pings_peeks_and_backlog_queues_make_no_spans(either: Either, recorded: Recorded) -> None:
    client = either.client(interval=0.0, ping=1.0)
    either.primary.take_down("refuse")
    with CALLER.start_as_current_span("checkout"):
        await either.send(client.get_queue_sender("orders"), ServiceBusMessage("x"))
    pings = [event for event in either.told if type(event).__name__ == "PingSent"]
    await either.until(lambda: len([e for e in either.told if type(e).__name__ == "PingFailed"]) > 1)
    either.primary.bring_up()
    await either.until(lambda: any(type(event).__name__ == "EntityRecovered" for event in either.told))
    assert pings or client.pings_sent
    assert {span.name for span in recorded.spans()} == {"checkout", "create orders", "ServiceBus.send"}
    (checkout,) = recorded.spans("checkout")
    assert all(span.parent.span_id == checkout.context.span_id for span in recorded.spans("ServiceBus.send"))


@pytest.mark.spec("R-192")
async def test_a_spooled_message_keeps_the_context_of_its_send(
    either: Either, recorded: Recorded, tmp_path: Path
) -> None:
    client = either.client(interval=0.0, ping=1.0, spool=tmp_path / "spool")
    either.primary.take_down("refuse")
    either.secondary.take_down("refuse")
    with CALLER.start_as_current_span("checkout"):
        receipt = await either.send(client.get_queue_sender("orders"), ServiceBusMessage("x"))
    assert receipt.stored_in is StoredIn.SPOOL
    either.primary.bring_up()
    await either.until(lambda: any(type(event).__name__ == "SpoolReplayed" for event in either.told))
    (checkout,) = recorded.spans("checkout")
    (created,) = recorded.spans("create orders")
    assert "sbpair.spooled" in events(checkout)
    assert not recorded.spans("ServiceBus.message")
    ((one, _),) = contexts(either)
    assert int(one.decode().split("-")[2], 16) == created.context.span_id


@pytest.mark.spec("R-192")
async def test_an_sdk_batch_is_parked_with_its_context(either: Either, recorded: Recorded) -> None:
    batch = ServiceBusMessageBatch(1000)
    batch.add_message(ServiceBusMessage("x"))
    sender = either.client(interval=0.0, ping=60).get_queue_sender("orders")
    either.primary.take_down("refuse")
    assert (await either.send(sender, batch)).stored_in is StoredIn.BACKLOG
    either.primary.bring_up()
    await either.syphon().drain()
    (created,) = recorded.spans("ServiceBus.message")
    ((one, _),) = contexts(either)
    assert int(one.decode().split("-")[2], 16) == created.context.span_id
    assert is_linked(recorded.spans("forward orders")[0], created)


@pytest.mark.spec("R-192")
async def test_a_callback_of_an_event_makes_its_own_spans(either: Either, recorded: Recorded) -> None:
    client = either.client(interval=0.0, ping=60)
    batch = ServiceBusMessageBatch(1000)

    def notify(event: object) -> None:
        if isinstance(event, MessageParked):
            batch.add_message(ServiceBusMessage("parked"))

    client.on_event(notify)
    either.primary.take_down("refuse")
    await either.send(client.get_queue_sender("orders"), ServiceBusMessage("x"))
    assert len(recorded.spans("ServiceBus.message")) == 1


@pytest.mark.spec("R-192")
async def test_a_dead_lettering_span_shows_the_reason(either: Either, recorded: Recorded) -> None:
    client = either.client(interval=0.0, ping=60)
    either.primary.take_down("refuse")
    await either.send(client.get_queue_sender("nowhere"), ServiceBusMessage("x"))
    either.primary.bring_up()
    await either.syphon().drain()
    (forwarded,) = recorded.spans("forward nowhere")
    assert forwarded.status.status_code is StatusCode.ERROR
    assert forwarded.attributes["error.type"] == "DestinationNotFound"


@pytest.mark.spec("R-192")
async def test_json_logs_carry_the_ids_of_the_span(either: Either, recorded: Recorded) -> None:
    stream = io.StringIO()
    undo = use_json_logs(stream=stream, level=logging.DEBUG)
    try:
        sender = either.client(interval=0.0, ping=60).get_queue_sender("orders")
        either.primary.take_down("refuse")
        with CALLER.start_as_current_span("checkout") as span:
            await either.send(sender, ServiceBusMessage("x"))
            ids = span.get_span_context()
    finally:
        undo()
    lines = [json.loads(line) for line in stream.getvalue().splitlines()]
    (parked,) = [line for line in lines if line.get("event") == "MessageParked"]
    assert parked["trace_id"] == trace.format_trace_id(ids.trace_id)
    assert parked["span_id"] == trace.format_span_id(ids.span_id)


@pytest.mark.spec("R-193")
async def test_the_metrics_of_a_client_are_exported_while_it_exists(
    either: Either, recorded: Recorded
) -> None:
    client = either.client(interval=0.0, ping=60, observation=ObservationOptions(status=("127.0.0.1", 0)))
    sender = client.get_queue_sender("orders")
    either.primary.take_down("refuse")
    await either.send(sender, [ServiceBusMessage("x"), ServiceBusMessage("y")])
    failed_over = recorded.metric("sbpair.entity_state")
    assert {"path": "orders", "state": "failed_over"} in [
        dict(point.attributes) for point in failed_over if point.value == 1
    ]
    assert sum(point.value for point in recorded.metric("sbpair.parked_messages")) >= 2


@pytest.mark.spec("R-193")
async def test_metrics_are_exported_after_tracing_was_switched_off_and_on_again(either: Either) -> None:
    recorded = Recorded()
    for path in ("orders", "invoices"):
        undo = use_opentelemetry()
        try:
            pages = ObservationOptions(status=("127.0.0.1", 0))
            client = either.client(interval=0.0, ping=60, observation=pages)
            either.primary.take_down("refuse")
            await either.send(client.get_queue_sender(path), ServiceBusMessage("x"))
            either.primary.bring_up()
            assert {"path": path, "state": "failed_over"} in [
                dict(point.attributes) for point in recorded.metric("sbpair.entity_state") if point.value == 1
            ]
        finally:
            undo()


@pytest.mark.spec("R-193")
async def test_sends_are_measured_by_where_they_were_stored(either: Either, recorded: Recorded) -> None:
    client = either.client(interval=0.0, ping=60)
    sender = client.get_queue_sender("orders")
    await either.send(sender, ServiceBusMessage("x"))
    either.primary.take_down("refuse")
    await either.send(sender, [ServiceBusMessage("x"), ServiceBusMessage("y")])
    with pytest.raises(TypeError):
        await either.send(sender, 5)
    mine = [
        point
        for point in recorded.metric("messaging.client.operation.duration")
        if point.attributes["server.address"] == client.primary.endpoint.split("//")[-1].strip("/")
        or point.attributes["messaging.destination.name"] == "orders"
    ]
    found = {(point.attributes.get("sbpair.stored_in"), point.attributes.get("error.type")) for point in mine}
    assert found >= {("primary", None), ("backlog", None), (None, "TypeError")}
    assert all(point.attributes["messaging.operation.name"] in ("send", "schedule") for point in mine)
    sent = recorded.metric("messaging.client.sent.messages")
    assert any(point.attributes.get("sbpair.stored_in") == "backlog" and point.value >= 2 for point in sent)


@pytest.mark.spec("R-192")
async def test_a_settling_exception_is_no_error_of_a_handler_and_any_other_is(
    either: Either, recorded: Recorded
) -> None:
    client = either.client()
    sender = client.get_queue_sender("orders")
    for name in ("refused", "broken"):
        await either.send(sender, ServiceBusMessage("x", message_id=name))
    errors = {"refused": DeadLetter("no"), "broken": KeyError("key")}

    def raise_it(message: Any) -> None:
        raise errors[str(message.message_id)]

    async def raise_in_loop(message: Any) -> None:
        raise_it(message)

    def statuses() -> dict[object, object]:
        spans = recorded.spans("process orders")
        return {span.attributes["messaging.message.id"]: span.status.status_code for span in spans}

    processor = client.get_queue_processor("orders", raise_in_loop if either.is_asyncio else raise_it)
    if either.is_asyncio:
        async with processor:  # type: ignore[attr-defined]
            await either.until(lambda: len(statuses()) == 2)
    else:
        await asyncio.to_thread(processor.__enter__)
        try:
            await either.until(lambda: len(statuses()) == 2)
        finally:
            await asyncio.to_thread(processor.stop)
    assert statuses() == {"refused": StatusCode.UNSET, "broken": StatusCode.ERROR}


@pytest.mark.spec("R-192")
def test_switching_tracing_off_restores_the_setting_of_the_sdk(recorded: Recorded) -> None:
    assert settings.tracing_implementation() is not None
    again = use_opentelemetry()
    again()  # the second call changed nothing, and so does its undoing
    assert settings.tracing_implementation() is not None


def test_tracing_of_the_sdk_is_off_by_default() -> None:
    assert settings.tracing_implementation() is None


@pytest.mark.parametrize(
    "parent", ["", "00-zz-zz-01", "x" * 100_000, "00-" + "0" * 32 + "-" + "0" * 16 + "-01"]
)
def test_a_malformed_context_makes_a_span_without_a_link(recorded: Recorded, parent: str) -> None:
    tracing = current.active
    assert tracing is not None
    with tracing.processing(Processing("orders", "primary", "m", 0, None, {"traceparent": parent})):
        pass
    tracing.forwarded({"traceparent": parent}, {}, "orders", 0.1, "")
    (processed,) = recorded.spans()
    assert not processed.links
    assert processed.parent is None
