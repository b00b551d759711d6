"""How does a failure on the way to the secondary end a command?

Over AMQP the condition says it, over HTTP the status does; who answers nothing is out of reach.
"""

from __future__ import annotations

import ssl
from collections.abc import AsyncIterator, Iterator
from contextlib import asynccontextmanager, contextmanager
from typing import TYPE_CHECKING

from sbpair.cli.backlog.target import Target
from sbpair.cli.errors import AMBIENT_FAILED, CommandError, with_step
from sbpair.cli.exit_codes import ExitCode

if TYPE_CHECKING:
    from sbpair.syphon.connection import NamespaceConnection

TIMEOUT = 30.0  # seconds for the secondary to answer the first word
Ending = tuple[ExitCode, str]

NO_RIGHT: Ending = (ExitCode.AUTHORIZATION, "check the key and its rights")
NO_IDENTITY: Ending = (ExitCode.AUTHORIZATION, AMBIENT_FAILED)
NO_QUEUE: Ending = (
    ExitCode.CONFIGURATION,
    "see `sbpair backlog list`, or create it with `sbpair backlog create`",
)
NO_ANSWER: Ending = (ExitCode.UNAVAILABLE, "check the address and the network, then try again")
NO_TRUST: Ending = (ExitCode.CONFIGURATION, "check the address and --ca-file")
REFUSED: Ending = (ExitCode.FAILED, "")

BY_CONDITION = {"amqp:unauthorized-access": NO_RIGHT, "amqp:not-found": NO_QUEUE}
BY_CLASS = {"ConnectionLost": NO_ANSWER, "SyphonFaulted": NO_TRUST, "CaFileError": NO_TRUST}
BY_STATUS = {401: NO_RIGHT, 403: NO_RIGHT, 404: NO_QUEUE, 503: NO_ANSWER, 504: NO_ANSWER}


@asynccontextmanager
async def connected(target: Target) -> AsyncIterator[NamespaceConnection]:
    """A raw connection to the secondary. Raises CommandError for whatever the wire says."""
    from sbpair.syphon.dial import connect

    with over_amqp():
        connection = await connect(target.namespace(), ca_file=target.ca_file, timeout=TIMEOUT)
        try:
            yield connection
        finally:
            await connection.close()


@contextmanager
def over_amqp() -> Iterator[None]:
    """Around calls of the raw client. Raises CommandError for whatever the wire says."""
    from sbpair.syphon.errors import SyphonError

    try:
        yield
    except SyphonError as error:
        symbol = str(error.condition.symbol) if error.condition else ""
        ending = BY_CONDITION.get(symbol) or BY_CLASS.get(type(error).__name__, REFUSED)
        raise _ended(error, ending) from error


@contextmanager
def administering() -> Iterator[None]:
    """Around calls of the administration client. Raises CommandError for whatever it raises."""
    from azure.core.exceptions import AzureError, ClientAuthenticationError, HttpResponseError

    try:
        yield
    except HttpResponseError as error:
        unproved = NO_IDENTITY if isinstance(error, ClientAuthenticationError) else REFUSED
        ending = BY_STATUS.get(error.status_code or 0, unproved)
        if ending is NO_RIGHT:
            ending = (ExitCode.AUTHORIZATION, "listing and creating queues needs the Manage right")
        raise _ended(error, ending) from error
    except AzureError as error:
        known = BY_CLASS.get(type(error).__name__, NO_ANSWER)
        raise _ended(error, NO_TRUST if _is_certificate(error) else known) from error


def _is_certificate(error: BaseException) -> bool:
    return isinstance(error.__context__, ssl.SSLError) or "CERTIFICATE_VERIFY_FAILED" in str(error)


def _ended(error: BaseException, ending: Ending) -> CommandError:
    code, step = ending
    return CommandError(with_step(error, step), code)


@contextmanager
def passing_by(missing: bool) -> Iterator[None]:
    """Around one backlog queue of several: one that does not exist is passed by, if ``missing`` says so."""
    from sbpair.syphon.errors import LinkRefused, TokenRefused

    try:
        yield
    except (LinkRefused, TokenRefused) as error:
        is_missing = error.condition is not None and str(error.condition.symbol) == "amqp:not-found"
        if not (missing and is_missing):
            raise
