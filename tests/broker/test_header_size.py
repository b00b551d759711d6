"""How large may a message's properties be? (3.9)"""

from __future__ import annotations

import itertools
import re

import pytest

from sbpair.amqp.events import LinkDetached
from sbpair.amqp.message import DataBody, Message, Properties
from sbpair.amqp.performatives import Accepted, Coordinator
from sbpair.broker.access import OpenAccess
from sbpair.broker.entities import Namespace
from sbpair.broker.entities.stored_message import LockToken
from sbpair.broker.entities.tier import Tier
from sbpair.broker.faces.message_form import LARGEST_HEADER, LARGEST_PROPERTY
from tests.broker.conftest import Client, Lab

TEXT_HEAD = 5  # bytes before a long text's own


def encoded(**user: object) -> bytes:
    return Message(
        properties=Properties(message_id="1"), application_properties=user, body=DataBody((b"x" * 70_000,))
    ).encode()


@pytest.mark.spec("S-7")
@pytest.mark.parametrize(
    ("user", "words"),
    [
        ({"a": "x" * (LARGEST_PROPERTY - TEXT_HEAD)}, None),
        (
            {"a": "x" * (LARGEST_PROPERTY - TEXT_HEAD + 1)},
            f"its property 'a' has {LARGEST_PROPERTY + 1} bytes",
        ),
        ({"a": "x" * 32_000, "b": "x" * 32_000}, None),
        (dict.fromkeys("abc", "x" * 30000), f"its header has .* at most {LARGEST_HEADER}"),
    ],
    ids=["one at the limit", "one over it", "two", "three"],
)
def test_each_property_and_all_of_them_have_a_limit(lab, user, words):
    queue = lab.queue()
    client = lab.client()
    answer = client.send(client.sender("orders"), encoded(**user))
    if words is None:
        assert isinstance(answer, Accepted)
        return
    assert answer.error.symbol == "amqp:link:message-size-exceeded"
    assert re.search(words, answer.error.description)
    assert queue.counts(lab.moment.entity).total == 0


def test_there_are_no_transactions_on_basic():
    tokens = itertools.count(1)
    namespace = Namespace(
        "contoso", tier=Tier.BASIC, new_token=lambda: LockToken(next(tokens).to_bytes(16, "big"))
    )
    lab = Lab(namespace, OpenAccess())
    client = Client(lab)
    client.session.attach_sender("txn", target=Coordinator())
    lab.run()
    (ended,) = client.take(LinkDetached)
    assert ended.condition.symbol == "amqp:not-allowed"
    assert "Basic" in ended.condition.description
