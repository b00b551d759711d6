"""The `sbpair` command: one small file a command, loaded only when it is called for."""

from sbpair.cli.group import main

__all__ = ["main"]
