"""Did this webhook come from us, unchanged, and just now?

    X-Sbpair-Signature: t=1795242840,v1=5257a869e7...

``v1`` is the HMAC-SHA256 of ``<t>.<body>`` under the shared secret, in hex. ``t`` is when this attempt was
made, in seconds since the epoch, so that a copy sent later is recognised. Pure.
"""

from __future__ import annotations

import hashlib
import hmac

HEADER_NAME = "X-Sbpair-Signature"
TOLERANCE = 300.0  # seconds between signing and arrival


class SignatureRefused(ValueError):
    """A webhook is not what it says it is."""


def sign(body: bytes, secret: str, now: float) -> str:
    """The value of the signature header for a body that is sent at ``now`` (seconds since the epoch)."""
    seconds = int(now)
    return f"t={seconds},v1={_digest(body, secret, seconds)}"


def verify(header: str, body: bytes, secret: str, now: float, *, tolerance: float = TOLERANCE) -> None:
    """Raise SignatureRefused unless ``header`` signs ``body``, less than ``tolerance`` seconds ago."""
    parts = dict(part.strip().partition("=")[::2] for part in header.split(","))
    stamp = parts.get("t", "")
    if not (stamp.isascii() and stamp.isdigit() and len(stamp) <= 12) or "v1" not in parts:
        raise SignatureRefused(f"{HEADER_NAME} is not of the form t=...,v1=...")
    if not hmac.compare_digest(parts["v1"].encode(), _digest(body, secret, int(stamp)).encode()):
        raise SignatureRefused("the signature does not fit the body and the secret")
    if abs(now - int(stamp)) > tolerance:
        raise SignatureRefused(f"signed {abs(now - int(stamp)):.0f} s away from now")


def _digest(body: bytes, secret: str, seconds: int) -> str:
    return hmac.new(secret.encode(), b"%d." % seconds + body, hashlib.sha256).hexdigest()
