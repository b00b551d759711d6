"""The `sbpair` command. Each command has a module of its own, imported only when it is called."""

from __future__ import annotations

import sys

from sbpair.pair.ground.extras import ExtraMissingError, require

__all__ = ["main"]

UNINSTALLED = 3  # as for any other configuration that cannot work
INTERRUPTED = 130  # as a shell reports a command that Ctrl-C ended


def main(arguments: list[str] | None = None) -> None:
    """Run the command line with ``arguments``, by default those of the process, and exit with its code.

    Ctrl-C exits with 130 and one line, also while the command is still being loaded. Without the extra `cli` it exits
    with 3 and the line that installs it.
    """
    try:
        require("cli", "the command sbpair")
        from sbpair.pair.cli.group import run
    except ExtraMissingError as error:
        sys.stderr.write(f"sbpair: {error}\n")
        sys.exit(UNINSTALLED)
    except KeyboardInterrupt:
        sys.stderr.write("sbpair: interrupted\n")
        sys.exit(INTERRUPTED)
    sys.exit(run(arguments))
