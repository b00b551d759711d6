"""Clients that know port 5671 only, older SDKs and JMS, unmodified: the broker has a loopback address of its own."""

from __future__ import annotations

import os
from collections.abc import Iterator
from pathlib import Path

import pytest

from sbpair.broker import Broker, NamespaceControl
from tests import peers

pytestmark = pytest.mark.interop
HERE = Path(__file__).parent
HOST = f"127.{os.getpid() >> 8 & 255}.{os.getpid() & 255}.5"
PREMIUM_HOST = f"{HOST}0"


@pytest.fixture(scope="module")
def on_5671() -> Iterator[Broker]:
    """A broker on the port of AMQP over TLS."""
    with Broker({"contoso": 5671}, host=HOST) as running:
        yield running


@pytest.fixture
def contoso(on_5671: Broker) -> NamespaceControl:
    """Its namespace."""
    return on_5671.namespace("contoso")


@pytest.fixture
def address(contoso: NamespaceControl) -> str:
    """The connection string without a port."""
    return without_port(contoso, HOST)


def without_port(namespace: NamespaceControl, host: str) -> str:
    keys = namespace.connection_string.split(";", 1)[1].removesuffix(";UseDevelopmentEmulator=true")
    return f"Endpoint=sb://{host}/;{keys}"


@pytest.mark.client("javascript")
@pytest.mark.spec("X-4")
@pytest.mark.parametrize(("version", "rhea"), peers.OLD_SERVICE_BUS_VERSIONS)
def test_the_javascript_sdk_with_an_older_rhea_gets_its_answers(on_5671, contoso, address, version, rhea):
    queue = f"orders-{version}"
    contoso.create_queue(queue)
    found = peers.found_by_node(
        HERE / "javascript_old_client.js",
        address,
        queue,
        packages=[peers.old_service_bus_directory(version, rhea)],
        NODE_EXTRA_CA_CERTS=str(on_5671.ca_file),
    )
    assert found == {"peeked": ["one", "two"], "received": ["one", "two"]}
    assert contoso.counts(queue).total == 0


@pytest.mark.client("javascript")
@pytest.mark.spec("X-4", "X-19")
def test_the_javascript_sdk_of_generation_1_finds_the_dead_letters_of_a_subscription(
    on_5671, contoso, address
):
    contoso.create_queue("first")
    contoso.create_topic("first-news")
    contoso.create_subscription("first-news", "all")
    found = peers.found_by_node(
        HERE / "javascript_first_client.js",
        address,
        "first",
        "first-news",
        packages=[peers.first_service_bus_directory()],
        NODE_EXTRA_CA_CERTS=str(on_5671.ca_file),
    )
    assert found == {
        "received": "one",
        "dead": ["published", "because"],
        "path": "first-news/Subscriptions/all/$DeadLetterQueue/Subscriptions/all",
    }


@pytest.mark.client("java")
@pytest.mark.spec("X-1", "X-20", "X-21", "X-22")
def test_the_java_sdk_of_track_1_connects_and_distinguishes_topics_from_queues(
    on_5671, contoso, address, tmp_path
):
    contoso.create_queue("track-one")
    contoso.create_topic("track-one-news")
    contoso.create_queue("track-one-sessions", requires_session=True)
    printed = peers.run_java(
        HERE / "JavaTrackOne.java",
        address,
        "track-one",
        "track-one-news",
        "track-one-sessions",
        within=100,
        classpath=peers.track_one_classpath,
        options=peers.java_trust(on_5671.ca_file, tmp_path),
    )
    assert dict(line.split("\t") for line in printed.splitlines()) == {
        "received": "one",
        "deferred": "one 2",  # this SDK counts from 1
        "peeked": "null",
        "sessions": "a b",
        "queue client on a topic": "UnsupportedOperationException",
    }


@pytest.mark.client("java")
@pytest.mark.spec("X-25")
def test_the_jms_library_creates_the_entities_it_names_on_premium(tmp_path):
    with Broker({"contoso": 5671}, host=PREMIUM_HOST, tier="Premium") as broker:
        contoso = broker.namespace("contoso")
        printed = peers.run_java(
            HERE / "JavaMessageService.java",
            without_port(contoso, PREMIUM_HOST),
            within=100,
            classpath=peers.message_service_classpath,
            options=peers.java_trust(broker.ca_file, tmp_path),
        )
        assert dict(line.split("\t") for line in printed.splitlines()) == {
            "named queue": "one",
            "named topic": "published",
            "temporary queue": "reply",
            "deleted": "true",
            "temporary topic": "passing news",
            "browsed": "[a, b] then a",
            "shared": "task null",
            "shared durable": "kept for all",
            "durable": "kept",
            "unsubscribed twice": "InvalidDestinationRuntimeException",
        }
        assert contoso.counts("jms-named").total == 0
        assert contoso.subscription_names("jms-news") == contoso.subscription_names("jms-kept") == []
