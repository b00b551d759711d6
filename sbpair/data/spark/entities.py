"""Access to the entities of one namespace for the message source: peek, search and settle.

The interface is blocking; the work runs on the event loop of :mod:`.worker`. Each process keeps one connection
per namespace between tasks. All operations here are idempotent, so each is repeated on a new connection when the
connection is lost.
"""

from __future__ import annotations

import asyncio
import logging
import time
from collections.abc import AsyncGenerator, Callable, Coroutine, Generator, Iterator, Mapping
from concurrent.futures import Future
from contextlib import aclosing
from dataclasses import dataclass, replace
from functools import partial
from time import sleep
from types import MappingProxyType
from typing import TypeVar

from sbpair.pair.amqp.errors import NOT_ALLOWED, NOT_FOUND
from sbpair.pair.client.connection import NamespaceConnection, connect
from sbpair.pair.client.errors import ClientError, ConnectionLostError, LinkRefusedError, TokenRefusedError
from sbpair.pair.client.management_node import ManagementNode
from sbpair.pair.client.request import peek
from sbpair.pair.ground.shared_task import result_of, share

from . import worker
from .checkpoint import NAMESPACE, check_origin, origin_name
from .claim import EntityRenewedError, check_age
from .glimpse import Glimpse, UnsettledMessage, glimpse, unsettled_message
from .outage import OutageState
from .ranges import (
    ACTIVE,
    LAST,
    Mark,
    Piece,
    Seen,
    Span,
    before_lane,
    heads,
    is_renewed,
    path_of,
    span,
    weigh,
)
from .settling import Settler
from .source_errors import NoAnswerError, SourceError, has_condition, to_source_error
from .source_options import SourceOptions

T = TypeVar("T")
PAGE = 200  # messages per peek
ALWAYS = 2.0**40  # seconds since the epoch, later than any message
ENTITIES_AT_ONCE = 16
ATTEMPTS = 3
PAUSE = 0.5  # seconds before the first reconnect; doubles with each attempt
SLACK = (
    2.0  # extra seconds that the calling thread waits, so that the event loop's own timeout is raised first
)

logger = logging.getLogger("sbpair.spark")


class Entities:
    """The entities of one namespace. Owns no resources: the connection belongs to the process."""

    def __init__(self, options: SourceOptions, origin: str | None = None, patience: float = 0.0) -> None:
        """``origin`` is the namespace that the connection must lead to; None allows any.

        ``patience`` is the time in seconds for which requests are retried during an outage or throttling.
        """
        self._options = options
        self._limit = patience
        key = ("entities", options.namespace, options.wire, origin)
        self._link = worker.keep(key, lambda: _Link(options, origin))

    def spans(
        self,
        paths: tuple[str, ...],
        start: Mapping[str, int],
        cutoff: float,
        hints: Mapping[str, int] = MappingProxyType({}),
    ) -> list[Span]:
        """The messages after ``start`` that were enqueued by ``cutoff`` (seconds since the epoch).

        ``hints`` are the last messages of an earlier call by lane, which save requests. Raises SourceError when an
        entity cannot be read, or was deleted and recreated since ``start``.
        """

        async def search(link: _Link) -> list[Span]:
            few = asyncio.Semaphore(ENTITIES_AT_ONCE)

            async def of(path: str) -> list[Span]:
                async with few:
                    return await self._spans_of(link, path, start, int(cutoff * 1000), hints)

            found = await asyncio.gather(*map(of, paths), return_exceptions=True)
            for each in found:
                if isinstance(each, BaseException):
                    raise each
            return [span for each in found if not isinstance(each, BaseException) for span in each]

        return self._run(search, "the namespace")

    def read(self, piece: Piece) -> Iterator[list[Glimpse]]:
        """Yield the active messages of ``piece`` by sequence number, in pages; the next page is requested ahead.

        Raises SourceError.
        """
        page = self._begin_page(piece.first, piece)
        while True:
            messages = self._end_page(page, piece)
            wanted = [each for each in messages if (each.number or 0) <= piece.last]
            last = (wanted[-1].number or 0) if wanted else piece.last
            ends = len(wanted) < len(messages) or last >= piece.last
            if not ends:
                start = last + 1
                page = self._begin_page(start, piece)
            if active := [each for each in wanted if each.state == ACTIVE]:
                yield active
            if ends:
                return

    def within(self, spans: list[Span], most: int) -> list[Span]:
        """The spans, shortened to ``most`` encoded bytes in total but at least one message each."""
        granted, left = [], most
        for place, each in enumerate(spans):
            last, used = self._weigh(each, left // (len(spans) - place))
            left = max(0, left - used)
            granted.append(replace(each, last=last))
        return granted

    def settle(self, path: str, marks: tuple[Mark, ...]) -> Settled:
        """Complete the messages of ``path`` up to ``marks``.

        Stops after ``settle_timeout``. Messages that remain, then or during an outage, are completed by the
        next call. Raises SourceError for permanent failures, such as an entity that was recreated.
        """
        try:
            return self.settle_now(path, marks)
        except NoAnswerError as error:
            logger.warning("%s was not settled: %s; the next batch retries", path, error)
            return Settled(0, remain=True)

    def settle_now(self, path: str, marks: tuple[Mark, ...]) -> Settled:
        """Like :meth:`settle`, but raises NoAnswerError during an outage, for callers without a next batch."""
        try:
            return worker.call(self._settle(path, marks), self._options.settle_timeout + SLACK)
        except EntityRenewedError as error:
            raise SourceError(str(error)) from None
        except (ClientError, TimeoutError) as error:
            if (
                self._options.may_be_missing
                and isinstance(error, ClientError)
                and has_condition(error, NOT_FOUND)
            ):
                return Settled(0, remain=False)
            raise to_source_error(error, path) from None

    def check_settleable(self, path: str) -> None:
        """Check that the entity can be received from, by session if it requires sessions.

        Raises SourceError when it does not exist, or refuses this connection.
        """

        async def attach(link: _Link) -> None:
            connection = await link.connection()
            try:
                receiver = await connection.open_receiver(path, lambda event: None)
            except LinkRefusedError as error:
                if not has_condition(error, NOT_ALLOWED):
                    raise
                link.by_session.add(path)
            else:
                await receiver.close()

        self._run(attach, path)

    async def _spans_of(
        self, link: _Link, path: str, start: Mapping[str, int], cutoff: int, hints: Mapping[str, int]
    ) -> list[Span]:
        found = []
        try:
            for lane, head in (await link.search(path, heads(path))).items():
                after, since = start.get(lane, 0), None
                if is_renewed(lane, head, start):
                    renewed = EntityRenewedError(path, after)
                    if self._options.fails_on_loss:
                        raise SourceError(str(renewed))
                    logger.warning("%s; failOnDataLoss=false: reading it from its first message", renewed)
                    after, since = 0, head.enqueued_at
                one = await link.search(path, span(lane, after, cutoff, hints.get(lane, 0)))
                found += [] if one is None else [replace(one, since=since)]
        except (LinkRefusedError, TokenRefusedError) as error:
            if not (self._options.may_be_missing and has_condition(error, NOT_FOUND)):
                raise to_source_error(error, path) from None
        return found

    def _weigh(self, span: Span, most: int) -> tuple[int, int]:
        path, search = path_of(span.lane), weigh(span, most)
        start = next(search)
        while True:
            payloads = self._run(partial(_Link.peek, path=path, start=start, most=PAGE), path)
            try:
                start = search.send(
                    [(unsettled_message(payload).number or 0, len(payload)) for payload in payloads]
                )
            except StopIteration as found:
                last, used = found.value
                return int(last), int(used)

    def _begin_page(self, start: int, piece: Piece) -> _Page:
        operation = partial(_Link.peek, path=piece.path, start=start, most=min(PAGE, piece.last - start + 1))
        return _Page(operation, worker.submit(self._attempt(operation)))

    def _end_page(self, page: _Page, piece: Piece) -> list[Glimpse]:
        payloads = self._result(page.operation, piece.path, page.future)
        return [glimpse(payload) for payload in payloads]

    def _run(self, operation: Operation[T], what: str) -> T:
        return self._result(operation, what, worker.submit(self._attempt(operation)))

    def _result(self, operation: Operation[T], what: str, future: Future[T]) -> T:
        """Return the result of ``operation``, already started as ``future``; restart it during an outage.

        The delays block the calling thread, which is that of a task or of the planner, never the event loop.
        """
        outage = OutageState(self._limit)
        while True:
            try:
                return worker.wait(future, self._operation_limit)
            except (ClientError, TimeoutError, SourceError) as error:
                problem = to_source_error(error, what)
            pause = (
                outage.failed(time.monotonic(), problem.pause) if isinstance(problem, NoAnswerError) else None
            )
            if pause is None:
                raise problem
            logger.warning("%s; retrying in %.1f s", problem, pause)
            sleep(pause)
            future = worker.submit(self._attempt(operation))

    @property
    def _operation_limit(self) -> float:
        return ATTEMPTS * (self._options.wire.timeout + PAUSE * ATTEMPTS) + SLACK

    async def _attempt(self, operation: Operation[T]) -> T:
        """Run ``operation``; if the connection is lost, repeat it on a new one.

        Raises TimeoutError when there is no response in time, ConnectionLostError after ATTEMPTS connections.
        """
        for attempt in range(ATTEMPTS):
            try:
                async with asyncio.timeout(self._options.wire.timeout):
                    return await operation(self._link)
            except TimeoutError:
                self._link.drop()
                raise
            except ConnectionLostError:
                self._link.drop()
                if attempt == ATTEMPTS - 1:
                    raise
                await asyncio.sleep(PAUSE * 2**attempt)
        raise AssertionError("unreachable")

    async def _settle(self, path: str, marks: tuple[Mark, ...]) -> Settled:
        settler = Settler(path, marks, by_session=path in self._link.by_session)
        is_cut_short = False
        try:
            async with asyncio.timeout(self._options.settle_timeout):
                try:
                    async with aclosing(self._pages(path, marks)) as pages:
                        async for known in pages:
                            await settler.settle(await self._link.connection(), known)
                    await settler.confirmed()
                finally:
                    await settler.close()
        except TimeoutError:
            if not settler.completed:
                raise
            is_cut_short = True
            logger.warning("%s: settling timed out; the next batch continues", path)
        if settler.by_session:
            self._link.by_session.add(path)
        return Settled(settler.completed, remain=is_cut_short or settler.passed_over > 0)

    async def _pages(
        self, path: str, marks: tuple[Mark, ...]
    ) -> AsyncGenerator[list[UnsettledMessage], None]:
        """Yield the messages up to ``marks`` that may be received, in pages; the next page is requested ahead.

        Raises EntityRenewedError.
        """
        starts = {mark: before_lane(mark.lane) + 1 for mark in marks}

        async def page() -> list[UnsettledMessage]:
            found = await asyncio.gather(
                *(self._known_page(path, mark, start) for mark, start in starts.items())
            )
            nexts = zip(list(starts), found, strict=True)
            starts.clear()
            starts.update((mark, start) for mark, (_, start) in nexts if start is not None)
            return [each for known, _ in found for each in known]

        ahead = asyncio.ensure_future(page())
        try:
            is_last = False
            while not is_last:
                known, is_last = await ahead, not starts
                if not is_last:
                    ahead = asyncio.ensure_future(page())
                if known:
                    yield known
        finally:
            ahead.cancel()
            await asyncio.wait([ahead])
            if not ahead.cancelled():
                ahead.exception()  # of a page that is no longer needed

    async def _known_page(
        self, path: str, mark: Mark, start: int
    ) -> tuple[list[UnsettledMessage], int | None]:
        """A page of messages up to ``mark`` that may be received, and the start of the next page, None at the end.

        Raises EntityRenewedError.
        """
        most = min(PAGE, mark.upto - start + 1)
        payloads = await self._attempt(partial(_Link.peek, path=path, start=start, most=most))
        page = [each for each in map(unsettled_message, payloads) if (each.number or 0) <= mark.upto]
        known = [each for each in page if each.state == ACTIVE and each.number]
        for each in known:
            check_age(path, mark, each.enqueued_at)
        last = (page[-1].number or 0) if page else mark.upto
        is_last = len(page) < len(payloads) or last >= mark.upto
        return known, None if is_last else last + 1


@dataclass(frozen=True, slots=True)
class Settled:
    """The number of messages that a settlement completed, and whether some remain to be completed later."""

    completed: int
    remain: bool


Operation = Callable[["_Link"], Coroutine[object, object, T]]


@dataclass(frozen=True, slots=True)
class _Page:
    """A prefetched page of messages: the operation, and the future of its first run."""

    operation: Operation[list[bytes]]
    future: Future[list[bytes]]


class _Link:
    """One connection and its request links; used only on the event loop."""

    def __init__(self, options: SourceOptions, origin: str | None) -> None:
        self._namespace, self._wire, self._origin = options.namespace, options.wire, origin
        self._connection: asyncio.Task[NamespaceConnection] | None = None
        self._nodes: dict[str, ManagementNode] = {}
        self.by_session: set[str] = set()
        """The entities that refused a receiver without a session."""

    async def connection(self) -> NamespaceConnection:
        task = self._connection
        if task is None or (
            task.done() and (task.cancelled() or task.exception() or not task.result().is_open)
        ):
            self.drop()
            task = self._connection = share(self._dial())
        return await result_of(task)

    async def _dial(self) -> NamespaceConnection:
        namespace = self._namespace.namespace()
        if self._origin is not None:
            check_origin({NAMESPACE: self._origin}, origin_name(namespace.netloc), settles=False)
        return await connect(namespace.along(self._wire.route), timeout=self._wire.timeout)

    def drop(self) -> None:
        """Abort the connection; the next operation opens another."""
        task, self._connection = self._connection, None
        self._nodes.clear()
        if task is None:
            return
        if task.done() and not task.cancelled() and task.exception() is None:
            task.result().abort()
        else:
            task.cancel()

    async def peek(self, path: str, start: int, most: int) -> list[bytes]:
        connection = await self.connection()
        await connection.authorize(path)
        node = self._nodes.get(path)
        if node is None:
            node = self._nodes[path] = ManagementNode(connection, path)
        return await node.ask(lambda links: peek(links, path, start, most))

    async def first(self, path: str, number: int) -> Seen | None:
        """The first message at or after ``number``; None when there is none."""
        payloads = await self.peek(path, min(number, LAST), 1)
        return glimpse(payloads[0]).seen if payloads else None

    async def search(self, path: str, search: Generator[int, Seen | None, T]) -> T:
        try:
            probe = next(search)
            while True:
                probe = search.send(await self.first(path, probe))
        except StopIteration as found:
            result: T = found.value
            return result


def cutoff(lag: float | None) -> float:
    """Return the latest enqueued time of a batch, in seconds since the epoch; later messages wait for the next.

    ``lag`` is in seconds; without it all messages are read, even if the broker's clock is ahead.
    """
    return ALWAYS if lag is None else time.time() - lag
