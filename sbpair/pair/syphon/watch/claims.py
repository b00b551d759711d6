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
from dataclasses import dataclass, field

from sbpair.pair.amqp.errors import SERVER_BUSY, TIMEOUT, UNAUTHORIZED_ACCESS
from sbpair.pair.client.connection import NamespaceConnection
from sbpair.pair.client.errors import (
    ClientError,
    ConnectionLostError,
    LinkRefusedError,
    NamespaceUnusableError,
    TokenRefusedError,
)
from sbpair.pair.envelope.names import path_refusal

from .peeking import peek_parked

NAMESPACE = ""  # the path of a claim to the whole namespace
MAX_PEEKED = 100  # of the oldest messages of each backlog, when it was searched before
MAX_TRIED = 1000  # destinations remembered, which senders choose
TOO_BUSY = frozenset({SERVER_BUSY, TIMEOUT})
PARTITIONED = 2**48  # sequence numbers of partitioned queues are this large


async def refusal_of(connection: NamespaceConnection, paths: Iterable[str]) -> TokenRefusedError | None:
    """Claim ``paths`` until one is accepted; return None if one is, else the first refusal.

    Raises ConnectionLostError when the connection is lost, or ``$cbs`` does not answer or is too busy to judge.
    """
    first: TokenRefusedError | None = None
    for path in paths:
        try:
            await connection.authorize(path)
            return None
        except TokenRefusedError as error:
            if error.condition is not None and error.condition.symbol in TOO_BUSY:
                raise ConnectionLostError("no claim can be made", error.condition) from error
            first = first or error
        except (
            LinkRefusedError
        ) as error:  # $cbs does not answer, or refuses a link: that says nothing about the claim
            raise ConnectionLostError(f"no claim can be made: {error}") from error
    return first


@dataclass(slots=True)
class ParkedWalk:
    """How far the backlogs were searched for a destination that accepts the key."""

    tried: dict[str, None] = field(default_factory=dict)  # the latest last, at most MAX_TRIED
    ends: dict[str, int] = field(default_factory=dict)  # the next sequence number of each backlog

    def take(self, path: str) -> bool:
        """Return whether ``path`` is to be tried: it has not been, as far as is remembered."""
        if path in self.tried or path_refusal(path) is not None:
            return False
        self.tried[path] = None
        if len(self.tried) > MAX_TRIED:
            del self.tried[next(iter(self.tried))]
            self.ends.clear()  # what is forgotten is found again
        return True

    def passed(self, backlog: str, number: int | None) -> None:
        """Record that the message with this sequence number was seen."""
        if len(self.tried) == MAX_TRIED:  # some may be forgotten: the next search begins anew
            return
        if number is not None and number < PARTITIONED:  # those of partitions do not only grow
            self.ends[backlog] = max(number + 1, self.ends.get(backlog, 0))


async def parked_paths(
    connection: NamespaceConnection, backlogs: Iterable[str], walk: ParkedWalk
) -> AsyncGenerator[str, None]:
    """Iterate over the destinations of parked messages, each once; skips backlogs that cannot be peeked.

    The first time, of all messages. Then of those tried before, of the oldest, for a backlog may be another of the
    same name, and of those behind where the last iteration ended: invented paths at the head hide nothing.
    Close it (``aclosing``) when leaving it early: it has a link open. Raises ConnectionLostError.
    """
    for path in tuple(walk.tried):
        yield path
    for backlog in backlogs:
        end = walk.ends.get(backlog)
        spans = [(1, None)] if end is None else [(1, MAX_PEEKED), (end, None)]
        for start, most in spans:
            try:
                async with aclosing(peek_parked(connection, backlog, start=start, most=most)) as messages:
                    async for message in messages:
                        if message.path is not None and walk.take(message.path):
                            yield message.path
                        walk.passed(backlog, message.sequence_number)
            except ConnectionLostError:
                raise
            except ClientError:
                break


def is_refusal(error: ClientError) -> bool:
    """Return whether ``error`` is a refusal of the credential, rather than a failure to connect."""
    symbol = error.condition.symbol if error.condition is not None else None
    return isinstance(error, NamespaceUnusableError) or symbol == UNAUTHORIZED_ACCESS


def as_fault(error: TokenRefusedError) -> ClientError:
    """Return NamespaceUnusableError if the credential was refused, else ConnectionLostError (such as a busy node)."""
    kind = NamespaceUnusableError if is_refusal(error) else ConnectionLostError
    fault = kind(str(error))
    fault.condition = error.condition
    return fault
