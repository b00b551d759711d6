"""What does the reader see when something goes wrong?

One line that says what happened and what to do next, and an exit code; never a
traceback, never a key. Every command ends here: an error class that is known by
name has its row in the table below, an unknown one is a defect of ours and says so.
"""

from __future__ import annotations

import os
import traceback
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass

import click

from sbpair.cli.exit_codes import ExitCode
from sbpair.cli.redaction import redact

LONGEST = 400
NAME_OPTION, NAME_FLAG = (
    "set primary_namespace_name in the options, here",
    "say --primary-namespace-name, here",
)
TRACEBACK = "SBPAIR_TRACEBACK"  # set to 1 to see where a defect sits; still without keys


class CommandError(Exception):
    """A known failure: what happened, what to do, and the exit code."""

    def __init__(self, message: str, code: ExitCode) -> None:
        super().__init__(message)
        self.code = code


class ConfigurationError(CommandError):
    """Something the command was given cannot work."""

    def __init__(self, message: str) -> None:
        super().__init__(message, ExitCode.CONFIGURATION)


@dataclass(frozen=True, slots=True)
class Known:
    code: ExitCode
    next_step: str


CREDENTIALS = Known(ExitCode.AUTHORIZATION, "check the key and its name, and that it was not regenerated")
RIGHTS = Known(ExitCode.AUTHORIZATION, "the key needs Listen on the secondary and Send on the primary")
AMBIENT_FAILED = "`az login`, or set the environment that azure-identity reads"
NO_ANSWER = Known(ExitCode.UNAVAILABLE, "check the address and the network, then try again")
SETTINGS = Known(ExitCode.CONFIGURATION, "")

# By class name, so that a command that never meets the SDK does not load it. The first
# name found along the inheritance of the error counts.
KNOWN: dict[str, Known] = {
    "ServiceBusAuthenticationError": CREDENTIALS,
    "ServiceBusAuthorizationError": RIGHTS,
    "ClientAuthenticationError": Known(ExitCode.AUTHORIZATION, AMBIENT_FAILED),
    "MessagingEntityNotFoundError": Known(ExitCode.CONFIGURATION, "create the queue or correct its name"),
    "BacklogUnavailableError": NO_ANSWER,
    "SpoolError": SETTINGS,
    "CaFileError": SETTINGS,
    "ServiceBusConnectionError": NO_ANSWER,
    "ServiceBusCommunicationError": NO_ANSWER,
    "OperationTimeoutError": NO_ANSWER,
    "ServiceBusError": Known(ExitCode.FAILED, ""),
    "ConnectionLost": NO_ANSWER,
    "SyphonError": Known(ExitCode.FAILED, ""),
    "StoreFailed": Known(ExitCode.UNAVAILABLE, ""),
    "BrokerError": SETTINGS,
    "OSError": NO_ANSWER,
}


@contextmanager
def configuration() -> Iterator[None]:
    """Around what only reads settings: there, a ValueError is the reader's to correct."""
    try:
        yield
    except ValueError as error:
        raise ConfigurationError(one_line(error).replace(NAME_OPTION, NAME_FLAG)) from error


def one_line(error: BaseException) -> str:
    """What the error says, on one line, bounded, without keys or control characters."""
    words = " ".join(redact(str(error)).split())
    text = "".join(letter for letter in words if letter.isprintable()).strip() or type(error).__name__
    return text if len(text) <= LONGEST else text[: LONGEST - 3] + "..."


def with_step(error: BaseException, step: str) -> str:
    """What the error says and what to do about it; the step is never what is cut off."""
    if not step:
        return one_line(error)
    room = LONGEST - len(step) - 2
    text = one_line(error)
    return f"{text if len(text) <= room else text[: room - 3] + '...'}; {step}"


def known(error: BaseException) -> Known | None:
    names = (base.__name__ for base in type(error).__mro__)
    return next((KNOWN[name] for name in names if name in KNOWN), None)


def explained(error: BaseException) -> tuple[str, ExitCode]:
    """The line and the exit code for an error that ended a command."""
    if isinstance(error, CommandError):
        return one_line(error), error.code
    row = known(error)
    if row is None:
        return _defect(error), ExitCode.FAILED
    return with_step(error, row.next_step), row.code


def _defect(error: BaseException) -> str:
    if os.environ.get(TRACEBACK) == "1":
        click.echo(redact("".join(traceback.format_exception(error))), err=True)
    return f"unexpected {type(error).__name__}: {one_line(error)} (a defect; {TRACEBACK}=1 shows where)"
