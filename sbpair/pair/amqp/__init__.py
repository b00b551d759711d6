"""An AMQP 1.0 protocol engine without I/O, for clients and servers, and its codec; standard library only.

Feed a :class:`Connection` the peer's bytes, handle its events, and send the bytes it returns:

    connection = Connection(role=ConnectionRole.CLIENT, container_id="me", now=time.monotonic())
    sock.sendall(connection.data_to_send())
    connection.receive_data(sock.recv(65536), time.monotonic())
    for event in connection.events():
        ...

Call ``handle_timer(now)`` when ``next_timer()`` is due.
"""

from .connection import Connection, ConnectionRole
from .decoding import decode
from .encoding import encode
from .errors import AmqpError, DecodeError, EncodeError, LocalProtocolError
from .events import (
    ConnectionClosed,
    ConnectionOpened,
    CreditDrained,
    CreditGranted,
    DispositionReceived,
    Event,
    LinkAttached,
    LinkDetached,
    MessageReceived,
    SaslInitReceived,
    SessionBegun,
    SessionEnded,
)
from .limits import Limits
from .link import Link, ReceiverLink, SenderLink
from .message import DataBody, Header, Message, Properties, SequenceBody, ValueBody
from .performatives import (
    Accepted,
    Condition,
    Coordinator,
    Declare,
    Declared,
    DeliveryState,
    Discharge,
    Modified,
    Received,
    Rejected,
    Released,
    Source,
    Target,
    TransactionalState,
)
from .session import Session
from .types import (
    Array,
    Byte,
    Char,
    Decimal32,
    Decimal64,
    Decimal128,
    Described,
    Float,
    Int,
    Short,
    Symbol,
    Timestamp,
    TypedKey,
    UByte,
    UInt,
    ULong,
    UShort,
)

__all__ = [
    "Accepted",
    "AmqpError",
    "Array",
    "Byte",
    "Char",
    "Condition",
    "Connection",
    "ConnectionClosed",
    "ConnectionOpened",
    "ConnectionRole",
    "Coordinator",
    "CreditDrained",
    "CreditGranted",
    "DataBody",
    "Decimal32",
    "Decimal64",
    "Decimal128",
    "Declare",
    "Declared",
    "DecodeError",
    "DeliveryState",
    "Described",
    "Discharge",
    "DispositionReceived",
    "EncodeError",
    "Event",
    "Float",
    "Header",
    "Int",
    "Limits",
    "Link",
    "LinkAttached",
    "LinkDetached",
    "LocalProtocolError",
    "Message",
    "MessageReceived",
    "Modified",
    "Properties",
    "Received",
    "ReceiverLink",
    "Rejected",
    "Released",
    "SaslInitReceived",
    "SenderLink",
    "SequenceBody",
    "Session",
    "SessionBegun",
    "SessionEnded",
    "Short",
    "Source",
    "Symbol",
    "Target",
    "Timestamp",
    "TransactionalState",
    "TypedKey",
    "UByte",
    "UInt",
    "ULong",
    "UShort",
    "ValueBody",
    "decode",
    "encode",
]
