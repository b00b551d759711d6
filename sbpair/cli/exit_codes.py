"""What does the exit code tell a script?"""

from __future__ import annotations

from enum import IntEnum


class ExitCode(IntEnum):
    """The exit codes of every `sbpair` command."""

    OK = 0
    FAILED = 1  # what was looked for was found, or what was tried failed
    USAGE = 2  # an unknown command or flag, or a value out of its range
    CONFIGURATION = 3  # a connection string, a port, a file, a queue that is not there
    AUTHORIZATION = 4  # the broker refused the key, or the key lacks a right
    UNAVAILABLE = 5  # nobody answered
