"""Entity paths, with or without the address of a namespace in front.

The Python SDK writes ``sb://host/orders`` where the JavaScript SDK and sbpair write ``orders``. Paths come
from peers that are not yet authenticated: their length is checked first, and parsing is linear.
"""

from __future__ import annotations

import re

from ..errors import InvalidDescriptionError, InvalidNameError

MAX_PATH = 260  # characters of an entity path
MAX_ADDRESS = 2_048
"""Characters of an address or audience: a percent-encoded path with scheme, host and query."""

MAX_NAME = 50  # characters of a subscription name
_PATH = re.compile(r"[A-Za-z0-9](?:[A-Za-z0-9._~/-]*[A-Za-z0-9])?")
_SUBSCRIPTION_NAME = re.compile(r"[A-Za-z0-9](?:[A-Za-z0-9._-]*[A-Za-z0-9])?")
_SCHEME = re.compile(r"[A-Za-z][A-Za-z0-9+.-]{0,31}")


def split_address(text: str) -> tuple[str | None, str]:
    """Split an address into its authority, None without a scheme, and the path after it."""
    scheme, separator, rest = text.partition("://")
    if not separator or not _SCHEME.fullmatch(scheme):
        return None, text
    authority, _, path = rest.partition("/")
    return authority, path


_ASCII_FOLD = {upper: upper + 32 for upper in range(ord("A"), ord("Z") + 1)}


def fold(path: str) -> str:
    """Return the path with ASCII letters in lower case, by which entities are compared."""
    return path.lower() if path.isascii() else path.translate(_ASCII_FOLD)


_OLD_ALIAS = re.compile(
    r"(.*/subscriptions/([^/]+)/\$deadletterqueue)/subscriptions/\2", re.IGNORECASE | re.DOTALL
)


def path_of(text: str) -> str:
    """Return the path of an address or audience, without scheme, authority and outer slashes."""
    return split_address(text)[1].strip("/")


def without_alias(path: str) -> str:
    """Return the path of a subscription's dead letters in its usual form; any other path is returned unchanged.

    SDKs of generation 1 write ``news/Subscriptions/all/$DeadLetterQueue/Subscriptions/all``.
    """
    if "$" not in path or (alias := _OLD_ALIAS.fullmatch(path)) is None:
        return path
    return alias[1]


def validated_path(path: str) -> str:
    """Return ``path`` if it is valid for a queue or topic. Raises InvalidDescriptionError if not."""
    if len(path) > MAX_PATH:
        raise InvalidDescriptionError(
            f"The entity path is {len(path)} characters long: at most {MAX_PATH} are allowed."
        )
    segments = path.split("/")
    if any(segment.casefold() == "subscriptions" for segment in segments[1:]):
        raise InvalidNameError(
            f"The entity path {path!r} is not allowed: 'Subscriptions' as a later segment is reserved for "
            "the subscriptions of a topic."
        )
    if not _PATH.fullmatch(path) or any(segment in ("", ".", "..") for segment in segments):
        raise InvalidNameError(
            f"The entity path {path!r} is not allowed: use letters, digits, '.', '-', '_', '~' and single "
            "'/' between segments, beginning and ending with a letter or digit."
        )
    return path


def validated_name(name: str) -> str:
    """Return ``name`` if it is valid for a subscription. Raises InvalidDescriptionError if not."""
    if len(name) > MAX_NAME or not _SUBSCRIPTION_NAME.fullmatch(name):
        kind = InvalidDescriptionError if len(name) == 0 or len(name) > MAX_NAME else InvalidNameError
        raise kind(
            f"The subscription name {name[:100]!r} is not allowed: use 1 to {MAX_NAME} letters, digits, '.', "
            "'-' and '_', beginning and ending with a letter or digit."
        )
    return name
