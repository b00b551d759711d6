"""Which paths have we proved our right to on this connection, and until when?

A token is put once for each path, and again before it expires; a path whose token was refused, or perhaps
was, is proved anew by whoever opens the next link to it. While a token holds, a renewal that fails is tried
again; when the token has ended the peer detaches the links, and each is told why it cannot be opened again.
"""

from __future__ import annotations

import asyncio
import logging
import time
from dataclasses import dataclass
from functools import partial
from typing import Protocol

from .cbs import NODE, put_token
from .connection_string import Namespace
from .credential import Token
from .errors import ConnectionLost, SyphonError
from .link import LinkHost
from .request import RequestNode

logger = logging.getLogger("sbpair.syphon")

REFRESH_MARGIN = 360.0  # seconds a token has left when it is renewed
SHORT_PART = 0.75  # of a token that lives hardly longer than that: renewed when so much of it is over
FIRST_RETRY, LONGEST_RETRY = 1.0, 30.0  # seconds between attempts to renew


class TokenHost(LinkHost, Protocol):
    """What the tokens need of their connection."""

    namespace: Namespace

    async def wait_open(self) -> None: ...


@dataclass(frozen=True, slots=True)
class _Put:
    """A token that was put, and when it is to be renewed; seconds since the epoch."""

    token: Token
    due: float


class Tokens:
    """The tokens of one connection."""

    def __init__(self, connection: TokenHost) -> None:
        self._connection = connection
        self._node: RequestNode | None = None
        self._puts: dict[str, _Put] = {}
        self._putting: dict[str, asyncio.Task[None]] = {}
        self._refresher: asyncio.Task[None] | None = None

    async def authorize(self, path: str) -> None:
        """Put a token for ``path`` unless there is one. Raises TokenRefused, ConnectionLost."""
        task = self._putting.get(path)
        if task is None:
            task = self._putting[path] = asyncio.ensure_future(self._put(path))
            task.add_done_callback(partial(self._was_put, path))
        await asyncio.shield(task)

    def _was_put(self, path: str, task: asyncio.Task[None]) -> None:
        """What failed is told to who waits for it, if anybody does still; the next to ask tries again."""
        has_failed = task.cancelled() or task.exception() is not None
        if has_failed and self._putting.get(path) is task:
            del self._putting[path]

    def forget(self, path: str) -> None:
        """Prove the right to ``path`` anew when it is asked for."""
        self._puts.pop(path, None)
        self._putting.pop(path, None)

    def stop(self) -> None:
        """The connection is over."""
        if self._refresher is not None:
            self._refresher.cancel()

    async def _put(self, path: str) -> None:
        await self._connection.wait_open()
        namespace = self._connection.namespace
        audience = namespace.audience(path)
        token = await namespace.tokens.token(audience)
        before = self._puts.get(path)
        if before is None or before.token.text != token.text:
            await self._show(audience, token)
        self._puts[path] = _Put(token, renewal_due(token.expires, time.time()))
        if self._refresher is None or self._refresher.done():
            self._refresher = asyncio.ensure_future(self._refresh())

    async def _show(self, audience: str, token: Token) -> None:
        if self._node is None:
            self._node = RequestNode(self._connection, NODE)
        try:
            await put_token(self._node, audience, token)
        except ConnectionLost:
            self._node = None  # its links may be gone though the connection lives: open others next time
            raise

    async def _refresh(self) -> None:
        """Renew the tokens, the first to become due first."""
        while self._puts:
            path, put = min(self._puts.items(), key=lambda item: item[1].due)
            await asyncio.sleep(max(0.0, put.due - time.time()))
            if self._puts.get(path) is put:
                await self._renew(path, put)

    async def _renew(self, path: str, put: _Put) -> None:
        try:
            await self._put(path)
        except SyphonError as error:
            logger.warning("the token for %s was not renewed: %s", path, error)
            left = put.token.expires - time.time()
            if left > 0:
                pause = min(LONGEST_RETRY, max(FIRST_RETRY, left / 4))
                self._puts[path] = _Put(put.token, time.time() + pause)
            else:
                self.forget(path)


def renewal_due(expires: float, now: float) -> float:
    """When to renew a token; all in seconds since the epoch. Never sooner than in a second."""
    life = expires - now
    return now + max(FIRST_RETRY, life - REFRESH_MARGIN, life * SHORT_PART)
