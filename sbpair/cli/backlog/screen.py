"""How is a table printed: coloured on a terminal, whole lines into a file."""

from __future__ import annotations

import sys

from rich.console import Console
from rich.table import Table

WIDTH_IN_A_FILE = 200


def show(table: Table) -> None:
    """Print ``table`` to standard output."""
    width = None if sys.stdout.isatty() else WIDTH_IN_A_FILE
    Console(width=width, highlight=False, markup=False, emoji=False).print(table)
