"""Claims-based security on one connection: put a token for each path on ``$cbs``, and keep it fresh.

A token is put once for each path, and again before it expires. After a refusal the next link to the path puts
another token. A failed renewal is retried until the token expires; then the peer detaches the links, and opening
one again raises the error.
"""

from __future__ import annotations

import asyncio
import logging
import time
from collections import Counter
from dataclasses import dataclass
from functools import partial
from typing import Protocol

from sbpair.pair.amqp.errors import INTERNAL_ERROR, UNAUTHORIZED_ACCESS
from sbpair.pair.amqp.message import Message
from sbpair.pair.amqp.performatives import Condition
from sbpair.pair.amqp.types import Timestamp
from sbpair.pair.auth.connection_string import NamespaceAccess
from sbpair.pair.auth.credential import CredentialRefusedError, Token
from sbpair.pair.auth.transient import TokenUnavailableError
from sbpair.pair.ground.shared_task import result_of

from .errors import ClientError, ConnectionLostError, LinkRefusedError, TokenRefusedError
from .link import LinkHost
from .request import CONDITIONS, RequestNode

logger = logging.getLogger("sbpair.syphon")

NODE = "$cbs"

REFRESH_MARGIN = 360.0  # seconds a token has left when it is renewed
SHORT_PART = 0.75  # of its life, after which a token too short for that margin is renewed
MIN_RETRY_SECONDS, MAX_RETRY_SECONDS = 1.0, 30.0  # seconds between attempts to renew


class TokenHost(LinkHost, Protocol):
    """The methods of a connection that its tokens use."""

    namespace: NamespaceAccess

    async def wait_open(self) -> None: ...


@dataclass(frozen=True, slots=True)
class _Put:
    """A token that was put on ``$cbs``; ``due`` is when to renew it, in seconds since the epoch."""

    token: Token
    due: float
    has_failed: bool = False
    """Whether its renewal failed before, which was logged then."""


class Tokens:
    """The tokens of one connection."""

    def __init__(self, connection: TokenHost) -> None:
        self._connection = connection
        self._node: RequestNode | None = None
        self._puts: dict[str, _Put] = {}
        self._shown: set[str] = set()
        self._putting: dict[str, asyncio.Task[None]] = {}
        self._under_way: Counter[str] = Counter()  # puts without an answer yet
        self._forgotten: set[str] = set()  # of those, the paths that are no longer used
        self._refresher: asyncio.Task[None] | None = None
        self._next_due = 0.0  # until when the refresher waits, in seconds since the epoch
        self._sooner = asyncio.Event()  # set when a token has to be renewed before that
        self._is_stopped = False
        self.ended: asyncio.Future[str] = asyncio.get_running_loop().create_future()
        """Resolves with the reason when the last token has expired and could not be renewed."""

    @property
    def shown(self) -> int:
        """The number of audiences for which a token was put, accepted or not; tokens cannot be withdrawn."""
        return len(self._shown)

    async def authorize(self, path: str) -> None:
        """Put a token for ``path`` unless it has one already.

        Raises TokenRefusedError, LinkRefusedError or ConnectionLostError.
        """
        self._forgotten.discard(path)
        task = self._putting.get(path)
        if task is None:
            task = self._putting[path] = asyncio.ensure_future(self._put(path))
            task.add_done_callback(partial(self._was_put, path))
        await result_of(task)

    def _was_put(self, path: str, task: asyncio.Task[None]) -> None:
        """Record the end of a put. Waiting callers receive its failure, and the next call tries again."""
        has_failed = task.cancelled() or task.exception() is not None
        if has_failed and self._putting.get(path) is task:
            del self._putting[path]

    def forget(self, path: str) -> None:
        """Stop renewing the token of ``path``; the next :meth:`authorize` puts another."""
        self._puts.pop(path, None)
        put = self._putting.pop(path, None)
        if path in self._under_way or (put is not None and not put.done()):
            self._forgotten.add(path)

    def stop(self) -> None:
        """Stop renewing: the connection has ended."""
        self._is_stopped = True
        if self._refresher is not None:
            self._refresher.cancel()
        self.ended.cancel()

    async def _put(self, path: str) -> None:
        """Put a token for ``path``, and schedule its renewal unless the path was forgotten meanwhile."""
        self._under_way[path] += 1
        try:
            put = await self._put_now(path)
            if path not in self._forgotten:
                self._keep(path, put)
        finally:
            self._under_way[path] -= 1
            if not self._under_way[path]:
                del self._under_way[path]
                self._forgotten.discard(path)

    async def _put_now(self, path: str) -> _Put:
        await self._connection.wait_open()
        audience = self._connection.namespace.audience(path)
        token = await self._ask(audience)
        before = self._puts.get(path)
        is_new = before is None or before.token.text != token.text
        if is_new:
            await self._show(audience, token)
        now = time.time()
        due = renewal_due(token.expires, now) if is_new else now + retry_pause(token.expires - now)
        return _Put(token, due)  # the old token again: the next is fetched meanwhile

    def _keep(self, path: str, put: _Put) -> None:
        """Renew a token when that is due."""
        self._puts[path] = put
        if put.due < self._next_due:
            self._sooner.set()
        if self._is_stopped:  # while the answer was on its way to this task
            return
        if self._refresher is None or self._refresher.done():
            self._refresher = asyncio.ensure_future(self._refresh())

    async def _ask(self, audience: str) -> Token:
        try:
            return await self._connection.namespace.tokens.token(audience)
        except CredentialRefusedError as error:
            condition = Condition(UNAUTHORIZED_ACCESS, str(error))
            raise TokenRefusedError("the credential gives no token", condition) from error
        except TokenUnavailableError as error:
            raise ConnectionLostError(str(error)) from error
        except Exception as error:  # any error of the application's function; it may work the next time
            raise ConnectionLostError(f"the credential failed: {type(error).__name__}") from error

    async def _show(self, audience: str, token: Token) -> None:
        if self._node is None:
            self._node = RequestNode(self._connection, NODE)
        node = self._node
        self._shown.add(audience)  # a peer may keep the claim of an entity that it does not have, too
        try:
            await put_token(node, audience, token)
        except (ConnectionLostError, LinkRefusedError):
            if self._node is node:  # its links may be gone while the connection lives: open others next time
                self._node = None
                node.abandon()
            raise

    async def _refresh(self) -> None:
        """Renew the tokens in the order in which they fall due."""
        while self._puts:
            path, put = min(self._puts.items(), key=lambda item: item[1].due)
            self._next_due = put.due
            self._sooner.clear()
            try:
                async with asyncio.timeout(max(0.0, put.due - time.time())):
                    await self._sooner.wait()
            except TimeoutError:  # it is due
                if self._puts.get(path) is put:
                    await self._renew(path, put)

    async def _renew(self, path: str, put: _Put) -> None:
        try:
            await self._put(path)
        except ClientError as error:
            if self._puts.get(path) is not put:
                return  # the path was forgotten, or got another token, while this one was on its way
            left = put.token.expires - time.time()
            level = logging.DEBUG if put.has_failed and left > 0 else logging.WARNING
            logger.log(level, "the token for %s was not renewed: %s", path, error)
            if left > 0:
                self._puts[path] = _Put(put.token, time.time() + retry_pause(left), has_failed=True)
            else:
                self.forget(path)
                if not self._puts and not self.ended.done():
                    self.ended.set_result(str(error))


def renewal_due(expires: float, now: float) -> float:
    """Return when to renew a token, in seconds since the epoch as the arguments; at least one second from now."""
    life = expires - now
    return now + max(MIN_RETRY_SECONDS, life - REFRESH_MARGIN, life * SHORT_PART)


def retry_pause(left: float) -> float:
    """Seconds until a token that expires in ``left`` seconds is renewed."""
    return min(MAX_RETRY_SECONDS, max(MIN_RETRY_SECONDS, left / 4))


async def put_token(node: RequestNode, audience: str, token: Token) -> None:
    """Put ``token`` for ``audience``. Raises TokenRefusedError, LinkRefusedError, ConnectionLostError."""
    properties: dict[object, object] = {
        "operation": "put-token",
        "type": token.kind,
        "name": audience,
        "expiration": Timestamp(token.expires * 1000),
    }
    check(audience, await node.ask(properties, token.text))


def check(audience: str, answer: Message) -> None:
    """Raise TokenRefusedError unless ``answer`` accepts the token."""
    said = answer.application_properties
    status, description = said.get("status-code"), said.get("status-description")
    if status in (200, 202):
        return
    symbol = CONDITIONS.get(status) if isinstance(status, int) else None
    shown = int(status) if isinstance(status, int) else status  # as a plain number, not an AMQP type
    condition = Condition(symbol or INTERNAL_ERROR, f"status {shown}: {description}")
    raise TokenRefusedError(f"no access to {audience}", condition)
