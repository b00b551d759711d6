"""Strings from unauthenticated peers are cheap to process, whatever their length and content.

The bounds are processor seconds of this thread, far above what linear parsing of such a string takes and far below
what quadratic parsing takes.
"""

from __future__ import annotations

import pytest

from sbpair.broker.access import SharedAccess
from sbpair.broker.auth import InvalidTokenError, make_token, split_audience
from sbpair.broker.entities.descriptions import AccessRule, path_of
from sbpair.broker.frontends.admin import requests
from sbpair.broker.frontends.rest import requests as rest
from sbpair.broker.server.host_names import Neighbours
from sbpair.pair.amqp.composite import encode_composite
from sbpair.pair.amqp.connection import Connection, ConnectionRole
from sbpair.pair.amqp.encoding import frame
from sbpair.pair.amqp.events import LinkDetached
from sbpair.pair.amqp.message import Message, Properties, ValueBody
from sbpair.pair.amqp.performatives import Open, SaslInit, Source, Target
from tests.costs import cpu_of

pytestmark = pytest.mark.spec("R-40")

NOON_S = 1_800_000_000
SIZE = 60_000
MOST_CPU = 1.0  # seconds: linear parsing takes a quarter on a slow machine, and the worst of these once took a hundred
MADE_OF = ("a", "a/", "/", "://", "a://", "%", "%2F", "a.", ":1", " sr=", "&", "\u0130", "$", "a+", "-")
TEXTS = [(unit * SIZE)[:SIZE] for unit in MADE_OF]
IDS = [f"made-of-{number}" for number, _ in enumerate(MADE_OF)]

hostile = pytest.mark.parametrize("text", TEXTS, ids=IDS)


@hostile
def test_an_attach_without_a_claim_costs_little_whatever_its_address(guarded, text):
    client = guarded.client()
    client.session.attach_receiver("in", source=Source(text))
    client.session.attach_sender("out", target=Target(text))
    client.session.attach_sender(text[:SIZE], target=Target("orders"))
    data = client.engine.data_to_send()

    def hear() -> None:
        client.server.receive_data(data, guarded.now)
        client.server.pieces_to_send()

    assert cpu_of(hear) < MOST_CPU


def test_an_address_longer_than_any_entity_is_refused_and_the_session_continues(guarded):
    client = guarded.client()
    client.session.attach_receiver("in", source=Source("a" * SIZE))
    guarded.run()

    (detached,) = client.take(LinkDetached)
    assert detached.condition.symbol == "com.microsoft:argument-error"
    assert str(SIZE) in detached.condition.description
    assert len(detached.condition.description) < 1000
    assert client.session.is_open


@hostile
def test_a_huge_token_or_audience_costs_little(guarded, text):
    client = guarded.client()
    tokens = (
        make_token(text[:16_000], "Root", "a2V5", NOON_S + 60),
        f"SharedAccessSignature sr={text[:16_000]}&sig=x&se=1&skn=Root",
        f"SharedAccessSignature {text}",
        text,
        f"Bearer {text}.{text}.{text}",
    )
    for token in tokens:
        request = Message(
            properties=Properties(message_id="one"),
            application_properties={"operation": "put-token", "type": "jwt", "name": text[:5_000]},
            body=ValueBody(token[:25_000]),
        )

        assert cpu_of(lambda request=request: client.ask("$cbs", request)) < MOST_CPU


def test_a_path_with_many_segments_is_authorised_quickly(guarded):
    """The lookup once joined every prefix, and did so before checking the signature."""
    rules = tuple(AccessRule(f"rule{n}", ("Send",), "a" * 40, "b" * 40) for n in range(12))
    for depth in range(1, 100):
        guarded.queue("a" + "/a" * depth, authorization_rules=rules)
    verifier = SharedAccess((), guarded.namespace.directory.access_rules)
    token = f"SharedAccessSignature sr=sb%3A%2F%2Fx%2F{'a/' * 7_500}&sig=x&se=1&skn=Root"

    def refuse() -> None:
        with pytest.raises(InvalidTokenError):
            verifier.verify(token, NOON_S)

    assert cpu_of(refuse) < MOST_CPU


def test_the_rules_of_all_entities_above_a_path_apply(guarded):
    rule = AccessRule("mine", ("Send",), "a" * 40, "b" * 40)
    for path in ("a", "a/b", "a/b/c", "a/bb"):
        guarded.queue(path, authorization_rules=(rule,))

    found = [path for path, _ in guarded.namespace.directory.access_rules("/A/B/c/d/e")]

    assert found == ["a", "a/b", "a/b/c"]


@hostile
def test_huge_sasl_and_open_frames_cost_little(guarded, text):
    for response in (text[:7_000].encode(), b"\0" * 7_000, f"\0{text[:3_000]}\0{text[:3_000]}".encode()):
        if len(response) < 8_000:
            assert cpu_of(lambda r=response: guarded.client(mechanism="PLAIN", response=r)) < MOST_CPU
    engine = Connection(role=ConnectionRole.SERVER, container_id="s", now=0.0)
    said = frame(0, encode_composite(SaslInit("ANONYMOUS", b"", text[:7_000])), kind=1)
    said += frame(0, encode_composite(Open(text[:3_000], text[:3_000])))
    assert cpu_of(lambda: engine.receive_data(said, 0.0)) < MOST_CPU


@hostile
def test_a_huge_host_name_or_http_path_costs_little(guarded, text):
    neighbours: Neighbours = Neighbours()
    neighbours.all += [guarded, guarded]
    headers = {"host": text, "authorization": text}
    asked = requests.Request("PUT", "/" + text, text, headers)

    def ask() -> None:
        neighbours.select(text)
        call = rest.call_of(asked)
        requests.refusal(asked, guarded.namespace, guarded.frontend.verifier, NOON_S)
        if call is not None:
            rest.refusal(call, guarded.frontend, NOON_S)

    assert cpu_of(ask) < MOST_CPU


@pytest.mark.parametrize(
    ("text", "path"),
    [
        ("orders", "orders"),
        ("/orders/", "orders"),
        ("sb://host/orders", "orders"),
        ("amqps://host:5671/a/b/", "a/b"),
        ("sb://host", ""),
        ("sb://", ""),
        ("orders/x://y", "orders/x://y"),
        ("1://y/z", "1://y/z"),
    ],
)
def test_the_path_of_an_address_follows_its_authority(text, path):
    assert path_of(text) == path


@pytest.mark.parametrize(
    ("uri", "parts"),
    [
        ("sb://host:5671/orders", ("host:5671", "orders")),
        ("host/orders", ("host", "orders")),
        ("https://host/a%2Fb?api-version=2021-05", ("host", "a/b")),
        ("sb://", ("", "")),
        ("host", ("host", "")),
    ],
)
def test_an_audience_has_a_host_and_a_path(uri, parts):
    assert split_audience(uri) == parts
