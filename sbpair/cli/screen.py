"""How is a table printed? Coloured on a terminal, whole lines into a file, and no control characters."""

from __future__ import annotations

import sys

from rich.console import Console
from rich.table import Table

WIDTH_IN_A_FILE = 200


def plain(text: str) -> str:
    """``text`` without what would move a terminal's cursor or change its colours."""
    return "".join(letter if letter.isprintable() else "\N{REPLACEMENT CHARACTER}" for letter in text)


def show(table: Table) -> None:
    """Print ``table`` to standard output."""
    width = None if sys.stdout.isatty() else WIDTH_IN_A_FILE
    Console(width=width, highlight=False, markup=False, emoji=False).print(table)
