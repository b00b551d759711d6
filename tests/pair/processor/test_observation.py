"""What a processor reports: journal lines, metrics and spans."""

from __future__ import annotations

import urllib.request
from collections.abc import Iterator
from pathlib import Path
from typing import Any, ClassVar
from zlib import crc32

import pytest
from azure.core.settings import settings

from sbpair import ObservationOptions, PairedNamespaceOptions
from sbpair.aio import PairedServiceBusClient
from sbpair.pair.amqp.message import DataBody, Message, Properties
from sbpair.pair.observation.journal_reading import journal_files, read
from sbpair.processor import DeadLetter, ReceivedMessage
from tests.pair.processor.pair import Pair, numbered, put
from tests.pair.runtimes import runtime_of
from tests.waiting import until


def client_of(pair: Pair, observation: ObservationOptions) -> PairedServiceBusClient:
    return PairedServiceBusClient.from_connection_strings(
        pair.primary.connection_string,
        pair.secondary.connection_string,
        options=PairedNamespaceOptions(observation=observation),
    )


def records(directory: Path) -> list[dict[str, Any]]:
    return [dict(record) for file in journal_files(directory) for record in read(file)]


@pytest.mark.spec("C-19")
async def test_the_journal_has_each_completely_handled_message(pair: Pair, tmp_path: Path) -> None:
    failures = ["once"]

    async def handle(message: ReceivedMessage) -> None:
        if message.message_id == "m1":
            raise DeadLetter("BadOrder")
        if message.message_id == "m2" and failures:
            raise ValueError(failures.pop())

    await put(pair.primary, "orders", [numbered(n, session=None) for n in range(4)])
    async with (
        client_of(pair, ObservationOptions(journal=tmp_path)) as client,
        client.get_queue_processor("orders", handle) as processor,
    ):
        await until(lambda: processor.counters.completed == 3)
    found = records(tmp_path)
    received = [record for record in found if record["event"] == "messages_received"]
    assert sorted(name for record in received for name in record["message_ids"]) == ["m0", "m1", "m2", "m3"]
    assert {(record["role"], record["path"], record["side"]) for record in received} == {
        ("receiver", "orders", "primary")
    }
    assert all(number > 0 for record in received for number in record["sequence_numbers"])
    assert {each for record in received for each in record["checksums"]} == {crc32(b"hello")}
    assert [record["message_id"] for record in found if record["event"] == "handler_failed"] == ["m2"]
    assert {record["role"] for record in found if record["event"] == "journal_closed"} == {
        "sender",
        "receiver",
    }


@pytest.mark.spec("C-19")
async def test_the_metrics_page_shows_processor_activity(pair: Pair) -> None:
    await put(pair.primary, "orders", [numbered(n) for n in range(3)])
    async with (
        client_of(pair, ObservationOptions(status=("127.0.0.1", 0))) as client,
        client.get_queue_processor("orders", pair.note) as processor,
    ):
        await until(lambda: processor.counters.completed == 3)
        observer: Any = runtime_of(client)._observer
        page = urllib.request.urlopen(f"http://127.0.0.1:{observer.port}/metrics").read().decode()
    assert 'sbpair_processor_messages_handled_total{path="orders"} 3.0' in page
    assert 'sbpair_processor_in_flight{path="orders"} 0.0' in page
    assert 'sbpair_processor_handler_seconds_total{path="orders"}' in page


@pytest.fixture
def spans() -> Iterator[list[Span]]:
    settings.tracing_implementation.set_value(Span)  # type: ignore[arg-type]
    Span.made = []
    yield Span.made
    settings.tracing_implementation.unset_value()


class Span:
    """The minimal span that a processor requires of a tracing implementation."""

    made: ClassVar[list[Span]] = []

    def __init__(self, name: str, kind: object, links: list[Any]) -> None:
        self.name, self.kind, self.links = name, kind, links
        self.attributes: dict[str, object] = {}
        self.ended: type[BaseException] | str | None = None
        self.made.append(self)

    def add_attribute(self, name: str, value: object) -> None:
        self.attributes[name] = value

    def __enter__(self) -> Span:
        return self

    def __exit__(self, kind: type[BaseException] | None, *_: object) -> None:
        self.ended = kind or "returned"


@pytest.mark.spec("C-19")
async def test_each_handler_span_is_linked_to_the_span_of_the_send(pair: Pair, spans: list[Span]) -> None:
    parent = "00-0af7651916cd43dd8448eb211c80319c-b7ad6b7169203331-01"
    sent = Message(
        properties=Properties(message_id="m1"),
        application_properties={"Diagnostic-Id": parent},
        body=DataBody((b"x",)),
    )
    await put(pair.primary, "orders", [sent.encode()])
    async with pair.client() as client, client.get_queue_processor("orders", pair.note):
        await pair.handles(1)
        await until(lambda: bool(spans) and spans[0].ended is not None)
    assert [(span.name, span.ended) for span in spans] == [("ServiceBus.process", "returned")]
    assert spans[0].links[0].headers == {"traceparent": parent}
    assert spans[0].attributes["messaging.destination.name"] == "orders"
