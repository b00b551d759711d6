"""Batches of encoded messages, as sent to the primary and as parked."""

from __future__ import annotations

from dataclasses import dataclass

import pytest
from azure.servicebus import ServiceBusMessage
from azure.servicebus.exceptions import MessageSizeExceededError

from sbpair.data.spark.encoded_batch import EncodedBatch
from sbpair.pair.amqp.message import DataBody, Message, Properties
from sbpair.pair.envelope import copies
from sbpair.pair.envelope.copies import raw
from sbpair.pair.pairing.request.request import freeze


@dataclass
class Given:
    """A message that counts conversions to the SDK's message."""

    message_id: str
    body: bytes = b"x"
    is_usual: bool = True
    asked: int = 0

    @property
    def encoded(self) -> bytes | None:
        sent = Message(properties=Properties(message_id=self.message_id), body=DataBody((self.body,)))
        return sent.encode() if self.is_usual else None

    def original(self) -> ServiceBusMessage:
        self.asked += 1
        return ServiceBusMessage(self.body, message_id=self.message_id)


def batch_of(given: list[Given], size: int = 10_000) -> EncodedBatch[Given]:
    batch: EncodedBatch[Given] = EncodedBatch(size)
    for each in given:
        batch.add(each)
    return batch


def ids_sent(batch: EncodedBatch[Given]) -> list[object]:
    from azure.servicebus._pyamqp._encode import encode_payload

    envelope = Message.decode(bytes(encode_payload(bytearray(), batch._message)))
    assert isinstance(envelope.body, DataBody)
    sent = [Message.decode(each).properties for each in envelope.body.sections]
    return [None if each is None else each.message_id for each in sent]


@pytest.mark.spec("R-78")
def test_only_the_first_and_unusual_messages_are_built_by_the_sdk() -> None:
    given = [Given("0"), Given("1"), Given("2", is_usual=False), Given("3")]
    batch = batch_of(given)
    request = freeze(batch)

    assert [each.asked for each in given] == [1, 0, 1, 0]
    assert ids_sent(batch) == ["0", "1", "2", "3"]
    assert len(batch) == len(request) == 4
    assert request.message_ids() == ("0", "1", "2", "3")
    assert request.outgoing is batch
    assert [each.asked for each in given] == [1, 0, 1, 0]


def test_each_parked_message_is_built_once() -> None:
    given = [Given(str(number), body=b"%d" % number) for number in range(3)]
    request = freeze(batch_of(given))
    request.rewrite("orders")

    assert [b"".join(raw(each).body) for each in request.messages] == [b"0", b"1", b"2"]
    assert len(request.messages[1:]) == 2
    assert [each.asked for each in given] == [1, 1, 1]
    assert request.rewritten is not None
    assert [each.application_properties["x-ms-path"] for each in request.rewritten] == ["orders"] * 3  # type: ignore[index]


def test_a_full_batch_rejects_further_messages_unchanged() -> None:
    batch = batch_of([Given("0", b"x" * 400), Given("1", b"x" * 400)], 1000)
    before = batch.size_in_bytes
    with pytest.raises(MessageSizeExceededError):
        batch.add(Given("2", b"x" * 400))

    assert (batch.message_ids(), len(batch), batch.size_in_bytes) == (("0", "1"), 2, before)
    with pytest.raises(MessageSizeExceededError):
        batch_of([Given("0", b"x" * 2000)], 1000)


def test_the_computed_size_equals_that_of_the_sdk() -> None:
    given = [Given(str(number), b"x" * size) for number, size in enumerate((10, 220, 300, 70_000))]
    by_sdk: EncodedBatch[Given] = EncodedBatch(200_000)
    for each in given:
        by_sdk.add_message(ServiceBusMessage(each.body, message_id=each.message_id))
    ours = batch_of(given, 200_000)

    assert ours.size_in_bytes <= by_sdk.size_in_bytes <= ours.size_in_bytes + 20 * len(given)


def test_small_messages_skip_the_headroom_check() -> None:
    request = freeze(batch_of([Given("0"), Given("1", b"x" * 500)]))

    assert request.is_smaller(1000)
    assert not request.is_smaller(500)
    assert not freeze([ServiceBusMessage("x")]).is_smaller(1000)


@pytest.mark.spec("S-20")
def test_on_an_sdk_with_other_batches_every_message_is_encoded(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(copies, "_missed", set())
    batch = batch_of([Given("0")])
    count, batch._count = batch._count, "of another type"  # type: ignore[assignment]
    second = Given("1")
    appended = []
    monkeypatch.setattr(batch, "add_message", lambda message: appended.append(message))
    batch.originals.append(raw(second.original()))
    batch.add(second)

    assert count == 1
    assert [each.message_id for each in appended] == ["1"]
