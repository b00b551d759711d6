"""The entities of one namespace as the source sees them: peeked at, searched, settled.

One connection for each process, kept between tasks; one that was lost is opened anew, once for each question,
for every question here can be asked twice. Blocking outside, asyncio inside.
"""

from __future__ import annotations

import asyncio
import logging
import time
from collections.abc import Callable, Coroutine, Generator, Iterator
from concurrent.futures import Future
from functools import partial
from typing import TypeVar

from sbpair.amqp.errors import NOT_FOUND, UNAUTHORIZED_ACCESS
from sbpair.syphon.connection import NamespaceConnection
from sbpair.syphon.dial import connect
from sbpair.syphon.errors import ConnectionLost, LinkRefused, SyphonError, SyphonFaulted, TokenRefused, said
from sbpair.syphon.peek import peek
from sbpair.syphon.request import RequestNode

from . import worker
from .message_rows import Peeked, peeked
from .ranges import ACTIVE, LAST, Piece, Seen, Span, index_of, lanes, path_of, span, weigh
from .settling import EntityRenewed, Settler
from .source_options import SourceOptions

T = TypeVar("T")
PAGE = 200  # messages a peek
ATTEMPTS = 3
PAUSE = 0.5  # seconds before another connection is opened, doubled each time
SLACK = 2.0  # seconds a time-out of the inside has to show outside

logger = logging.getLogger("sbpair.spark")


class SourceError(RuntimeError):
    """The namespace cannot be read; the text says which entity, why, and what to do."""


class Entities:
    """What one process knows of one namespace. Holds nothing that a task would have to close."""

    def __init__(self, options: SourceOptions) -> None:
        self._options = options
        self._link = worker.kept(("entities", options.reach, options.wire), lambda: _Link(options))

    def spans(self, paths: tuple[str, ...], after: Callable[[str], int], cutoff: float) -> list[Span]:
        """What there is to read behind ``after(lane)``, enqueued until ``cutoff`` (seconds)."""
        return self._ask(lambda link: self._spans(link, paths, after, int(cutoff * 1000)), "the namespace")

    def read(self, piece: Piece) -> Iterator[Peeked]:
        """The active messages of a piece, in their order; the next page comes while this one is used."""
        page = self._begin_page(piece.path, piece.first, piece)
        while True:
            messages = self._end_page(page, piece)
            wanted = [each for each in messages if each.seen.number <= piece.last]
            ends = len(wanted) < len(messages) or not messages or wanted[-1].seen.number >= piece.last
            if not ends:
                start = wanted[-1].seen.number + 1
                page = self._begin_page(piece.path, start, piece)
            yield from (each for each in wanted if each.seen.state == ACTIVE)
            if ends:
                return

    def within(self, spans: list[Span], most: int) -> list[Span]:
        """The spans, shortened to ``most`` encoded bytes in all, but to one message each at least."""
        granted, left = [], most
        for place, each in enumerate(spans):
            last, used = self._weigh(each, left // (len(spans) - place))
            left = max(0, left - used)
            granted.append(Span(each.lane, each.first, last))
        return granted

    def settle(self, path: str, upto: int, until: int | None = None) -> int:
        """Complete what is up to ``upto`` and was enqueued ``until`` then, within the time for it; how many.

        What is left for lack of time, or because the connection was lost, is done the next time. Raises
        SourceError for what waiting does not cure, an entity that was created anew among it.
        """
        try:
            return self._completed(path, upto, until)
        except (ConnectionLost, TimeoutError) as error:
            why = str(error) or "time is up"
            logger.warning("%s was not settled up to %d: %s; the next batch does it", path, upto, why)
            return 0

    def settle_now(self, path: str, upto: int, until: int | None = None) -> int:
        """As :meth:`settle`, where there is no next time: raises SourceError when nobody answers, too."""
        try:
            return self._completed(path, upto, until)
        except (ConnectionLost, TimeoutError) as error:
            raise explained(error, path) from None

    def _completed(self, path: str, upto: int, until: int | None) -> int:
        try:
            return worker.call(self._settle(path, upto, until), self._options.settle_timeout + SLACK)
        except EntityRenewed as error:
            raise SourceError(str(error)) from None
        except ConnectionLost:
            raise
        except SyphonError as error:
            raise explained(error, path) from None

    def check_settleable(self, path: str) -> None:
        """Raises SourceError when the entity cannot be settled without sessions, or not by us."""

        async def attach(link: _Link) -> None:
            connection = await link.connection()
            receiver = await connection.open_receiver(path, lambda event: None)
            await receiver.close()

        self._ask(attach, path)

    # Inside.

    async def _spans(
        self, link: _Link, paths: tuple[str, ...], after: Callable[[str], int], cutoff: int
    ) -> list[Span]:
        found = []
        for path in paths:
            try:
                for lane in await link.search(path, lanes(path)):
                    one = await link.search(path, span(lane, after(lane), cutoff))
                    found += [] if one is None else [one]
            except (LinkRefused, TokenRefused) as error:
                if not (self._options.may_be_missing and _is(error, NOT_FOUND)):
                    raise explained(error, path) from None
        return found

    def _weigh(self, span: Span, most: int) -> tuple[int, int]:
        path, search = path_of(span.lane), weigh(span, most)
        start = next(search)
        while True:
            payloads = self._ask(partial(_Link.peek, path=path, start=start, most=PAGE), path)
            try:
                start = search.send([(peeked(payload).seen.number, len(payload)) for payload in payloads])
            except StopIteration as found:
                last, used = found.value
                return int(last), int(used)

    def _begin_page(self, path: str, start: int, piece: Piece) -> Future[list[Peeked]]:
        most = min(PAGE, piece.last - start + 1)

        async def page() -> list[Peeked]:
            payloads = await self._tried(lambda link: link.peek(path, start, most))
            return [peeked(payload) for payload in payloads]

        return worker.submit(page())

    def _end_page(self, page: Future[list[Peeked]], piece: Piece) -> list[Peeked]:
        try:
            return worker.wait(page, self._patience)
        except (SyphonError, TimeoutError) as error:
            raise explained(error, piece.path) from None

    def _ask(self, question: Callable[[_Link], Coroutine[object, object, T]], what: str) -> T:
        try:
            return worker.call(self._tried(question), self._patience)
        except (SyphonError, TimeoutError) as error:
            raise explained(error, what) from None

    @property
    def _patience(self) -> float:
        return ATTEMPTS * (self._options.wire.timeout + PAUSE * ATTEMPTS) + SLACK

    async def _tried(self, question: Callable[[_Link], Coroutine[object, object, T]]) -> T:
        """Asked again over another connection when this one is lost, or says nothing."""
        for attempt in range(ATTEMPTS):
            try:
                async with asyncio.timeout(self._options.wire.timeout):
                    return await question(self._link)
            except (ConnectionLost, TimeoutError):
                self._link.drop()
                if attempt == ATTEMPTS - 1:
                    raise
                await asyncio.sleep(PAUSE * 2**attempt)
        raise AssertionError("unreachable")

    async def _settle(self, path: str, upto: int, until: int | None) -> int:
        settler = Settler(path, until)
        try:
            async with asyncio.timeout(self._options.settle_timeout):
                head = await self._tried(lambda link: link.first(path, 1))
                if head is not None and head.number <= upto:
                    await settler.settle(await self._link.connection(), head.number, upto)
        except TimeoutError:
            if not settler.completed:
                raise
            logger.warning("%s is settled up to %d by the next batch: time is up", path, upto)
        return settler.completed


class _Link:
    """One connection and the request links on it; used on the loop only."""

    def __init__(self, options: SourceOptions) -> None:
        self._reach, self._wire = options.reach, options.wire
        self._connection: asyncio.Task[NamespaceConnection] | None = None
        self._nodes: dict[str, RequestNode] = {}

    async def connection(self) -> NamespaceConnection:
        task = self._connection
        if task is None or (
            task.done() and (task.cancelled() or task.exception() or not task.result().is_open)
        ):
            self.drop()
            task = self._connection = asyncio.ensure_future(self._dial())
        return await asyncio.shield(task)

    async def _dial(self) -> NamespaceConnection:
        namespace = self._reach.namespace()
        return await connect(
            namespace,
            route=self._wire.route,
            timeout=self._wire.timeout,
            container_id=None,
        )

    def drop(self) -> None:
        """Let the connection go; the next question opens another."""
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
            address = connection.namespace.address(f"{path}/$management")
            node = self._nodes[path] = RequestNode(connection, address)
        try:
            return await peek(node, path, start, most)
        except SyphonError:
            self._nodes.pop(path, None)  # its links may be gone though the connection lives
            raise

    async def first(self, path: str, number: int) -> Seen | None:
        """What stands at ``number``, or next behind it."""
        payloads = await self.peek(path, min(number, LAST), 1)
        return peeked(payloads[0]).seen if payloads else None

    async def search(self, path: str, search: Generator[int, Seen | None, T]) -> T:
        try:
            probe = next(search)
            while True:
                probe = search.send(await self.first(path, probe))
        except StopIteration as found:
            result: T = found.value
            return result


def cutoff(options: SourceOptions) -> float:
    """Messages enqueued after this are left for the next time (seconds since the epoch)."""
    return time.time() - options.safety_lag


def refuse_partitions(spans: list[Span]) -> None:
    """Raises SourceError for a partitioned entity, which is read but not settled."""
    for each in spans:
        if index_of(each.lane):
            text = f"{path_of(each.lane)} is partitioned: settlement=complete is not for it"
            raise SourceError(f"{text}; read it with settlement=none")


STEPS = {
    NOT_FOUND: "check its name",
    UNAUTHORIZED_ACCESS: "check the key: it needs Listen",
    "amqp:not-allowed": "an entity with sessions is read with settlement=none only",
}


def explained(error: BaseException, what: str) -> SourceError:
    """One line: what cannot be read, why, and what to do."""
    if isinstance(error, SourceError):
        return error
    condition = error.condition if isinstance(error, SyphonError) else None
    step = STEPS.get(str(condition.symbol)) if condition is not None else None
    if isinstance(error, ConnectionLost | SyphonFaulted | TimeoutError):
        step = step or "check the address and the network"
    if isinstance(error, TokenRefused) and not _is(error, NOT_FOUND):
        step = "check the key and its rights"
    why = str(error) or "no answer in time"
    if condition is not None and said(condition) not in why:
        why = f"{why}: {said(condition)}"
    text = " ".join(f"sbpair: {what}: {why}".split())
    return SourceError(text if step is None else f"{text}; {step}")


def _is(error: SyphonError, symbol: str) -> bool:
    return error.condition is not None and error.condition.symbol == symbol
