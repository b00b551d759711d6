"""Claims: whether a side accepts the syphon's credential, checked before anything is received.

    the whole namespace --accepted--> the side accepts the syphon
        | refused
        '-> each known path --one accepted--> the side accepts the syphon (its key is for single entities)
                | all refused
                '-> the side refuses the syphon

An accepted claim says nothing about rights, which are checked when a link is attached.
"""

from __future__ import annotations

from collections.abc import AsyncGenerator, Iterable
from contextlib import aclosing

from sbpair.amqp.errors import UNAUTHORIZED_ACCESS
from sbpair.client.connection import NamespaceConnection
from sbpair.client.errors import ClientError, ConnectionLost, LinkRefused, SyphonFaulted, TokenRefused
from sbpair.envelope.names import path_refusal

from .peeking import peek_parked

NAMESPACE = ""  # the path of a claim to the whole namespace
MAX_PEEKED = 100  # parked messages of each backlog


async def refusal_of(connection: NamespaceConnection, paths: Iterable[str]) -> TokenRefused | None:
    """Claim ``paths`` until one is accepted; return None if one is, else the first refusal.

    Raises ConnectionLost when the connection is lost or ``$cbs`` does not answer.
    """
    first: TokenRefused | None = None
    for path in paths:
        try:
            await connection.authorize(path)
            return None
        except TokenRefused as error:
            first = first or error
        except (
            LinkRefused
        ) as error:  # $cbs does not answer, or refuses a link: that says nothing about the claim
            raise ConnectionLost(f"no claim can be made: {error}") from error
    return first


async def parked_paths(connection: NamespaceConnection, backlogs: Iterable[str]) -> AsyncGenerator[str, None]:
    """Iterate over the destinations of the oldest parked messages, each once; skips backlogs that cannot be peeked.

    Close it (``aclosing``) when leaving it early: it has a link open. Raises ConnectionLost.
    """
    seen = set()
    for backlog in backlogs:
        try:
            async with aclosing(peek_parked(connection, backlog, most=MAX_PEEKED)) as messages:
                async for message in messages:
                    path = message.path
                    if path is not None and path not in seen and path_refusal(path) is None:
                        seen.add(path)
                        yield path
        except ConnectionLost:
            raise
        except ClientError:
            continue


def is_refusal(error: ClientError) -> bool:
    """Return whether ``error`` is a refusal of the credential, rather than a failure to connect."""
    symbol = error.condition.symbol if error.condition is not None else None
    return isinstance(error, SyphonFaulted) or symbol == UNAUTHORIZED_ACCESS


def as_fault(error: TokenRefused) -> ClientError:
    """Return SyphonFaulted if the credential was refused, ConnectionLost otherwise (for example by a busy node)."""
    kind = SyphonFaulted if is_refusal(error) else ConnectionLost
    fault = kind(str(error))
    fault.condition = error.condition
    return fault
