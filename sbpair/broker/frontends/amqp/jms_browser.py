"""Queue browsers of JMS: receivers that see each message once and remove none."""

from __future__ import annotations

from sbpair.pair.amqp.events import CreditGranted, DispositionReceived
from sbpair.pair.amqp.link import SenderLink
from sbpair.pair.amqp.performatives import Attach, Source

from ...clock import ClockReading
from ...entities.queue import Queue
from ...entities.queue_context import SLICE_BYTES
from ...entities.stored_message import MessageState
from ..delivered_message import encode_peeked
from .node import ConnectionContext
from .queue_receiver import QueueReceiver

COPY = "copy"  # a distribution mode, 3.5.3
PAGE = 100  # messages looked at in one step


def is_browser(attach: Attach) -> bool:
    """Whether the attach of a receiver requests copies."""
    return isinstance(attach.source, Source) and attach.source.distribution_mode == COPY


class QueueBrowser(QueueReceiver):
    """Sends copies of the active messages of a queue, in order, within the client's credit."""

    def __init__(self, connection: ConnectionContext, link: SenderLink, queue: Queue) -> None:
        super().__init__(connection, link, queue, deletes=False)
        self._next = 1
        self._sent = 0
        self._is_draining = False

    def credit_granted(self, event: CreditGranted, now: ClockReading) -> None:
        """Send the available messages; later messages are sent with the next credit."""
        self._is_draining = event.drain
        self._send(now)

    def unclogged(self, now: ClockReading) -> None:
        """Go on: the client reads again, or the window of its session has opened."""
        self._send(now)

    def disposition_received(self, event: DispositionReceived, now: ClockReading) -> None:
        """Do nothing: copies are settled."""

    def updated(self, now: ClockReading) -> None:
        """Do nothing: a browser holds no message."""

    def detached(self, now: ClockReading) -> None:
        """Do nothing: a browser does not wait in line for messages."""

    def _send(self, now: ClockReading) -> None:
        link, written = self.link, 0
        while (
            link.credit > 0 and link.is_open and not self.connection.is_clogged and not link.session.pending
        ):
            page = self.queue.peek(self._next, min(link.credit, PAGE), now.entity)
            if not page:
                break
            for message in page:
                self._next = message.sequence_number + 1
                if message.state is MessageState.ACTIVE and not message.is_deferred:
                    payload = encode_peeked(message)
                    written += len(payload)
                    self._sent += 1
                    link.transfer(payload, tag=self._sent.to_bytes(8, "big"), settled=True)
            if written > SLICE_BYTES:  # the socket is asked first whether the client reads
                self.connection.later(0.0, lambda: self._send(now), now)
                return
        if link.session.pending:
            self.connection.links.hold_back(self)
        elif self._is_draining and link.is_open and not self.connection.is_clogged:
            self._is_draining = False
            link.drained()
