"""The forms in which a secret could leak."""

from __future__ import annotations

import base64
from urllib.parse import quote, quote_plus


def spellings(secret: str) -> set[str]:
    """Return a secret as it is, in its URL encodings and in base64."""
    raw = secret.encode()
    return {
        secret,
        quote(secret),
        quote(secret, safe=""),
        quote_plus(secret),
        base64.b64encode(raw).decode(),
        base64.urlsafe_b64encode(raw).decode(),
    }
