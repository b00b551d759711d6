"""The private parts of the SDK that the package uses still exist."""

from __future__ import annotations

import logging
import socket
import threading
from types import SimpleNamespace
from typing import Any, ClassVar

import pytest
from azure.core.tracing import SpanKind
from azure.servicebus import ServiceBusClient, ServiceBusMessage, ServiceBusMessageBatch, ServiceBusSender
from azure.servicebus.amqp import AmqpAnnotatedMessage, AmqpMessageHeader, AmqpMessageProperties
from azure.servicebus.exceptions import (
    MessageSizeExceededError,
    ServiceBusConnectionError,
    ServiceBusError,
)

from sbpair.pair.envelope import copies
from sbpair.pair.pairing.aio.limits import CallLimits
from sbpair.pair.pairing.aio.shared_link import SharedLink, _tcp_of
from sbpair.pair.pairing.request import sdk
from sbpair.pair.pairing.request.sdk import (
    carry_trace,
    condition_of,
    ended_connection,
    explain_refused_token,
    is_smaller,
    message_limit,
    messages_of,
    token_status_of,
    was_rejected,
    wrap,
)
from sbpair.pair.pairing.shared.wire import Wire, _socket_of


@pytest.fixture
def listener() -> socket.socket:
    """A peer that accepts connections and never answers."""
    with socket.create_server(("127.0.0.1", 0)) as server:
        yield server


@pytest.fixture
def sender(listener: socket.socket) -> ServiceBusSender:
    port = listener.getsockname()[1]
    client = ServiceBusClient.from_connection_string(
        f"Endpoint=sb://127.0.0.1:{port};SharedAccessKeyName=R;SharedAccessKey=K;UseDevelopmentEmulator=true",
        retry_total=0,
    )
    return client.get_queue_sender("orders")


@pytest.mark.spec("S-20")
@pytest.mark.parametrize("name", ["_create_handler", "_handler", "_running"])
def test_the_private_names_of_a_sender_exist(sender: ServiceBusSender, name: str) -> None:
    assert hasattr(sender, name)


def test_shutting_the_socket_below_an_opening_sender_ends_the_call(
    sender: ServiceBusSender, listener: socket.socket, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(copies, "_missed", set())  # of this test alone
    wire = Wire(sender)
    raised: list[Exception] = []

    def open_it() -> None:
        try:
            sender.__enter__()
        except Exception as error:
            raised.append(error)

    opening = threading.Thread(target=open_it, daemon=True)
    opening.start()
    peer, _ = listener.accept()
    assert peer.recv(8) == b"AMQP\x03\x01\x00\x00"  # it now waits for our answer, for ever
    wire.shut()
    opening.join(30)
    assert not opening.is_alive()
    assert isinstance(raised[0], ServiceBusConnectionError)
    for name in ("_connection", "_transport", "sock", "_keep_alive_thread"):
        assert name not in copies._missed
    wire.release()  # else an unclosed socket is reported
    peer.close()


def test_a_condition_is_text_whatever_the_sdk_holds() -> None:
    assert condition_of(ServiceBusError("x", condition=b"com.microsoft:timeout")) == "com.microsoft:timeout"
    assert condition_of(ServiceBusError("x", condition="amqp:not-found")) == "amqp:not-found"
    assert condition_of(ServiceBusError("x")) is None
    assert condition_of(ValueError()) is None


def test_the_status_of_a_refused_token_is_found_in_the_nested_error() -> None:
    from azure.servicebus._pyamqp.error import TokenAuthFailure

    assert token_status_of(ServiceBusError("x", error=TokenAuthFailure(404, b"gone"))) == 404
    assert token_status_of(ServiceBusError("x", error=ValueError())) is None


@pytest.mark.spec("X-27")
def test_a_refused_token_is_explained_once_and_other_errors_stay_unchanged() -> None:
    from azure.servicebus._pyamqp.error import TokenAuthFailure

    error = ServiceBusError("x", error=TokenAuthFailure(404, b"no 'ordres'"))
    for _ in range(2):
        explain_refused_token(error)
    assert str(error) == error.message
    assert error.message == (
        "There is no such entity: create it, or correct its name. CBS Token authentication failed. Status code: 404 "
        "Description: no 'ordres'"
    )
    odd = ServiceBusError("x", error=TokenAuthFailure(500, None))
    explain_refused_token(odd)
    assert str(odd) == "The credential was refused. CBS Token authentication failed. Status code: 500"
    other, wrapped = ValueError("x"), ServiceBusError("x", error=ValueError("y"))
    for each in (other, wrapped):
        explain_refused_token(each)
    assert (str(other), str(wrapped)) == ("x", "x")


def test_the_messages_of_an_sdk_batch_are_found() -> None:
    batch = ServiceBusMessageBatch()
    for number in range(3):
        batch.add_message(ServiceBusMessage("x", message_id=str(number)))
    kept = messages_of(batch)
    assert kept is not None
    assert [message.message_id for message in kept] == ["0", "1", "2"]


class Emptied:
    """A sender of a later SDK without any private names."""


@pytest.mark.spec("S-20")
def test_a_missing_private_name_is_logged_once_and_the_rest_works(
    caplog: pytest.LogCaptureFixture, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(copies, "_missed", set())
    with caplog.at_level(logging.WARNING, logger="sbpair"):
        for _ in range(2):
            wire = Wire(Emptied())  # type: ignore[arg-type]
            wire.shut()
            wire.release()
            assert not wire.is_open()
    lines = [record.getMessage() for record in caplog.records]
    assert len(lines) == 2
    assert "_create_handler" in lines[0]
    assert "deadline" in lines[0]
    assert messages_of(Emptied()) is None  # type: ignore[arg-type]


def missed(monkeypatch: pytest.MonkeyPatch) -> set[str]:
    """Record what is found missing from here on."""
    monkeypatch.setattr(copies, "_missed", set())
    return copies._missed


class Tcp:
    """The connection that asyncio returns."""

    def __init__(self) -> None:
        self.high = 0

    def set_write_buffer_limits(self, *, high: int) -> None:
        self.high = high

    def is_closing(self) -> bool:
        return False


async def never(*_: object) -> None:
    raise AssertionError


def handler(**other: object) -> SimpleNamespace:
    """The part of the SDK's asyncio client that concurrent sends on one link use."""
    names = ("_send_message_impl_async", "_on_send_complete_async", "do_work_async")
    return SimpleNamespace(**dict.fromkeys(names, never) | {"_link": None, "_connection": None} | other)


@pytest.mark.spec("R-66", "S-20")
def test_the_connection_of_an_sdk_sender_is_found_for_tcp_and_websocket() -> None:
    tcp = Tcp()
    writer = SimpleNamespace(transport=tcp)
    for transport in (
        SimpleNamespace(writer=writer),
        SimpleNamespace(writer=writer, sock=SimpleNamespace(_writer=SimpleNamespace(transport=None))),
        SimpleNamespace(writer=None, sock=SimpleNamespace(_writer=writer)),
        SimpleNamespace(sock=SimpleNamespace(_writer=writer)),
    ):
        assert _tcp_of(transport) is tcp
    for other in (
        SimpleNamespace(writer=SimpleNamespace(transport=object())),
        SimpleNamespace(sock=None),
        None,
    ):
        assert _tcp_of(other) is None


@pytest.mark.spec("R-66", "S-20")
def test_sends_share_a_link_without_waiting_for_its_reader() -> None:
    tcp, ours = Tcp(), handler()
    transport = SimpleNamespace(writer=SimpleNamespace(transport=tcp), _write=never, receive_frame=never)
    assert SharedLink.of(ours, transport, CallLimits()) is not None
    assert tcp.high == 2**30
    assert transport.write is never
    assert transport.receive_frame is not never


@pytest.mark.spec("R-66", "S-20")
@pytest.mark.parametrize(
    "lost",
    [
        "_send_message_impl_async",
        "_on_send_complete_async",
        "receive_frame",
        "_connection",
        "_link",
        "do_work_async",
        "_write",
        "writer",
    ],
)
def test_sends_share_no_link_on_an_sdk_that_lacks_the_means(
    lost: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    missed(monkeypatch)
    tcp, ours = Tcp(), handler()
    transport = SimpleNamespace(writer=SimpleNamespace(transport=tcp), _write=never, receive_frame=never)
    delattr(transport if hasattr(transport, lost) else ours, lost)
    assert SharedLink.of(ours, transport, CallLimits()) is None
    assert tcp.high == 0
    assert not hasattr(transport, "write")
    assert getattr(ours, "_send_message_impl_async", never) is never


def bounded(head: bytes) -> memoryview:
    """The head as it is read from a peer that may send frames of 1024 bytes."""
    connection = SimpleNamespace(_max_frame_size=1024, _last_frame_received_time=None)
    wire, handler = Wire(SimpleNamespace()), SimpleNamespace(_connection=connection)

    def read(size: int, *, initial: bool, buffer: memoryview | None) -> memoryview:
        assert (size, initial, buffer) == (8, True, None)
        return memoryview(head)

    connection._transport = SimpleNamespace(_read=read)
    wire._bound_frames(handler, connection._transport)
    found: memoryview = connection._transport._read(8, initial=True)
    return found


@pytest.mark.spec("G-18", "R-33")
@pytest.mark.parametrize("size", [1025, 2**31, 2**32 - 1])
def test_a_frame_above_the_announced_size_is_refused_at_its_header(size: int) -> None:
    with pytest.raises(ConnectionError, match=f"a frame of {size} bytes, where 1024 is the limit"):
        bounded(size.to_bytes(4, "big") + b"\x02\x00\x00\x00")


@pytest.mark.spec("R-33")
@pytest.mark.parametrize("head", [b"\x00\x00\x04\x00\x02\x00\x00\x00", b"AMQP\x00\x01\x00\x00"])
def test_a_frame_of_the_announced_size_and_a_protocol_header_pass(head: bytes) -> None:
    assert bounded(head) == head


@pytest.mark.spec("P-2")
def test_a_wrapped_message_is_the_one_the_sdk_sends() -> None:
    message = AmqpAnnotatedMessage(data_body=b"x")
    made = wrap(message)
    assert isinstance(made, ServiceBusMessage)
    assert made.raw_amqp_message is message


GIVEN = (
    AmqpAnnotatedMessage(data_body=b"x" * 300, application_properties={b"n": b"7"}),
    AmqpAnnotatedMessage(value_body={"a": 1}, properties=AmqpMessageProperties(message_id="m", group_id="s")),
    AmqpAnnotatedMessage(sequence_body=[[1, "b"]], header=AmqpMessageHeader(time_to_live=60_000)),
    AmqpAnnotatedMessage(data_body=b"", annotations={"x-opt-scheduled-enqueue-time": 9}),
)


@pytest.mark.spec("P-2", "A-8")
def test_a_batch_filled_by_encoding_once_is_the_batch_of_the_sdk() -> None:
    ours, theirs = ServiceBusMessageBatch(10_000), ServiceBusMessageBatch(10_000)
    for message in GIVEN:
        sdk.add(ours, copies.snapshot(message))
        theirs.add_message(copies.snapshot(message))
    assert (ours._message, ours.size_in_bytes, len(ours)) == (
        theirs._message,
        theirs.size_in_bytes,
        len(theirs),
    )


@pytest.mark.spec("P-2", "A-8")
def test_a_batch_without_room_refuses_a_message_encoded_once() -> None:
    batch = ServiceBusMessageBatch(400)
    for message in GIVEN[2:]:
        sdk.add(batch, copies.snapshot(message))
    before = batch.size_in_bytes
    with pytest.raises(MessageSizeExceededError):
        sdk.add(batch, copies.snapshot(GIVEN[0]))
    assert (batch.size_in_bytes, len(batch)) == (before, 2)


@pytest.mark.spec("R-66", "S-20")
def test_a_socket_is_found_bare_and_in_a_websocket() -> None:
    with socket.socket() as bare:
        assert _socket_of(SimpleNamespace(sock=bare), "loss") is bare
        assert _socket_of(SimpleNamespace(sock=SimpleNamespace(sock=bare)), "loss") is bare
    assert _socket_of(SimpleNamespace(sock=SimpleNamespace(sock=7)), "loss") is None
    assert _socket_of(SimpleNamespace(sock=object()), "loss") is None
    assert _socket_of(SimpleNamespace(sock=None), "loss") is None
    assert _socket_of(None, "loss") is None


class MessageException(Exception):  # noqa: N818
    """Named as the SDK's."""


class AMQPConnectionError(Exception):
    """Named as the SDK's."""


class TokenAuthFailure(Exception):  # noqa: N818
    """Named as the SDK's."""

    def __init__(self, status: object) -> None:
        self.status_code = status


class Rejection(MessageException): ...


@pytest.mark.spec("R-66", "S-20")
@pytest.mark.parametrize(
    ("inner", "condition", "rejected"),
    [
        (MessageException(), "amqp:not-allowed", True),
        (Rejection(), b"amqp:not-allowed", True),
        (MessageException(), "amqp:client-error", False),
        (MessageException(), "amqp:unknown-error", False),
        (MessageException(), "amqp:socket-error", False),
        (MessageException(), None, False),
        (AMQPConnectionError(), "amqp:not-allowed", False),
    ],
)
def test_a_message_is_rejected_only_if_the_service_says_so(
    inner: Exception, condition: object, rejected: bool
) -> None:
    error = ServiceBusError("x", error=inner, condition=condition)
    assert was_rejected(error) is rejected
    assert ended_connection(error) is isinstance(inner, AMQPConnectionError)
    assert not was_rejected(ValueError())
    assert not ended_connection(ValueError())


@pytest.mark.spec("R-66", "S-20")
@pytest.mark.parametrize(("given", "status"), [(401, 401), (True, None), ("401", None), (None, None)])
def test_a_status_is_a_number(given: object, status: int | None) -> None:
    assert token_status_of(ServiceBusError("x", error=TokenAuthFailure(given))) == status
    assert token_status_of(ServiceBusError("x", error=Rejection())) is None
    odd = MessageException()
    odd.status_code = 401  # type: ignore[attr-defined]
    assert token_status_of(ServiceBusError("x", error=odd)) is None
    odd._condition = b"\xff"  # type: ignore[attr-defined]
    assert condition_of(odd) == "\ufffd"


@pytest.mark.spec("R-66", "S-20")
@pytest.mark.parametrize(("given", "limit"), [(1, 1), (262144, 262144), (0, None), (-1, None), ("7", None)])
def test_a_link_limit_is_a_positive_number(given: object, limit: int | None) -> None:
    assert message_limit(SimpleNamespace(_max_message_size_on_link=given)) == limit  # type: ignore[arg-type]


@pytest.mark.spec("R-66", "S-20")
def test_the_consequence_of_a_missing_private_name_is_logged(
    monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    missed(monkeypatch)
    nothing: Any = SimpleNamespace()
    assert message_limit(nothing) is None
    assert messages_of(nothing) is None
    assert not is_smaller(nothing, 100)
    assert SharedLink.of(nothing, nothing, CallLimits()) is None
    assert _socket_of(nothing, "a loss") is None
    told = [record.getMessage() for record in caplog.records]
    for name, loss in (
        ("_max_message_size_on_link", "no warning for messages too large to be parked"),
        ("_messages", "batches not made by a paired sender cannot be parked"),
        ("_data_body", "every message must be encoded to learn its size, which is slower"),
        ("_write", "asyncio sends do not share a link: each waits for its own"),
        ("sock", "a loss"),
    ):
        (line,) = [line for line in told if name in line]
        assert line.endswith(loss)


@pytest.mark.spec("R-66", "P-22")
def test_the_size_estimate_counts_each_body_part_and_four_bytes_per_character() -> None:
    message = AmqpAnnotatedMessage(data_body=[b"abc", b"de"])
    assert not is_smaller(message, 5)
    assert is_smaller(message, 6)
    message.application_properties = {"a": "ab", "b": "c", "n": 7}
    assert not is_smaller(message, 5 + 12)
    assert is_smaller(message, 5 + 12 + 1)
    assert not is_smaller(AmqpAnnotatedMessage(value_body="x"), 10**9)


@pytest.mark.spec("R-66", "R-8")
def test_a_new_connection_and_a_received_frame_are_signs_of_life() -> None:
    wire = Wire(Emptied())  # type: ignore[arg-type]
    connection = SimpleNamespace(_transport=SimpleNamespace(connected=False), _last_frame_received_time=None)
    wire._handlers.append(SimpleNamespace(_connection=connection))
    seen = [wire.signs()]
    connection._transport.connected = True
    seen.append(wire.signs())
    connection._last_frame_received_time = 7.0
    seen.append(wire.signs())
    assert seen == [[(False, None)], [(True, None)], [(True, 7.0)]]
    wire._handlers.append(SimpleNamespace())
    assert wire.signs() == [(True, 7.0), (None, None)]


@pytest.mark.spec("R-66")
def test_a_message_sent_later_carries_the_current_trace_unless_it_has_one(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    begun: list[tuple[str, SpanKind]] = []

    class Span:
        headers: ClassVar[dict[str, str]] = {"traceparent": "00-1", "tracestate": "s=1"}

        def __init__(self, *, name: str, kind: SpanKind) -> None:
            begun.append((name, kind))

        def __enter__(self) -> Span:
            return self

        def __exit__(self, *_: object) -> None: ...

        def to_header(self) -> dict[str, str]:
            return self.headers

    monkeypatch.setattr(sdk, "settings", SimpleNamespace(tracing_implementation=lambda: None))
    message = AmqpAnnotatedMessage(data_body=b"x")
    carry_trace(message)
    assert message.application_properties is None
    monkeypatch.setattr(sdk, "settings", SimpleNamespace(tracing_implementation=lambda: Span))
    carry_trace(message)
    assert begun == [("ServiceBus.message", SpanKind.PRODUCER)]
    whole = {b"Diagnostic-Id": "00-1", b"traceparent": "00-1", b"tracestate": "s=1"}
    assert message.application_properties == whole
    message.application_properties = {b"traceparent": "mine", "tracestate": "mine", "a": 1}
    carry_trace(message)
    assert message.application_properties == {
        b"traceparent": "mine", "tracestate": "mine", "a": 1, b"Diagnostic-Id": "00-1",
    }  # fmt: skip
    monkeypatch.setattr(Span, "headers", {})
    empty = AmqpAnnotatedMessage(data_body=b"x")
    carry_trace(empty)
    assert empty.application_properties is None
