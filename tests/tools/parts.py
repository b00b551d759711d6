"""The four parts of sbpair: which files of the product and of the tests belong to each."""

from __future__ import annotations

from pathlib import PurePath

PAIR, BROKER, DATA, CONTRACT = PARTS = ("pair", "broker", "data", "contract")
PROJECT = "project"
"""What belongs to no part: the tests of the docs, of the house and of the whole, the trials, the tools."""

ROOMS = {
    BROKER: ("broker", "testing", "page", "store", "wire", "interop"),
    DATA: ("audit", "spark"),
    CONTRACT: ("contract",),
    PROJECT: ("trials", "tools", "typing", "deploy"),
}
COMMANDS = {
    BROKER: ("broker", "emulator", "faults", "proxy", "entity", "message", "consuming", "demo", "long"),
    DATA: ("audit", "daily", "spark", "journal"),
    CONTRACT: ("verify", "doctor", "drill", "findings", "inventory"),
}


def part_of(path: str) -> str:
    """The part of a file, by its path from the root of the repository."""
    match PurePath(path).parts:
        case ("tests", _):
            return PROJECT
        case (_, "cli", name, *_):
            word = PurePath(name).stem.removeprefix("test_").partition("_")[0]
            return _found(COMMANDS, word)
        case (_, room, *_):
            return _found(ROOMS, room)
    return PROJECT


def _found(table: dict[str, tuple[str, ...]], name: str) -> str:
    return next((part for part, names in table.items() if name in names), PAIR)
