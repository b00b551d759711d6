"""Keep keys out of error texts.

Whatever the command was given as a secret is remembered here in every spelling
it may come back in; what the fields of a connection string or a token look
like is blanked too, in case it is a secret nobody told us of.
"""

from __future__ import annotations

import base64
from urllib.parse import quote, quote_plus

from sbpair.auth.redaction import BLANK, blank_keys

SHORTEST = 6  # a shorter "secret" would blank ordinary words

_secrets: set[str] = set()


def remember(secret: str) -> None:
    """Blank this value from now on: raw, URL-encoded and base64."""
    if len(secret) >= SHORTEST:
        encoded = base64.b64encode(secret.encode()).decode()
        _secrets.update({secret, quote(secret, safe=""), quote(secret), quote_plus(secret), encoded})


def redact(text: str) -> str:
    """The same text without any secret remembered, and without what looks like one."""
    for secret in sorted(_secrets, key=len, reverse=True):
        text = text.replace(secret, BLANK)
    return blank_keys(text)
