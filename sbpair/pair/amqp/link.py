"""Links: transfer in one direction, paced by credit (2.6).

A violation by the peer is answered with a detach that names the condition, and becomes a LinkDetached event. Methods
raise for misuse only: calls on a link that the peer has just closed have no effect, because the application cannot
know yet.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Final, TypeVar

from .encoding import write_uint
from .endpoint import CLOSED, MASK, OPEN, UNOPENED, Endpoint, distance, ids
from .errors import (
    INVALID_FIELD,
    MESSAGE_SIZE_EXCEEDED,
    NOT_ALLOWED,
    RESOURCE_LIMIT_EXCEEDED,
    TRANSFER_LIMIT_EXCEEDED,
    LocalProtocolError,
    PeerLinkError,
)
from .events import CreditDrained, CreditGranted, LinkDetached, MessageReceived
from .fast_path import TransferTail
from .performatives import (
    MAX_UINT,
    RECEIVER,
    SENDER,
    AmqpMap,
    Attach,
    Condition,
    Coordinator,
    DeliveryState,
    Detach,
    Flow,
    Rejected,
    Source,
    Target,
)

if TYPE_CHECKING:
    from .session import Session

L = TypeVar("L", bound="Link")

MAX_TAG: Final = 32  # 2.8.7
MAX_TAG_TAKEN: Final = 128
"""Bytes of a peer's delivery-tag: Java SDKs of the first generation tag with a UUID of 36 characters."""
PIECE_WEIGHT: Final = 64  # bytes of memory per piece of a delivery, its payload not counted


class Link(Endpoint):
    """Common parts of senders and receivers: name, handle, attach and detach."""

    role = SENDER

    def __init__(self, session: Session, name: str, handle: int) -> None:
        super().__init__()
        self.session = session
        self.name = name
        self.handle = handle
        self.remote_attach: Attach | None = None
        self.max_message_size: int | None = None
        self.credit = 0
        self.delivery_count = 0
        self.unsettled: dict[int, bytes] = {}
        """Unsettled deliveries: delivery-id to tag, in order."""
        self.held_bytes = 0
        """Bytes counted for the peer's attach and a partial delivery."""
        self._is_finished = False  # LinkDetached was emitted
        out = bytearray()
        write_uint(out, handle)
        self.encoded_handle = bytes(out)

    def __repr__(self) -> str:
        return f"<{type(self).__name__} {self.name!r} {self.local.name}/{self.remote.name}>"

    @property
    def is_refused(self) -> bool:
        """Whether the peer answered our attach without a terminus; LinkDetached follows (2.6.3)."""
        attach = self.remote_attach
        return attach is not None and (attach.target if self.role is SENDER else attach.source) is None

    def attach(
        self,
        *,
        source: Source | None,
        target: Target | Coordinator | None,
        properties: AmqpMap | None = None,
        max_message_size: int | None = None,
        initial_delivery_count: int = 0,
        snd_settle_mode: int | None = None,
        rcv_settle_mode: int | None = None,
        offered_capabilities: tuple[str, ...] | None = None,
        desired_capabilities: tuple[str, ...] | None = None,
    ) -> None:
        """Attach our half, first or in answer; settle modes default to the peer's (2.6.3).

        A receiver's `max_message_size` is enforced: larger deliveries are answered with
        rejected{amqp:link:message-size-exceeded} and never reach the owner. Without one, a delivery beyond
        `Limits.max_message_size` detaches the link, and nothing is settled.

        Raises LocalProtocolError when the link is attached already.
        """
        if self.local is OPEN:
            raise LocalProtocolError(f"link {self.name!r} is attached already")
        if self.local is CLOSED:
            return
        remote = self.remote_attach
        self.local = OPEN
        self.max_message_size = max_message_size
        if self.role is SENDER:
            self.delivery_count = initial_delivery_count
        if snd_settle_mode is None:
            snd_settle_mode = remote.snd_settle_mode if remote else 2
        if rcv_settle_mode is None:
            rcv_settle_mode = remote.rcv_settle_mode if remote else 0
        self.session.send(
            Attach(
                self.name,
                self.handle,
                self.role,
                snd_settle_mode,
                rcv_settle_mode,
                source,
                target,
                initial_delivery_count=initial_delivery_count if self.role is SENDER else None,
                max_message_size=max_message_size,
                offered_capabilities=offered_capabilities,
                desired_capabilities=desired_capabilities,
                properties=properties,
            )
        )

    def refuse(self, condition: Condition) -> None:
        """Answer the peer's attach without a terminus, then detach with `condition` (2.6.3)."""
        remote = self.remote_attach
        if self.local is UNOPENED and remote is not None:
            is_sender = self.role is SENDER
            self.attach(
                source=None if is_sender else remote.source, target=remote.target if is_sender else None
            )
        self.detach(condition)

    def detach(self, condition: Condition | None = None, closed: bool = True) -> None:
        """Close the link, or suspend it with `closed` False; idempotent. Drops queued transfers."""
        if self.local is OPEN:
            self.session.out.drop(self)
            self.session.send(Detach(self.handle, closed, condition))
        self.local = CLOSED
        self.credit = 0

    def fault(self, condition: Condition) -> None:
        """Detach for a violation by the peer, and emit LinkDetached now."""
        self.refuse(condition)
        self.finish(condition, True)

    def receive_detach(self, detach: Detach) -> None:
        self.remote = CLOSED
        if self.local is UNOPENED:  # the application has not answered the attach: answer for it
            self.attach(source=None, target=None)
        self.detach(closed=detach.closed)
        self.finish(detach.error, detach.closed)

    def finish(self, condition: Condition | None, closed: bool) -> None:
        self.credit = 0
        self.session.forget_deliveries(self)
        if not self._is_finished:
            self._is_finished = True
            self.session.report(LinkDetached(self, condition, closed))

    def charge(self, size: int) -> None:
        """Count bytes occupied by the peer. Raises PeerConnectionError above the allowance of the connection."""
        self.held_bytes += size
        self.session.connection.charge(size)

    def receive_attach(self, attach: Attach) -> None:
        self.remote_attach = attach
        self.remote = OPEN

    def receive_flow(self, flow: Flow) -> None:
        raise NotImplementedError


class SenderLink(Link):
    """A link that sends: the peer grants credit, and each message uses one."""

    role = SENDER

    def __init__(self, session: Session, name: str, handle: int) -> None:
        super().__init__(session, name, handle)
        self.drain = False

    def transfer(
        self,
        payload: bytes,
        *,
        tag: bytes,
        settled: bool = False,
        message_format: int = 0,
        state: DeliveryState | None = None,
        force: bool = False,
    ) -> int:
        """Send one message, split to the peer's frame size; return its delivery-id.

        Raises LocalProtocolError for a tag longer than 32 bytes, and without credit unless `force`. A link has no
        credit once it or its session has ended.
        """
        if self.credit > 0:
            self.credit -= 1
        elif not force:
            raise LocalProtocolError(f"no credit on link {self.name!r}")
        if len(tag) > MAX_TAG:
            raise LocalProtocolError(f"a delivery-tag has at most {MAX_TAG} bytes, not {len(tag)}")
        session = self.session
        delivery_id = session.next_delivery_id
        if self.local is not OPEN or session.local is not OPEN:
            return delivery_id
        self.delivery_count = (self.delivery_count + 1) & MASK
        session.next_delivery_id = (delivery_id + 1) & MASK
        if not settled:
            self.unsettled[delivery_id] = tag
            session.outgoing[delivery_id] = self
        session.out.transfer(self, delivery_id, tag, payload, settled, message_format, state)
        return delivery_id

    def drained(self) -> None:
        """Give back all remaining credit, in answer to a drain (2.6.7)."""
        self.delivery_count = (self.delivery_count + self.credit) & MASK
        self.credit = 0
        if self.local is OPEN:
            self.session.flow(self, 0, drain=True)
        self.drain = False

    def settle(self, first: int, last: int, state: DeliveryState | None) -> None:
        """Settle deliveries `first` to `last` with `state` (2.6.12)."""
        _remove(first, last, self.unsettled, self.session.outgoing)
        if self.local is OPEN:
            self.session.dispose(SENDER, first, last, True, state)

    def receive_flow(self, flow: Flow) -> None:
        if flow.link_credit is not None:
            theirs = flow.delivery_count
            if theirs is None:  # the peer has not received our attach
                theirs = self.delivery_count
            self.credit = min(MAX_UINT, max(0, flow.link_credit - distance(theirs, self.delivery_count)))
        self.drain = flow.drain
        self.session.report(CreditGranted(self, self.credit, flow.drain, flow.properties))
        if flow.echo and self.local is OPEN:
            self.session.flow(self, self.credit, drain=self.drain)


def _remove(first: int, last: int, unsettled: dict[int, bytes], table: dict[int, L]) -> None:
    """Remove deliveries `first` to `last` from the unsettled ones of a link and from the table of its session."""
    if first == last:
        unsettled.pop(first & MASK, None)
        table.pop(first & MASK, None)
        return
    for number in ids(first, last):
        unsettled.pop(number & MASK, None)
        table.pop(number & MASK, None)


_make: Final = tuple.__new__  # bypasses the constructor of the named tuple, which doubles the cost


@dataclass(slots=True)
class _Partial:
    """A delivery whose last frame has not arrived."""

    delivery_id: int
    tag: bytes
    message_format: int
    settled: bool = False
    state: DeliveryState | None = None
    pieces: list[bytes] = field(default_factory=list)
    size: int = 0
    held_bytes: int = 0


class ReceiverLink(Link):
    """A link that receives: we grant the credit."""

    role = RECEIVER

    def __init__(self, session: Session, name: str, handle: int) -> None:
        super().__init__(session, name, handle)
        self._partial: _Partial | None = None
        self._refused_for_size: Callable[[int], Condition] | None = None
        self._largest = session.connection.limits.max_message_size
        self._most_unsettled = session.connection.limits.max_unsettled
        self._is_draining = False

    def attach(
        self,
        *,
        source: Source | None,
        target: Target | Coordinator | None,
        properties: AmqpMap | None = None,
        max_message_size: int | None = None,
        initial_delivery_count: int = 0,
        snd_settle_mode: int | None = None,
        rcv_settle_mode: int | None = None,
        offered_capabilities: tuple[str, ...] | None = None,
        desired_capabilities: tuple[str, ...] | None = None,
    ) -> None:
        super().attach(
            source=source,
            target=target,
            properties=properties,
            max_message_size=max_message_size,
            initial_delivery_count=initial_delivery_count,
            snd_settle_mode=snd_settle_mode,
            rcv_settle_mode=rcv_settle_mode,
            offered_capabilities=offered_capabilities,
            desired_capabilities=desired_capabilities,
        )
        if max_message_size:  # 0 means no limit of the link (2.7.3)
            self._largest = max_message_size

    def tolerate(self, largest: int, refused: Callable[[int], Condition]) -> None:
        """Accept deliveries of up to ``largest`` bytes, although our attach announced less.

        ``refused`` maps the size of a larger delivery, in bytes, to the error that rejects it.
        """
        self._largest = largest
        self._refused_for_size = refused

    @property
    def unfinished(self) -> int:
        """The number of bytes received of a delivery whose last frame has not arrived; 0 if there is none."""
        return 0 if self._partial is None else self._partial.held_bytes

    def detach(self, condition: Condition | None = None, closed: bool = True) -> None:
        super().detach(condition, closed)
        self.drop_partial()  # a peer may never answer

    def receive_attach(self, attach: Attach) -> None:
        super().receive_attach(attach)
        self.delivery_count = attach.initial_delivery_count or 0

    def flow(self, credit: int, *, drain: bool = False, echo: bool = False) -> None:
        """Set the link credit to `credit` messages (2.6.7).

        With `drain` the peer sends what it has and gives the rest back; CreditDrained follows. Raises
        LocalProtocolError unless `credit` is 0 to 2^32 - 1.
        """
        if not 0 <= credit <= MAX_UINT:
            raise LocalProtocolError(f"credit is 0 … {MAX_UINT}, not {credit}")
        if self.local is not OPEN:
            return
        self.credit = credit
        self._is_draining = drain
        self.session.flow(self, credit, drain=drain, echo=echo)

    def dispose(self, first: int, last: int, state: DeliveryState | None, *, settled: bool = True) -> None:
        """Send the state of deliveries `first` to `last`, settling them if `settled` (2.6.12)."""
        if settled:
            _remove(first, last, self.unsettled, self.session.incoming)
        if self.local is OPEN:
            self.session.dispose(RECEIVER, first, last, settled, state)

    def receive_transfer(
        self, delivery_id: int | None, tag: bytes | None, tail: TransferTail, payload: bytes
    ) -> None:
        """Process one frame of a delivery. Raises PeerLinkError, PeerConnectionError."""
        partial = self._partial
        if partial is None:
            if delivery_id is None or tag is None:
                text = "the first transfer of a delivery lacks its delivery-id or tag"
                raise PeerLinkError(INVALID_FIELD, text)
            if len(tag) > MAX_TAG_TAKEN:
                raise PeerLinkError(INVALID_FIELD, f"a delivery-tag of {len(tag)} bytes")
            if self.credit > 0:
                self.credit -= 1
            elif self.session.connection.limits.enforce_credit:
                raise PeerLinkError(TRANSFER_LIMIT_EXCEEDED, "a transfer without credit")
            self.delivery_count = (self.delivery_count + 1) & MASK
            if not tail.is_piece:
                self._deliver(delivery_id, tag, payload, tail.settled, tail.message_format, tail.state)
                return
            partial = self._partial = _Partial(delivery_id, tag, tail.message_format)
        elif delivery_id is not None and delivery_id != partial.delivery_id:
            text = f"delivery {delivery_id} inside delivery {partial.delivery_id}"
            raise PeerLinkError(NOT_ALLOWED, text)
        self._add_piece(partial, tail, payload)

    def _add_piece(self, partial: _Partial, tail: TransferTail, payload: bytes) -> None:
        if tail.aborted:  # discarded, as if never sent (2.6.14)
            self.drop_partial()
            return
        partial.settled = partial.settled or tail.settled  # set by any frame of the delivery (2.7.5)
        if tail.state is not None:
            partial.state = tail.state
        partial.size += len(payload)
        if partial.size <= self._largest:
            partial.pieces.append(payload)
            partial.held_bytes += len(payload) + PIECE_WEIGHT
            self._charge_partial(len(payload) + PIECE_WEIGHT)
        else:
            partial.pieces.clear()  # rejected once its last frame arrives; nothing is kept until then
            self._charge_partial(-partial.held_bytes)
            partial.held_bytes = 0
        if tail.more:
            return
        self.drop_partial()
        number, settled = partial.delivery_id, partial.settled
        if partial.size > self._largest:
            self._reject(number, settled, partial.size)
        else:
            whole = b"".join(partial.pieces)
            self._deliver(number, partial.tag, whole, settled, partial.message_format, partial.state)

    def drop_partial(self) -> None:
        """Drop a delivery whose last frame has not arrived."""
        if self._partial is not None:
            self._charge_partial(-self._partial.held_bytes)
            self._partial = None

    def _charge_partial(self, size: int) -> None:
        self.session.connection.unfinished += size
        self.charge(size)

    def _deliver(
        self,
        delivery_id: int,
        tag: bytes,
        payload: bytes,
        settled: bool,
        message_format: int,
        state: DeliveryState | None,
    ) -> None:
        """Report a complete delivery. Raises PeerLinkError."""
        if len(payload) > self._largest:
            self._reject(delivery_id, settled, len(payload))
            return
        session = self.session
        if not settled:
            incoming = session.incoming
            # A delivery-id in use is accepted: concurrent requests of the Python SDK on one link can share an id, and
            # Service Bus answers each of them.
            if len(incoming) >= self._most_unsettled:
                raise PeerLinkError(RESOURCE_LIMIT_EXCEEDED, f"{len(incoming)} deliveries are unsettled")
            incoming[delivery_id] = self
            self.unsettled[delivery_id] = tag
        fields = (self, delivery_id, tag, payload, settled, message_format, state)
        session.report(_make(MessageReceived, fields))

    def _reject(self, delivery_id: int, settled: bool, size: int) -> None:
        """Reject a message above the maximum size that our attach announced.

        Raises PeerLinkError when only our local limit is exceeded, which the peer does not know: the message stays
        unsettled.
        """
        text = f"a message of {size} bytes; this link takes {self._largest}"
        if not self.max_message_size:
            raise PeerLinkError(MESSAGE_SIZE_EXCEEDED, text)
        if not settled:
            refused = self._refused_for_size
            why = Condition(MESSAGE_SIZE_EXCEEDED, text) if refused is None else refused(size)
            self.session.dispose(RECEIVER, delivery_id, delivery_id, True, Rejected(why))

    def receive_flow(self, flow: Flow) -> None:
        """Process a flow of the sender; only the answer to a drain matters (2.6.7)."""
        if self._is_draining and flow.delivery_count is not None:
            given_back = distance(self.delivery_count, flow.delivery_count)
            if 0 <= given_back <= self.credit:
                self.delivery_count = flow.delivery_count
                self.credit -= given_back
            if self.credit == 0:
                self._is_draining = False
                self.session.report(CreditDrained(self))
        if flow.echo and self.local is OPEN:
            self.session.flow(self, self.credit, drain=self._is_draining)

    def finish(self, condition: Condition | None, closed: bool) -> None:
        self.drop_partial()
        super().finish(condition, closed)
