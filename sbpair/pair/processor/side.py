"""One side of a processor: connects, attaches and receives, again after each loss.

connect --fails--> back off --> connect
   |
attach --not found--> check again at intervals
   |  '--refused, lost--> back off
receive --detached--> attach, or connect if the connection is lost
"""

from __future__ import annotations

import asyncio
import logging
import time
from typing import Any, Protocol

from sbpair.pair.amqp.errors import NOT_FOUND
from sbpair.pair.amqp.performatives import Condition
from sbpair.pair.auth.connection_string import NamespaceAccess
from sbpair.pair.client.backoff import Backoff
from sbpair.pair.client.connection import NamespaceConnection, connect
from sbpair.pair.client.errors import ClientError, condition_text
from sbpair.pair.ground.side import Side

from . import events
from .context import Context
from .options import ProcessorOptions

logger = logging.getLogger("sbpair.processor")

CONNECT_WITHIN = 20.0  # seconds


class Reception(Protocol):
    """Receives on one side: a link to the entity, or its sessions."""

    is_stopping: bool

    async def run(self, connection: NamespaceConnection) -> Condition | None:
        """Receive until the link ends; return the peer's error. Raises ClientError if none can be attached."""

    @property
    def is_replaced(self) -> bool:
        """Whether the link was closed deliberately, to be replaced at once."""


class ProcessorSide:
    """One namespace of a processor. To end it, close its reception first, then cancel :meth:`run`."""

    def __init__(
        self,
        role: Side,
        namespace: NamespaceAccess,
        reception: Reception,
        context: Context,
        options: ProcessorOptions,
    ) -> None:
        self.role = role
        self._namespace = namespace
        self._reception = reception
        self._context = context
        self._answer_timeout = options.operation_timeout.total_seconds()
        self._missing_interval = options.missing_entity_interval.total_seconds()
        self._backoff = Backoff(options.retry_backoff_max.total_seconds())
        self._is_missing = False
        self._loop = asyncio.get_running_loop()
        self.connection: NamespaceConnection | None = None

    async def run(self) -> None:
        """Receive until the reception stops or the call is cancelled."""
        try:
            while not self._reception.is_stopping:
                await asyncio.sleep(await self._attempt())
        except asyncio.CancelledError:
            self.abort()
            raise

    async def close(self) -> None:
        """Close the connection with an AMQP close."""
        if self.connection is not None:
            await self.connection.close()

    def abort(self) -> None:
        """Drop the connection, even one that was opened after :meth:`close`."""
        if self.connection is not None:
            self.connection.abort()

    async def _attempt(self) -> float:
        """Receive over one link until it ends; return the seconds to wait before the next."""
        began = self._loop.time()
        try:
            connection = await self._connect()
            condition = await self._receive(connection)
        except ClientError as error:
            if error.condition is not None and error.condition.symbol == NOT_FOUND:
                return self._missing()
            return self._tell_lost(str(error), self._backoff.next_pause())
        except Exception as error:  # a defect of one attempt must not end the side unnoticed
            logger.exception("receiving from %s on the %s failed", self._context.path, self.role)
            return self._tell_lost(f"{type(error).__name__}: {error}", self._backoff.next_pause())
        self._is_missing = False
        if self._reception.is_replaced:
            return 0.0
        pause = self._backoff.link_ended(self._loop.time() - began, condition)
        if not pause:
            return 0.0
        return self._tell_lost(
            condition_text(condition) if condition is not None else "the link was lost", pause
        )

    async def _connect(self) -> NamespaceConnection:
        if self.connection is None or not self.connection.is_open:
            answer = self._answer_timeout
            self.connection = await connect(self._namespace, timeout=CONNECT_WITHIN, answer_timeout=answer)
        return self.connection

    async def _receive(self, connection: NamespaceConnection) -> Condition | None:
        """Receive until the link ends or the last token expires, after which the peer would detach the link."""
        receiving = asyncio.ensure_future(self._reception.run(connection))
        try:
            either: tuple[asyncio.Future[Any], ...] = (receiving, connection.claims_ended)
            await asyncio.wait(either, return_when=asyncio.FIRST_COMPLETED)
            if not receiving.done():
                connection.abort()
            return await receiving
        finally:
            receiving.cancel()

    def _missing(self) -> float:
        self._backoff.succeeded()
        if not self._is_missing:
            self._is_missing = True
            self._context.emit(events.EntityMissing(time.time(), self._context.path, self.role.value))
        return self._missing_interval

    def _tell_lost(self, reason: str, pause: float) -> float:
        if self._reception.is_stopping:
            return 0.0
        self._context.emit(
            events.ReceivingLost(time.time(), self._context.path, self.role.value, reason, pause)
        )
        return pause
