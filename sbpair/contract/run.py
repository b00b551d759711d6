"""A run of the contract: entries side by side, each with entities of its own, which are deleted in any case."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Mapping
from contextlib import suppress
from functools import partial

from azure.core.exceptions import AzureError, HttpResponseError

from sbpair.pair.client.errors import ClientError, ConnectionLostError, LinkRefusedError, TokenRefusedError
from sbpair.pair.ground.daemon_thread import in_daemon_thread
from sbpair.pair.ground.side import Side

from . import administration
from .cleaning import clean, leftovers
from .entry import DifferenceError, Entity, Finding, UndecidedError, Verdict
from .naming import is_ours
from .plan import SIDE_BY_SIDE, Plan, Step
from .record import EntryRecord, Recorder
from .scratch import Scratch
from .target import Target

REQUESTS = 8  # to the administration API at a time
SWEEP_WITHIN = 60.0  # seconds to delete what is left at the end
GRACE = 45.0  # seconds that a check may take beyond what it is known to
MAX_SEEN = 300  # characters
Told = Callable[[Finding], None]


class Run:
    """One run of a plan against two namespaces. ``told`` is called with each finding as it is made.

    ``within``: seconds after which the entries that are left are not known; by default the plan's.
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
        """Run everything; what was created is deleted at the end, also when this is cancelled."""
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
        """What was found until now, in the order of the plan."""
        return [self._findings[step.entry.id] for step in self._plan.steps if step.entry.id in self._findings]

    async def _run(self, step: Step) -> None:
        loop = asyncio.get_running_loop()
        if step.obstacle:
            self._found(Finding(step.entry, Verdict.UNKNOWN, _one_line(step.obstacle)))
            return
        async with self._room:
            began = loop.time()
            record = None if self._recorder is None else self._recorder.begin(step)
            verdict, seen = await self._judge(step, record)
            finding = Finding(step.entry, verdict, _one_line(seen), loop.time() - began)
            self._found(finding)
            if self._recorder is not None and record is not None:
                self._recorder.end(record, finding)

    def _found(self, finding: Finding) -> None:
        self._findings[finding.entry.id] = finding
        if self._told is not None:
            self._told(finding)

    async def _judge(self, step: Step, record: EntryRecord | None) -> tuple[Verdict, str]:
        created: list[Entity] = []
        try:
            for entity in step.entry.entities if step.creates else ():
                created.append(entity)
                await self._ask(partial(self._create, step, entity))
            return await self._check(step, record)
        except AzureError as error:
            verdict = Verdict.DIFFERS if _is_refused(step, error) else Verdict.UNKNOWN
            return verdict, f"its entities cannot be created: {_why(error)}"
        except Exception as error:  # whatever the SDK makes of the answers of another server
            return Verdict.UNKNOWN, f"its entities cannot be created: {type(error).__name__}: {error}"
        except asyncio.CancelledError:
            created.clear()  # the sweep is faster
            raise
        finally:
            for entity in () if self._keeps else reversed(created):
                with suppress(Exception):  # the sweep tries again
                    await self._ask(partial(self._delete, step, entity))

    async def _check(self, step: Step, record: EntryRecord | None) -> tuple[Verdict, str]:
        each = step.entry
        sides = {entity.label: entity.side for entity in each.entities}
        tap = None if record is None else record.tap
        scratch = Scratch(self._targets, step.names, sides, f"{self._plan.run}-{each.id}", tap)
        try:
            async with asyncio.timeout(each.seconds + GRACE):
                if not step.creates:
                    await _must_be_empty(scratch)
                seen = await each.check(scratch)
            return Verdict.HOLDS, seen
        except DifferenceError as different:
            return Verdict.DIFFERS, str(different)
        except UndecidedError as unknown:
            return Verdict.UNKNOWN, str(unknown)
        except (LinkRefusedError, TokenRefusedError) as refused:
            return Verdict.DIFFERS, f"{type(refused).__name__}: {refused}"
        except TimeoutError:
            return Verdict.UNKNOWN, f"it did not end within {each.seconds + GRACE:g} s"
        except ConnectionLostError as lost:
            return Verdict.UNKNOWN, f"the connection was lost: {lost}"
        except (ClientError, AzureError, OSError) as error:
            return Verdict.UNKNOWN, f"{type(error).__name__}: {error}"
        except Exception as error:  # a foreign peer may answer anything
            return Verdict.UNKNOWN, f"the answer cannot be read: {type(error).__name__}: {error}"
        finally:
            with suppress(Exception):
                if not step.creates:
                    async with asyncio.timeout(GRACE):
                        await _emptied(scratch)
            await scratch.close()
            if record is not None and scratch.uses_sdk:
                record.is_whole = False

    async def _ask(self, request: Callable[[], None]) -> None:
        """Make a request of the administration API, which goes on even if its caller is cancelled."""
        async with self._requests:
            task = asyncio.ensure_future(in_daemon_thread(request, "sbpair-verify"))
            self._under_way.add(task)
            task.add_done_callback(self._under_way.discard)
            await asyncio.shield(task)

    def _create(self, step: Step, entity: Entity) -> None:
        with self._targets[entity.side].administration() as client:
            administration.create(client, entity, step.names)

    def _delete(self, step: Step, entity: Entity) -> None:
        with self._targets[entity.side].administration() as client:
            administration.delete(client, entity, step.names[entity.label])

    async def _sweep(self) -> None:
        """Delete what is left, once the requests under way have ended: some of them may create."""
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
    if await scratch.peek(most=1):
        raise UndecidedError(f"the queue {scratch.path()} is not empty")


async def _emptied(scratch: Scratch) -> None:
    """Complete what the check left in a queue that exists; others' messages are given back."""
    inbox = await scratch.inbox()
    while (arrival := await inbox.take_if_any(1.0)) is not None:
        properties = arrival.message.properties
        if properties is None or not is_ours(str(properties.message_id)):
            return
        await inbox.complete(arrival)


def _is_refused(step: Step, error: AzureError) -> bool:
    """Whether the namespace does not allow the entities of an entry that says that it does."""
    return step.entry.about_creation and isinstance(error, HttpResponseError) and error.status_code == 400


def _why(error: AzureError) -> str:
    status = error.status_code if isinstance(error, HttpResponseError) else None
    text = str(error.message if hasattr(error, "message") else error)
    return f"{status}: {text}" if status else f"{type(error).__name__}: {text}"


def _one_line(text: str) -> str:
    line = "".join(letter if letter.isprintable() else " " for letter in " ".join(text.split()))
    return line if len(line) <= MAX_SEEN else line[: MAX_SEEN - 3] + "..."
