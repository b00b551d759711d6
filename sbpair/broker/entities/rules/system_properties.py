"""Which properties has every message, and what may an action do to them? In lower case (3.8)."""

from __future__ import annotations

TEXTS = frozenset(
    ("contenttype", "correlationid", "label", "messageid", "replyto", "replytosessionid", "sessionid", "to")
)
SPAN = "timetolive"
IGNORED = "scheduledenqueuetimeutc"  # an action may set it, and nothing comes of it
SETTABLE = TEXTS | {SPAN, IGNORED}
REMOVABLE = SETTABLE - {"messageid"}  # without one a message cannot be settled by every client

ALIASES = {"subject": "label"}
READABLE = SETTABLE | {
    "deadlettersource",
    "deliverycount",
    "enqueuedsequencenumber",
    "enqueuedtimeutc",
    "expiresatutc",
    "forcepersistence",
    "lockeduntilutc",
    "locktoken",
    "partitionkey",
    "sequencenumber",
    "size",
    "state",
    "viapartitionkey",
}


def canonical(name: str) -> str | None:
    """The name by which the property is known here, whatever its case; None for one that does not exist."""
    lower = name.lower()
    lower = ALIASES.get(lower, lower)
    return lower if lower in READABLE else None
