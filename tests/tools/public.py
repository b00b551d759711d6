"""What users may depend on, name by name with its signature: `python -m tests.tools.public` writes the listing.

The public modules are those of the API reference, their names those of `__all__`. tests/typing/test_public.py compares
the listing with the code. generate_docs adds what is new; what is gone or changed stays until somebody says so with
this command.
"""

from __future__ import annotations

import enum
import inspect
import re
import sys
from collections.abc import Iterator
from importlib import import_module
from pathlib import Path
from types import FunctionType

from tests.tools.blocks.api import API

LISTING = Path(__file__).with_name("public.txt")
ADDRESS = re.compile(r" at 0x[0-9a-f]+")


def listing() -> str:
    """The whole of it."""
    return "\n\n".join("\n".join(of_module(module)) for module in dict.fromkeys(API.values())) + "\n"


def of_module(name: str) -> Iterator[str]:
    """The lines of a module: its name, and its public names with what they take."""
    yield name
    module = import_module(name)
    for public in sorted(module.__all__):
        yield from (f"    {line}" for line in of_object(public, getattr(module, public)))


def of_object(name: str, value: object) -> Iterator[str]:
    if not inspect.isclass(value):
        yield f"{name}{signature(value)}"
        return
    if issubclass(value, enum.Enum):
        yield f"enum {name}: {', '.join(member.name for member in value)}"
        return
    bases = [name for name in bases_of(value) if name not in ("object", "Generic", "Protocol")]
    heading = f"class {name}{signature(value)}"
    yield heading + (f" is {', '.join(bases)}" if bases else "")
    for member in sorted(members(value)):
        if f"{member}:" not in heading:  # a field is in the signature already
            yield f"    {member}{signature(inspect.getattr_static(value, member))}"


def bases_of(value: type) -> Iterator[str]:
    """The names of its bases, and for a private one those of its own bases."""
    for base in value.__bases__:
        if base.__name__.startswith("_"):
            yield from bases_of(base)
        else:
            yield base.__name__


def members(of: type) -> set[str]:
    """The public members of a class that are its own, or inherited from another class of sbpair."""
    ours = [each for each in of.__mro__ if each.__module__.partition(".")[0] == "sbpair"]
    return {name for each in ours for name in vars(each) if not name.startswith("_")}


def signature(value: object) -> str:
    """The parameters and the result of what can be called; nothing for anything else."""
    match value:
        case staticmethod() | classmethod():
            return f" [{type(value).__name__}]{signature(value.__func__)}"
        case property():
            return f": {inspect.signature(value.fget).return_annotation}" if value.fget else ""
        case FunctionType() | type():
            try:
                return ADDRESS.sub("", str(inspect.signature(value)))
            except ValueError:  # a class of the standard library without one
                return ""
    return ""


def add_what_is_new() -> bool:
    """Write the listing if nothing of it is gone or changed, and something is new; say whether it was written."""
    before, now = LISTING.read_text("utf-8"), listing()
    if before == now or set(before.splitlines()) - set(now.splitlines()):
        return False
    LISTING.write_text(now, "utf-8")
    return True


def main() -> None:
    LISTING.write_text(listing(), "utf-8")
    sys.stdout.write(f"wrote {LISTING.name}\n")


if __name__ == "__main__":
    main()
