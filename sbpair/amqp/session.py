"""Sessions: an ordered conversation with a window in each direction (2.5).

    our transfers:   next_delivery_id counts messages; frames and the peer's window: `outgoing`
    its transfers:   our window shrinks by one a frame and is refreshed when half is gone
    dispositions:    held back until something else must go out, so that a run becomes one range

A session sees performatives and knows links; what it says leaves through the connection.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import TYPE_CHECKING

from .delivery_state import DeliveryState
from .endpoint import CLOSED, OPEN, UNOPENED, Endpoint
from .errors import (
    FRAMING_ERROR,
    HANDLE_IN_USE,
    INVALID_FIELD,
    NOT_ALLOWED,
    RESOURCE_LIMIT_EXCEEDED,
    STOLEN,
    UNATTACHED_HANDLE,
    WINDOW_VIOLATION,
    ConnectionFault,
    LinkFault,
    LinkMisuse,
    SessionFault,
)
from .events import DispositionReceived, Event, LinkAttached, SessionBegun, SessionEnded
from .link import Link, ReceiverLink, SenderLink
from .outgoing import Outgoing
from .performatives import (
    RECEIVER,
    SENDER,
    AmqpMap,
    Attach,
    Begin,
    Condition,
    Coordinator,
    Detach,
    Disposition,
    End,
    Flow,
    Performative,
    Source,
    Target,
)
from .serial import MASK, distance, ids
from .shortcut import DispositionTail, write_disposition

if TYPE_CHECKING:
    from .connection import Connection


class Session(Endpoint):
    """One session; made by `Connection.begin`, or by the peer's begin."""

    def __init__(self, connection: Connection, channel: int, first_delivery_id: int) -> None:
        super().__init__()
        self.connection = connection
        self.report: Callable[[Event], None] = connection.report
        self.channel = channel
        self.remote_channel: int | None = None
        self.links: dict[tuple[str, bool], Link] = {}
        """By name and our role (False sends, True receives): the same name may run both ways (2.6.1)."""
        self.next_delivery_id = first_delivery_id
        self.outgoing: dict[int, SenderLink] = {}
        self.incoming: dict[int, ReceiverLink] = {}
        self.out = Outgoing(connection, channel, first_delivery_id)
        self._next_incoming_id = 0
        self._window = connection.limits.incoming_window
        self._half_window = self._window // 2
        self._read_transfer = connection.reader.transfer
        self._ours: dict[int, Link] = {}  # by our handle
        self._theirs: dict[int, Link] = {}  # by the peer's handle
        self._remote_handle_max = MASK
        self._ack: tuple[bool, int, int, bool, DeliveryState | None] | None = None

    @property
    def pending(self) -> int:
        """Transfer frames that wait for the peer's incoming-window."""
        return len(self.out.queue)

    # What the owner asks for

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
        """Attach a link that sends to `target` (2.6.3). Raises LinkMisuse when the name is taken."""
        link = SenderLink(self, name, self._free_handle(LinkMisuse))
        self._add_ours(link)
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
        """Attach a link that receives from `source` (2.6.3). Raises LinkMisuse when the name is taken."""
        link = ReceiverLink(self, name, self._free_handle(LinkMisuse))
        self._add_ours(link)
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
        """End our half; idempotent. SessionEnded follows when the peer has ended its own."""
        if self.local is OPEN:
            self.send(End(condition))
        self.local = CLOSED
        self.out.queue.clear()

    # What leaves

    def begin(self) -> None:
        limits, connection = self.connection.limits, self.connection
        self.local = OPEN
        self.send(
            Begin(
                self.remote_channel,
                self.out.next_id,
                self._window,
                limits.outgoing_window,
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
        """Tell our window, and with a link its credit (2.5.6, 2.6.7)."""
        self._window = self.connection.limits.incoming_window
        flow = Flow(
            None if self.remote is UNOPENED else self._next_incoming_id,
            self._window,
            self.out.next_id,
            self.connection.limits.outgoing_window,
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
        """Queue a disposition; one that continues the last becomes part of it."""
        ack = self._ack
        if ack is not None:
            if (
                ack[2] + 1 == first
                and ack[0] is role
                and ack[3] is settled
                and (ack[4] is state or ack[4] == state)
            ):
                self._ack = (role, ack[1], last, settled, state)
                return
            self.flush_acks()
        else:
            self.connection.has_acks(self)
        self._ack = (role, first, last, settled, state)

    def flush_acks(self) -> None:
        if self._ack is not None:
            role, first, last, settled, state = self._ack
            self._ack = None
            if self.local is not OPEN:
                return
            usual = (
                None if state is None else write_disposition(self.channel, role, first, last, settled, state)
            )
            if usual is not None:
                self.connection.write(usual)
            else:
                self.connection.send(self.channel, Disposition(role, first, last, settled, state))

    # What arrives

    def receive_begin(self, begin: Begin) -> None:
        self.remote = OPEN
        self._next_incoming_id = begin.next_outgoing_id
        self.out.window = begin.incoming_window
        self._remote_handle_max = begin.handle_max
        if self.local is UNOPENED:
            self.begin()
        self.report(SessionBegun(self))

    def receive(self, performative: object) -> None:
        """A performative that is not a transfer or a disposition. Raises SessionFault, ConnectionFault."""
        if isinstance(performative, End):
            self.receive_end(performative)
        elif self.local is CLOSED:
            return  # it was said before the peer heard of our end
        elif isinstance(performative, Flow):
            self._receive_flow(performative)
        elif isinstance(performative, Attach):
            self._receive_attach(performative)
        elif isinstance(performative, Detach):
            self._receive_detach(performative)
        else:
            raise ConnectionFault(NOT_ALLOWED, f"{type(performative).__name__} on a session")

    def receive_transfer(self, data: bytes, at: int, end: int) -> None:
        """A transfer frame, its descriptor at `at`. Raises DecodeError, SessionFault."""
        if self.local is CLOSED:
            return
        handle, delivery_id, tag, tail, payload_at = self._read_transfer(data, at, end)
        self._window -= 1
        if self._window < 0:
            raise SessionFault(WINDOW_VIOLATION, "a transfer beyond our incoming-window")
        self._next_incoming_id = (self._next_incoming_id + 1) & MASK
        link = self._theirs.get(handle)
        if link is None:
            raise SessionFault(UNATTACHED_HANDLE, f"a transfer on handle {handle}")
        if link.local is not CLOSED:
            if not isinstance(link, ReceiverLink):
                raise SessionFault(NOT_ALLOWED, f"a transfer on handle {handle}, where it is the receiver")
            try:
                link.receive_transfer(delivery_id, tag, tail, data[payload_at:end])
            except LinkFault as fault:
                link.fault(Condition(fault.symbol, fault.description))
        if self._window < self._half_window:
            self.flow(None)

    def receive_disposition(self, role: bool, first: int, last: int, tail: DispositionTail) -> None:
        """Split a range into runs of one link each (2.6.12). Raises SessionFault."""
        if self.local is CLOSED:
            return
        table: dict[int, SenderLink] | dict[int, ReceiverLink]
        table = self.outgoing if role is RECEIVER else self.incoming
        span = 0 if first == last else distance(first, last)
        if span < 0:
            raise SessionFault(INVALID_FIELD, f"a disposition of {first} to {last}")
        if span == 0:
            numbers = [first] if first in table else []
        elif span < 2 * len(table) + 2:
            numbers = [number & MASK for number in ids(first, last) if number & MASK in table]
        else:  # the range names more than there is: look at what there is
            known = (distance(first, number) for number in table)
            numbers = [(first + ahead) & MASK for ahead in sorted(known) if 0 <= ahead <= span]
        begin = 0
        for index, number in enumerate(numbers):
            if index and (
                number != (numbers[index - 1] + 1) & MASK or table[number] is not table[numbers[begin]]
            ):
                self._report_run(table, numbers[begin:index], tail)
                begin = index
        if numbers:
            self._report_run(table, numbers[begin:] if begin else numbers, tail)

    def _report_run(
        self,
        table: dict[int, SenderLink] | dict[int, ReceiverLink],
        run: list[int],
        tail: DispositionTail,
    ) -> None:
        link = table[run[0]]
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
            raise SessionFault(UNATTACHED_HANDLE, f"a flow on handle {flow.handle}")
        if link.local is not CLOSED:
            link.receive_flow(flow)

    def _receive_attach(self, attach: Attach) -> None:
        if attach.handle > self.connection.handle_max:
            raise ConnectionFault(
                FRAMING_ERROR, f"handle {attach.handle} is above {self.connection.handle_max}"
            )
        if attach.handle in self._theirs:
            raise SessionFault(HANDLE_IN_USE, f"handle {attach.handle} is attached")
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
        link.receive_attach(attach)
        self.report(LinkAttached(link, attach))

    def _receive_detach(self, detach: Detach) -> None:
        link = self._theirs.pop(detach.handle, None)
        if link is None:
            raise SessionFault(UNATTACHED_HANDLE, f"a detach of handle {detach.handle}")
        link.receive_detach(detach)
        self._ours.pop(link.handle, None)
        if self.links.get((link.name, link.role)) is link:
            del self.links[link.name, link.role]
        self.connection.count_links(-1)

    def receive_end(self, end: End) -> None:
        is_reported = self.remote is CLOSED
        self.remote = CLOSED
        self.end()
        self.connection.forget_session(self)
        self.connection.count_links(-len(self._ours))
        if not is_reported:
            self.report(SessionEnded(self, end.error))

    def fault(self, condition: Condition) -> None:
        """End because of what the peer did, tell the owner at once, and wait for the peer's end."""
        self.end(condition)
        self.remote = CLOSED
        self.report(SessionEnded(self, condition))

    # Handles

    def _add_ours(self, link: Link) -> None:
        if self.local is not OPEN:
            raise LinkMisuse("the session has ended")
        if (link.name, link.role) in self.links:
            raise LinkMisuse(f"there is a link named {link.name!r} in this direction")
        self.links[link.name, link.role] = link
        self._ours[link.handle] = link
        self.connection.count_links(1, ours=True)

    def _free_handle(self, failure: type[LinkMisuse] | None = None) -> int:
        handle = len(self._ours)
        if handle in self._ours:
            handle = next(free for free in range(handle) if free not in self._ours)
        if handle > self._remote_handle_max:
            text = f"the peer allows handles up to {self._remote_handle_max}"
            raise failure(text) if failure else SessionFault(RESOURCE_LIMIT_EXCEEDED, text)
        return handle
