"""An HTTP proxy in the SDK's settings, with and without a scheme in its host name: each consumer goes through it."""

from __future__ import annotations

import asyncio
import base64
import socket
import threading
from collections.abc import Iterator
from contextlib import ExitStack, suppress

import pytest
from azure.servicebus import ServiceBusClient, ServiceBusMessage, TransportType

from sbpair import PairedNamespaceOptions, PairedServiceBusClient, StoredIn
from sbpair.aio import PairedServiceBusClient as AsyncClient
from sbpair.broker import Broker
from sbpair.pair.auth.route import Proxy
from sbpair.processor import ProcessorOptions

NAMES = ("contoso.servicebus.windows.net", "contoso-dr.servicebus.windows.net")
PASSWORD = "s3cr:et@"
PATIENCE = 30.0
OPTIONS = PairedNamespaceOptions(backlog_queue_count=1, primary_namespace_name="contoso")


class ConnectProxy:
    """A proxy that knows where two names are, and lets in who has the password."""

    def __init__(self, stack: ExitStack, ports: dict[str, int]) -> None:
        self.asked: set[str] = set()
        self._ports, self._stack = ports, stack
        self._listener = stack.enter_context(socket.create_server(("127.0.0.1", 0)))
        self.port = self._listener.getsockname()[1]
        threading.Thread(target=self._accept, daemon=True).start()

    def _accept(self) -> None:
        with suppress(OSError):
            while True:
                wire, _ = self._listener.accept()
                self._stack.callback(wire.close)
                threading.Thread(target=self._serve, args=(wire,), daemon=True).start()

    def _serve(self, wire: socket.socket) -> None:
        head = b""
        with suppress(OSError):
            while b"\r\n\r\n" not in head and (data := wire.recv(4096)):
                head += data
            lines = head.decode("latin1").split("\r\n")
            host = lines[0].split()[1].rsplit(":", 1)[0]
            given = next((each for each in lines if each.lower().startswith("proxy-authorization:")), "")
            if base64.b64decode(given.rpartition(" ")[2]).decode() != f"ann:{PASSWORD}":
                wire.sendall(b"HTTP/1.1 407 No\r\nContent-Length: 0\r\n\r\n")
                wire.close()
                return
            self.asked.add(host)
            inner = socket.create_connection(("127.0.0.1", self._ports[host]))
            self._stack.callback(inner.close)
            wire.sendall(b"HTTP/1.1 200 OK\r\n\r\n")
            threading.Thread(target=_copy, args=(inner, wire), daemon=True).start()
            _copy(wire, inner)


def _copy(source: socket.socket, target: socket.socket) -> None:
    with suppress(OSError):
        while data := source.recv(65_536):
            target.sendall(data)
    for each in (source, target):
        with suppress(OSError):
            each.shutdown(socket.SHUT_RDWR)


class Behind:
    """Two namespaces behind a proxy, and the settings of a client that goes through it."""

    def __init__(self, stack: ExitStack, hostname: str) -> None:
        broker = stack.enter_context(Broker({"contoso": 0, "contoso-dr": 0}))
        self.sides = [broker.namespace(name) for name in ("contoso", "contoso-dr")]
        self.sides[0].create_queue("orders")
        ports = {name: each.port for name, each in zip(NAMES, self.sides, strict=True)}
        self.proxy = ConnectProxy(stack, ports)
        keys = [
            each.connection_string.split(";", 1)[1].replace(";UseDevelopmentEmulator=true", "")
            for each in self.sides
        ]
        self.strings = [f"Endpoint=sb://{name}/;{key}" for name, key in zip(NAMES, keys, strict=True)]
        self.settings = {
            "transport_type": TransportType.AmqpOverWebsocket,
            "connection_verify": str(broker.ca_file),
            "http_proxy": {
                "proxy_hostname": hostname,
                "proxy_port": self.proxy.port,
                "username": "ann",
                "password": PASSWORD,
            },
        }


@pytest.fixture(params=["127.0.0.1", "http://127.0.0.1"])
def behind(request) -> Iterator[Behind]:
    with ExitStack() as stack:
        yield Behind(stack, request.param)


def test_a_blocking_sender_and_the_creation_of_backlogs(behind: Behind) -> None:
    with PairedServiceBusClient.from_connection_strings(
        *behind.strings, options=OPTIONS, **behind.settings
    ) as client:
        sender = client.get_queue_sender("orders")
        assert sender.send_messages(ServiceBusMessage("x"), timeout=PATIENCE).stored_in is StoredIn.PRIMARY
        client.hold("orders")
        assert sender.send_messages(ServiceBusMessage("x"), timeout=PATIENCE).stored_in is StoredIn.BACKLOG
    assert behind.proxy.asked == set(NAMES)


async def test_an_asyncio_sender(behind: Behind) -> None:
    async with AsyncClient.from_connection_strings(
        *behind.strings, options=OPTIONS, **behind.settings
    ) as client:
        sender = client.get_queue_sender("orders")
        receipt = await sender.send_messages(ServiceBusMessage("x"), timeout=PATIENCE)
        assert receipt.stored_in is StoredIn.PRIMARY
        client.hold("orders")
        receipt = await sender.send_messages(ServiceBusMessage("x"), timeout=PATIENCE)
        assert receipt.stored_in is StoredIn.BACKLOG


async def test_a_processor(behind: Behind) -> None:
    got = asyncio.Event()

    async def handle(message: object) -> None:
        got.set()

    with (
        ServiceBusClient.from_connection_string(behind.sides[0].connection_string) as bare,
        bare.get_queue_sender("orders") as sender,
    ):
        sender.send_messages(ServiceBusMessage("x"))
    async with AsyncClient.from_connection_strings(
        *behind.strings, options=OPTIONS, **behind.settings
    ) as client:
        options = ProcessorOptions(secondary="never")
        async with client.get_queue_processor("orders", handle, options=options):
            await asyncio.wait_for(got.wait(), PATIENCE)


@pytest.mark.parametrize(
    ("given", "url"),
    [
        ({"proxy_hostname": "p", "proxy_port": 80}, "http://p:80"),
        ({"proxy_hostname": "https://p", "proxy_port": "8443"}, "https://p:8443"),
        ({"proxy_hostname": "http://p:1/", "proxy_port": 2}, "http://p:2"),
        ({"proxy_hostname": "fd00::1", "proxy_port": 80}, "http://[fd00::1]:80"),
        (
            {"proxy_hostname": "p", "proxy_port": 80, "username": "a", "password": "b@"},
            "http://a:b%40@p:80",
        ),
        ({"proxy_hostname": "http://a:b%40@p", "proxy_port": 80}, "http://a:b%40@p:80"),
    ],
)
def test_every_form_of_a_proxy_is_accepted(given: dict[str, str | int], url: str) -> None:
    assert Proxy.of_settings(given).url == url


@pytest.mark.parametrize(
    "given",
    [
        {},
        {"proxy_hostname": "p"},
        {"proxy_hostname": "", "proxy_port": 80},
        {"proxy_hostname": "ftp://S3cret@p", "proxy_port": 80},
        {"proxy_hostname": "p", "proxy_port": "S3cret"},
    ],
)
def test_an_invalid_proxy_is_refused_when_the_client_is_created(given: dict[str, str | int]) -> None:
    key = "SharedAccessKeyName=a;SharedAccessKey=YWFh"
    with pytest.raises(ValueError, match="proxy_hostname, and a proxy_port") as raised:
        PairedServiceBusClient.from_connection_strings(
            f"Endpoint=sb://a.example/;{key}", f"Endpoint=sb://b.example/;{key}", http_proxy=given
        )
    assert "S3cret" not in str(raised.value)
