"""A command's connection to a namespace, and the table of errors that end a command."""

from __future__ import annotations

import ssl
from collections.abc import AsyncIterator, Iterator, Mapping
from contextlib import asynccontextmanager, contextmanager
from typing import TYPE_CHECKING

from sbpair.pair.amqp.errors import NOT_FOUND, UNAUTHORIZED_ACCESS
from sbpair.pair.cli.errors import AMBIENT_FAILED, CommandError, ExitCode, with_step

if TYPE_CHECKING:
    from sbpair.pair.auth.connection_string import NamespaceAccess
    from sbpair.pair.client.connection import NamespaceConnection

CONNECT_TIMEOUT = 30.0  # seconds
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
BY_CONDITION = {UNAUTHORIZED_ACCESS: NO_RIGHT, NOT_FOUND: NO_QUEUE}
BY_CLASS = {"ConnectionLostError": NO_ANSWER, "NamespaceUnusableError": NO_TRUST, "CaFileError": NO_TRUST}
BY_STATUS = {401: NO_RIGHT, 403: NO_RIGHT, 404: NO_QUEUE, 503: NO_ANSWER, 504: NO_ANSWER}


@asynccontextmanager
async def connection_to(
    namespace: NamespaceAccess, endings: Mapping[str, Ending] = BY_CONDITION
) -> AsyncIterator[NamespaceConnection]:
    """Open an AMQP connection, closed at the end. Converts AMQP errors to CommandError by the table ``endings``."""
    from sbpair.pair.client.connection import connect

    with over_amqp(endings):
        connection = await connect(namespace, timeout=CONNECT_TIMEOUT)
        try:
            yield connection
        finally:
            await connection.close()


@contextmanager
def over_amqp(endings: Mapping[str, Ending] = BY_CONDITION) -> Iterator[None]:
    """Convert the errors of the AMQP client to CommandError, by their AMQP condition."""
    from sbpair.pair.client.errors import ClientError

    try:
        yield
    except ClientError as error:
        symbol = str(error.condition.symbol) if error.condition else ""
        ending = endings.get(symbol) or _by_class(error, REFUSED)
        raise _command_error(error, ending) from error


@contextmanager
def administering() -> Iterator[None]:
    """Convert the errors of the administration client to CommandError, by their HTTP status."""
    from azure.core.exceptions import AzureError, ClientAuthenticationError, HttpResponseError

    try:
        yield
    except HttpResponseError as error:
        unproved = NO_IDENTITY if isinstance(error, ClientAuthenticationError) else REFUSED
        ending = BY_STATUS.get(error.status_code or 0, unproved)
        if ending is NO_RIGHT:
            ending = (ExitCode.AUTHORIZATION, "listing and creating queues needs the Manage right")
        raise _command_error(error, ending) from error
    except AzureError as error:
        known = _by_class(error, NO_ANSWER)
        raise _command_error(error, NO_TRUST if is_certificate(error) else known) from error


def is_certificate(error: BaseException) -> bool:
    """Whether ``error`` means that the peer's certificate is not trusted."""
    return isinstance(error.__context__, ssl.SSLError) or "CERTIFICATE_VERIFY_FAILED" in str(error)


def _by_class(error: BaseException, otherwise: Ending) -> Ending:
    """Return the ending for ``error``: that of its nearest base class in the table."""
    names = (each.__name__ for each in type(error).__mro__)
    return next((BY_CLASS[name] for name in names if name in BY_CLASS), otherwise)


def _command_error(error: BaseException, ending: Ending) -> CommandError:
    code, step = ending
    return CommandError(with_step(error, step), code)
