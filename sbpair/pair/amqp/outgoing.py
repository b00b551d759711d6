"""Outgoing transfers of a session: split to the peer's max-frame-size, paced by its incoming-window (2.5.6, 2.6.14)."""

from __future__ import annotations

from collections import deque
from typing import TYPE_CHECKING

from .composite import encode_composite
from .endpoint import MASK, distance
from .errors import INVALID_FIELD, LocalProtocolError, PeerSessionError
from .fast_path import transfer_tail, write_transfer
from .frames import frame
from .performatives import DeliveryState, Flow, Transfer

if TYPE_CHECKING:
    from .connection import Connection
    from .link import Link, SenderLink


class OutgoingTransfers:
    """Splits messages into frames, and queues frames beyond the peer's incoming-window."""

    def __init__(self, connection: Connection, channel: int, first_id: int) -> None:
        self._connection = connection
        self._channel = channel
        self._initial_id = first_id
        self.next_id = first_id
        self._tail = transfer_tail(0, False, False)  # of the last message: most have the same
        self._tail_format, self._tail_settled = 0, False
        self.window = 0  # frames the peer still accepts
        self.queue: deque[tuple[SenderLink, bytes, bytes | memoryview]] = deque()

    def transfer(
        self,
        link: SenderLink,
        delivery_id: int,
        tag: bytes,
        payload: bytes,
        settled: bool,
        message_format: int,
        state: DeliveryState | None,
    ) -> None:
        """Send one message, in as many frames as needed. Raises LocalProtocolError for too long a state."""
        size = len(payload)
        limit = self._connection.remote_max_frame_size
        if state is None:
            if message_format != self._tail_format or settled is not self._tail_settled:
                self._tail = transfer_tail(message_format, settled, False)
                self._tail_format, self._tail_settled = message_format, settled
            head = write_transfer(self._channel, link.encoded_handle, delivery_id, tag, self._tail, size)
            if len(head) + size <= limit:
                self._write(link, head, payload)
                return
        at, more, view = 0, True, memoryview(payload)
        while more:
            # sized with `more` set: the head is not longer without it
            head = self._head(link, delivery_id, tag, settled, message_format, state, True, 0)
            room = limit - len(head)
            if room < 1:
                raise LocalProtocolError(f"a frame of {limit} bytes is too small for this delivery-state")
            piece = view[at : at + room]
            at += room
            more = at < size
            head = self._head(link, delivery_id, tag, settled, message_format, state, more, len(piece))
            self._write(link, head, piece)

    def _head(
        self,
        link: SenderLink,
        delivery_id: int,
        tag: bytes,
        settled: bool,
        message_format: int,
        state: DeliveryState | None,
        more: bool,
        size: int,
    ) -> bytes:
        if state is None:
            tail = transfer_tail(message_format, settled, more)
            return write_transfer(self._channel, link.encoded_handle, delivery_id, tag, tail, size)
        body = encode_composite(
            Transfer(link.handle, delivery_id, tag, message_format, settled, more, None, state)
        )
        return frame(self._channel, body, size)

    def _write(self, link: SenderLink, head: bytes, payload: bytes | memoryview) -> None:
        if self.window > 0 and not self.queue:
            self.window -= 1
            self.next_id = (self.next_id + 1) & MASK
            self._connection.write(head)
            self._connection.write(payload)
        else:
            self.queue.append((link, head, payload))

    def receive_flow(self, flow: Flow) -> None:
        """Update the peer's window and send queued frames. Raises PeerSessionError."""
        seen = self._initial_id if flow.next_incoming_id is None else flow.next_incoming_id
        in_flight = distance(seen, self.next_id)
        if in_flight < 0:
            raise PeerSessionError(INVALID_FIELD, f"next-incoming-id {seen} is beyond what was sent")
        self.open_window(max(0, flow.incoming_window - in_flight))

    def open_window(self, window: int) -> None:
        """Set the peer's window to ``window`` frames and send queued frames."""
        self.window = window
        waiting, self.queue = self.queue, deque()
        while waiting and self.window > 0:
            self._write(*waiting.popleft())
        self.queue = waiting

    def drop(self, link: Link) -> None:
        """Drop the queued frames of a detached link."""
        if self.queue:
            self.queue = deque(entry for entry in self.queue if entry[0] is not link)
