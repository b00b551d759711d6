"""All entries of the contract, by subject; the broker of this package keeps them all."""

from __future__ import annotations

from importlib import import_module

from .entry import Entry

SUBJECTS = {
    "names": "Backlog queues and names",
    "sending": "Sending",
    "fidelity": "What a message keeps",
    "settling": "Settling",
    "locks": "Locks",
    "expiry": "Time to live",
    "schedule": "Scheduling",
    "peeking": "Peeking",
    "pings": "Pings",
    "deadletters": "Dead letters",
    "sessions": "Sessions",
    "duplicates": "Duplicate detection",
    "topics": "Topics, subscriptions and rules",
    "forwarding": "Forwarding",
    "transactions": "Transactions",
    "partitions": "Partitioned entities",
    "limits": "Sizes and limits",
    "errors": "Errors by cause",
    "tokens": "Tokens and $cbs",
    "wire": "The protocol",
}
"""The subjects in the order of the page, with their titles; each is a module of `subjects`."""


def entries() -> tuple[Entry, ...]:
    """Return every entry, by subject and number."""
    return tuple(each for subject in SUBJECTS for each in of_subject(subject))


def of_subject(subject: str) -> tuple[Entry, ...]:
    """Return the entries of one subject, by number."""
    module = import_module(f"{__package__}.subjects.{subject}")
    found = [value for value in vars(module).values() if isinstance(value, Entry)]
    return tuple(sorted(found, key=lambda each: int(each.id.rpartition("-")[2])))
