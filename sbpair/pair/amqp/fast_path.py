"""Fast encoding and decoding of transfers and dispositions, the two frames sent per message.

A transfer is a handle, a delivery-id and a tag, followed by fields that are the same, byte for byte, in every transfer
of a link: their decoded form is cached by these bytes. The same holds for a disposition: role, first and last, then
the state. Frames of any other form go through the general decoder, which also decides what is an error.
"""

from __future__ import annotations

import struct
from dataclasses import dataclass
from functools import lru_cache
from typing import Final, TypeAlias

from .composite import decode_composite, encode_composite
from .decoding import DecodeBudget
from .encoding import write_boolean, write_uint
from .errors import DecodeError
from .performatives import Accepted, DeliveryState, Disposition, Modified, Released, Transfer

TRANSFER: Final = b"\x00\x53\x14"
DISPOSITION: Final = b"\x00\x53\x15"
Chunk: TypeAlias = bytes | bytearray | memoryview
_U32: Final = struct.Struct(">I").unpack_from
_MAX_TAIL: Final = 32
_MAX_TAILS: Final = 256


@dataclass(frozen=True, slots=True)
class TransferTail:
    """The fields after the delivery-tag."""

    count: int
    """The fields of the whole transfer: the same bytes after another count mean other fields."""
    message_format: int
    settled: bool
    more: bool
    state: DeliveryState | None
    aborted: bool
    is_piece: bool
    """Whether this is not the whole delivery: more follows, or it is aborted."""


TransferHead: TypeAlias = tuple[int, int | None, bytes | None, TransferTail, int]
"""Handle, delivery-id, tag, the fields after it, and the offset of the payload."""


@dataclass(frozen=True, slots=True)
class DispositionTail:
    """The fields after ``last``."""

    settled: bool
    state: DeliveryState | None


class Reader:
    """Decodes the transfers and dispositions of one connection, caching their tails."""

    __slots__ = ("_disposition_tails", "_transfer_tails")

    def __init__(self) -> None:
        self._transfer_tails: dict[bytes, TransferTail] = {}
        self._disposition_tails: dict[bytes, DispositionTail] = {}

    def transfer(self, data: bytes, at: int, end: int) -> TransferHead:
        """Decode the transfer at ``at``, in a frame that ends at ``end``. Raises DecodeError."""
        stop = at + 5 + data[at + 4] if data[at + 3] == 0xC0 else 0
        if 0 < stop <= end:
            p = at + 6
            code = data[p]
            if code == 0x43:
                handle, p = 0, p + 1
            elif code == 0x52:
                handle, p = data[p + 1], p + 2
            else:
                return self._decode_transfer(data, at, end)
            code = data[p]
            if code == 0x52:
                delivery_id, p = data[p + 1], p + 2
            elif code == 0x70:
                delivery_id, p = _U32(data, p + 1)[0], p + 5
            elif code == 0x43:
                delivery_id, p = 0, p + 1
            else:
                return self._decode_transfer(data, at, end)
            if data[p] == 0xA0:
                q = p + 2 + data[p + 1]
                if q <= stop:  # a slice that ends before it begins is an error in the compiled build
                    tail = self._transfer_tails.get(data[q:stop])
                    if tail is not None and tail.count == data[at + 5]:
                        return handle, delivery_id, data[p + 2 : q], tail, stop
                return self._decode_transfer(data, at, end, q)
        return self._decode_transfer(data, at, end)

    def _decode_transfer(self, data: bytes, at: int, end: int, tail_at: int = 0) -> TransferHead:
        transfer, stop = decode_composite(data, at, end, DecodeBudget(end - at))
        if not isinstance(transfer, Transfer):
            raise DecodeError("malformed transfer")
        tail = TransferTail(
            data[at + 5],
            transfer.message_format or 0,
            bool(transfer.settled),
            transfer.more,
            transfer.state,
            transfer.aborted,
            transfer.more or transfer.aborted,
        )
        if tail_at and tail_at <= stop <= tail_at + _MAX_TAIL and _is_shareable(transfer.state):
            if len(self._transfer_tails) >= _MAX_TAILS:
                self._transfer_tails.clear()
            self._transfer_tails[data[tail_at:stop]] = tail
        return transfer.handle, transfer.delivery_id, transfer.delivery_tag, tail, stop

    def disposition(self, data: bytes, at: int, end: int) -> tuple[bool, int, int, DispositionTail]:
        """Decode the disposition at ``at``, which fills the frame: role, first, last and tail. Raises DecodeError."""
        tail_at = 0
        if data[at + 3] == 0xC0 and at + 5 + data[at + 4] == end and data[at + 6] in (0x41, 0x42):
            first: int | None
            last: int | None
            if at + 17 <= end and data[at + 7] == data[at + 12] == 0x70:
                first, last, p = _U32(data, at + 8)[0], _U32(data, at + 13)[0], at + 17
            else:
                first, p = _uint(data, at + 7)
                last, p = _uint(data, p) if p else (None, 0)
            if 0 < p <= end and first is not None:
                tail = self._disposition_tails.get(data[at + 5 : at + 6] + data[p:end])
                if tail is not None:
                    return data[at + 6] == 0x41, first, first if last is None else last, tail
                tail_at = p
        disposition, _stop = decode_composite(data, at, end, DecodeBudget(end - at))
        if not isinstance(disposition, Disposition):
            raise DecodeError("malformed disposition")
        tail = DispositionTail(disposition.settled, disposition.state)
        if tail_at and end - tail_at <= _MAX_TAIL and _is_shareable(disposition.state):
            if len(self._disposition_tails) >= _MAX_TAILS:
                self._disposition_tails.clear()
            self._disposition_tails[data[at + 5 : at + 6] + data[tail_at:end]] = tail
        last = disposition.first if disposition.last is None else disposition.last
        return disposition.role, disposition.first, last, tail


def is_whole_transfer(data: bytes, at: int) -> bool:
    """Whether a transfer performative, in its usual form, is at ``at`` and not longer than ``data``."""
    if not data.startswith(TRANSFER, at) or len(data) < at + 5:
        return False
    return data[at + 3] == 0xC0 and at + 5 + data[at + 4] <= len(data)


def _uint(data: bytes, p: int) -> tuple[int | None, int]:
    """Return the uint or null at ``p`` and the offset after it; offset 0 when it is neither."""
    code = data[p]
    if code == 0x70:
        return _U32(data, p + 1)[0], p + 5
    if code == 0x52:
        return data[p + 1], p + 2
    if code == 0x43:
        return 0, p + 1
    return None, p + 1 if code == 0x40 else 0


def _is_shareable(state: DeliveryState | None) -> bool:
    """Whether deliveries can share the state: it has no mutable part."""
    if isinstance(state, Modified):
        return state.message_annotations is None
    return state is None or isinstance(state, Accepted | Released)


_pack_one: Final = struct.Struct(">IBBHIBBBBIBB").pack
_pack_disposition: Final = struct.Struct(">IBBHIBBBBIBIB").pack
_DISPOSITION_AND_LIST8: Final = 0x005315C0
_TRUE: Final = 0x41
_FALSE: Final = 0x42


def write_disposition(
    channel: int, role: bool, first: int, last: int, settled: bool, state: DeliveryState
) -> bytes | None:
    """Encode a disposition frame; None for a state other than accepted and released."""
    if not isinstance(state, Accepted | Released):
        return None
    outcome = _outcome(state)
    if first == last:
        size = 9 + len(outcome)
        return (
            _pack_one(
                13 + size,
                2,
                0,
                channel,
                _DISPOSITION_AND_LIST8,
                size,
                5,
                _TRUE if role else _FALSE,
                0x70,
                first,
                0x40,
                _TRUE if settled else _FALSE,
            )
            + outcome
        )
    size = 13 + len(outcome)
    return (
        _pack_disposition(
            13 + size,
            2,
            0,
            channel,
            _DISPOSITION_AND_LIST8,
            size,
            5,
            _TRUE if role else _FALSE,
            0x70,
            first,
            0x70,
            last,
            _TRUE if settled else _FALSE,
        )
        + outcome
    )


@lru_cache(maxsize=2)
def _outcome(state: Accepted | Released) -> bytes:
    return encode_composite(state)


_pack_head: Final = struct.Struct(">IBBHIBB").pack
_pack_id_and_tag: Final = struct.Struct(">BIBB").pack
_DESCRIPTOR_AND_LIST8: Final = 0x005314C0


@lru_cache(maxsize=64)
def transfer_tail(message_format: int, settled: bool, more: bool) -> bytes:
    """Encode the eight fields after the tag, without a state."""
    out = bytearray()
    write_uint(out, message_format)
    write_boolean(out, settled)
    write_boolean(out, more)
    return bytes(out) + b"\x40" * 5


def write_transfer(
    channel: int, handle: bytes, delivery_id: int, tag: bytes, tail: bytes, size: int
) -> bytes:
    """Encode the frame header and performative of a transfer with a payload of ``size`` bytes.

    ``handle`` is encoded already. Raises ValueError when the performative does not fit a list8.
    """
    length = 8 + len(handle) + len(tag) + len(tail)
    if length > 255:
        raise ValueError("the transfer does not fit a list8")
    return (
        _pack_head(13 + length + size, 2, 0, channel, _DESCRIPTOR_AND_LIST8, length, 11)
        + handle
        + _pack_id_and_tag(0x70, delivery_id, 0xA0, len(tag))
        + tag
        + tail
    )
