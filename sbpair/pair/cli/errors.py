"""Failures of a command: their exit codes, and the one line on standard error that ends it.

The line says what happened and what to do next; it never contains a traceback or a key. `KNOWN` maps the error
classes of the libraries to exit codes and next steps; any other exception is reported as a defect of sbpair.
"""

from __future__ import annotations

import errno
import os
import traceback
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from enum import IntEnum

import click

from sbpair.pair.cli.output import redact

MAX_TEXT = 400  # characters of an error line
NAME_OPTION, NAME_FLAG = (
    "set primary_namespace_name in the options, here",
    "use --primary-namespace-name, here",
)
TRACEBACK = "SBPAIR_TRACEBACK"  # environment variable: 1 prints the traceback of a defect, redacted


class ExitCode(IntEnum):
    """The exit codes of every `sbpair` command."""

    OK = 0
    FAILED = 1  # the check found something, or the operation failed
    USAGE = 2  # an unknown command or flag, or a value out of range
    CONFIGURATION = 3  # an invalid connection string, port or file, or a queue that does not exist
    AUTHORIZATION = 4  # the key was refused or lacks a right
    UNAVAILABLE = 5  # the namespace did not answer, a disk is full, or the status port is in use
    DEAD_LETTERED = 6  # the drain is over, but messages were dead-lettered on their backlogs


class CommandError(Exception):
    """A known failure: what happened, what to do, and the exit code."""

    def __init__(self, message: str, code: ExitCode) -> None:
        super().__init__(message)
        self.code = code


class ConfigurationError(CommandError):
    """A flag, variable or file has a value that cannot work; exit code 3."""

    def __init__(self, message: str) -> None:
        super().__init__(message, ExitCode.CONFIGURATION)


@dataclass(frozen=True, slots=True)
class Known:
    """How a class of errors ends a command."""

    code: ExitCode
    next_step: str


AMBIENT_FAILED = "`az login`, or set the environment that azure-identity reads"
CREDENTIALS = Known(ExitCode.AUTHORIZATION, "check the key and its name, and that it was not regenerated")
RIGHTS = Known(ExitCode.AUTHORIZATION, "the key lacks a right; --help names those that the command needs")
NO_ANSWER = Known(ExitCode.UNAVAILABLE, "check the address and the network, then try again")
SETTINGS = Known(ExitCode.CONFIGURATION, "")
PATH = Known(ExitCode.CONFIGURATION, "check the path, and who may use it")
DISK = Known(ExitCode.UNAVAILABLE, "make room there, or name another place")
OF_DISK = frozenset((errno.ENOSPC, errno.EDQUOT, errno.EROFS))

# Keyed by class name: commands that do not use the SDK must not load it. The first class found in the error's
# MRO applies.
KNOWN: dict[str, Known] = {
    "ServiceBusAuthenticationError": CREDENTIALS,
    "ServiceBusAuthorizationError": RIGHTS,
    "ClientAuthenticationError": Known(ExitCode.AUTHORIZATION, AMBIENT_FAILED),
    "MessagingEntityNotFoundError": Known(ExitCode.CONFIGURATION, "create the entity or correct its name"),
    "BacklogUnavailableError": NO_ANSWER,
    "SpoolError": SETTINGS,
    "CaFileError": SETTINGS,
    "ServiceBusConnectionError": NO_ANSWER,
    "ServiceBusCommunicationError": NO_ANSWER,
    "OperationTimeoutError": NO_ANSWER,
    "ServiceBusError": Known(ExitCode.FAILED, ""),
    "ConnectionLostError": NO_ANSWER,
    "ClientError": Known(ExitCode.FAILED, ""),
    "StoreFailedError": Known(ExitCode.UNAVAILABLE, ""),
    "BrokerError": SETTINGS,
    "FileNotFoundError": PATH,
    "IsADirectoryError": PATH,
    "NotADirectoryError": PATH,
    "PermissionError": PATH,
    "OSError": NO_ANSWER,
}


@contextmanager
def configuration() -> Iterator[None]:
    """Convert a ValueError to ConfigurationError; for blocks that only read settings."""
    try:
        yield
    except ValueError as error:
        raise ConfigurationError(one_line(error).replace(NAME_OPTION, NAME_FLAG)) from error


def one_line(error: BaseException) -> str:
    """Return the text of ``error`` on one line, at most MAX_TEXT characters, redacted and printable."""
    words = " ".join(redact(str(error)).split())
    text = "".join(letter for letter in words if letter.isprintable()).strip() or type(error).__name__
    return text if len(text) <= MAX_TEXT else text[: MAX_TEXT - 3] + "..."


def with_step(error: BaseException, step: str) -> str:
    """Return `one_line` of ``error`` and the next step; a long error is shortened, the step never."""
    if not step:
        return one_line(error)
    room = MAX_TEXT - len(step) - 2
    text = one_line(error)
    return f"{text if len(text) <= room else text[: room - 3] + '...'}; {step}"


def find_known(error: BaseException) -> Known | None:
    """Return the row of KNOWN for ``error``, or None; errors of a full or read-only disk have a row of their own."""
    if isinstance(error, OSError) and error.errno in OF_DISK:
        return DISK
    names = (base.__name__ for base in type(error).__mro__)
    return next((KNOWN[name] for name in names if name in KNOWN), None)


def explain(error: BaseException) -> tuple[str, ExitCode]:
    """Return the line and the exit code for an error that ended a command."""
    if isinstance(error, CommandError):
        return one_line(error), error.code
    row = find_known(error)
    if row is None:
        return _defect(error), ExitCode.FAILED
    return with_step(error, row.next_step), row.code


def _defect(error: BaseException) -> str:
    if os.environ.get(TRACEBACK) == "1":
        click.echo(redact("".join(traceback.format_exception(error))), err=True)
    return f"unexpected {type(error).__name__}: {one_line(error)} (a defect; {TRACEBACK}=1 shows where)"
