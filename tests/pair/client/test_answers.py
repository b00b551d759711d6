"""Answers to requests: the messages of a peek are found directly, with the result of the general decoder."""

from __future__ import annotations

import pytest
from hypothesis import example, given
from hypothesis import strategies as st

from sbpair.pair.amqp.errors import DecodeError
from sbpair.pair.amqp.message import Message, Properties, ValueBody
from sbpair.pair.client.request import decode_answer

pytestmark = pytest.mark.spec("R-66")

VALUES = st.recursive(
    st.none() | st.integers(0, 300) | st.text(max_size=4) | st.binary(max_size=4),
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(st.text(max_size=3), inner, max_size=3),
    max_leaves=6,
)
MESSAGES = st.lists(st.binary(max_size=3) | st.binary(min_size=230, max_size=600), max_size=5)


def answer(body: object) -> bytes:
    return Message(
        properties=Properties(correlation_id="request-1"),
        application_properties={"statusCode": 200},
        body=ValueBody(body),
    ).encode()


def outcome(decode: object, payload: bytes) -> object:
    try:
        return decode(payload)  # type: ignore[operator]
    except (DecodeError, IndexError):
        return "malformed"


@given(VALUES)
@example({"messages": []})
@example({"messages": [{"message": b"x" * 300, "lock-token": b"y"}]})
@example({"messages": [{"message": b"x" * 300}], "more": 1})
@example({"messages": [{"massage": b"x" * 300}]})
@example({"messages": [{"message": "x" * 300}]})
def test_the_fast_answer_reader_agrees_with_the_general_decoder(body: object) -> None:
    assert decode_answer(answer(body)) == Message.decode(answer(body))


@given(MESSAGES)
def test_the_messages_of_a_peek_are_those_that_were_sent(messages: list[bytes]) -> None:
    found = decode_answer(answer({"messages": [{"message": each} for each in messages]}))
    assert found.body == ValueBody({"messages": [{"message": each} for each in messages]})
    assert found.properties == Properties(correlation_id="request-1")


@given(st.integers(0, 700), st.integers(0, 255))
def test_a_truncated_or_changed_answer_is_refused_like_by_the_general_decoder(place: int, value: int) -> None:
    payload = answer({"messages": [{"message": b"x" * 300}, {"message": b"y" * 300}]})
    for each in (payload[:place], payload[:place] + bytes((value,)) + payload[place + 1 :]):
        assert outcome(decode_answer, each) == outcome(Message.decode, each)
