"""Which entity does a text name, with or without the address of a namespace before it?

Python's clients write ``sb://host/orders`` where JavaScript's and ours write ``orders``.
"""

from __future__ import annotations

import re

_AUTHORITY = re.compile(r"[A-Za-z][A-Za-z0-9+.-]*://[^/]*")


def path_of(text: str) -> str:
    """The path of an address or audience, without scheme, authority and outer slashes."""
    return _AUTHORITY.sub("", text, count=1).strip("/")
