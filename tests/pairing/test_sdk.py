"""Are the private parts of the SDK that we use still there?"""

from __future__ import annotations

import logging
import socket
import threading

import pytest
from azure.servicebus import ServiceBusClient, ServiceBusMessage, ServiceBusMessageBatch, ServiceBusSender
from azure.servicebus.exceptions import ServiceBusConnectionError, ServiceBusError

from sbpair.envelope import copies
from sbpair.pairing.sdk import Wire, condition_of, messages_of, token_status_of


@pytest.fixture
def listener() -> socket.socket:
    """A peer that accepts connections and never says a word."""
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
def test_a_sender_has_its_private_names(sender: ServiceBusSender, name: str) -> None:
    assert hasattr(sender, name)


def test_the_socket_is_found_below_an_opening_sender_and_shutting_it_ends_the_call(
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


def test_the_status_of_a_refused_token_is_found_inside() -> None:
    from azure.servicebus._pyamqp.error import TokenAuthFailure

    assert token_status_of(ServiceBusError("x", error=TokenAuthFailure(404, b"gone"))) == 404
    assert token_status_of(ServiceBusError("x", error=ValueError())) is None


def test_the_messages_of_the_sdks_own_batch_are_found() -> None:
    batch = ServiceBusMessageBatch()
    for number in range(3):
        batch.add_message(ServiceBusMessage("x", message_id=str(number)))
    kept = messages_of(batch)
    assert kept is not None
    assert [message.message_id for message in kept] == ["0", "1", "2"]


class Emptied:
    """A sender of some later SDK that has lost all its private names."""


@pytest.mark.spec("S-20")
def test_a_name_that_is_gone_is_logged_once_and_the_rest_goes_on(
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
