"""In which forms could a secret leak?"""

from __future__ import annotations

import base64
from urllib.parse import quote, quote_plus


def spellings(secret: str) -> set[str]:
    """A secret as it is, as a URL carries it, and as base64 hides it."""
    raw = secret.encode()
    return {
        secret,
        quote(secret),
        quote(secret, safe=""),
        quote_plus(secret),
        base64.b64encode(raw).decode(),
        base64.urlsafe_b64encode(raw).decode(),
    }
