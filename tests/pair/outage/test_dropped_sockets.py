"""The SDK drops sockets without closing them when a sender ends badly: they are closed around it."""

from __future__ import annotations

import gc
import warnings
from collections.abc import Iterator

import pytest
from azure.servicebus import ServiceBusMessage

from sbpair.broker import Broker
from sbpair.pair.pairing.shared.address import SdkNamespace, SdkSettings
from sbpair.pair.pairing.shared.wire import Wire

pytestmark = pytest.mark.filterwarnings("error::ResourceWarning")


@pytest.fixture
def broker() -> Iterator[Broker]:
    with Broker({"contoso": 0}) as running:
        running.namespace("contoso").create_queue("orders")
        yield running


@pytest.mark.parametrize("is_tls", [False, True])
def test_a_socket_that_the_sdk_forgot_is_closed_with_the_links_of_its_sender(
    broker: Broker, is_tls: bool
) -> None:
    control = broker.namespace("contoso")
    settings = SdkSettings(connection_verify=str(broker.ca_file))
    string, way = control.connection_string, None
    if is_tls:  # the SDK takes the port for TLS from there only
        string, way = string.replace(";UseDevelopmentEmulator=true", ""), f"sb://localhost:{control.port}"
    namespace = SdkNamespace.from_connection_string("primary", string, settings, way)
    with namespace.client() as client:
        sender = client.get_queue_sender("orders")
        wire = Wire(sender)
        sender.send_messages(ServiceBusMessage("x"))
        transport = sender._handler._connection._transport
        dropped, transport.sock = transport.sock, None
        transport.connected = False
        wire.release()
        assert dropped.fileno() == -1
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        del dropped
        gc.collect()
