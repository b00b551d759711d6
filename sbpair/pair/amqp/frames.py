"""Frame layout (2.3) and protocol headers (2.2, 5.3.1).

   0       1       2       3
+-------------------------------+
|             size              |   of the whole frame
| doff  | type  |    channel    |   doff in words of four bytes; type 0 AMQP, 1 SASL
|  extended header, (doff-2)*4  |
| performative | payload        |
"""

from __future__ import annotations

import struct
from typing import Final

AMQP_HEADER: Final = b"AMQP\x00\x01\x00\x00"
SASL_HEADER: Final = b"AMQP\x03\x01\x00\x00"
AMQP_FRAME: Final = 0
SASL_FRAME: Final = 1
MIN_MAX_FRAME_SIZE: Final = 512
EMPTY_FRAME: Final = b"\x00\x00\x00\x08\x02\x00\x00\x00"
FRAME_HEAD: Final = struct.Struct(">IBBH")


def frame(channel: int, body: bytes, payload_size: int = 0, *, kind: int = AMQP_FRAME) -> bytes:
    """Frame an encoded performative; the caller appends a payload of ``payload_size`` bytes."""
    return FRAME_HEAD.pack(8 + len(body) + payload_size, 2, kind, channel) + body
