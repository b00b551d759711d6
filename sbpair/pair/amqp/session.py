"""Sessions: an ordered exchange with a flow-control window in each direction (2.5).

Outgoing transfers are split to the peer's max-frame-size, and wait while its window is used up (2.5.6, 2.6.14). Each
incoming transfer frame reduces our window by one, and a flow restores it once half is used. Dispositions are queued
until other output is due, so that consecutive ones become one range.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from typing import TYPE_CHECKING, Final

from .composite import encode_composite
from .encoding import frame
from .endpoint import CLOSED, MASK, OPEN, UNOPENED, Endpoint, distance, ids
from .errors import (
    FRAMING_ERROR,
    HANDLE_IN_USE,
    INVALID_FIELD,
    NOT_ALLOWED,
    RESOURCE_LIMIT_EXCEEDED,
    STOLEN,
    UNATTACHED_HANDLE,
    WINDOW_VIOLATION,
    LocalProtocolError,
    PeerConnectionError,
    PeerLinkError,
    PeerSessionError,
)
from .events import DispositionReceived, Event, LinkAttached, SessionBegun, SessionEnded
from .fast_path import Chunk, DispositionTail, transfer_tail, write_disposition, write_transfer
from .handshake import ConnectionRole
from .link import Link, ReceiverLink, SenderLink
from .performatives import (
    RECEIVER,
    SENDER,
    AmqpMap,
    Attach,
    Begin,
    Condition,
    Coordinator,
    DeliveryState,
    Detach,
    Disposition,
    End,
    Flow,
    Performative,
    Source,
    Target,
    Transfer,
)

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


_make: Final = tuple.__new__  # bypasses the constructor of the named tuple, which doubles the cost
LINK_WEIGHT: Final = 2048  # bytes of memory, name and terminus not counted


@dataclass(slots=True)
class _QueuedDisposition:
    """A disposition that later ones may extend."""

    role: bool
    first: int
    last: int
    settled: bool
    state: DeliveryState | None


class Session(Endpoint):
    """One session, created by `Connection.begin` or by the peer's begin."""

    def __init__(self, connection: Connection, channel: int, first_delivery_id: int) -> None:
        super().__init__()
        self.connection = connection
        self.report: Callable[[Event], None] = connection.report
        self.channel = channel
        self.remote_channel: int | None = None
        self.links: dict[tuple[str, bool], Link] = {}
        """By name and our role, SENDER or RECEIVER: a name may be used in both directions (2.6.1)."""
        self.next_delivery_id = first_delivery_id
        self.outgoing: dict[int, SenderLink] = {}
        self.incoming: dict[int, ReceiverLink] = {}
        self.out = OutgoingTransfers(connection, channel, connection.first_transfer_id)
        self.weight = 0
        """Bytes counted for the peer's begin."""
        self._next_incoming_id = 0
        self._transfers_seen = 0  # transfers of both directions at the last disposition of a range
        self._window = connection.limits.incoming_window
        self.restores_window = True
        """Whether a flow restores our window once half is used; else :meth:`flow` does."""
        self._half_window = self._window // 2
        self._outgoing_window = connection.limits.outgoing_window or self._window
        self._reader = connection.reader
        self._ours: dict[int, Link] = {}  # by our handle
        self._theirs: dict[int, Link] = {}  # by the peer's handle
        self._remote_handle_max = MASK
        self._ack: _QueuedDisposition | None = None

    @property
    def pending(self) -> int:
        """The number of transfer frames that wait for the peer's incoming-window."""
        return len(self.out.queue)

    # For the application

    def attach_sender(
        self,
        name: str,
        *,
        target: Target | Coordinator,
        source: Source | None = None,
        snd_settle_mode: int = 2,
        rcv_settle_mode: int = 0,
        properties: AmqpMap | None = None,
        max_message_size: int | None = None,
        initial_delivery_count: int = 0,
        desired_capabilities: tuple[str, ...] | None = None,
    ) -> SenderLink:
        """Attach a link that sends to `target` (2.6.3).

        Raises LocalProtocolError when the session has ended, the name is in use, or the peer allows no further handle;
        EncodeError for an argument that cannot be encoded. After either, the name is still free.
        """
        link = SenderLink(self, name, self._free_handle(LocalProtocolError))
        with self._adding(link):
            link.attach(
                source=source or Source(),
                target=target,
                properties=properties,
                max_message_size=max_message_size,
                initial_delivery_count=initial_delivery_count,
                snd_settle_mode=snd_settle_mode,
                rcv_settle_mode=rcv_settle_mode,
                desired_capabilities=desired_capabilities,
            )
        return link

    def attach_receiver(
        self,
        name: str,
        *,
        source: Source,
        target: Target | None = None,
        snd_settle_mode: int = 2,
        rcv_settle_mode: int = 0,
        properties: AmqpMap | None = None,
        max_message_size: int | None = None,
        desired_capabilities: tuple[str, ...] | None = None,
    ) -> ReceiverLink:
        """Attach a link that receives from `source` (2.6.3). Raises as :meth:`attach_sender`."""
        link = ReceiverLink(self, name, self._free_handle(LocalProtocolError))
        with self._adding(link):
            link.attach(
                source=source,
                target=target or Target(),
                properties=properties,
                max_message_size=max_message_size,
                snd_settle_mode=snd_settle_mode,
                rcv_settle_mode=rcv_settle_mode,
                desired_capabilities=desired_capabilities,
            )
        return link

    def end(self, condition: Condition | None = None) -> None:
        """End our half; idempotent. SessionEnded follows once the peer has ended its half."""
        if self.local is OPEN:
            self.send(End(condition))
        self.local = CLOSED
        self.out.queue.clear()
        self.drop_credit()

    def drop_credit(self) -> None:
        """Set the credit of all links to 0, so that nothing more is sent, even if the same chunk granted credit.

        Partial deliveries are dropped: the peer will not finish them.
        """
        for link in self._ours.values():
            link.credit = 0
            if isinstance(link, ReceiverLink):
                link.drop_partial()

    # Output

    def begin(self) -> None:
        connection = self.connection
        self.local = OPEN
        self.send(
            Begin(
                self.remote_channel,
                self.out.next_id,
                self._window,
                self._outgoing_window,
                connection.handle_max,
            )
        )

    def send(self, performative: Performative) -> None:
        self.flush_acks()
        if self.local is OPEN:
            self.connection.send(self.channel, performative)

    def forget_deliveries(self, link: Link) -> None:
        table: dict[int, SenderLink] | dict[int, ReceiverLink]
        table = self.outgoing if link.role is SENDER else self.incoming
        for number in link.unsettled:
            table.pop(number, None)
        link.unsettled.clear()

    def flow(self, link: Link | None, credit: int = 0, *, drain: bool = False, echo: bool = False) -> None:
        """Send a flow with our incoming-window, reset to its full size, and the credit of `link` (2.5.6, 2.6.7)."""
        self._window = self.connection.limits.incoming_window
        flow = Flow(
            None if self.remote is UNOPENED else self._next_incoming_id,
            self._window,
            self.out.next_id,
            self._outgoing_window,
            echo=echo,
        )
        if link is not None:
            flow.handle = link.handle
            flow.delivery_count = link.delivery_count
            flow.link_credit = credit
            flow.drain = drain
            if link.role is SENDER:
                flow.available = 0
        self.send(flow)

    def dispose(self, role: bool, first: int, last: int, settled: bool, state: DeliveryState | None) -> None:
        """Queue a disposition; if it continues the queued one, the two are merged."""
        ack = self._ack
        if ack is None:
            self.connection.queue_acks(self)
        elif (
            ack.last + 1 == first
            and ack.role is role
            and ack.settled is settled
            and (ack.state is state or ack.state == state)
        ):
            ack.last = last
            return
        else:
            self.flush_acks()
        self._ack = _QueuedDisposition(role, first, last, settled, state)

    def flush_acks(self) -> None:
        ack = self._ack
        self._ack = None
        if ack is None or self.local is not OPEN:
            return
        usual = None
        if ack.state is not None:
            usual = write_disposition(self.channel, ack.role, ack.first, ack.last, ack.settled, ack.state)
        if usual is not None:
            self.connection.write(usual)
        else:
            self.connection.send(
                self.channel, Disposition(ack.role, ack.first, ack.last, ack.settled, ack.state)
            )

    # Input

    def receive_begin(self, begin: Begin) -> None:
        self.remote = OPEN
        self._next_incoming_id = begin.next_outgoing_id
        self._transfers_seen = self.next_delivery_id + self._next_incoming_id
        self._remote_handle_max = begin.handle_max
        if self.connection.limits.outgoing_window is None:
            self._outgoing_window = begin.incoming_window
        if self.local is UNOPENED:
            self.begin()
        self.out.open_window(begin.incoming_window)
        self.report(SessionBegun(self))

    def receive(self, performative: object, weight: int) -> None:
        """Process a performative other than transfer and disposition; `weight` is its memory in bytes.

        Raises PeerSessionError, PeerConnectionError.
        """
        if isinstance(performative, End):
            self.receive_end(performative)
        elif self.local is CLOSED:
            return  # sent before the peer received our end
        elif isinstance(performative, Flow):
            self._receive_flow(performative)
        elif isinstance(performative, Attach):
            self._receive_attach(performative, LINK_WEIGHT + weight)
        elif isinstance(performative, Detach):
            self._receive_detach(performative)
        else:
            raise PeerConnectionError(NOT_ALLOWED, f"{type(performative).__name__} on a session")

    def receive_transfer(self, data: bytes, at: int, end: int, rest: Sequence[Chunk] = ()) -> None:
        """Process a transfer frame with its descriptor at `at`; `rest` continues the payload after `data`.

        Raises DecodeError, PeerSessionError, PeerConnectionError.
        """
        if self.local is CLOSED:
            return
        handle, delivery_id, tag, tail, payload_at = self._reader.transfer(data, at, end)
        self._window -= 1
        if self._window < 0:
            raise PeerSessionError(WINDOW_VIOLATION, "a transfer beyond our incoming-window")
        self._next_incoming_id = (self._next_incoming_id + 1) & MASK
        link = self._theirs.get(handle)
        if link is None:
            raise PeerSessionError(UNATTACHED_HANDLE, f"a transfer on handle {handle}")
        if link.local is not CLOSED:
            if not isinstance(link, ReceiverLink):
                raise PeerSessionError(NOT_ALLOWED, f"a transfer on handle {handle}, which it receives on")
            try:
                payload = b"".join((memoryview(data)[payload_at:], *rest)) if rest else data[payload_at:end]
                link.receive_transfer(delivery_id, tag, tail, payload)
            except PeerLinkError as fault:
                link.fault(Condition(fault.symbol, fault.description))
        if self._window <= self._half_window and self.restores_window:
            self.flow(None)

    def receive_disposition(self, role: bool, first: int, last: int, tail: DispositionTail) -> None:
        """Report a disposition as runs of consecutive deliveries of one link (2.6.12). Raises PeerSessionError."""
        if self.local is CLOSED:
            return
        table: dict[int, SenderLink] | dict[int, ReceiverLink]
        table = self.outgoing if role is RECEIVER else self.incoming
        if first == last:
            link = table.get(first)
            if link is not None:
                if tail.settled:
                    del table[first]
                    link.unsettled.pop(first, None)
                self.report(_make(DispositionReceived, (link, first, last, tail.state, tail.settled)))
            return
        numbers = self._deliveries_in_range(table, first, last, tail.settled)
        if not numbers:
            return
        begin, link = 0, table[numbers[0]]
        for index in range(1, len(numbers)):
            number = numbers[index]
            if number != (numbers[index - 1] + 1) & MASK or table[number] is not link:
                self._report_run(table, link, numbers[begin:index], tail)
                begin, link = index, table[number]
        self._report_run(table, link, numbers[begin:] if begin else numbers, tail)

    def _deliveries_in_range(
        self,
        table: dict[int, SenderLink] | dict[int, ReceiverLink],
        first: int,
        last: int,
        settled: bool,
    ) -> list[int]:
        """Return the deliveries of `table` in a range.

        Raises PeerSessionError for an invalid range, and when the disposition budget is exhausted.
        """
        span = distance(first, last)
        if span < 0:
            raise PeerSessionError(INVALID_FIELD, f"a disposition of {first} to {last}")
        if span < len(table):
            examined = span + 1
            numbers = [number & MASK for number in ids(first, last) if number & MASK in table]
        else:  # the range is wider than the table: search the table
            examined = len(table)
            known = (distance(first, number) for number in table)
            numbers = [(first + ahead) & MASK for ahead in sorted(known) if 0 <= ahead <= span]
        self._spend_disposition_budget(examined - len(numbers) if settled else examined)
        return numbers

    def _spend_disposition_budget(self, spent: int) -> None:
        limits, connection = self.connection.limits, self.connection
        transfers = self.next_delivery_id + self._next_incoming_id
        fresh = (transfers - self._transfers_seen) & MASK
        self._transfers_seen = transfers
        disposition_budget = min(
            limits.disposition_budget,
            connection.disposition_budget + limits.disposition_budget_per_transfer * fresh,
        )
        connection.disposition_budget = disposition_budget - spent
        if connection.disposition_budget < 0:
            raise PeerSessionError(RESOURCE_LIMIT_EXCEEDED, "too many dispositions that settle nothing")

    def _report_run(
        self,
        table: dict[int, SenderLink] | dict[int, ReceiverLink],
        link: SenderLink | ReceiverLink,
        run: list[int],
        tail: DispositionTail,
    ) -> None:
        if tail.settled:
            unsettled = link.unsettled
            for number in run:
                del table[number]
                unsettled.pop(number, None)
        self.report(DispositionReceived(link, run[0], run[-1], tail.state, tail.settled))

    def _receive_flow(self, flow: Flow) -> None:
        self.out.receive_flow(flow)
        if flow.handle is None:
            if flow.echo:
                self.flow(None)
            return
        link = self._theirs.get(flow.handle)
        if link is None:
            raise PeerSessionError(UNATTACHED_HANDLE, f"a flow on handle {flow.handle}")
        if link.local is not CLOSED:
            link.receive_flow(flow)

    def _receive_attach(self, attach: Attach, weight: int) -> None:
        self._check_handle(attach.handle)
        if attach.handle in self._theirs:
            raise PeerSessionError(HANDLE_IN_USE, f"handle {attach.handle} is attached")
        key = (attach.name, not attach.role)
        link = self.links.get(key)
        if link is not None and link.remote is not UNOPENED:
            if link.local is not CLOSED:
                link.fault(Condition(STOLEN, "another link of this name was attached"))
            link = None
        if link is None:
            self.connection.count_links(1)
            cls = ReceiverLink if attach.role is SENDER else SenderLink
            link = cls(self, attach.name, self._free_handle())
            self._ours[link.handle] = link
            self.links[key] = link
        self._theirs[attach.handle] = link
        link.charge(weight)
        link.receive_attach(attach)
        self.report(LinkAttached(link, attach))

    def _check_handle(self, handle: int) -> None:
        """Raise if the peer has no handle left for a link: PeerConnectionError (2.7.2); on a server PeerSessionError.

        A server ends only the session, with the error text of Service Bus, and allows one link less than there are
        handles.
        """
        most = self.connection.handle_max
        if self.connection.role is ConnectionRole.CLIENT:
            if handle > most:
                raise PeerConnectionError(FRAMING_ERROR, f"handle {handle} is above {most}")
        elif handle > most or len(self._theirs) >= most:
            raise PeerSessionError(
                RESOURCE_LIMIT_EXCEEDED,
                "Cannot allocate more handles to the current session or connection. The maximum number of handles "
                f"allowed is {most}. Please free up resources and try again.",
            )

    def _receive_detach(self, detach: Detach) -> None:
        link = self._theirs.pop(detach.handle, None)
        if link is None:
            raise PeerSessionError(UNATTACHED_HANDLE, f"a detach of handle {detach.handle}")
        link.receive_detach(detach)
        self._ours.pop(link.handle, None)
        if self.links.get((link.name, link.role)) is link:
            del self.links[link.name, link.role]
        self.connection.count_links(-1)
        link.charge(-link.held_bytes)

    def receive_end(self, end: End) -> None:
        is_reported = self.remote is CLOSED
        self.remote = CLOSED
        self.end()
        self.connection.forget_session(self)
        self.connection.count_links(-len(self._ours))
        for link in self._ours.values():
            link.charge(-link.held_bytes)
        if not is_reported:
            self.report(SessionEnded(self, end.error))

    def fault(self, condition: Condition) -> None:
        """End the session because the peer broke a rule: emit SessionEnded now, and await the peer's end."""
        self.end(condition)
        self.remote = CLOSED
        self.report(SessionEnded(self, condition))

    # Handles

    @contextmanager
    def _adding(self, link: Link) -> Iterator[None]:
        """Register a link of our own; if attaching it raises, remove it again. Raises LocalProtocolError."""
        if self.local is not OPEN:
            raise LocalProtocolError("the session has ended")
        key = link.name, link.role
        if key in self.links:
            raise LocalProtocolError(f"there is already a link named {link.name!r} in this direction")
        self.connection.count_links(1, ours=True)
        self.links[key] = self._ours[link.handle] = link
        try:
            yield
        except BaseException:
            del self.links[key], self._ours[link.handle]
            self.connection.count_links(-1)
            raise

    def _free_handle(self, failure: type[LocalProtocolError] | None = None) -> int:
        handle = len(self._ours)
        if handle in self._ours:
            handle = next(free for free in range(handle) if free not in self._ours)
        # one less than a handle-max allows: Service Bus ends a session with more
        is_beyond = handle >= self._remote_handle_max > 0 or handle > self._remote_handle_max
        if is_beyond:
            text = f"the peer allows handles up to {self._remote_handle_max}"
            raise failure(text) if failure else PeerSessionError(RESOURCE_LIMIT_EXCEEDED, text)
        return handle
