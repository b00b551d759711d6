"""Clients that are not the SDK: qpid-proton, and rhea, on which the JavaScript SDK stands."""

from __future__ import annotations

import json
import time
from pathlib import Path
from urllib.parse import quote

import pytest

from tests.peers import needs_proton, run_node

needs_proton()

from proton import Message  # noqa: E402
from proton.utils import BlockingConnection, LinkDetached  # noqa: E402

pytestmark = pytest.mark.interop


@pytest.fixture
def contoso_open(open_contoso):
    open_contoso.create_queue("orders")
    yield open_contoso
    open_contoso.delete_queue("orders")


def wait_until(holds, seconds=10):
    """A condition of another thread's doing."""
    until = time.monotonic() + seconds
    while not holds():
        assert time.monotonic() < until, "it did not come true"
        time.sleep(0.01)


@pytest.mark.filterwarnings("ignore:unclosed <socket:ResourceWarning")
@pytest.mark.client("proton")
class TestProton:
    def test_it_sends_receives_and_settles(self, contoso_open):
        connection = BlockingConnection(f"amqp://127.0.0.1:{contoso_open.port}", timeout=10)
        sender = connection.create_sender("orders")
        for i in range(4):
            sender.send(Message(body=f"m{i}", id=f"id{i}", properties={"n": i}))
        receiver = connection.create_receiver("orders", credit=1)
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
        connection.close()

        wait_until(lambda: contoso_open.counts("orders").active == 0)
        assert contoso_open.counts("orders").dead_letter == 1

    def test_it_opens_a_guarded_namespace_with_name_and_key(self, contoso, queue):
        key = contoso.connection_string.split("SharedAccessKey=")[1].split(";")[0]
        url = f"amqp://RootManageSharedAccessKey:{quote(key, safe='')}@127.0.0.1:{contoso.port}"
        connection = BlockingConnection(url, timeout=10, allowed_mechs="PLAIN", allow_insecure_mechs=True)
        connection.create_sender(queue).send(Message(body="x"))
        connection.close()

        assert contoso.counts(queue).active == 1

    def test_without_a_key_it_is_refused(self, contoso, queue):
        connection = BlockingConnection(
            f"amqp://127.0.0.1:{contoso.port}", timeout=10, allowed_mechs="ANONYMOUS"
        )
        with pytest.raises(LinkDetached, match="unauthorized-access"):
            connection.create_sender(queue)
        connection.close()


RHEA = """
const rhea = require("rhea");
const [port] = process.argv.slice(2);
const container = rhea.create_container();
const seen = [];
let incoming;
container.on("connection_open", (context) => {
  context.connection.open_sender("orders");
  incoming = context.connection.open_receiver({ source: "orders", credit_window: 0, autoaccept: false });
});
let sent = 0;
container.on("sendable", (context) => {
  while (sent < 3 && context.sender.sendable()) {
    context.sender.send({ message_id: `id${sent}`, body: `m${sent}`, application_properties: { n: sent } });
    sent++;
  }
});
let accepted = 0;
container.on("accepted", (context) => {
  if (++accepted === 3) incoming.add_credit(1);
});
container.on("message", (context) => {
  const { message, delivery } = context;
  const number = message.message_annotations["x-opt-sequence-number"];
  seen.push([message.body, message.delivery_count || 0, number]);
  if (seen.length === 1) delivery.modified({ delivery_failed: true, undeliverable_here: false });
  else if (seen.length === 2) delivery.reject({ condition: "com.microsoft:dead-letter" });
  else delivery.accept();
  if (seen.length === 4) {
    console.log(JSON.stringify(seen));
    context.connection.close();
  } else incoming.add_credit(1);
});
container.connect({ port: Number(port), host: "127.0.0.1", username: "anonymous", reconnect: false });
"""


@pytest.mark.client("rhea")
def test_rhea_sends_receives_and_settles(contoso_open, tmp_path: Path):
    script = tmp_path / "client.js"
    script.write_text(RHEA)
    with run_node(script, str(contoso_open.port)) as process:
        try:
            out, err = process.communicate(timeout=20)
        finally:
            process.kill()

    assert json.loads(out or err) == [["m0", 0, 1], ["m0", 1, 1], ["m1", 0, 2], ["m2", 0, 3]]
    wait_until(lambda: contoso_open.counts("orders").active == 0)
    assert contoso_open.counts("orders").dead_letter == 1
