"""Which paths have we proved our right to on this connection, and until when?

A token is put once for each path, and again before it expires; a path whose token was refused, or perhaps
was, is proved anew by whoever opens the next link to it.
"""

from __future__ import annotations

import asyncio
import logging
import time
from typing import TYPE_CHECKING

from .cbs import NODE, put_token
from .errors import ConnectionLost, SyphonError
from .request import RequestNode

if TYPE_CHECKING:
    from .connection import NamespaceConnection

logger = logging.getLogger("sbpair.syphon")

REFRESH_MARGIN = 360.0  # seconds a token has left when it is renewed


class Tokens:
    """The tokens of one connection."""

    def __init__(self, connection: NamespaceConnection) -> None:
        self._connection = connection
        self._node: RequestNode | None = None
        self._expiries: dict[str, int] = {}
        self._putting: dict[str, asyncio.Task[None]] = {}
        self._refresher: asyncio.Task[None] | None = None

    async def authorize(self, path: str) -> None:
        """Put a token for ``path`` unless there is one. Raises TokenRefused, ConnectionLost."""
        task = self._putting.get(path)
        if task is None:
            task = self._putting[path] = asyncio.ensure_future(self._put(path))
        try:
            await asyncio.shield(task)
        except BaseException:
            if task.done() and self._putting.get(path) is task:
                del self._putting[path]
            raise

    def forget(self, path: str) -> None:
        """Prove the right to ``path`` anew when it is asked for."""
        self._expiries.pop(path, None)
        self._putting.pop(path, None)

    def stop(self) -> None:
        """The connection is over."""
        if self._refresher is not None:
            self._refresher.cancel()

    async def _put(self, path: str) -> None:
        await self._connection.wait_open()
        if self._node is None:
            self._node = RequestNode(self._connection, NODE)
        namespace = self._connection.namespace
        token, expires = namespace.token(path, int(time.time()))
        try:
            await put_token(self._node, namespace.audience(path), token, expires)
        except ConnectionLost:
            self._node = None  # its links may be gone though the connection lives: open others next time
            raise
        self._expiries[path] = expires
        if namespace.key is not None and (self._refresher is None or self._refresher.done()):
            self._refresher = asyncio.ensure_future(self._refresh())

    async def _refresh(self) -> None:
        """Renew the tokens, the first to expire first; when one is refused the peer detaches its links."""
        while self._expiries:
            path, expires = min(self._expiries.items(), key=lambda item: item[1])
            await asyncio.sleep(max(1.0, expires - time.time() - REFRESH_MARGIN))
            try:
                await self._put(path)
            except SyphonError as error:
                logger.warning("the token for %s was not renewed: %s", path, error)
                self.forget(path)
