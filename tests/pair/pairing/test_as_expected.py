"""Details that behave as a user expects: errors, traces, times, and opening a spool."""

from __future__ import annotations

import logging
import pickle
from collections.abc import Iterator
from datetime import timedelta
from pathlib import Path
from random import Random

import pytest
from azure.core.settings import settings
from azure.servicebus import ServiceBusMessage
from azure.servicebus.amqp import AmqpAnnotatedMessage, AmqpMessageHeader, AmqpMessageProperties
from azure.servicebus.exceptions import MessageSizeExceededError

from sbpair import PairedNamespaceOptions, ParkedMessageTooLargeError, SpoolError, aio
from sbpair.pair.amqp.sections import split
from sbpair.pair.envelope import aliases, copies, park, values
from sbpair.pair.envelope.restore import Forward, restore
from sbpair.pair.pairing.decide.pair import Result, primary_flow
from sbpair.pair.pairing.outcome import Classification, Failure, Stored
from sbpair.pair.pairing.request.request import freeze
from sbpair.pair.pairing.shared import base_runtime
from sbpair.pair.pairing.spool import file as spool_file
from sbpair.pair.pairing.spool.store import Entry, Spool
from tests.pair.runtimes import runtime_of
from tests.trials.simulation.payloads import encoded

KEYED = "SharedAccessKeyName=name;SharedAccessKey=key"
BOTH = f"Endpoint=sb://contoso/;{KEYED}", f"Endpoint=sb://fabrikam/;{KEYED}"

pytestmark = pytest.mark.spec("R-14")


def test_a_message_too_large_to_be_parked_is_caught_as_the_sdks_error_of_size() -> None:
    error = ParkedMessageTooLargeError("orders", MessageSizeExceededError(message="too large"))
    assert isinstance(error, MessageSizeExceededError)
    again = pickle.loads(pickle.dumps(error))
    assert (str(again), again.path) == (str(error), "orders")
    assert "is too large for a backlog queue" in str(error)


def test_an_ambiguous_attempt_makes_the_next_accepted_one_ambiguous() -> None:
    lost = Classification(Failure.UNAVAILABLE, "lost", is_ambiguous=True, is_link_in_doubt=True)
    flow = primary_flow(0.0, 60.0, Random(1), Result(1.0, OSError("lost"), lost, was_reused=True))
    next(flow)
    with pytest.raises(StopIteration) as landed:
        flow.send(Result(2.0))
    assert landed.value.value == Stored(None, is_ambiguous=True)


def test_a_creation_time_with_a_time_to_live_is_left_to_the_service() -> None:
    message = AmqpAnnotatedMessage(
        data_body=b"x",
        header=AmqpMessageHeader(time_to_live=60_000),
        properties=AmqpMessageProperties(message_id="a", creation_time=1_000),
    )
    parked = park.park(message, "orders")
    assert parked.properties is not None
    assert parked.properties.creation_time is None
    assert message.properties is not None
    assert message.properties.creation_time == 1_000
    message.header = None
    kept = park.park(message, "orders").properties
    assert kept is not None
    assert kept.creation_time == 1_000


class Span:
    """The minimal span that the SDK requires of a tracing implementation."""

    def __init__(self, **_: object) -> None:
        pass

    def __enter__(self) -> Span:
        return self

    def __exit__(self, *_: object) -> None:
        pass

    def to_header(self) -> dict[str, str]:
        return {"traceparent": "00-abc-def-01", "tracestate": "x=y"}


@pytest.fixture
def traced() -> Iterator[None]:
    settings.tracing_implementation.set_value(Span)  # type: ignore[arg-type]
    yield
    settings.tracing_implementation.unset_value()


@pytest.mark.usefixtures("traced")
def test_a_spooled_message_carries_the_span_of_its_send() -> None:
    own = ServiceBusMessage("x", application_properties={"traceparent": "mine", "n": 1})
    request = freeze([ServiceBusMessage("x", time_to_live=timedelta(minutes=1)), own])
    request.carry_trace()
    one, other = (copies.raw(message).application_properties for message in request.messages)
    assert one == {b"Diagnostic-Id": "00-abc-def-01", b"traceparent": "00-abc-def-01", b"tracestate": "x=y"}
    assert other is not None
    assert other["traceparent"] == "mine"
    assert b"traceparent" not in other
    assert own.application_properties == {"traceparent": "mine", "n": 1}


def test_without_tracing_a_spooled_message_is_unchanged() -> None:
    request = freeze(ServiceBusMessage("x"))
    request.carry_trace()
    assert copies.raw(request.messages[0]).application_properties is None


def damaged(path: Path) -> Path:
    """A spool with a page of zeros in the middle of a message."""
    spool = Spool(path, primary="contoso")
    spool.append("orders", [Entry(str(n), bytes([n]) * 20_000) for n in range(1, 50)], 1)
    spool.close()
    pages = bytearray(path.read_bytes())
    pages[4096 * 100 : 4096 * 101] = bytes(4096)
    path.write_bytes(pages)
    return path


def test_an_asyncio_client_reads_its_spool_outside_the_loop_and_still_finds_damage(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    path = damaged(tmp_path / "spool")
    read: list[Path] = []
    whole = spool_file.check_whole
    monkeypatch.setattr(
        "sbpair.pair.pairing.spool.store.check_whole",
        lambda connection, path: (read.append(path), whole(connection, path)),
    )
    with pytest.raises(SpoolError, match="damaged"):
        Spool(path, primary="contoso")
    assert read == [path]
    spool = Spool(path, primary="contoso", is_read_later=True)
    assert read == [path]
    for use in (lambda: spool.append("orders", [Entry("a", b"x")], 2), lambda: spool.oldest("orders", 1)):
        with pytest.raises(SpoolError, match="damaged"):
            use()
    spool.close()


def test_the_index_counts_waiting_messages_whatever_their_size(tmp_path: Path) -> None:
    spool = Spool(tmp_path / "spool", primary="contoso")
    asked: list[str] = []
    spool._connection.set_trace_callback(asked.append)
    spool._load()
    spool._connection.set_trace_callback(None)
    for query in asked:
        ((*_, plan), *_) = spool._connection.execute(f"EXPLAIN QUERY PLAN {query}").fetchall()
        assert "USING INDEX spooled_by_sender" in plan or plan == "SEARCH spooled", plan
    spool.close()


async def test_a_forked_client_logs_once_that_the_spool_stays_with_its_parent(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    options = PairedNamespaceOptions(spool=tmp_path / "spool", assume_backlogs_exist=True)
    client = aio.PairedServiceBusClient.from_connection_strings(*BOTH, options=options)
    spooling = runtime_of(client).spool.flow
    assert spooling is not None
    runtime_of(client).reopen_in_child()  # as after a fork
    request = freeze(ServiceBusMessage("x"))
    with caplog.at_level(logging.WARNING, "sbpair"):
        for _ in range(2):
            runtime_of(client)._flow("orders", request, base_runtime.Choice(), 0.0, 60.0, None)
    assert caplog.text.count("stays with the process that this one was forked from") == 1
    await client.close()


@pytest.mark.parametrize("key", [b"k", b"\xff" * 128])
def test_a_partition_key_of_bytes_is_parked_as_bytes(key: bytes) -> None:
    name = b"x-opt-partition-key"
    parked = park.park(AmqpAnnotatedMessage(data_body=b"x", annotations={name: key}), "orders")
    carried = parked.application_properties
    assert carried is not None
    assert carried[aliases.PARTITION_KEY] == {"TYPE": "BINARY", "VALUE": key}
    assert values.read_partition_key("the key", key) == key
    with pytest.raises(ValueError, match="128"):
        park.park(AmqpAnnotatedMessage(data_body=b"x", annotations={name: key * 129}), "orders")
    with pytest.raises(values.AliasError, match="128 bytes"):
        values.read_partition_key("the key", key * 129)


@pytest.mark.spec("P-21")
@pytest.mark.parametrize("key", ["k", b"k", b"\xff"], ids=["text", "bytes", "no text"])
def test_a_partition_key_comes_home_unchanged(key: str | bytes) -> None:
    message = AmqpAnnotatedMessage(data_body=b"x", annotations={b"x-opt-partition-key": key})
    home = restore(encoded(park.park(message, "orders")), now=0)
    assert isinstance(home, Forward)
    assert split(home.payload).message_annotations == split(encoded(message)).message_annotations
