"""qpid-proton controls transactions: what it sends and accepts in one happens at its commit, or never."""

from __future__ import annotations

import pytest

from sbpair.broker import Broker
from tests.peers import needs_proton

needs_proton()

from proton import Message  # noqa: E402
from proton.handlers import MessagingHandler, TransactionHandler  # noqa: E402
from proton.reactor import Container  # noqa: E402

pytestmark = [pytest.mark.interop, pytest.mark.client("proton"), pytest.mark.does("transactions")]


TRANSACTIONAL_STATE = 0x34


class Work(MessagingHandler, TransactionHandler):
    """Receives the one message there is, accepts it and sends two in a transaction, and ends that."""

    def __init__(self, port, *, to, commits):
        super().__init__(prefetch=0, auto_accept=False)
        self.url, self.to, self.commits = f"amqp://127.0.0.1:{port}", to, commits
        self.happened = []
        self.unsent = 0

    def on_start(self, event):
        self.container = event.container
        event.container.schedule(20, self)  # on_timer_task: give up
        self.connection = event.container.connect(self.url, reconnect=False, allowed_mechs="ANONYMOUS")
        event.container.declare_transaction(self.connection, handler=self)

    def on_timer_task(self, event):
        self.happened.append("it took too long")
        self.connection.close()

    def on_transaction_declared(self, event):
        self.transaction = event.transaction
        self.receiver = self.container.create_receiver(self.connection, "orders", handler=self)
        self.receiver.flow(1)

    def on_message(self, event):
        self.happened.append(event.message.body)
        self.transaction.accept(event.delivery)
        self.sender = self.container.create_sender(self.connection, self.to, handler=self)
        self.unsent = 2

    def on_sendable(self, event):
        while self.unsent and event.sender == self.sender:
            self.unsent -= 1
            self.transaction.send(event.sender, Message(body=f"sent {self.unsent}"))

    def on_settled(self, event):
        if event.delivery.link.is_sender and event.delivery.remote_state == TRANSACTIONAL_STATE:
            self.happened.append("noted")
            if self.happened.count("noted") == 2:
                self.transaction.commit() if self.commits else self.transaction.abort()

    def on_transaction_committed(self, event):
        self.happened.append("committed")
        self.connection.close()

    def on_transaction_aborted(self, event):
        self.happened.append("aborted")
        self.connection.close()

    def on_transaction_commit_failed(self, event):
        self.happened.append("commit failed")
        self.connection.close()

    def on_connection_closed(self, event):
        event.container.stop()


@pytest.fixture
def contoso():
    with Broker({"contoso": 0}, open_access=True) as running:
        control = running.namespace("contoso")
        control.create_queue("orders")
        control.create_queue("bills")
        yield control


def send_one(port):
    from proton.utils import BlockingConnection

    connection = BlockingConnection(f"amqp://127.0.0.1:{port}", timeout=10)
    connection.create_sender("orders").send(Message(body="there"))
    connection.close()


@pytest.mark.filterwarnings("ignore:unclosed <socket:ResourceWarning")
@pytest.mark.parametrize(
    ("commits", "to", "ended", "orders", "bills"),
    [
        (True, "orders", "committed", 2, 0),
        (False, "orders", "aborted", 1, 0),
        (True, "bills", "committed", 0, 2),  # via orders, the first entity of the controller's session
    ],
)
def test_proton_commits_and_rolls_back_a_transaction(contoso, commits, to, ended, orders, bills):
    send_one(contoso.port)
    work = Work(contoso.port, to=to, commits=commits)
    Container(work).run()

    assert work.happened == ["there", "noted", "noted", ended]
    assert (contoso.counts("orders").active, contoso.counts("bills").active) == (orders, bills)
