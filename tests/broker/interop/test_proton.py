"""qpid-proton, which knows AMQP and not Service Bus: what the SDKs do is done by hand here."""

from __future__ import annotations

import itertools
import time
from collections.abc import Iterator
from urllib.parse import quote

import pytest

from tests.peers import needs_proton

needs_proton()

from proton import Message, SSLDomain  # noqa: E402
from proton.reactor import AtMostOnce  # noqa: E402
from proton.utils import BlockingConnection, LinkDetached  # noqa: E402

from tests.broker.interop.proton_client import SESSION, Management, modify, of_session  # noqa: E402

pytestmark = [
    pytest.mark.interop,
    pytest.mark.client("proton"),
    pytest.mark.filterwarnings("ignore:unclosed <socket:ResourceWarning"),
]
HOUR = 3_600_000  # milliseconds
_NUMBERS = itertools.count()


@pytest.fixture
def connection(open_contoso) -> Iterator[BlockingConnection]:
    opened = BlockingConnection(f"amqp://127.0.0.1:{open_contoso.port}", timeout=10)
    yield opened
    opened.close()


@pytest.fixture
def orders(open_contoso) -> str:
    path = f"proton-{next(_NUMBERS)}"
    open_contoso.create_queue(path)
    return path


def wait_until(connection, holds, seconds=10):
    """A condition of the broker's doing, while proton writes what it has to say."""
    until = time.monotonic() + seconds
    connection.container.timeout = 0.02
    while not holds():
        assert time.monotonic() < until, "it did not come true"
        connection.container.process()


def send(connection, queue, *bodies, **fields):
    sender = connection.create_sender(queue)
    for body in bodies:
        sender.send(Message(body=body, **fields))
    sender.close()


@pytest.mark.does("tcp", "send", "receive", "complete", "dead-letter")
def test_proton_sends_receives_and_settles(open_contoso, connection, orders):
    sender = connection.create_sender(orders)
    for i in range(4):
        sender.send(Message(body=f"m{i}", id=f"id{i}", properties={"n": i}))
    receiver = connection.create_receiver(orders, credit=1)
    first = receiver.receive(10)
    assert (first.body, first.id, first.properties["n"], first.delivery_count) == ("m0", "id0", 0, 0)
    assert first.annotations["x-opt-sequence-number"] == 1
    receiver.accept()
    receiver.receive(10)
    receiver.release(delivered=False)
    again = receiver.receive(10)
    assert (again.body, again.delivery_count) == ("m1", 0)
    receiver.accept()
    receiver.receive(10)
    receiver.reject()
    receiver.receive(10)
    receiver.accept()
    wait_until(connection, lambda: open_contoso.counts(orders).active == 0)
    graves = connection.create_receiver(f"{orders}/$DeadLetterQueue")
    assert graves.receive(10).body == "m2"
    graves.accept()
    wait_until(connection, lambda: open_contoso.counts(orders).dead_letter == 0)


@pytest.mark.does("abandon")
def test_a_failed_message_is_redelivered_with_a_higher_delivery_count(connection, orders):
    send(connection, orders, "a")
    receiver = connection.create_receiver(orders)
    receiver.receive(10)
    modify(receiver, failed=True)
    again = receiver.receive(10)
    assert (again.body, again.delivery_count) == ("a", 1)
    receiver.accept()


@pytest.mark.does("receive-and-delete")
def test_a_message_sent_presettled_is_stored(open_contoso, connection, orders):
    send(connection, orders, "a")
    receiver = connection.create_receiver(orders, options=AtMostOnce())
    assert receiver.receive(10).body == "a"
    assert open_contoso.counts(orders).total == 0


@pytest.mark.does("defer", "renew")
def test_a_deferred_message_is_received_by_number_and_its_lock_renewed(open_contoso, connection, orders):
    send(connection, orders, "a")
    receiver = connection.create_receiver(orders)
    number = receiver.receive(10).annotations["x-opt-sequence-number"]
    modify(receiver, undeliverable=True)
    wait_until(connection, lambda: open_contoso.counts(orders).deferred == 1)
    management = Management(connection, orders)
    aside, token = management.receive_deferred(number)
    assert aside.body == "a"
    assert management.renew(token) > time.time() * 1000
    management.complete(token)
    assert open_contoso.counts(orders).total == 0


@pytest.mark.does("peek", "schedule", "cancel")
def test_proton_schedules_cancels_and_peeks(open_contoso, connection, orders):
    management = Management(connection, orders)
    later = int(time.time() * 1000) + 365 * 24 * HOUR
    first, second = (management.schedule(Message(body=body, id=body), later) for body in "ab")
    assert (first, second) == (1, 2)
    management.cancel(first)
    (scheduled,) = management.peek()
    assert (scheduled.body, scheduled.annotations["x-opt-message-state"]) == ("b", 2)
    assert open_contoso.counts(orders).scheduled == 1


@pytest.mark.does("sessions")
def test_proton_accepts_a_named_session_and_the_next_available_one(open_contoso, connection):
    path = f"proton-{next(_NUMBERS)}"
    open_contoso.create_queue(path, requires_session=True)
    for session, body in (("a", "a1"), ("b", "b1"), ("a", "a2")):
        send(connection, path, body, group_id=session)
    named = connection.create_receiver(path, name="named", options=of_session("a"))
    bodies = []
    for _ in range(2):
        bodies.append(named.receive(10).body)
        named.accept()
    assert bodies == ["a1", "a2"]
    following = connection.create_receiver(path, name="next", options=of_session(None))
    granted = following.link.remote_source.filter
    granted.rewind()
    granted.next()
    assert granted.get_dict()[SESSION] == "b"
    management = Management(connection, path)
    management.ask("set-session-state", session_id="a", session_state=b"noted")
    assert management.ask("get-session-state", session_id="a")["session-state"] == b"noted"
    assert management.ask("renew-session-lock", session_id="a")["expiration"] > time.time() * 1000
    with pytest.raises(LinkDetached, match="session-cannot-be-locked"):
        connection.create_receiver(path, name="other", options=of_session("b"))


@pytest.mark.does("topics", "rules")
def test_proton_publishes_by_the_rules_it_created(open_contoso, connection):
    topic = f"proton-{next(_NUMBERS)}"
    open_contoso.create_topic(topic)
    open_contoso.create_subscription(topic, "dear")
    management = Management(connection, f"{topic}/Subscriptions/dear")
    management.ask("remove-rule", rule_name="$Default")
    described = {"sql-filter": {"expression": "price > 10"}}
    management.ask("add-rule", rule_name="dear", rule_description=described)
    (rule,) = management.ask("enumerate-rules")["rules"]
    assert rule["rule-description"].value[2] == "dear"
    for price in (10, 11):
        send(connection, topic, f"at {price}", properties={"price": price})
    receiver = connection.create_receiver(f"{topic}/Subscriptions/dear")
    assert receiver.receive(10).body == "at 11"
    receiver.accept()


@pytest.mark.does("tls")
def test_proton_connects_over_tls_with_the_given_authority(broker, contoso, queue):
    key = contoso.connection_string.split("SharedAccessKey=")[1].split(";")[0]
    domain = SSLDomain(SSLDomain.MODE_CLIENT)
    domain.set_trusted_ca_db(str(broker.ca_file))
    domain.set_peer_authentication(SSLDomain.VERIFY_PEER_NAME)
    url = f"amqps://RootManageSharedAccessKey:{quote(key, safe='')}@localhost:{contoso.port}"
    connection = BlockingConnection(url, timeout=10, ssl_domain=domain, allowed_mechs="PLAIN")
    send(connection, queue, "x")
    connection.close()
    assert contoso.counts(queue).active == 1
