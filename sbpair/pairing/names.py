"""How are backlog queues named, and what is a namespace called? (P-10)

    backlog queue i of primary "contoso":   contoso/x-servicebus-transfer/i

Pure: the standard library only.
"""

from __future__ import annotations

from functools import lru_cache

TRANSFER_SEGMENT = "x-servicebus-transfer"
LONGEST_PATH = 260  # characters of an entity's path, the service's limit


def namespace_label(endpoint: str) -> str:
    """The short name of a namespace: the first label of its host, lower case.

    Takes ``sb://contoso.servicebus.windows.net/``, ``contoso.servicebus.windows.net`` or
    ``localhost:5672``. A numeric address is its own label. Raises ValueError when there is no host.
    """
    host = endpoint.split("://", 1)[-1].split("/", 1)[0].strip()
    if host.startswith("["):
        return host.split("]", 1)[0].lstrip("[").lower()
    host = host.rsplit(":", 1)[0].lower() if ":" in host else host.lower()
    if not host:
        raise ValueError("an endpoint without a host has no namespace name")
    return host if host.replace(".", "").isdigit() else host.split(".", 1)[0]


def label_of_backlogs(primary: str, secondary: str, given: str | None) -> str:
    """What the backlog queues on ``secondary`` are called after: ``given``, or else the primary's label.

    Raises ValueError when the two endpoints have the same label, so that it names neither.
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
    """Whether backlog queues can be called after this. Raises TypeError, ValueError."""
    if name is None:
        return
    if not isinstance(name, str):
        raise TypeError(f"primary_namespace_name must be text, not {name!r}")
    if not name or name != name.strip() or "/" in name or any(ord(mark) < 32 for mark in name):
        raise ValueError(f"primary_namespace_name must be a plain name without slashes, not {name!r}")


def backlog_queue_name(namespace: str, index: int) -> str:
    """The name, on the secondary, of backlog queue ``index`` of this primary namespace (P-10)."""
    return f"{namespace}/{TRANSFER_SEGMENT}/{index}"


def is_backlog_queue(path: str) -> bool:
    """Whether an entity path is a backlog queue of some primary namespace (P-10)."""
    parts = path.casefold().split("/")
    return len(parts) == 3 and parts[1] == TRANSFER_SEGMENT and parts[2].isdigit()


@lru_cache(maxsize=4096)
def path_key(path: str) -> str:
    """What one entity is known by: Service Bus compares paths without regard to case."""
    return path.strip("/").casefold()
