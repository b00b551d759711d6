"""What no client would send: each case ends in a close or an error, costs little, and the next client is served.

One row a case, named after it. The engine's own tables (tests/amqp/test_hostile_input.py) go further into types
and states; here the bytes meet a broker at its port.
"""

# ruff: noqa: E501  (a table of cases, one a line)
from __future__ import annotations

import gc
import resource
import socket
import time
from collections.abc import Iterator
from functools import partial
from pathlib import Path

import pytest

from sbpair.amqp.composite import encode_composite
from sbpair.amqp.connection import Connection
from sbpair.amqp.frames import AMQP_HEADER, EMPTY_FRAME, SASL_HEADER, frame
from sbpair.amqp.limits import Limits
from sbpair.amqp.message import Message, Properties, ValueBody
from sbpair.amqp.performatives import (
    ACCEPTED,
    Attach,
    Begin,
    Detach,
    Disposition,
    End,
    Flow,
    Open,
    SaslInit,
    Source,
    Target,
    Transfer,
)
from sbpair.amqp.types import Described, ULong, encode
from sbpair.broker import Broker
from tests.bench.raw_client import Endpoint, RawClient, payload

pytestmark = pytest.mark.client("amqp")
WITHIN = 6.0  # seconds until it is answered
MOST_RSS = 32 * 1024 * 1024
MOST_CPU = 5.0  # seconds, of this whole process on a machine that others use
KEY = "pineapple"
SEEN = 2**30  # the next transfer a client expects: where the broker begins to count

CLOSED = None


def f(performative: object, data: bytes = b"", channel: int = 0) -> bytes:
    return frame(channel, encode_composite(performative), len(data)) + data


def sasl(performative: object) -> bytes:
    return frame(0, encode_composite(performative), kind=1)


def raw(body: bytes, channel: int = 0) -> bytes:
    return frame(channel, body)


def nested(levels: int, before: bytes, inner: bytes = b"\x40") -> bytes:
    value = inner
    for _ in range(levels):
        value = before + (len(value) + 4).to_bytes(4, "big") + (1).to_bytes(4, "big") + value
    return value


PLAIN = SASL_HEADER + sasl(SaslInit("PLAIN", f"\0RootManageSharedAccessKey\0{KEY}".encode()))
OPENING = PLAIN + AMQP_HEADER + f(Open("hostile", "localhost"))
BEGUN = OPENING + f(Begin(None, 0, 1000, 1000))
SENDER = Attach("a", 0, False, source=Source(), target=Target("orders"), initial_delivery_count=0)
READY = BEGUN + f(SENDER)
CBS = BEGUN + f(Attach("c", 0, False, source=Source(), target=Target("$cbs"), initial_delivery_count=0))
CBS += f(Attach("r", 1, True, source=Source("$cbs"), target=Target("me"))) + f(
    Flow(SEEN, 100, 0, 100, 1, 0, 10)
)
MANAGEMENT = BEGUN + f(
    Attach("c", 0, False, source=Source(), target=Target("orders/$management"), initial_delivery_count=0)
)
MANAGEMENT += f(Attach("r", 1, True, source=Source("orders/$management"), target=Target("me")))
MANAGEMENT += f(Flow(SEEN, 100, 0, 100, 1, 0, 10))


def sent(message: bytes, **fields: object) -> bytes:
    """One transfer with all of a message, in frames that fit."""
    pieces = [message[at : at + 60_000] for at in range(0, len(message), 60_000)] or [b""]
    first = f(Transfer(0, 0, b"t", more=len(pieces) > 1, **fields), pieces[0])  # type: ignore[arg-type]
    return first + b"".join(
        f(Transfer(0, more=number < len(pieces)), piece) for number, piece in enumerate(pieces[1:], 2)
    )


def asked(properties: dict[object, object], body: object = None) -> bytes:
    return sent(
        Message(
            properties=Properties(message_id="1", reply_to="me"),
            application_properties=properties,
            body=ValueBody(body),
        ).encode()
    )


def put_token(token: object, **more: object) -> bytes:
    said = {"operation": "put-token", "type": "servicebus.windows.net:sastoken", "name": "sb://localhost/q"}
    return asked({**said, **more}, token)


def managed(operation: str, body: object) -> bytes:
    return asked({"operation": f"com.microsoft:{operation}"}, body)


BATCH = 0x80013700
HUGE = b"x" * (1024 * 1024 + 70_000)
HTTP = b"POST /orders/messages HTTP/1.1\r\nHost: localhost\r\n"

CASES: dict[str, tuple[bytes, bytes | None]] = {
    # framing
    "one byte, then idle": (b"A", CLOSED),
    "7 of 8 header bytes": (b"AMQP\x00\x01\x00", CLOSED),
    "AMQP 0-9-1": (b"AMQP\x00\x00\x09\x01", CLOSED),
    "the TLS protocol id": (b"AMQP\x02\x01\x00\x00", CLOSED),
    "a ClientHello that is none": (b"\x16\x03\x01\x00\x05hello", CLOSED),
    "not a language": (b"\x00\x01\x02\x03", CLOSED),
    **{f"size {size}": (OPENING + size.to_bytes(4, "big") + b"\x02\x00\x00\x00", CLOSED) for size in range(8)},
    **{f"doff {doff}": (OPENING + b"\x00\x00\x00\x10" + bytes((doff, 0, 0, 0)) + bytes(8), CLOSED) for doff in (0, 1, 255)},
    **{f"type {kind}": (OPENING + b"\x00\x00\x00\x08\x02" + bytes((kind, 0, 0)), CLOSED) for kind in (2, 255)},
    "a frame above what was agreed": (OPENING + b"\x7f\xff\xff\xff\x02\x00\x00\x00", CLOSED),
    "a frame above 8 KiB before open": (PLAIN + AMQP_HEADER + b"\x00\x01\x00\x00\x02\x00\x00\x00", CLOSED),
    **{f"max-frame-size {size}": (PLAIN + AMQP_HEADER + f(Open("x", max_frame_size=size)), CLOSED) for size in (0, 1, 511)},
    "max-frame-size 2^32-1": (PLAIN + AMQP_HEADER + f(Open("x", max_frame_size=2**32 - 1)), b"contoso"),
    "a frame before any header": (f(Open("x")), CLOSED),
    "an extended header": (OPENING + b"\x00\x00\x00\x0c\x03\x00\x00\x00" + bytes(4) + f(Begin(None, 0, 9, 9)), b"\x00\x53\x11"),
    "a flood of empty frames": (OPENING + EMPTY_FRAME * 100_000 + f(Begin(None, 0, 9, 9)), b"\x00\x53\x11"),
    # SASL
    "an AMQP frame inside SASL": (SASL_HEADER + f(Open("x")), CLOSED),
    "a SASL frame after SASL": (OPENING + sasl(SaslInit("ANONYMOUS")), CLOSED),
    "sasl-init twice": (SASL_HEADER + sasl(SaslInit("ANONYMOUS")) * 2, CLOSED),
    "an unknown mechanism": (SASL_HEADER + sasl(SaslInit("GSSAPI")), CLOSED),
    "PLAIN without NULs": (SASL_HEADER + sasl(SaslInit("PLAIN", b"user")), CLOSED),
    "PLAIN of 6 KB": (SASL_HEADER + sasl(SaslInit("PLAIN", b"\0" * 2 + b"x" * 6000)), CLOSED),
    "PLAIN that is no UTF-8": (SASL_HEADER + sasl(SaslInit("PLAIN", b"\0\xff\xfe\0\xff")), CLOSED),
    "PLAIN with a wrong key": (SASL_HEADER + sasl(SaslInit("PLAIN", b"\0RootManageSharedAccessKey\0x")), CLOSED),
    "sasl-response without a challenge": (SASL_HEADER + raw(b"\x00\x53\x43\xc0\x03\x01\xa0\x00").replace(b"\x02\x00", b"\x02\x01", 1), CLOSED),
    "AMQP without SASL": (AMQP_HEADER + f(Open("x")) + f(Begin(None, 0, 9, 9)) + f(SENDER), CLOSED),
    # types
    "array32 of 2^31 zero-width elements": (OPENING + raw(b"\x00\x53\x18\xf0\x00\x00\x00\x05\x80\x00\x00\x00\x43"), CLOSED),
    "many small arrays in one frame": (OPENING + raw(b"\x00\x53\x18\xd0\x00\x00\x30\x04\x00\x00\x10\x00" + b"\xe0\x02\xff\x40" * 3072), CLOSED),
    "lists 5000 deep": (OPENING + raw(b"\x00\x53\x18" + nested(5000, b"\xd0")), CLOSED),
    "maps 65 deep": (OPENING + raw(b"\x00\x53\x18" + nested(65, b"\xd1")), CLOSED),
    "descriptors 5000 deep": (OPENING + raw(b"\x00" * 5000), CLOSED),
    "a map of an odd count": (OPENING + raw(b"\x00\x53\x18\xc1\x03\x01\x40"), CLOSED),
    "a list longer than its frame": (OPENING + raw(b"\x00\x53\x18\xd0\xff\xff\xff\xff\x00\x00\x00\x01"), CLOSED),
    "a text that ends early": (OPENING + raw(b"\x00\x53\x11\xc0\x04\x01\xa1\xff\x61"), CLOSED),
    "a text that is no UTF-8": (PLAIN + AMQP_HEADER + raw(b"\x00\x53\x10\xc0\x05\x01\xa1\x02\xff\xfe"), CLOSED),
    "a symbol that is not ASCII": (OPENING + raw(b"\x00\x53\x12\xc0\x05\x01\xa3\x02\xff\xfe"), CLOSED),
    "an unknown constructor": (OPENING + raw(b"\x00\x53\x11\xc0\x02\x01\x3f"), CLOSED),
    "an unknown performative": (OPENING + raw(b"\x00\x53\x7f\x45"), CLOSED),
    "a performative that is a map": (OPENING + raw(b"\x00\x53\x11\xc1\x01\x00"), CLOSED),
    "more fields than there are": (OPENING + raw(b"\x00\x53\x17\xc0\x05\x04\x40\x40\x40\x40"), CLOSED),
    "null where a value must be": (OPENING + raw(b"\x00\x53\x11\xc0\x05\x04\x40\x40\x40\x40"), CLOSED),
    # states
    "begin before open": (PLAIN + AMQP_HEADER + f(Begin(None, 0, 9, 9)), CLOSED),
    "transfer before attach": (BEGUN + f(Transfer(7, 0, b"t"), b"x"), b"\x00\x53\x17"),
    "two opens": (OPENING + f(Open("again")), CLOSED),
    "begin above channel-max": (OPENING + f(Begin(None, 0, 9, 9), channel=60_000), CLOSED),
    "begin for a channel that nobody has": (OPENING + f(Begin(77, 0, 9, 9)), CLOSED),
    "a handle above handle-max": (BEGUN + f(Attach("a", 2**31, False, source=Source(), target=Target("orders"), initial_delivery_count=0)), b"\x00\x53\x18"),
    "a handle in use": (READY + f(Attach("b", 0, False, source=Source(), target=Target("orders"), initial_delivery_count=0)), b"\x00\x53\x17"),
    "10^3 sessions": (OPENING + b"".join(f(Begin(None, 0, 9, 9), channel=n) for n in range(1000)), CLOSED),
    "10^4 links": (BEGUN + b"".join(f(Attach(f"l{n}", n, False, source=Source(), target=Target("orders"), initial_delivery_count=0)) for n in range(10_000)), CLOSED),
    "an attach to nothing": (BEGUN + f(Attach("a", 0, False, initial_delivery_count=0)), b"\x00\x53\x16"),
    "an attach to what is not there": (BEGUN + f(Attach("a", 0, False, source=Source(), target=Target("none"), initial_delivery_count=0)), b"amqp:not-found"),
    "detach twice": (READY + f(Detach(0, True)) * 2, b"\x00\x53\x17"),
    "end with links, and again": (READY + f(End()) * 2, CLOSED),
    "credit of 2^32-1": (READY + f(Flow(SEEN, 100, 0, 100, 0, 0, 2**32 - 1)) + f(End()), b"\x00\x53\x17"),
    "a storm of echoes": (READY + f(Flow(SEEN, 100, 0, 100, echo=True)) * 5000 + f(End()), b"\x00\x53\x17"),
    "a delivery tag of 33 bytes": (READY + f(Transfer(0, 0, b"t" * 33), payload()), b"\x00\x53\x16"),
    "a first transfer without an id": (READY + f(Transfer(0), payload()), b"\x00\x53\x16"),
    "more of a message than a message may be": (READY + sent(HUGE), b"message-size-exceeded"),
    "an aborted message": (READY + f(Transfer(0, 0, b"t", more=True), b"\x00") + f(Transfer(0, aborted=True)) + f(End()), b"\x00\x53\x17"),
    "a disposition of all there are": (READY + f(Disposition(True, 0, 2**32 - 1, True, ACCEPTED)) + f(End()), b"\x00\x53\x17"),
    "a disposition that runs backwards": (READY + f(Disposition(False, 9, 1, True, ACCEPTED)) + f(End()), b"\x00\x53\x17"),
    "a message that is noise": (READY + sent(b"\xff" * 100), b"amqp:decode-error"),
    "a message format nobody knows": (READY + sent(payload(), message_format=99), b"\x00\x53\x24"),
    "a batch of nothing": (READY + sent(b"", message_format=BATCH), b"amqp:decode-error"),
    "a batch of noise": (READY + sent(encode(Described(ULong(0x75), b"\xff")), message_format=BATCH), b"amqp:decode-error"),
    "a batch of 10^5": (READY + sent(encode(Described(ULong(0x75), b"")) * 100_000, message_format=BATCH), b"amqp:"),
    # $cbs
    "no operation": (CBS + asked({}), b"status"),
    "an unknown operation": (CBS + asked({"operation": "become-root"}), b"status"),
    "a token without a name": (CBS + asked({"operation": "put-token", "type": "jwt"}, "t"), b"status"),
    "a token that is a number": (CBS + put_token(7), b"status"),
    "a token for another namespace": (CBS + put_token("SharedAccessSignature sr=a&sig=b&se=1&skn=c"), b"status"),
    "an expiry that is a text": (CBS + put_token("SharedAccessSignature sr=a&sig=b&se=c&skn=d", expiration="soon"), b"status"),
    "a token of 900 KB": (CBS + put_token("x" * 900_000), b"status"),
    # $management
    "an unknown management operation": (MANAGEMENT + managed("format-disk", {}), b"status"),
    "a body that is no map": (MANAGEMENT + managed("peek-message", [1]), b"status"),
    "peek of 2^31 messages": (MANAGEMENT + managed("peek-message", {"from-sequence-number": 0, "message-count": 2**31}), b"status"),
    "10^5 sequence numbers": (MANAGEMENT + managed("receive-by-sequence-number", {"sequence-numbers": list(range(100_000))}), b"status"),
    "a schedule of noise": (MANAGEMENT + managed("schedule-message", {"messages": [{"message": b"\xff"}]}), b"status"),
    "a session state without a session": (MANAGEMENT + managed("set-session-state", {"session-id": "s", "session-state": b"x" * 900_000}), b"status"),
    # HTTP
    "GET / of anybody": (b"GET / HTTP/1.1\r\nHost: localhost\r\n\r\n", b"HTTP/1.1 401"),
    "both lengths": (HTTP + b"Content-Length: 5\r\nTransfer-Encoding: chunked\r\n\r\n0\r\n\r\n", b" 400 "),
    "a negative length": (HTTP + b"Content-Length: -1\r\n\r\n", b" 400 "),
    "a header of 40 KB": (HTTP + b"BrokerProperties: " + b"x" * 40_960 + b"\r\n\r\n", b" 400 "),
    "200 headers": (HTTP + b"".join(b"X-%d: 1\r\n" % n for n in range(200)) + b"\r\n", b" 400 "),
    "a path that leaves": (b"DELETE /../%2e%2e%2f%00/messages/head HTTP/1.1\r\nHost: localhost\r\n\r\n", b"HTTP/1.1 4"),
    "a path that is no UTF-8": (b"POST /%ff/messages HTTP/1.1\r\nHost: localhost\r\n\r\n", b" 400 "),
}  # fmt: skip


@pytest.fixture(scope="module")
def broker() -> Iterator[Broker]:
    """Impatient, so that idle cases end soon; its key is known."""
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr("sbpair.broker.server.station.FIRST_BYTE_WITHIN", 0.5)
        patch.setattr(
            "sbpair.broker.faces.client_connection.Connection",
            partial(Connection, limits=Limits(handshake_timeout=0.5, close_timeout=0.05)),
        )
        patch.setattr("sbpair.broker.auth._random_key", lambda: KEY)
        with Broker({"contoso": 0}) as running:
            running.namespace("contoso").create_queue("orders")
            yield running


def rss() -> int:
    pages = int(Path("/proc/self/statm").read_text("ascii").split()[1])
    return pages * resource.getpagesize()


def conversation(port: int, data: bytes, wanted: bytes | None) -> bytes:
    """What comes back until it holds what is wanted, or until the end where the end is. Raises TimeoutError."""
    heard = b""
    with socket.create_connection(("127.0.0.1", port), WITHIN) as peer:
        deadline = time.monotonic() + WITHIN
        try:
            if data.startswith(OPENING):  # what comes behind it is not to be told from what comes too early
                peer.sendall(OPENING)
                while b"contoso" not in heard and (piece := peer.recv(65_536)):
                    heard += piece
                data = data[len(OPENING) :]
            peer.sendall(data)
            while wanted is CLOSED or wanted not in heard:
                peer.settimeout(max(0.01, deadline - time.monotonic()))
                piece = peer.recv(262_144)
                if not piece:
                    break
                heard += piece
        except ConnectionError:
            pass  # closed in our middle of it
    return heard


def serves(port: int) -> None:
    """A message is sent and received."""
    endpoint = Endpoint(port, "RootManageSharedAccessKey", KEY, "localhost")
    with RawClient(endpoint) as client:
        with client.sender("orders") as sender:
            client.send(sender, payload(), 1)
        with client.receiver("orders") as receiver:
            client.receive(receiver, 1, each=True)


@pytest.mark.parametrize("case", CASES)
def test_a_hostile_peer_ends_itself_and_nobody_else(broker: Broker, case: str) -> None:
    data, wanted = CASES[case]
    port = broker.namespace("contoso").port
    gc.collect()
    memory, spent = rss(), time.process_time()
    heard = conversation(port, data, wanted)
    assert time.process_time() - spent < MOST_CPU
    assert rss() - memory < MOST_RSS
    assert wanted is CLOSED or wanted in heard
    assert b"Traceback" not in heard
    assert KEY.encode() not in heard
    serves(port)


def test_one_byte_a_packet_is_understood(broker: Broker) -> None:
    port = broker.namespace("contoso").port
    with socket.create_connection(("127.0.0.1", port), WITHIN) as peer:
        peer.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
        for at in range(len(BEGUN)):
            peer.sendall(BEGUN[at : at + 1])
        heard = b""
        while b"\x00\x53\x11" not in heard:
            heard += peer.recv(65_536)
    serves(port)


def test_many_who_say_nothing_cost_nothing(broker: Broker) -> None:
    port = broker.namespace("contoso").port
    memory = rss()
    silent = [socket.create_connection(("127.0.0.1", port), WITHIN) for _ in range(100)]
    serves(port)
    assert rss() - memory < MOST_RSS
    for peer in silent:
        peer.settimeout(WITHIN)
        assert peer.recv(1) == b""  # dropped
        peer.close()
