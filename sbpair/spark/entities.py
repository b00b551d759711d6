"""The entities of one namespace, as the source uses them: peek, search and settle.

Each process has one connection, kept between tasks. A lost connection is reopened once per operation, since every
operation here can be repeated. Blocking outside, asyncio inside.
"""

from __future__ import annotations

import asyncio
import logging
import time
from collections.abc import Callable, Coroutine, Generator, Iterator, Mapping
from concurrent.futures import Future
from dataclasses import dataclass
from functools import partial
from time import sleep
from typing import TypeVar

from sbpair.amqp.errors import (
    AUTH_FAILED,
    DECODE_ERROR,
    ENTITY_DISABLED,
    INVALID_FIELD,
    NOT_ALLOWED,
    NOT_FOUND,
    NOT_IMPLEMENTED,
    RESOURCE_DELETED,
    SERVER_BUSY,
    UNAUTHORIZED_ACCESS,
)
from sbpair.client.connection import NamespaceConnection
from sbpair.client.dial import connect
from sbpair.client.errors import ConnectionLost, LinkRefused, SyphonError, SyphonFaulted, TokenRefused, said
from sbpair.client.peek import peek
from sbpair.client.request import RequestNode

from . import worker
from .checkpoint import NAMESPACE, check_origin, known_as
from .message_rows import Peeked, peeked
from .outage import Outage, pause_of
from .ranges import ACTIVE, LAST, Piece, Seen, Span, heads, index_of, is_renewed, path_of, span, weigh
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


class NoAnswer(SourceError):
    """The namespace does not answer now, or throttles: waiting may help. ``pause``: seconds it asks for."""

    def __init__(self, text: str, pause: float = 0.0) -> None:
        super().__init__(text)
        self.pause = pause


class Entities:
    """What one process knows of one namespace. Holds nothing that a task would have to close."""

    def __init__(self, options: SourceOptions, origin: str | None = None, patience: float = 0.0) -> None:
        """``origin``: the namespace it must be, whatever a reference says by now; None for any.

        ``patience``: seconds for which a question is asked again while nobody answers, or throttles.
        """
        self._options = options
        self._limit = patience
        key = ("entities", options.namespace, options.wire, origin)
        self._link = worker.kept(key, lambda: _Link(options, origin))

    def spans(self, paths: tuple[str, ...], start: Mapping[str, int], cutoff: float) -> list[Span]:
        """What there is to read behind ``start``, enqueued until ``cutoff`` (seconds).

        Raises SourceError, also for an entity that was created anew since ``start``.
        """
        return self._ask(lambda link: self._spans(link, paths, start, int(cutoff * 1000)), "the namespace")

    def read(self, piece: Piece) -> Iterator[Peeked]:
        """The active messages of a piece, in their order; the next page comes while this one is used."""
        page = self._begin_page(piece.first, piece)
        while True:
            messages = self._end_page(page, piece)
            wanted = [each for each in messages if each.seen.number <= piece.last]
            ends = len(wanted) < len(messages) or not messages or wanted[-1].seen.number >= piece.last
            if not ends:
                start = wanted[-1].seen.number + 1
                page = self._begin_page(start, piece)
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

        What is left for lack of time, or because nobody answers, is done the next time. Raises SourceError
        for what waiting does not cure, an entity that was created anew among it.
        """
        try:
            return self.settle_now(path, upto, until)
        except NoAnswer as error:
            logger.warning("%s was not settled up to %d: %s; the next batch does it", path, upto, error)
            return 0

    def settle_now(self, path: str, upto: int, until: int | None = None) -> int:
        """As :meth:`settle`, where there is no next time: raises NoAnswer when nobody answers."""
        try:
            return worker.call(self._settle(path, upto, until), self._options.settle_timeout + SLACK)
        except EntityRenewed as error:
            raise SourceError(str(error)) from None
        except (SyphonError, TimeoutError) as error:
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
        self, link: _Link, paths: tuple[str, ...], start: Mapping[str, int], cutoff: int
    ) -> list[Span]:
        found = []
        for path in paths:
            try:
                for lane, head in (await link.search(path, heads(path))).items():
                    if is_renewed(lane, head, start):
                        raise SourceError(str(EntityRenewed(path, start[lane])))
                    one = await link.search(path, span(lane, start.get(lane, 0), cutoff))
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

    def _begin_page(self, start: int, piece: Piece) -> _Page:
        question = partial(_Link.peek, path=piece.path, start=start, most=min(PAGE, piece.last - start + 1))
        return _Page(question, worker.submit(self._tried(question)))

    def _end_page(self, page: _Page, piece: Piece) -> list[Peeked]:
        payloads = self._answer(page.question, piece.path, page.begun)
        return [peeked(payload) for payload in payloads]

    def _ask(self, question: Question[T], what: str) -> T:
        return self._answer(question, what, worker.submit(self._tried(question)))

    def _answer(self, question: Question[T], what: str, begun: Future[T]) -> T:
        """The answer to what was asked; asked again, in an outage, for as long as there is patience.

        The waits are the caller's, a thread of a task or of the planner: nothing of it is held on the loop.
        """
        outage = Outage(self._limit)
        while True:
            try:
                return worker.wait(begun, self._longest)
            except (SyphonError, TimeoutError, SourceError) as error:
                problem = explained(error, what)
            pause = outage.failed(time.monotonic(), problem.pause) if isinstance(problem, NoAnswer) else None
            if pause is None:
                raise problem
            logger.warning("%s; asked again in %.1f s", problem, pause)
            sleep(pause)
            begun = worker.submit(self._tried(question))

    @property
    def _longest(self) -> float:
        return ATTEMPTS * (self._options.wire.timeout + PAUSE * ATTEMPTS) + SLACK

    async def _tried(self, question: Question[T]) -> T:
        """Asked again over another connection when this is lost. Raises TimeoutError when it is silent."""
        for attempt in range(ATTEMPTS):
            try:
                async with asyncio.timeout(self._options.wire.timeout):
                    return await question(self._link)
            except TimeoutError:
                self._link.drop()
                raise
            except ConnectionLost:
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


Question = Callable[["_Link"], Coroutine[object, object, T]]


@dataclass(frozen=True, slots=True)
class _Page:
    """A page of messages that was asked for while the one before is used."""

    question: Question[list[bytes]]
    begun: Future[list[bytes]]


class _Link:
    """One connection and the request links on it; used on the loop only."""

    def __init__(self, options: SourceOptions, origin: str | None) -> None:
        self._namespace, self._wire, self._origin = options.namespace, options.wire, origin
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
        namespace = self._namespace.namespace()
        if self._origin is not None:
            check_origin({NAMESPACE: self._origin}, known_as(namespace.netloc), settles=False)
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
    NOT_ALLOWED: "an entity with sessions is read with settlement=none only",
}


# What waiting does not cure; all else may pass, a condition that nobody knows too.
LASTING = frozenset(
    {
        NOT_FOUND,
        UNAUTHORIZED_ACCESS,
        NOT_ALLOWED,
        NOT_IMPLEMENTED,
        INVALID_FIELD,
        DECODE_ERROR,
        RESOURCE_DELETED,
        ENTITY_DISABLED,
        AUTH_FAILED,
        "com.microsoft:argument-error",
        "com.microsoft:argument-out-of-range",
    }
)


def may_pass(error: BaseException) -> bool:
    """Whether waiting may cure it."""
    if isinstance(error, SyphonFaulted):
        return False
    if isinstance(error, ConnectionLost | TimeoutError):
        return True
    return (
        isinstance(error, SyphonError)
        and error.condition is not None
        and error.condition.symbol not in LASTING
    )


def explained(error: BaseException, what: str) -> SourceError:
    """One line: what cannot be read, why, and what to do; NoAnswer where waiting may cure it."""
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
    text = text if step is None else f"{text}; {step}"
    if not may_pass(error):
        return SourceError(text)
    is_busy = condition is not None and condition.symbol == SERVER_BUSY
    return NoAnswer(text, pause_of(why) if is_busy else 0.0)


def _is(error: SyphonError, symbol: str) -> bool:
    return error.condition is not None and error.condition.symbol == symbol
