"""The `sbpair` command. Each command has a module of its own, imported only when it is called."""

from __future__ import annotations

import sys

__all__ = ["main"]

INTERRUPTED = 130  # as a shell reports a command that Ctrl-C ended


def main(arguments: list[str] | None = None) -> None:
    """Run the command line with ``arguments``, by default those of the process, and exit with its code.

    Ctrl-C exits with 130 and one line, also while the command is still being loaded.
    """
    try:
        from sbpair.cli.group import run
    except KeyboardInterrupt:
        sys.stderr.write("sbpair: interrupted\n")
        sys.exit(INTERRUPTED)
    sys.exit(run(arguments))
