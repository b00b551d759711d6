"""Entity paths, with or without the address of a namespace before them.

Python's clients write ``sb://host/orders`` where JavaScript's and ours write ``orders``. Such texts come from
peers that have proved nothing yet: they are read once from the left, and their length is checked first.
"""

from __future__ import annotations

import re

from ..errors import InvalidDescription

MAX_PATH = 260  # characters of the path of an entity
MAX_ADDRESS = 2_048
"""Characters of an address or an audience: scheme, host and query around a percent-encoded path."""

MAX_NAME = 50  # characters of the name of a subscription
_PATH = re.compile(r"[A-Za-z0-9](?:[A-Za-z0-9._~/-]*[A-Za-z0-9])?")
_SUBSCRIPTION_NAME = re.compile(r"[A-Za-z0-9](?:[A-Za-z0-9._-]*[A-Za-z0-9])?")
_SCHEME = re.compile(r"[A-Za-z][A-Za-z0-9+.-]{0,31}")


def split_address(text: str) -> tuple[str | None, str]:
    """Authority (None without a scheme) and the rest of an address, behind the slash between them."""
    scheme, separator, rest = text.partition("://")
    if not separator or not _SCHEME.fullmatch(scheme):
        return None, text
    authority, _, path = rest.partition("/")
    return authority, path


def path_of(text: str) -> str:
    """The path of an address or audience, without scheme, authority and outer slashes."""
    return split_address(text)[1].strip("/")


def validated_path(path: str) -> str:
    """``path`` if a queue may have it. Raises InvalidDescription, with the reason, if not."""
    if len(path) > MAX_PATH:
        raise InvalidDescription(
            f"The entity path is {len(path)} characters long: at most {MAX_PATH} are allowed."
        )
    segments = path.split("/")
    if any(segment.casefold() == "subscriptions" for segment in segments[1:]):
        raise InvalidDescription(
            f"The entity path {path!r} is not allowed: behind a topic's path, 'Subscriptions' names its own."
        )
    if not _PATH.fullmatch(path) or any(segment in ("", ".", "..") for segment in segments):
        raise InvalidDescription(
            f"The entity path {path!r} is not allowed: letters, digits, '.', '-', '_', '~' and single '/' "
            f"between segments; it begins and ends with a letter or a digit."
        )
    return path


def validated_name(name: str) -> str:
    """``name`` if a subscription may have it. Raises InvalidDescription, with the reason, if not."""
    if len(name) > MAX_NAME or not _SUBSCRIPTION_NAME.fullmatch(name):
        raise InvalidDescription(
            f"The subscription name {name[:100]!r} is not allowed: 1 to {MAX_NAME} letters, digits, '.', "
            "'-' and '_'; it begins and ends with a letter or a digit."
        )
    return name
