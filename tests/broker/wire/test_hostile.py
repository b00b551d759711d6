"""Malformed input to the port of a broker: a close or an error at little cost, and the next client is served.

Each row is a named case. The engine's own tables (tests/pair/amqp/test_hostile_input.py) cover types and states in
more depth.
"""

# ruff: noqa: E501  (a table of cases, one a line)
from __future__ import annotations

import contextlib
import resource
import socket
import threading
import time
from collections.abc import Callable, Iterator
from functools import partial
from pathlib import Path

import pytest

from sbpair.broker import Broker
from sbpair.broker.entities.rules import Rule, SqlFilter
from sbpair.pair.amqp.composite import encode_composite
from sbpair.pair.amqp.connection import Connection
from sbpair.pair.amqp.encoding import AMQP_HEADER, EMPTY_FRAME, SASL_HEADER, encode, frame
from sbpair.pair.amqp.limits import Limits
from sbpair.pair.amqp.message import Message, Properties, ValueBody
from sbpair.pair.amqp.performatives import (
    ACCEPTED,
    Attach,
    Begin,
    Close,
    Detach,
    Disposition,
    End,
    Flow,
    Open,
    SaslInit,
    Source,
    Target,
    TransactionalState,
    Transfer,
)
from sbpair.pair.amqp.types import Described, ULong
from tests.trials.bench.raw_client import Endpoint, RawClient, payload

pytestmark = pytest.mark.client("amqp")
WITHIN = 30.0  # seconds until it is answered
MOST_RSS = 32 * 1024 * 1024
MOST_CPU = 1.0  # seconds of the broker's thread
CONNECTION = "sbpair.broker.frontends.amqp.client_connection.Connection"
KEY = "pineapple"
SEEN = 1  # the first transfer number that the broker uses


class Closed(bytes):
    """Expect a close with this condition, followed by the end of the connection."""


CLOSED = Closed(b"")  # without a condition: before AMQP there is no close frame
FRAMING, DECODE, ILLEGAL = map(
    Closed, (b"amqp:connection:framing-error", b"amqp:decode-error", b"amqp:illegal-state")
)
ACCEPTED_1 = b"\x00\x53\x24"  # the accepted outcome
ENDED = b"\x00\x53\x17"


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
    """Return the frames of a transfer of a whole message."""
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


def managed(operation: str, body: object, **more: object) -> bytes:
    return asked({"operation": f"com.microsoft:{operation}", **more}, body)


def attached(name: str, handle: int = 0, count: int | None = 0, **fields: object) -> bytes:
    """Return a sender's attach to orders."""
    fields = {"source": Source(), "target": Target("orders"), **fields}
    return f(Attach(name, handle, False, initial_delivery_count=count, **fields))  # type: ignore[arg-type]


def valued(*values: bytes) -> bytes:
    """Return a message with these encoded application property values."""
    pairs = b"".join(b"\xa1\x01" + bytes((97 + number,)) + value for number, value in enumerate(values))
    return _mapped(pairs, 2 * len(values))


def _mapped(pairs: bytes, count: int) -> bytes:
    head = b"\xd1" + (len(pairs) + 4).to_bytes(4, "big") + count.to_bytes(4, "big")
    return b"\x00\x53\x74" + head + pairs + b"\x00\x53\x75\xa0\x01x"


def field_of(descriptor: int, *fields: bytes) -> bytes:
    """Return a performative's frame, or a message section, with these encoded fields."""
    content = b"".join(fields)
    return bytes((0, 0x53, descriptor, 0xC0, len(content) + 1, len(fields))) + content


def created_at(instant: int) -> bytes:
    """Return a message with this encoded creation time, the tenth of its properties."""
    said = field_of(0x73, *(b"\x40",) * 9, b"\x83" + instant.to_bytes(8, "big", signed=True))
    return said + b"\x00\x53\x75\xa0\x01x"


BATCH = 0x80013700
NOWHERE = TransactionalState(b"none")
TIMED = {"com.microsoft:server-timeout": 0}
HUGE = b"x" * (1024 * 1024 + 70_000)
HTTP = b"POST /orders/messages HTTP/1.1\r\nHost: localhost\r\n"

CASES: dict[str, tuple[bytes | Callable[[], bytes], bytes]] = {  # what is long to make is made for its test
    # framing
    "one byte, then idle": (b"A", CLOSED),
    "7 of 8 header bytes": (b"AMQP\x00\x01\x00", CLOSED),
    "AMQP 0-9-1": (b"AMQP\x00\x00\x09\x01", CLOSED),
    "the TLS protocol id": (b"AMQP\x02\x01\x00\x00", CLOSED),
    "a ClientHello that is none": (b"\x16\x03\x01\x00\x05hello", CLOSED),
    "not a language": (b"\x00\x01\x02\x03", CLOSED),
    **{f"size {size}": (OPENING + size.to_bytes(4, "big") + b"\x02\x00\x00\x00", FRAMING) for size in range(8)},
    **{f"doff {doff}": (OPENING + b"\x00\x00\x00\x10" + bytes((doff, 0, 0, 0)) + bytes(8), FRAMING) for doff in (0, 1, 255)},
    **{f"type {kind}": (OPENING + b"\x00\x00\x00\x08\x02" + bytes((kind, 0, 0)), FRAMING) for kind in (2, 255)},
    "a frame above what was agreed": (OPENING + b"\x7f\xff\xff\xff\x02\x00\x00\x00", FRAMING),
    "a frame above 8 KiB before open": (PLAIN + AMQP_HEADER + b"\x00\x01\x00\x00\x02\x00\x00\x00", FRAMING),
    **{f"max-frame-size {size}": (PLAIN + AMQP_HEADER + f(Open("x", max_frame_size=size)), Closed(b"amqp:invalid-field")) for size in (0, 1, 511)},
    "max-frame-size 2^32-1": (PLAIN + AMQP_HEADER + f(Open("x", max_frame_size=2**32 - 1)), b"_G0"),
    "a frame before any header": (f(Open("x")), CLOSED),
    "an extended header": (OPENING + b"\x00\x00\x00\x0c\x03\x00\x00\x00" + bytes(4) + f(Begin(None, 0, 9, 9)), b"\x00\x53\x11"),
    "a flood of empty frames": (OPENING + EMPTY_FRAME * 100_000 + f(Begin(None, 0, 9, 9)), b"\x00\x53\x11"),
    # SASL
    "an AMQP frame inside SASL": (SASL_HEADER + f(Open("x")), CLOSED),
    "a SASL frame after SASL": (OPENING + sasl(SaslInit("ANONYMOUS")), FRAMING),
    "sasl-init twice": (SASL_HEADER + sasl(SaslInit("ANONYMOUS")) * 2, CLOSED),
    "an unknown mechanism": (SASL_HEADER + sasl(SaslInit("GSSAPI")), CLOSED),
    "PLAIN without NULs": (SASL_HEADER + sasl(SaslInit("PLAIN", b"user")), CLOSED),
    "PLAIN of 6 KB": (SASL_HEADER + sasl(SaslInit("PLAIN", b"\0" * 2 + b"x" * 6000)), CLOSED),
    "PLAIN of 64 KB": (SASL_HEADER + sasl(SaslInit("PLAIN", b"\0" * 2 + b"x" * 65_536)), CLOSED),
    "PLAIN that is no UTF-8": (SASL_HEADER + sasl(SaslInit("PLAIN", b"\0\xff\xfe\0\xff")), CLOSED),
    "PLAIN with a wrong key": (SASL_HEADER + sasl(SaslInit("PLAIN", b"\0RootManageSharedAccessKey\0x")), CLOSED),
    "sasl-response without a challenge": (SASL_HEADER + raw(b"\x00\x53\x43\xc0\x03\x01\xa0\x00").replace(b"\x02\x00", b"\x02\x01", 1), CLOSED),
    "AMQP without SASL": (AMQP_HEADER + f(Open("x")) + f(Begin(None, 0, 9, 9)) + f(SENDER), CLOSED),
    # types
    "array32 of 2^31 zero-width elements": (OPENING + raw(b"\x00\x53\x18\xf0\x00\x00\x00\x05\x80\x00\x00\x00\x43"), DECODE),
    "many small arrays in one frame": (OPENING + raw(b"\x00\x53\x18\xd0\x00\x00\x30\x04\x00\x00\x10\x00" + b"\xe0\x02\xff\x40" * 3072), DECODE),
    "lists 5000 deep": (OPENING + raw(b"\x00\x53\x18" + nested(5000, b"\xd0")), DECODE),
    "maps 65 deep": (OPENING + raw(b"\x00\x53\x18" + nested(65, b"\xd1")), DECODE),
    "descriptors 5000 deep": (OPENING + raw(b"\x00" * 5000), DECODE),
    "a map of an odd count": (OPENING + raw(b"\x00\x53\x18\xc1\x03\x01\x40"), DECODE),
    "a list longer than its frame": (OPENING + raw(b"\x00\x53\x18\xd0\xff\xff\xff\xff\x00\x00\x00\x01"), DECODE),
    "a text that ends early": (OPENING + raw(b"\x00\x53\x11\xc0\x04\x01\xa1\xff\x61"), DECODE),
    "a text that is no UTF-8": (PLAIN + AMQP_HEADER + raw(b"\x00\x53\x10\xc0\x05\x01\xa1\x02\xff\xfe"), DECODE),
    "a symbol that is not ASCII": (OPENING + raw(b"\x00\x53\x12\xc0\x05\x01\xa3\x02\xff\xfe"), DECODE),
    "an unknown constructor": (OPENING + raw(b"\x00\x53\x11\xc0\x02\x01\x3f"), DECODE),
    "an unknown performative": (OPENING + raw(b"\x00\x53\x7f\x45"), DECODE),
    "a performative that is a map": (OPENING + raw(b"\x00\x53\x11\xc1\x01\x00"), DECODE),
    "more fields than there are": (OPENING + raw(b"\x00\x53\x17\xc0\x05\x04\x40\x40\x40\x40"), DECODE),
    "null where a value must be": (OPENING + raw(b"\x00\x53\x11\xc0\x05\x04\x40\x40\x40\x40"), DECODE),
    # states
    "begin before open": (PLAIN + AMQP_HEADER + f(Begin(None, 0, 9, 9)), ILLEGAL),
    "transfer before attach": (BEGUN + f(Transfer(7, 0, b"t"), b"x"), b"\x00\x53\x17"),
    "two opens": (OPENING + f(Open("again")), ILLEGAL),
    "begin above channel-max": (OPENING + f(Begin(None, 0, 9, 9), channel=60_000), FRAMING),
    "begin for a channel that nobody has": (OPENING + f(Begin(77, 0, 9, 9)), Closed(b"amqp:not-allowed")),
    "a handle above handle-max": (BEGUN + f(Attach("a", 2**31, False, source=Source(), target=Target("orders"), initial_delivery_count=0)), b"\x00\x53\x17"),
    "a handle in use": (READY + f(Attach("b", 0, False, source=Source(), target=Target("orders"), initial_delivery_count=0)), b"\x00\x53\x17"),
    "10^4 sessions": (lambda: OPENING + b"".join(f(Begin(None, 0, 9, 9), channel=n) for n in range(10_000)), FRAMING),
    "10^4 links": (lambda: BEGUN + b"".join(f(Attach(f"l{n}", n, False, source=Source(), target=Target("orders"), initial_delivery_count=0)) for n in range(10_000)), b"allowed is 255."),
    "an attach to nothing": (BEGUN + f(Attach("a", 0, False, initial_delivery_count=0)), b"\x00\x53\x16"),
    "an attach to what is not there": (BEGUN + f(Attach("a", 0, False, source=Source(), target=Target("none"), initial_delivery_count=0)), b"amqp:not-found"),
    "detach twice": (READY + f(Detach(0, True)) * 2, b"\x00\x53\x17"),
    "end with links, and again": (READY + f(End()) * 2, Closed(b"amqp:not-allowed")),
    "credit of 2^32-1": (READY + f(Flow(SEEN, 100, 0, 100, 0, 0, 2**32 - 1)) + f(End()), b"\x00\x53\x17"),
    "a storm of echoes": (READY + f(Flow(SEEN, 100, 0, 100, echo=True)) * 5000 + f(End()), b"\x00\x53\x17"),
    "a delivery tag of 129 bytes": (READY + f(Transfer(0, 0, b"t" * 129), payload()), b"\x00\x53\x16"),
    "a first transfer without an id": (READY + f(Transfer(0), payload()), b"\x00\x53\x16"),
    "more of a message than a message may be": (READY + sent(HUGE), b"message-size-exceeded"),
    "an aborted message": (READY + f(Transfer(0, 0, b"t", more=True), b"\x00") + f(Transfer(0, aborted=True)) + f(End()), b"\x00\x53\x17"),
    "a disposition of all there are": (READY + f(Disposition(True, 0, 2**32 - 1, True, ACCEPTED)) + f(End()), b"\x00\x53\x17"),
    "a disposition that runs backwards": (READY + f(Disposition(False, 9, 1, True, ACCEPTED)) + f(End()), b"\x00\x53\x17"),
    "a message that is noise": (READY + sent(b"\xff" * 100), b"amqp:decode-error"),
    "a message format nobody knows": (READY + sent(payload(), message_format=99), b"\x00\x53\x24"),
    "a batch of nothing": (READY + sent(b"", message_format=BATCH), b"amqp:decode-error"),
    "a batch of noise": (READY + sent(encode(Described(ULong(0x75), b"\xff")), message_format=BATCH), b"amqp:decode-error"),
    "a batch of 10^5": (lambda: READY + sent(encode(Described(ULong(0x75), b"")) * 100_000, message_format=BATCH), b"amqp:"),
    "decimals at their extremes": (READY + sent(valued(b"\x74" + b"\xff" * 4, b"\x74\x77\xf8\x96\x7f", b"\x84" + b"\xff" * 8, b"\x84" + bytes(8), b"\x94" + b"\xff" * 16, b"\x94\x78" + bytes(15))), ACCEPTED_1),
    "a decimal128 that ends early": (OPENING + raw(b"\x00\x53\x11\xc0\x0a\x01\x94" + b"\xff" * 8), DECODE),
    **{f"a timestamp of {instant}": (READY + sent(created_at(instant)), ACCEPTED_1) for instant in (-(2**63), 2**63 - 1)},
    "a property of 2^63-1 as a timestamp": (READY + sent(valued(b"\x83\x7f" + b"\xff" * 7, b"\x83\x80" + bytes(7))), ACCEPTED_1),
    "a UTF-16 surrogate in a name": (BEGUN + f(SENDER).replace(b"\xa1\x01a", b"\xa1\x03\xed\xa0\x80"), DECODE),
    "a UTF-16 surrogate in a property": (READY + sent(valued(b"\xa1\x03\xed\xa0\x80")), ACCEPTED_1),
    "two properties of one name": (READY + sent(_mapped(b"\xa1\x01a\x54\x01" * 2, 4)), ACCEPTED_1),
    "two keys of one name in an attach": (BEGUN + raw(field_of(0x12, b"\xa1\x01d", b"\x43", b"\x42", *(b"\x40",) * 10, b"\xc1\x0b\x04" + b"\xa3\x01a\x54\x01" * 2)), DECODE),
    "a char above 0x10FFFF": (READY + sent(valued(b"\x73\x00\x11\x00\x00")), ACCEPTED_1),
    "a char that is a surrogate": (READY + sent(valued(b"\x73\x00\x00\xd8\x00")), ACCEPTED_1),
    "a boolean of 2": (READY + sent(valued(b"\x56\x02")), ACCEPTED_1),
    "a name that is a number": (BEGUN + raw(field_of(0x12, b"\x54\x01", b"\x43", b"\x42")), DECODE),
    "an attach without a handle": (BEGUN + raw(field_of(0x12, b"\xa1\x01n", b"\x40", b"\x42")), DECODE),
    "an attach of no fields": (BEGUN + raw(b"\x00\x53\x12\x45"), DECODE),
    # counts that wrap
    "an initial delivery-count of 2^32-1": (BEGUN + attached("w", 0, 2**32 - 1) + f(Transfer(0, 2**32 - 1, b"1"), payload()) + f(Transfer(0, 0, b"2"), payload()) + f(End()), ENDED),
    "a delivery-id that wraps": (READY + b"".join(f(Transfer(0, (2**32 - 2 + n) & 0xFFFFFFFF, bytes((n,))), payload()) for n in range(4)) + f(End()), ENDED),
    "a next-outgoing-id that wraps": (OPENING + f(Begin(None, 2**32 - 1, 1000, 1000)) + f(SENDER) + f(Transfer(0, 0, b"1"), payload()) + f(Transfer(0, 1, b"2"), payload()) + f(End()), ENDED),
    "credit to a count that wraps": (BEGUN + f(Attach("g", 0, True, source=Source("orders"), target=Target())) + f(Flow(SEEN, 100, 0, 100, 0, 2**32 - 1, 3)) + f(End()), ENDED),
    "a disposition over the wrap": (READY + f(Disposition(True, 2**32 - 1, 1, True, ACCEPTED)) + f(End()), ENDED),
    "a flow that has seen the future": (READY + f(Flow(SEEN + 5, 100, 0, 100)), b"invalid-field"),
    "a drain without credit": (BEGUN + f(Attach("g", 0, True, source=Source("orders"), target=Target())) + f(Flow(SEEN, 100, 0, 100, 0, 0, 0, drain=True)) + f(End()), ENDED),
    # links
    "two messages in frames between one another": (READY + attached("b", 1) + f(Transfer(0, 0, b"1", more=True), payload()) + f(Transfer(1, 1, b"2", more=True), payload()) + f(Transfer(0)) + f(Transfer(1)), b"\x00\x53\x24"),
    "a message inside another of its link": (READY + f(Transfer(0, 0, b"1", more=True), payload()) + f(Transfer(0, 1, b"2"), payload()), b"not-allowed"),
    "a link's name in the same role": (READY + attached("a", 1), b"amqp:link:stolen"),
    "a link's name in the other role": (READY + f(Attach("a", 1, True, source=Source("orders"), target=Target())) + sent(payload()), ACCEPTED_1),
    "a link's name in another session": (READY + f(Begin(None, 0, 1000, 1000), channel=1) + f(SENDER, channel=1) + f(Transfer(0, 0, b"t"), payload(), channel=1), ACCEPTED_1),
    "a target to be made": (BEGUN + attached("d", target=Target(dynamic=True)), b"amqp:not-implemented"),
    "a filter nobody knows": (BEGUN + f(Attach("g", 0, True, source=Source("orders", filter={"x:y": 1}), target=Target())) + f(End()), ENDED),
    "unsettled deliveries of another life": (BEGUN + attached("u", unsettled={b"t": None}) + sent(payload()), ACCEPTED_1),
    "an empty delivery tag": (READY + f(Transfer(0, 0, b""), payload()), ACCEPTED_1),
    "a delivery tag twice": (READY + f(Transfer(0, 0, b"t"), payload()) + f(Transfer(0, 1, b"t"), payload()) + f(End()), ENDED),
    "aborted, and then a whole one": (READY + f(Transfer(0, 0, b"t", more=True), b"\x00") + f(Transfer(0, aborted=True)) + f(Transfer(0, 1, b"u"), payload()), ACCEPTED_1),
    "closed in the middle of a message": (READY + f(Transfer(0, 0, b"t", more=True), payload()) + f(Close()), b"\x00\x53\x18"),
    "settled and unsettled on a mixed link": (READY + f(Transfer(0, 0, b"1", settled=True), payload()) + f(Transfer(0, 1, b"2"), payload()), ACCEPTED_1),
    "settled at its last frame": (READY + f(Transfer(0, 0, b"1", more=True), payload()) + f(Transfer(0, settled=True)) + f(End()), ENDED),
    "an unsettled one on a link that settles all": (BEGUN + attached("s", snd_settle_mode=1) + f(Transfer(0, 0, b"1"), payload()) + f(End()), ENDED),
    "a settled batch of noise": (READY + sent(b"\xff" * 9, message_format=BATCH, settled=True) + f(End()), ENDED),
    "a transfer that resumes": (READY + f(Transfer(0, 0, b"1", resume=True), payload()) + f(End()), ENDED),
    "a transfer to a receiver's link": (BEGUN + f(Attach("g", 0, True, source=Source("orders"), target=Target())) + f(Transfer(0, 0, b"1"), payload()), b"amqp:"),
    "a disposition in the wrong role": (READY + f(Transfer(0, 0, b"1", more=True), payload()) + f(Disposition(False, 0, 0, True, ACCEPTED)) + f(End()), ENDED),
    # states
    "a state nobody knows": (READY + raw(b"\x00\x53\x15\xc0\x0a\x05\x41\x43\x43\x41\x00\x53\x7f\x45"), b"decode-error"),
    "a transaction nobody declared": (READY + f(Transfer(0, 0, b"t", state=NOWHERE), payload()), b"amqp:transaction:unknown-id"),
    "a settlement in a transaction nobody declared": (READY + f(Disposition(True, SEEN, SEEN, False, NOWHERE)) + f(End()), ENDED),
    "declared on a link that does not coordinate": (READY + sent(Message(body=ValueBody(Described(ULong(0x31), [None]))).encode()) + f(End()), ENDED),
    # $cbs
    "no operation": (CBS + asked({}), b"status"),
    "an unknown operation": (CBS + asked({"operation": "become-root"}), b"status"),
    "a token without a name": (CBS + asked({"operation": "put-token", "type": "jwt"}, "t"), b"status"),
    "a token that is a number": (CBS + put_token(7), b"status"),
    "a token for another namespace": (CBS + put_token("SharedAccessSignature sr=a&sig=b&se=1&skn=c"), b"status"),
    "an expiry that is a text": (CBS + put_token("SharedAccessSignature sr=a&sig=b&se=c&skn=d", expiration="soon"), b"status"),
    "a token of 900 KB": (CBS + put_token("x" * 900_000), b"message-size-exceeded"),
    "a token with nowhere to answer": (CBS + sent(Message(application_properties={"operation": "put-token"}, body=ValueBody("x")).encode()) + f(End()), ENDED),
    "a token without a type": (CBS + put_token("x", type=None), b"status"),
    # $management
    "a timeout of nothing": (MANAGEMENT + managed("peek-message", {"from-sequence-number": 0, "message-count": 1}, **TIMED), b"status"),
    "a timeout that is a text": (MANAGEMENT + managed("renew-lock", {"lock-tokens": []}, **{"com.microsoft:server-timeout": "soon"}), b"status"),
    "no body at all": (MANAGEMENT + managed("renew-lock", None), b"status"),
    "a lock token that is no uuid": (MANAGEMENT + managed("renew-lock", {"lock-tokens": [b"x"]}), b"status"),
    "10^6 sequence numbers": (lambda: MANAGEMENT + managed("receive-by-sequence-number", {"sequence-numbers": [7] * 1_000_000}), b"amqp:link:message-size-exceeded"),
    "an unknown management operation": (MANAGEMENT + managed("format-disk", {}), b"status"),
    "a body that is no map": (MANAGEMENT + managed("peek-message", [1]), b"status"),
    "peek of 2^31 messages": (MANAGEMENT + managed("peek-message", {"from-sequence-number": 0, "message-count": 2**31}), b"status"),
    "10^5 sequence numbers": (lambda: MANAGEMENT + managed("receive-by-sequence-number", {"sequence-numbers": list(range(100_000))}), b"status"),
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


IDLE = ("one byte, then idle", "7 of 8 header bytes", "AMQP without SASL")  # ended by a timeout
STORED = {  # unusual but valid messages; no other case stores anything
    "an initial delivery-count of 2^32-1": 2,
    "a delivery-id that wraps": 4,
    "a next-outgoing-id that wraps": 2,
    "two messages in frames between one another": 2,
    "a delivery tag twice": 2,
    "settled and unsettled on a mixed link": 2,
    **dict.fromkeys(
        (
            "a message format nobody knows",
            "decimals at their extremes",
            "a timestamp of -9223372036854775808",
            "a timestamp of 9223372036854775807",
            "a property of 2^63-1 as a timestamp",
            "a UTF-16 surrogate in a property",
            "two properties of one name",
            "a char above 0x10FFFF",
            "a char that is a surrogate",
            "a boolean of 2",
            "a link's name in the other role",
            "a link's name in another session",
            "unsettled deliveries of another life",
            "an empty delivery tag",
            "aborted, and then a whole one",
            "settled at its last frame",
            "an unsettled one on a link that settles all",
            "a transfer that resumes",
            "declared on a link that does not coordinate",
        ),
        1,
    ),
}


@pytest.fixture(scope="module")
def broker() -> Iterator[Broker]:
    """A broker with a known key and a short close timeout that has already served HTTP and TLS once."""
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(CONNECTION, partial(Connection, limits=Limits(close_timeout=0.05)))
        patch.setattr("sbpair.broker.auth._random_key", lambda: KEY)
        with Broker({"contoso": 0}) as running:
            contoso = running.namespace("contoso")
            contoso.create_queue("orders")
            conversation(contoso.port, *CASES["a ClientHello that is none"])
            conversation(contoso.port, *CASES["GET / of anybody"])
            yield running


@contextlib.contextmanager
def impatient() -> Iterator[None]:
    """Give new connections half a second to send something, instead of twenty seconds."""
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr("sbpair.broker.server.listener.FIRST_BYTE_WITHIN", 0.5)
        patch.setattr("sbpair.broker.frontends.amqp.connection_limits.TIME_TO_CLAIM", 0.5)
        limits = Limits(handshake_timeout=0.5, close_timeout=0.05)
        patch.setattr(CONNECTION, partial(Connection, limits=limits))
        yield


def rss() -> int:
    pages = int(Path("/proc/self/statm").read_text("ascii").split()[1])
    return pages * resource.getpagesize()


def conversation(port: int, data: bytes, wanted: bytes) -> bytes:
    """Send ``data``; return the answer up to ``wanted``, or up to the end for Closed.

    Raises TimeoutError: when neither comes in time.
    """
    heard = b""
    with socket.create_connection(("127.0.0.1", port), WITHIN) as peer:
        deadline = time.monotonic() + WITHIN
        saying = threading.Thread(target=say, args=(peer, data))
        saying.start()
        try:
            while isinstance(wanted, Closed) or wanted not in heard:
                peer.settimeout(max(0.01, deadline - time.monotonic()))
                piece = peer.recv(262_144)
                if not piece:
                    break
                heard += piece
        except ConnectionError:
            pass  # closed while still sending
        finally:
            with contextlib.suppress(OSError):  # the connection may have ended
                peer.shutdown(socket.SHUT_RDWR)
            saying.join()
    return heard


def more_of(peer: socket.socket) -> bytes:
    """Receive more bytes; fail if the broker closed the connection."""
    piece = peer.recv(65_536)
    assert piece, "the broker has closed the connection"
    return piece


def say(peer: socket.socket, data: bytes) -> None:
    """Send everything at once, ignoring the answers."""
    with contextlib.suppress(OSError):
        peer.sendall(data)


def cpu_of(broker: Broker) -> float:
    """Return the processor seconds of the broker's thread."""
    thread = broker._thread
    assert thread is not None
    assert thread.ident is not None
    return time.clock_gettime(time.pthread_getcpuclockid(thread.ident))


def serves(port: int) -> None:
    """Check that the broker serves: send and receive a message."""
    endpoint = Endpoint(port, "RootManageSharedAccessKey", KEY, "localhost")
    with RawClient(endpoint) as client:
        with client.sender("orders") as sender:
            client.send(sender, payload(), 1)
        with client.receiver("orders") as receiver:
            client.receive(receiver, 1, each=True)


@pytest.mark.parametrize("case", CASES)
def test_a_hostile_peer_affects_only_its_own_connection(broker: Broker, case: str) -> None:
    made, wanted = CASES[case]
    data = made() if callable(made) else made
    contoso = broker.namespace("contoso")
    port, before = contoso.port, contoso.counts("orders").active
    memory, spent = rss(), cpu_of(broker)
    with impatient() if case in IDLE else contextlib.nullcontext():
        heard = conversation(port, data, wanted)
    assert cpu_of(broker) - spent < MOST_CPU
    assert rss() - memory < MOST_RSS
    assert wanted in heard
    assert contoso.counts("orders").active - before == STORED.get(case, 0)
    assert b"Traceback" not in heard
    assert KEY.encode() not in heard
    serves(port)


def test_frames_split_into_single_byte_packets_are_understood(broker: Broker) -> None:
    port = broker.namespace("contoso").port
    with socket.create_connection(("127.0.0.1", port), WITHIN) as peer:
        peer.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
        for at in range(len(BEGUN)):
            peer.sendall(BEGUN[at : at + 1])
        heard = b""
        while b"\x00\x53\x11" not in heard:
            heard += more_of(peer)
    serves(port)


def test_many_silent_connections_cost_little(broker: Broker) -> None:
    port = broker.namespace("contoso").port
    memory = rss()
    silent = [socket.create_connection(("127.0.0.1", port), WITHIN) for _ in range(100)]
    serves(port)
    assert rss() - memory < MOST_RSS
    for peer in silent:
        peer.close()


def test_a_silent_connection_is_closed(broker: Broker) -> None:
    port = broker.namespace("contoso").port
    with impatient(), socket.create_connection(("127.0.0.1", port), WITHIN) as silent:
        assert silent.recv(1) == b""


def test_an_answer_goes_to_no_link_of_another_connection(broker: Broker) -> None:
    """``reply-to`` names a link of the requesting connection, even if others have a link of that name."""
    port = broker.namespace("contoso").port
    with socket.create_connection(("127.0.0.1", port), WITHIN) as other:
        other.sendall(MANAGEMENT.replace(b"\xa1\x02me", b"\xa1\x02it"))
        heard = b""
        while b"\xa1\x02it" not in heard:  # the link exists
            heard += more_of(other)
        asking = managed("peek-message", {"from-sequence-number": 0, "message-count": 1})
        foreign = MANAGEMENT + asking.replace(b"\xa1\x02me", b"\xa1\x02it") + f(End())
        assert b"status" not in conversation(port, foreign, ENDED)
        other.sendall(f(End()))
        while ENDED not in heard:
            heard += more_of(other)
        assert b"status" not in heard
    serves(port)


def test_an_undecodable_message_matches_no_rule_and_blocks_nothing(broker: Broker) -> None:
    """The broker stores properties as they came; a rule does not match properties that cannot be decoded."""
    contoso = broker.namespace("contoso")
    contoso.create_topic("news")
    contoso.create_subscription("news", "judged")
    contoso.remove_rule("news", "judged", "$Default")
    contoso.add_rule("news", "judged", Rule("sql", SqlFilter("a = 1")))
    contoso.create_subscription("news", "all")
    broken = (b"\xa1\x03\xed\xa0\x80", b"\x73\x00\x11\x00\x00", b"\x56\x02", b"\x83\x7f" + b"\xff" * 7)
    opened = BEGUN + attached("n", target=Target("news"))
    for value in broken:
        conversation(contoso.port, opened + sent(valued(value)) + f(End()), ENDED)
    conversation(contoso.port, opened + sent(valued(b"\x54\x01")), ACCEPTED_1)
    assert contoso.counts("news/Subscriptions/judged").active == 1
    serves(contoso.port)
