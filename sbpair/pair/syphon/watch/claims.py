"""Claims: whether a side accepts the syphon's credential, checked before anything is received.

    the whole namespace --accepted--> the side accepts the syphon
        | refused
        '-> each known path --one accepted--> the side accepts the syphon (its key is for single entities)
                | all refused
                '-> the side refuses the syphon

An accepted claim says nothing about rights, which are checked when a link is attached.
"""

from __future__ import annotations

from collections.abc import AsyncGenerator, Awaitable, Callable, Iterable
from contextlib import AsyncExitStack, aclosing
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
from sbpair.pair.envelope.names import path_key, path_refusal

from .peeking import peek_parked

NAMESPACE = ""  # the path of a claim to the whole namespace
MAX_PEEKED = 100  # of the oldest messages of each backlog, when it was searched before
MAX_TRIED = 1000  # destinations remembered, which senders choose
TOO_BUSY = frozenset({SERVER_BUSY, TIMEOUT})
PARTITIONED = 2**48  # sequence numbers of partitioned queues are this large
Claimed = tuple[NamespaceConnection, TokenRefusedError | None]
"""The connection to use from now on, and the refusal of the key, or None."""
MAX_REFUSED = 50  # claims of a connection before the first that is accepted: a peer takes few
MAX_OWN = 64  # paths


async def refusal_of(connection: NamespaceConnection, paths: Iterable[str]) -> TokenRefusedError | None:
    """Claim ``paths`` until one is accepted; return None if one is, else the first refusal.

    Raises ConnectionLostError when the connection is lost, or ``$cbs`` does not answer or is too busy to decide.
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
    """The progress of the search through the backlogs for a destination that accepts the key."""

    tried: dict[str, None] = field(default_factory=dict)  # the latest last, at most MAX_TRIED
    ends: dict[str, int] = field(default_factory=dict)  # the next sequence number of each backlog

    def take(self, path: str) -> bool:
        """Whether ``path`` is to be tried, because it is not remembered as tried; it is from now on."""
        if path in self.tried or path_refusal(path) is not None:
            return False
        self.tried[path] = None
        if len(self.tried) > MAX_TRIED:
            del self.tried[next(iter(self.tried))]
            self.ends.clear()  # forgotten paths are found again
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

    The first iteration covers all messages. Later ones cover the oldest of the messages seen before, because the
    backlog may have been recreated under the same name, and the messages after the last position: so invented paths at
    the head hide nothing. Close it (``aclosing``) when leaving it early: it has a link open. Raises
    ConnectionLostError.
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
    """Whether ``error`` is a refusal of the credential, rather than a failure to connect."""
    symbol = error.condition.symbol if error.condition is not None else None
    return isinstance(error, NamespaceUnusableError) or symbol == UNAUTHORIZED_ACCESS


def as_fault(error: TokenRefusedError) -> ClientError:
    """Return NamespaceUnusableError if the credential was refused, else ConnectionLostError (such as a busy node)."""
    kind = NamespaceUnusableError if is_refusal(error) else ConnectionLostError
    fault = kind(str(error))
    fault.condition = error.condition
    return fault


class OwnPaths:
    """The paths that the primary has accepted, the latest last. Pure.

    With them, a refused key can be distinguished from a single path that the key does not cover. The scope of a key
    cannot be queried, and senders choose the paths of parked messages: anyone with the Send right on one backlog can
    invent some. Therefore the refusal of a path that was never accepted concerns only that path.
    """

    def __init__(self) -> None:
        self.is_for_namespace = False
        """Whether the key was accepted for the whole namespace at the last connection."""
        self._paths: dict[str, str] = {}  # by key
        self._refused: set[str] = set()  # keys of those that were refused since

    @property
    def paths(self) -> tuple[str, ...]:
        """At most ``MAX_OWN`` paths that were accepted, the latest first."""
        return tuple(reversed(self._paths.values()))

    def accepted(self, path: str) -> None:
        """Record that a claim or a link for ``path`` was accepted."""
        key = path_key(path)
        self._refused.discard(key)
        self._paths.pop(key, None)
        self._paths[key] = path
        if len(self._paths) > MAX_OWN:
            oldest = next(iter(self._paths))
            del self._paths[oldest]
            self._refused.discard(oldest)

    def note_refusal(self, path: str, *, others_are_open: bool) -> bool:
        """Record that a link to ``path`` was refused; return whether the side refuses the syphon as a whole.

        It does if no link to another path is open, and it has accepted no path so far or ``path`` itself. If the key is
        not for the whole namespace, it does only when each path that it accepted has been refused since.
        """
        key = path_key(path)
        is_own = key in self._paths
        if is_own:
            self._refused.add(key)
        if others_are_open or (self._paths and not is_own):
            return False
        return self.is_for_namespace or len(self._refused) == len(self._paths)


class KeyClaims:
    """Claims paths until the primary accepts one, over as many connections as necessary."""

    def __init__(
        self,
        own: OwnPaths,
        allowed: Iterable[str] | None,
        backlogs: Iterable[str],
        open_primary: Callable[[AsyncExitStack], Awaitable[NamespaceConnection]],
    ) -> None:
        """Create the claims; ``open_primary`` opens a connection that the stack aborts."""
        self._own = own
        self._allowed = tuple(allowed or ())
        self._backlogs = tuple(backlogs)
        self._open_primary = open_primary
        self._walk = ParkedWalk()

    async def of_known(self, stack: AsyncExitStack, primary: NamespaceConnection) -> Claimed:
        """Claim the namespace, or else the allowed destinations and those accepted before. Raises ClientError."""
        refusal = await refusal_of(primary, (NAMESPACE,))
        self._own.is_for_namespace = refusal is None
        if refusal is not None:
            for path in dict.fromkeys((*self._allowed, *self._own.paths)):
                primary, is_accepted = await self._of_path(stack, primary, path)
                if is_accepted:
                    return primary, None
        return primary, refusal

    async def of_parked(
        self,
        stack: AsyncExitStack,
        primary: NamespaceConnection,
        secondary: NamespaceConnection,
        refusal: TokenRefusedError,
    ) -> Claimed:
        """Claim the destinations of parked messages; ``refusal`` is the refusal for the namespace.

        Raises ClientError.
        """
        async with aclosing(parked_paths(secondary, self._backlogs, self._walk)) as paths:
            async for path in paths:
                primary, is_accepted = await self._of_path(stack, primary, path)
                if is_accepted:
                    return primary, None
        return primary, refusal

    async def _of_path(
        self, stack: AsyncExitStack, primary: NamespaceConnection, path: str
    ) -> tuple[NamespaceConnection, bool]:
        """Claim one path, on a new connection if this one has used up its refusals.

        Return the connection and the answer.
        """
        if primary.claims >= MAX_REFUSED:
            primary.abort()
            primary = await self._open_primary(stack)
        if await refusal_of(primary, (path,)) is not None:
            return primary, False
        self._own.accepted(path)
        return primary, True
