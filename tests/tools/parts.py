"""The four parts of sbpair: what each is for, which it may import, and which files belong to it."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import PurePath


@dataclass(frozen=True, slots=True)
class Part:
    """A folder of sbpair/ and of tests/.

    ``imports``: the parts it may import. ``extra``: what it needs installed. ``loop``: the tests, below tests/, that a
    contributor runs again and again. ``long``: the files among them that take half of the time, with searches of every
    bytecode, with tokens that expire, with processes: they are left out of that loop.
    """

    purpose: str
    imports: tuple[str, ...]
    extra: str
    loop: tuple[str, ...]
    long: tuple[str, ...] = ()


PARTS = {
    "pair": Part(
        "Send although a namespace is down, and bring home what was parked meanwhile.",
        (),
        "cli,identity,otel",
        (
            *("pair/amqp", "pair/auth", "pair/client", "pair/envelope", "pair/observation", "pair/pairing"),
            *("pair/processor", "pair/syphon", "pair/tracing"),
        ),
        (
            *("pair/client/test_websocket.py", "pair/observation/test_journal_interrupted.py"),
            *("pair/pairing/test_machines_interrupted.py", "pair/syphon/test_sides.py"),
            "pair/tracing/test_outage.py",
        ),
    ),
    "broker": Part(
        "Test against a Service Bus namespace on this machine, and break it.",
        ("pair",),
        "broker",
        ("broker/test_*.py", "broker/store", "broker/testing"),
    ),
    "data": Part(
        "Prove from journals that nothing was lost; messages as tables.",
        ("pair",),
        "spark",
        ("data/audit", "data/spark"),
        ("data/audit/test_lakehouse.py", "data/audit/test_repairs.py", "data/audit/test_tampering.py"),
    ),
    "contract": Part(
        "Check what is assumed of the service, and of a pairing.",
        ("pair", "broker", "data"),
        "cli,audit",
        ("contract",),
        ("contract/cli/test_demo.py",),
    ),
}
PROJECT = "project"
"""What belongs to no part: the doors, the tests of docs and house, the trials, the tools."""


def part_of(path: str) -> str:
    """The part of a file, by its path from the root of the repository."""
    match PurePath(path).parts:
        case ("sbpair" | "tests", name, _, *_) if name in PARTS:
            return name
    return PROJECT
