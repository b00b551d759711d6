"""A run of the contract: concurrent entries, each with its own entities, which are always deleted."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass
from functools import partial

from azure.core.exceptions import AzureError, HttpResponseError
from azure.servicebus.exceptions import ServiceBusConnectionError

from sbpair.pair.client.errors import ClientError, ConnectionLostError, LinkRefusedError, TokenRefusedError
from sbpair.pair.ground.daemon_thread import in_daemon_thread
from sbpair.pair.ground.side import Side

from . import administration
from .administration import clean, leftovers
from .entry import DifferenceError, Entity, Finding, UndecidedError, Verdict
from .naming import is_ours
from .plan import SIDE_BY_SIDE, Plan, Step
from .record import EntryRecord, Recorder
from .rights import rights_of
from .scratch import Scratch
from .search import is_empty
from .target import Target

REQUESTS = 8  # to the administration API at a time
SWEEP_WITHIN = 60.0  # seconds to delete what is left at the end
GRACE = 45.0  # seconds that a check may take beyond its known duration
MAX_SEEN = 300  # characters
Told = Callable[[Finding], None]


@dataclass(frozen=True, slots=True)
class Judged:
    """The result of one attempt at an entry; ``failed``: a transient error prevented a verdict."""

    verdict: Verdict
    seen: str
    failed: bool = False


class Run:
    """One run of a plan against two namespaces. ``told`` is called with each finding as it is made.

    ``within``: the time limit in seconds, after which the remaining entries are *unknown*; by default the plan's.
    """

    def __init__(
        self,
        targets: Mapping[Side, Target],
        plan: Plan,
        *,
        keeps: bool = False,
        told: Told | None = None,
        within: float | None = None,
        recorder: Recorder | None = None,
    ) -> None:
        self._targets = targets
        self._plan = plan
        self._keeps = keeps
        self._told = told
        self._recorder = recorder
        self._within = plan.bound if within is None else within
        self._requests = asyncio.Semaphore(REQUESTS)
        self._under_way: set[asyncio.Task[None]] = set()
        shares = all(step.creates for step in plan.runnable)
        self._room = asyncio.Semaphore(SIDE_BY_SIDE if shares else 1)
        self._findings: dict[str, Finding] = {}
        self.left: dict[Side, str] = {}
        """The namespaces where something that was created may be left, and why."""

    async def findings(self) -> list[Finding]:
        """Run everything and return the findings; created entities are deleted at the end, also on cancellation."""
        by_length = sorted(self._plan.steps, key=lambda step: -step.entry.seconds)
        try:
            async with asyncio.timeout(self._within), asyncio.TaskGroup() as group:
                for step in by_length:
                    group.create_task(self._run(step))
        except TimeoutError:
            for step in self._plan.steps:
                if step.entry.id not in self._findings:
                    seen = f"the {self._within:g} s of the run were over"
                    self._found(Finding(step.entry, Verdict.UNKNOWN, seen))
        finally:
            if not self._keeps and self._plan.created:
                await self._sweep()
        return self.so_far

    @property
    def so_far(self) -> list[Finding]:
        """Return the findings so far, in the order of the plan."""
        return [self._findings[step.entry.id] for step in self._plan.steps if step.entry.id in self._findings]

    async def _run(self, step: Step) -> None:
        loop = asyncio.get_running_loop()
        if step.obstacle:
            self._found(Finding(step.entry, Verdict.UNKNOWN, _one_line(step.obstacle)))
            return
        async with self._room:
            began = loop.time()
            record = None if self._recorder is None else self._recorder.begin(step)
            judged = await self._judge(step, record)
            if judged.failed:
                judged = await self._judge_again(step, judged)
            finding = Finding(step.entry, judged.verdict, _one_line(judged.seen), loop.time() - began)
            self._found(finding)
            if self._recorder is not None and record is not None:
                self._recorder.end(record, finding)

    def _found(self, finding: Finding) -> None:
        self._findings[finding.entry.id] = finding
        if self._told is not None:
            self._told(finding)

    async def _judge_again(self, step: Step, first: Judged) -> Judged:
        """Run a failed step once more. If it fails again, although the namespace answers, the result is *differs*.

        The result is never *holds*: the first failure may be a difference that does not always show.
        """
        if self._keeps:
            await self._undo(step, step.entry.entities, None)
        again = await self._judge(step, None)
        if again.verdict is Verdict.HOLDS:
            return Judged(Verdict.UNKNOWN, f"{first.seen} (once: a second try held)")
        if not again.failed or not await self._all_answer(step):
            return again
        return Judged(Verdict.DIFFERS, f"{again.seen} (twice, and the namespace answers)")

    async def _all_answer(self, step: Step) -> bool:
        """Whether each namespace that a step uses takes a new connection."""
        sides = {entity.side for entity in step.entry.entities} or {Side.PRIMARY}
        rights = await asyncio.gather(*(rights_of(self._targets[side]) for side in sides))
        return not any(each.down for each in rights)

    async def _judge(self, step: Step, record: EntryRecord | None) -> Judged:
        created: list[Entity] = []
        try:
            for entity in step.entry.entities if step.creates else ():
                created.append(entity)
                await self._ask(partial(self._create, step, entity, record))
            return await self._check(step, record)
        except AzureError as error:
            verdict = Verdict.DIFFERS if _is_refused(step, error) else Verdict.UNKNOWN
            return Judged(verdict, f"its entities cannot be created: {_why(error)}", _has_failed(error))
        except Exception as error:  # any error: the SDK may fail on the answers of another server
            return Judged(Verdict.UNKNOWN, f"its entities cannot be created: {type(error).__name__}: {error}")
        except asyncio.CancelledError:
            created.clear()  # the sweep is faster
            raise
        finally:
            if not self._keeps:
                await self._undo(step, created, record)

    async def _undo(self, step: Step, created: Sequence[Entity], record: EntryRecord | None) -> None:
        for entity in reversed(created):
            with suppress(Exception):  # the sweep tries again
                await self._ask(partial(self._delete, step, entity, record))

    async def _check(self, step: Step, record: EntryRecord | None) -> Judged:
        each = step.entry
        sides = {entity.label: entity.side for entity in each.entities}
        tap = None if record is None else record.tap
        exchanged = None if record is None else record.exchanged
        scratch = Scratch(self._targets, step.names, sides, f"{self._plan.run}-{each.id}", tap, exchanged)
        try:
            async with asyncio.timeout(each.seconds + GRACE):
                if not step.creates:
                    await _must_be_empty(scratch)
                seen = await each.check(scratch)
            return Judged(Verdict.HOLDS, seen)
        except DifferenceError as different:
            return Judged(Verdict.DIFFERS, str(different))
        except UndecidedError as unknown:
            return Judged(Verdict.UNKNOWN, str(unknown))
        except (LinkRefusedError, TokenRefusedError) as refused:
            return Judged(Verdict.DIFFERS, f"{type(refused).__name__}: {refused}")
        except TimeoutError:
            return Judged(Verdict.UNKNOWN, f"it did not end within {each.seconds + GRACE:g} s", failed=True)
        except ConnectionLostError as lost:
            return Judged(Verdict.UNKNOWN, f"the connection was lost: {lost}", failed=True)
        except (ClientError, AzureError, OSError) as error:
            is_refused = isinstance(error, HttpResponseError) and error.status_code == 400
            verdict = Verdict.DIFFERS if is_refused else Verdict.UNKNOWN
            return Judged(verdict, f"{type(error).__name__}: {error}", _has_failed(error))
        except Exception as error:  # a foreign peer may answer anything
            text = f"the answer cannot be read: {type(error).__name__}: {error}"
            return Judged(Verdict.UNKNOWN, text, failed=True)
        finally:
            with suppress(Exception):
                if not step.creates:
                    async with asyncio.timeout(GRACE):
                        await _emptied(scratch)
            await scratch.close()
            if record is not None and scratch.does_more_than_frames:
                record.is_whole = False

    async def _ask(self, request: Callable[[], None]) -> None:
        """Make an administration request that completes even if its caller is cancelled."""
        async with self._requests:
            task = asyncio.ensure_future(in_daemon_thread(request, "sbpair-verify"))
            self._under_way.add(task)
            task.add_done_callback(self._under_way.discard)
            await asyncio.shield(task)

    def _create(self, step: Step, entity: Entity, record: EntryRecord | None) -> None:
        exchanged = None if record is None else record.exchanged(entity.side)
        with self._targets[entity.side].administration(exchanged) as client:
            administration.create(client, entity, step.names)

    def _delete(self, step: Step, entity: Entity, record: EntryRecord | None) -> None:
        exchanged = None if record is None else record.exchanged(entity.side)
        with self._targets[entity.side].administration(exchanged) as client:
            administration.delete(client, entity, step.names[entity.label])

    async def _sweep(self) -> None:
        """Delete remaining entities once requests in progress have ended, as some may create entities."""
        if self._under_way:
            await asyncio.wait(self._under_way, timeout=SWEEP_WITHIN)
        sides = {side for side, _ in self._plan.created}
        await asyncio.gather(*(self._sweep_side(side) for side in sides))

    async def _sweep_side(self, side: Side) -> None:
        target = self._targets[side]
        try:
            async with asyncio.timeout(SWEEP_WITHIN):
                await in_daemon_thread(
                    lambda: clean(target, leftovers(target, self._plan.run)), "sbpair-verify"
                )
        except TimeoutError:
            self.left[side] = f"it took longer than {SWEEP_WITHIN:g} s"
        except Exception as error:
            self.left[side] = _one_line(f"{type(error).__name__}: {error}")


async def _must_be_empty(scratch: Scratch) -> None:
    if not await is_empty(await scratch.connection(), scratch.path()):
        raise UndecidedError(f"the queue {scratch.path()} is not empty")


async def _emptied(scratch: Scratch) -> None:
    """Complete the messages that the check left in an existing queue; give back those of others."""
    inbox = await scratch.inbox()
    while (arrival := await inbox.take_if_any(1.0)) is not None:
        properties = arrival.message.properties
        if properties is None or not is_ours(str(properties.message_id)):
            return
        await inbox.complete(arrival)


def _has_failed(error: Exception) -> bool:
    """Whether an error shows a failed service or a missing entity, rather than an outage or a busy service."""
    if isinstance(error, HttpResponseError):
        return error.status_code not in (400, 401, 403, 429, 501, 503)
    return isinstance(error, ClientError | ServiceBusConnectionError)


def _is_refused(step: Step, error: AzureError) -> bool:
    """Whether the namespace refuses to create the entities of an entry whose sentence says that it does."""
    return step.entry.about_creation and isinstance(error, HttpResponseError) and error.status_code == 400


def _why(error: AzureError) -> str:
    status = error.status_code if isinstance(error, HttpResponseError) else None
    text = str(error.message if hasattr(error, "message") else error)
    return f"{status}: {text}" if status else f"{type(error).__name__}: {text}"


def _one_line(text: str) -> str:
    line = "".join(letter if letter.isprintable() else " " for letter in " ".join(text.split()))
    return line if len(line) <= MAX_SEEN else line[: MAX_SEEN - 3] + "..."
