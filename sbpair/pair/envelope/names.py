"""Names of namespaces and backlog queues, and the paths a parked message may be sent to.

    backlog queue i of primary "contoso":           contoso/x-servicebus-transfer/i
    ordered backlog queue i of primary "contoso":   contoso/x-servicebus-transfer/ordered/i

An inventory compares those that exist with those that a pairing uses:

    wanted: contoso, 3         queues on the secondary             result
                               contoso/x-servicebus-transfer/0     present
                               contoso/x-servicebus-transfer/2     present; 1 is missing
                               contoso/x-servicebus-transfer/7     extra: left alone, and never drained
                               fabrikam/x-servicebus-transfer/0    of another pairing
                               orders                              not a backlog queue

Imports the standard library only.
"""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Callable, Iterable
from functools import lru_cache
from typing import NamedTuple

TRANSFER_SEGMENT = "x-servicebus-transfer"
ORDERED_SEGMENT = "ordered"
MAX_PATH = 260  # characters of an entity's path, the service's limit


def namespace_label(endpoint: str) -> str:
    """Return the short name of a namespace: the first label of its host, in lower case.

    Takes ``sb://contoso.servicebus.windows.net/``, ``contoso.servicebus.windows.net`` or
    ``localhost:5672``. A numeric address is its own label. A loopback label includes the port
    (``localhost-5672``), the only difference between two local brokers.

    Raises ValueError when the endpoint has no host.
    """
    netloc = endpoint.split("://", 1)[-1].split("/", 1)[0].strip().lower()
    host, port = _host_and_port(netloc)
    if not host:
        raise ValueError("an endpoint without a host has no namespace name")
    if port and is_this_machine(host):
        return f"{host}-{port}"
    return host if host.replace(".", "").isdigit() or ":" in host else host.split(".", 1)[0]


def is_this_machine(host: str) -> bool:
    """Whether a host name or numeric address is the loopback."""
    return host in ("localhost", "::1") or (host.startswith("127.") and host.replace(".", "").isdigit())


def _host_and_port(netloc: str) -> tuple[str, str]:
    """Split ``[::1]:5672`` into ``("::1", "5672")``; the port is empty if absent."""
    if netloc.startswith("["):
        host, _, rest = netloc[1:].partition("]")
        return host, rest.removeprefix(":")
    host, _, port = netloc.partition(":")
    return host, port


def label_of_backlogs(primary: str, secondary: str, given: str | None) -> str:
    """Return the name that the backlog queues on ``secondary`` carry: ``given``, or else the primary's label.

    Raises ValueError when both endpoints have the same label and no name is given.
    """
    label = namespace_label(primary)
    if given is not None:
        return given
    if label == namespace_label(secondary):
        raise ValueError(
            f"primary and secondary are both called {label!r}; "
            "set primary_namespace_name in the options of the client and of the syphon "
            "(--primary-namespace-name of a command)"
        )
    return label


def check_namespace_name(name: object) -> None:
    """Check a ``primary_namespace_name`` option; None is valid.

    Raises TypeError or ValueError when backlog queues cannot carry the name.
    """
    if name is None:
        return
    if not isinstance(name, str):
        raise TypeError(f"primary_namespace_name must be text, not {name!r}")
    if not name or name != name.strip() or "/" in name or any(ord(mark) < 32 for mark in name):
        raise ValueError(f"primary_namespace_name must be a plain name without slashes, not {name!r}")


def backlog_queue_name(namespace: str, index: int) -> str:
    """Return the name, on the secondary, of backlog queue ``index`` of this primary namespace."""
    return f"{namespace}/{TRANSFER_SEGMENT}/{index}"


def is_backlog_queue(path: str) -> bool:
    """Whether an entity path is a backlog queue of some primary namespace."""
    parts = path.casefold().split("/")
    return len(parts) == 3 and parts[1] == TRANSFER_SEGMENT and parts[2].isdigit()


def ordered_backlog_name(namespace: str, index: int) -> str:
    """Return the name, on the secondary, of ordered backlog queue ``index`` of this primary namespace."""
    return f"{namespace}/{TRANSFER_SEGMENT}/{ORDERED_SEGMENT}/{index}"


def is_ordered_backlog(path: str) -> bool:
    """Whether an entity path is an ordered backlog queue of some primary namespace."""
    parts = path.casefold().split("/")
    return len(parts) == 4 and parts[1:3] == [TRANSFER_SEGMENT, ORDERED_SEGMENT] and parts[3].isdigit()


_ASCII_FOLD = {upper: upper + 32 for upper in range(ord("A"), ord("Z") + 1)}


def path_key(path: str) -> str:
    """Return the key that identifies an entity: the path with ASCII letters in lower case, as Service Bus compares.

    Other letters are unchanged: otherwise a path with a long s would share the state of another entity.
    """
    return _remembered_key(path) if len(path) <= MAX_PATH else _key(path)


def _key(path: str) -> str:
    return path.strip("/").translate(_ASCII_FOLD)


_remembered_key = lru_cache(maxsize=4096)(_key)  # of paths that an entity can have: senders choose them


_FORBIDDEN = re.compile(r"[\x00-\x20\x7f\\?#%@:*<>|\"]")
_SUBSCRIPTIONS = "subscriptions"


def _has_odd_segment(path: str) -> bool:
    return any(segment in ("", ".", "..") for segment in path.split("/"))


def _is_reserved(path: str) -> bool:
    segments = path.lower().split("/")
    return any(segment.startswith("$") for segment in segments) or _SUBSCRIPTIONS in segments[1:]


def _is_backlog(path: str) -> bool:
    return TRANSFER_SEGMENT in path.lower().split("/")


_TOO_LONG = f"it is longer than {MAX_PATH} characters"
_RULES: tuple[tuple[Callable[[str], object], str], ...] = (
    (lambda path: not path, "it is empty"),
    (lambda path: "://" in path, "it is an absolute address"),
    (_FORBIDDEN.search, "it holds a character no entity path may hold"),
    (_has_odd_segment, "one of its segments is empty, '.' or '..'"),
    (_is_reserved, "it names a reserved or subordinate entity"),
    (_is_backlog, "it is a backlog queue"),
)


def path_refusal(path: str) -> str | None:
    """Return why the syphon must not send to ``path``, or None when it may.

    Anyone with the right to send to a backlog queue chooses this path, and the syphon may send to every entity of the
    primary: without this check, they could deliver anywhere.
    """
    return _remembered_refusal(path) if len(path) <= MAX_PATH else _TOO_LONG


@lru_cache(maxsize=4096)  # many messages, few paths
def _remembered_refusal(path: str) -> str | None:
    return next((why for breaks, why in _RULES if breaks(path)), None)


class Inventory(NamedTuple):
    """The backlog queues found on the secondary."""

    present: tuple[str, ...]
    """Wanted and existing, by index."""

    missing: tuple[str, ...]
    """Wanted, but not existing."""

    extra: tuple[str, ...]
    """Existing, with an index beyond the count that senders and syphon use."""

    others: dict[str, int]
    """Number of backlog queues by other primary."""


def take_inventory(
    queues: Iterable[str], namespace: str, count: int, *, is_ordered: bool = False
) -> Inventory:
    """Classify ``queues`` for a pairing with ``count`` backlog queues; with ``is_ordered``, of ordered ones."""
    is_one = is_ordered_backlog if is_ordered else is_backlog_queue
    name_of = ordered_backlog_name if is_ordered else backlog_queue_name
    backlogs = {path_key(name): name for name in queues if is_one(name)}
    wanted = [name_of(namespace, index) for index in range(count)]
    keys = {path_key(name) for name in wanted}
    prefix = path_key(name_of(namespace, 0)).rpartition("/")[0] + "/"
    extra = [name for key, name in backlogs.items() if key.startswith(prefix) and key not in keys]
    others = Counter(key.partition("/")[0] for key in backlogs if not key.startswith(prefix))
    return Inventory(
        present=tuple(name for name in wanted if path_key(name) in backlogs),
        missing=tuple(name for name in wanted if path_key(name) not in backlogs),
        extra=tuple(sorted(extra, key=lambda name: (index_of(name), name))),
        others=dict(sorted(others.items())),
    )


def index_of(backlog: str) -> int:
    """Return the index at the end of a backlog queue's name."""
    return int(backlog.rpartition("/")[2])
