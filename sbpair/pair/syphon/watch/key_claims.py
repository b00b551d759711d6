"""The claims that show the primary the key: for the namespace, a known path, or that of a parked message."""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Iterable
from contextlib import AsyncExitStack, aclosing

from sbpair.pair.client.connection import NamespaceConnection
from sbpair.pair.client.errors import TokenRefusedError

from .claims import NAMESPACE, ParkedWalk, parked_paths, refusal_of
from .own_paths import OwnPaths

Claimed = tuple[NamespaceConnection, TokenRefusedError | None]
"""The connection to go on with, and the refusal of the key, or None."""

MAX_REFUSED = 50  # claims of a connection before the first that is accepted: a peer takes few


class KeyClaims:
    """Claims paths until the primary accepts one, over as many connections as that takes."""

    def __init__(
        self,
        own: OwnPaths,
        allowed: Iterable[str] | None,
        backlogs: Iterable[str],
        open_primary: Callable[[AsyncExitStack], Awaitable[NamespaceConnection]],
    ) -> None:
        """``open_primary`` opens a connection that the stack aborts."""
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
        """Claim the destinations of parked messages: ``refusal`` was that for the namespace. Raises ClientError."""
        async with aclosing(parked_paths(secondary, self._backlogs, self._walk)) as paths:
            async for path in paths:
                primary, is_accepted = await self._of_path(stack, primary, path)
                if is_accepted:
                    return primary, None
        return primary, refusal

    async def _of_path(
        self, stack: AsyncExitStack, primary: NamespaceConnection, path: str
    ) -> tuple[NamespaceConnection, bool]:
        """Claim one path, on a new connection if this one has had its refusals; return whether it is accepted."""
        if primary.claims >= MAX_REFUSED:
            primary.abort()
            primary = await self._open_primary(stack)
        if await refusal_of(primary, (path,)) is not None:
            return primary, False
        self._own.accepted(path)
        return primary, True
