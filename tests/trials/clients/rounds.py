"""One round: one client meets one fault. What it was asked and answered, and what the queue held in the end.

Each step of a sender is a send of one message; of a receiver, the receiving and completing of one. Two steps succeed,
the fault strikes, and steps go on until so many succeeded after it, or PATIENCE is over.
"""

from __future__ import annotations

import random
import threading
import time
from collections import Counter
from dataclasses import dataclass, field
from enum import Enum
from itertools import count
from math import inf

from tests.trials.clients.contestants import Driver, NoAnswerError, Start
from tests.trials.clients.faults import Event, Fault, Moment, Side
from tests.trials.clients.stage import Stage

GRACE = 10.0  # seconds that an answer may come later than the time its command was given
SETTLES_WITHIN = (
    115.0  # seconds of a completion, which takes no time as argument but in Go: more than 90 in JavaScript
)
WAIT = 4.0  # seconds that a receive waits for a message
STARTS_WITHIN = 90.0  # seconds of a driver and of its first operations, on a busy machine
PATIENCE = 40.0  # seconds after the fault and after the answer to what began before its end
WARM_UP = 2  # steps before a fault that strikes under way
MISSES = 4  # steps without the fault striking before it is given up
HOPELESS = 3  # steps against a fault that never ends
PACE = (0.1, 0.4)  # seconds between two steps, drawn from the seed
PUT = 40  # messages that a receiver finds beyond those of the first steps


class NotBegunError(Exception):
    """The steps before the fault did not succeed."""


class Outcome(Enum):
    """How a client answered a command."""

    OK = "ok"
    EMPTY = "empty"  # a receive without a message
    ERROR = "error"
    HANG = "hang"  # no answer in time


@dataclass(frozen=True, slots=True)
class Operation:
    """One command and its answer; times are seconds since the round began."""

    does: str
    message_id: str | None
    began: float
    ended: float
    outcome: Outcome
    error: str = ""
    copies: int = 0


@dataclass(frozen=True, slots=True)
class Step:
    """A send, or a receive with its completion. ``in_fault``: it began before the fault was over."""

    operations: tuple[Operation, ...]
    in_fault: bool

    @property
    def is_success(self) -> bool:
        return all(operation.outcome is Outcome.OK for operation in self.operations)

    @property
    def is_hang(self) -> bool:
        return self.operations[-1].outcome is Outcome.HANG

    @property
    def began(self) -> float:
        return self.operations[0].began

    @property
    def ended(self) -> float:
        return self.operations[-1].ended


@dataclass(slots=True)
class Facts:
    """What a round saw. ``over``: when the fault ended or, if it strikes once, when its step began; None if never."""

    role: Side
    steps: list[Step] = field(default_factory=list)
    over: float | None = None
    has_struck: bool = False
    is_endless: bool = False
    put: tuple[str, ...] = ()
    left: Counter[str] = field(default_factory=Counter)


def play(fault: Fault, start: Start, *, seed: int, messages: int, limit: float) -> Facts:
    """Play one round. ``messages`` must succeed after the fault; ``limit``: seconds given to each operation.

    Raises NotBegunError.
    """
    with Stage(fault) as stage:
        opening = stage.address()
        with Driver(start, str(opening["ca_file"])) as driver:
            facts = Round(fault, stage, driver, seed, messages, limit).played(opening)
        facts.left = stage.left()
    return facts


class Round:
    """The steps of one round."""

    def __init__(
        self, fault: Fault, stage: Stage, driver: Driver, seed: int, messages: int, limit: float
    ) -> None:
        self._fault, self._stage, self._driver = fault, stage, driver
        self._random = random.Random(f"{seed}/{fault.name}")  # the same for every client
        self._messages, self._limit = messages, limit
        self._zero = time.monotonic()
        self._names = (f"m{number}" for number in count(1))
        self._facts = Facts(fault.role, is_endless=fault.cause is Event.UNRESOLVED)
        self._is_over = threading.Event()

    def played(self, opening: dict[str, object]) -> Facts:
        """Play, and return what was seen; what the queue holds is for the stage to say."""
        # a runtime loads the SDK as it is used: that must not be taken for the time of the client
        for command in (self._stage.direct(), {"do": "send", "id": "first", "limit": STARTS_WITHIN}, opening):
            answer = self._ask(command, STARTS_WITHIN + GRACE)
            if answer.outcome is not Outcome.OK:
                raise NotBegunError(f"{command['do']}: {answer.error}")
        self._put(WARM_UP)
        if self._fault.moment is Moment.UNDER_WAY:
            self._warm_up()
        if self._fault.seconds:
            self._put(PUT)
        self._stage.begin()
        if not self._fault.seconds:
            self._put(PUT)  # a client that fetches in advance must meet the fault too
        if self._fault.seconds:
            self._meet_lasting()
        elif self._facts.is_endless:
            self._meet_endless()
        else:
            self._meet_once()
        return self._facts

    def _warm_up(self) -> None:
        """Succeed in the first steps; a receive may find nothing at first, on a busy machine."""
        succeeded, began = 0, self._now()
        while succeeded < WARM_UP:
            step = self._record(self._step(STARTS_WITHIN), in_fault=False)
            if step.operations[-1].outcome not in (Outcome.OK, Outcome.EMPTY):
                raise NotBegunError(f"{step.operations[-1]}")
            if self._now() - began > STARTS_WITHIN:
                raise NotBegunError("the first steps took too long")
            succeeded += step.is_success

    def _put(self, count: int) -> None:
        if self._fault.role is Side.RECEIVE:
            names = tuple(next(self._names) for _ in range(count))
            self._facts.put += names
            self._stage.put(names)

    def _meet_lasting(self) -> None:
        timer = threading.Timer(self._fault.seconds, self._end_fault)
        timer.start()
        try:
            self._facts.has_struck = True
            self._go_on()
        finally:
            timer.join()

    def _meet_endless(self) -> None:
        self._facts.has_struck = True
        for _ in range(HOPELESS):
            if self._record(self._step(self._limit), in_fault=True).is_hang:
                return

    def _meet_once(self) -> None:
        for _ in range(MISSES):
            step = self._record(self._step(self._limit), in_fault=True)
            if self._stage.has_struck:
                self._facts.has_struck, self._facts.over = True, step.began
                break
            if step.is_hang:
                break
        self._stage.end()
        self._is_over.set()
        if self._facts.has_struck and not step.is_hang:
            self._go_on()

    def _go_on(self) -> None:
        """Step until enough steps succeeded after the fault."""
        succeeded, patient_until = 0, inf
        while succeeded < self._messages:
            self._is_over.wait(self._random.uniform(*PACE))
            in_fault = not self._is_over.is_set()
            step = self._record(self._step(self._limit), in_fault)
            if step.is_hang:
                return
            succeeded += step.is_success and not in_fault
            if in_fault or patient_until == inf:
                patient_until = inf if self._facts.over is None else self._now() + PATIENCE
            elif self._now() > patient_until:
                return

    def _end_fault(self) -> None:
        self._stage.end()
        self._facts.over = self._now()
        self._is_over.set()

    def _record(self, step: Step, in_fault: bool) -> Step:
        recorded = Step(step.operations, in_fault)
        self._facts.steps.append(recorded)
        return recorded

    # -- one step

    def _step(self, limit: float) -> Step:
        if self._fault.role is Side.SEND:
            name = next(self._names)
            asked = {"do": "send", "id": name, "limit": limit}
            return Step((self._ask(asked, limit + GRACE),), False)
        received = self._ask({"do": "receive", "wait": WAIT, "limit": limit}, limit + GRACE)
        if received.outcome is not Outcome.OK:
            return Step((received,), False)
        asked = {"do": "complete", "id": received.message_id, "limit": limit}
        return Step((received, self._ask(asked, SETTLES_WITHIN + GRACE)), False)

    def _ask(self, command: dict[str, object], within: float) -> Operation:
        does, name, began = str(command["do"]), command.get("id"), self._now()
        try:
            answer = self._driver.ask(command, within)
        except NoAnswerError as error:
            return Operation(does, _text(name), began, self._now(), Outcome.HANG, str(error))
        if answer["outcome"] == "error":
            text = f"{answer['error']}: {answer['text']}"
            return Operation(does, _text(name), began, self._now(), Outcome.ERROR, text)
        if does == "receive":
            name = answer["id"]
        outcome = Outcome.EMPTY if does == "receive" and name is None else Outcome.OK
        return Operation(does, _text(name), began, self._now(), outcome, copies=answer["copies"])

    def _now(self) -> float:
        return time.monotonic() - self._zero


def _text(name: object) -> str | None:
    return None if name is None else str(name)
