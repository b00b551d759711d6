"""Every frame that the broker sends has the types of the standard."""

from __future__ import annotations

from collections.abc import Iterator

import pytest

from sbpair.pair.amqp.composite import encode_composite
from sbpair.pair.amqp.encoding import encode, frame
from sbpair.pair.amqp.message import Message, ValueBody
from sbpair.pair.amqp.performatives import Attach, Condition, Detach, Source, Target
from sbpair.pair.amqp.sections import Section, encode_map_section, join_entries
from sbpair.pair.amqp.types import Described, Int, Symbol
from tests.broker.test_management import manage
from tests.strict_frames import NotStrictError, StrictReader, check_message, strictly_read

pytestmark = [pytest.mark.client("amqp"), pytest.mark.spec("W-9")]


@pytest.fixture(autouse=True)
def readers(monkeypatch: pytest.MonkeyPatch) -> Iterator[list[StrictReader]]:
    with strictly_read(monkeypatch) as found:
        yield found


def test_links_requests_and_deliveries_use_strict_frames(lab, readers):
    lab.queue()
    lab.queue("sessions", requires_session=True)
    client = lab.client()
    sender = client.sender("orders")
    annotated = Message(
        message_annotations={"custom": 1, "x-opt-partition-key": "k"},
        delivery_annotations={"d": 2},
        application_properties={"a": 1},
        body=ValueBody({"x": [1]}),
    )
    client.send(sender, annotated.encode())
    client.send(sender, b"\x00\x53\x72\xc1\x09\x02\xa1\x05given\x43" + b"\x00\x53\x75\xa0\x01x")
    client.receiver("orders", credit=5)
    told = client.receiver(
        "sessions", source=Source("sessions", filter={"com.microsoft:session-filter": "s"})
    )
    assert set(map(type, told.remote_attach.properties)) == {Symbol}
    assert set(map(type, told.remote_attach.source.filter)) == {Symbol}
    assert set(map(type, sender.remote_attach.properties)) == {Symbol}
    client.receiver("nowhere")
    manage(lab.client(), "peek-message", {"from-sequence-number": 1, "message-count": Int(5)})
    assert sum(reader.frames for reader in readers) > 10


@pytest.mark.parametrize("name", ["properties", "filter", "info", "annotations"])
def test_strings_as_keys_become_symbols(name):
    reader = StrictReader()
    given = {"key": 1, Symbol("other"): 2}
    attach = Attach("a", 0, True, source=Source("q"), target=Target("t"), initial_delivery_count=None)
    match name:
        case "properties":
            attach.properties = given
        case "filter":
            attach.source = Source("q", filter={"f": Described(Symbol("f"), "x")})
        case "info":
            reader.feed(frame(0, encode_composite(Detach(0, True, Condition("amqp:x", "d", given)))))
        case _:
            check_message(encode_map_section(Section.MESSAGE_ANNOTATIONS, given))
            check_message(join_entries(Section.DELIVERY_ANNOTATIONS, [("key", encode(1))]))
    reader.feed(frame(0, encode_composite(attach)))


def test_strict_reader_refuses_strings_as_keys():
    strings = b"\x00\x53\x72" + encode({"key": 1})
    with pytest.raises(NotStrictError, match="keys that are"):
        check_message(strings)


@pytest.mark.parametrize(
    "wrong",
    [
        "00000010 02000000 005317c0 03014100",  # a byte too many
        "0000000f 02000000 005317c0 020141",  # an end with a boolean in place of an error
        "0000000c 02000000 00539945",  # no such performative
    ],
)
def test_strict_reader_refuses_other_frames(wrong):
    with pytest.raises(NotStrictError):
        StrictReader().feed(bytes.fromhex(wrong))
