"""The story of the demo, written with sbpair's public API.

    senders ----> orders (contoso) ----> receivers
       |  taken down after a third ^
       '--> backlogs (contoso-dr) -'  by the syphon, which runs throughout

With sessions, each belongs to one sender thread, and the ledger checks its order.
With consumers that never stop, a processor takes the place of the receivers: it reads both namespaces from the
beginning, and the syphon lands messages on the secondary while the primary is down.

Broker, senders, syphon and receivers run in threads of this process. As in any application, a send that raises
during the failover interval is repeated with the same message objects, hence with the same message ids.
"""

from __future__ import annotations

import time
from collections.abc import Callable
from contextlib import ExitStack
from pathlib import Path
from typing import TYPE_CHECKING

from sbpair import EntityState
from sbpair.broker import Broker
from sbpair.broker.testing.ledger import Ledger
from sbpair.events import (
    BacklogsCreated,
    BacklogsNotCreated,
    BacklogWithdrawn,
    EntityFailedOver,
    EntityRecovered,
    EntitySuspected,
    FenceOpened,
    PingFailed,
    PingSent,
)
from sbpair.pair.cli.errors import CommandError, ExitCode, one_line
from sbpair.pair.ground.entity_settings import SESSIONS
from sbpair.pair.observation.record import WriterRole

from .application import SENDERS, Application
from .plan import Act, DemoPlan
from .scoreboard import DemoResult, Score, Scoreboard
from .stage import PRIMARY_NAME, QUEUE, SECONDARY_NAME, Stage, billed_operations

if TYPE_CHECKING:
    from sbpair import PairedServiceBusClient
    from sbpair.events import PairingEvent
    from sbpair.pair.observation.record import WriterRole

RECEIVERS = 2
SESSION_RECEIVERS = 10  # closing a session takes the SDK about a second
PATIENCE = 60.0  # seconds for one step of the story, then the demo fails
GLANCE = 0.05  # seconds between two readings of a queue that is about to be empty
LOCK = 5000  # milliseconds; a lock that the outage breaks ends soon
SESSION_LOCK = 60_000  # of receivers that accept sessions, when the outage is over
PULL_AT = 0.9  # acknowledged share of the first third at which the outage begins, amid running sends
SPANS = {
    "outage": ("down", "up"),
    "until_failover": ("down", "failed over"),
    "until_home": ("up", "recovered"),
    "until_drained": ("up", "drained"),
}
LANDED = f"the consumers receive from {SECONDARY_NAME}, where the syphon lands messages"
Write = Callable[[object], None]


class Story:
    """One run of a plan."""

    def __init__(
        self, plan: DemoPlan, board: Scoreboard, journal: Path | None = None, *, has_consumers: bool = False
    ) -> None:
        self._plan = plan
        self._board = board
        self._ledger = Ledger()
        self._journal = journal
        self._has_consumers = has_consumers
        self._have_landed = False
        self._marks: dict[str, float] = {}

    def run(self) -> DemoResult:
        """Run it to the end. Raises CommandError when a step takes longer than PATIENCE or a thread fails."""
        with ExitStack() as pieces:
            journals = Journals(self._journal, pieces)
            broker = pieces.enter_context(Broker({PRIMARY_NAME: 0, SECONDARY_NAME: 0}, journal=self._journal))
            stage = Stage(self._plan, self._board, broker, lands=self._has_consumers)
            sent, moved, received = (
                journals.of(role) for role in (WriterRole.SENDER, WriterRole.SYPHON, WriterRole.RECEIVER)
            )
            application = Application(self._plan, self._board, self._ledger, sent, received)
            self._create_queues(stage)
            self._board.note(
                f"{PRIMARY_NAME} and {SECONDARY_NAME} are up; queue {QUEUE!r} is on {PRIMARY_NAME}"
            )
            client = pieces.enter_context(stage.client())
            pieces.callback(client.on_event(self._on_pairing_event))
            pieces.callback(client.on_event(sent))
            pieces.enter_context(stage.monitor_backlogs())
            pieces.enter_context(stage.syphon(moved, report_forwards=journals.is_wanted))
            if self._has_consumers:
                pieces.enter_context(application.consumers(client))
            self._outage(stage, client, application)
            return self._outcome(stage)

    def _create_queues(self, stage: Stage) -> None:
        has_sessions = self._plan.sessions > 0
        lock = SESSION_LOCK if has_sessions and not self._has_consumers else LOCK
        for side in (stage.primary, stage.secondary) if self._has_consumers else (stage.primary,):
            side.create_queue(QUEUE, lock_duration=lock, **SESSIONS.set_to(has_sessions))

    def _outage(self, stage: Stage, client: PairedServiceBusClient, application: Application) -> None:
        with stage.threads("sender", SENDERS, lambda: application.send(client), application.stop):
            self._mark("began", "the application sends")
            application.begin(Act.BEFORE)
            first_third = PULL_AT * self._plan.messages_of(Act.BEFORE)
            self._await(stage, "the first third to be sent", lambda score: score.acknowledged >= first_third)
            self._power(is_up=False, text=f"{PRIMARY_NAME} goes down, in the middle of sends")
            stage.primary.take_down("reset")  # after the line is printed: an event of a send could come first
            application.begin(Act.DURING)
            self._wait_out(stage)
            # on a busy machine the outage lasts longer: the story needs the failover
            self._await(stage, "the entity to fail over", lambda s: s.state == EntityState.FAILED_OVER.name)
            if self._has_consumers and not self._have_landed:
                self._see_consumers(stage)
            stage.primary.bring_up()
            self._power(is_up=True, text=f"{PRIMARY_NAME} is back")
            application.begin(Act.AFTER)
            self._await(stage, "the entity to come home", lambda s: s.state == EntityState.HEALTHY.name)
            receivers = SESSION_RECEIVERS if self._plan.sessions else RECEIVERS
            if self._has_consumers:
                receivers = 0
            with stage.threads("receiver", receivers, lambda: application.receive(client), application.stop):
                self._homecoming(stage, application)

    def _wait_out(self, stage: Stage) -> None:
        """Wait until the planned outage is over, and report the consumers as soon as they resume."""
        ends = time.monotonic() + self._plan.outage
        if self._has_consumers and self._plan.ordering == "none":
            self._have_landed = self._board.wait_for(
                lambda score: stage.failure is not None or score.received_from[SECONDARY_NAME] > 0,
                self._plan.outage,
            )
            if self._have_landed and stage.failure is None:
                self._board.note(LANDED)
        self._board.wait_for(lambda _: stage.failure is not None, ends - time.monotonic())

    def _see_consumers(self, stage: Stage) -> None:
        if self._plan.ordering == "session":
            self._board.note(f"ordered sessions are not landed: the consumers wait for {PRIMARY_NAME}")
            return
        is_landing = "the consumers to receive from the secondary"
        self._await(stage, is_landing, lambda score: score.received_from[SECONDARY_NAME] > 0)
        self._board.note(LANDED)

    def _homecoming(self, stage: Stage, application: Application) -> None:
        everything = self._plan.messages
        self._poll(stage, "the backlogs to drain", lambda: not any(stage.depths().values()))
        self._mark("drained", "the syphon has brought the parked messages home")
        seen = self._board.read().emptied_at
        if seen is not None and seen > self._marks["up"]:  # while we were waiting for the ping
            self._marks["drained"] = seen
        self._await(stage, "every message to be accepted", lambda score: score.acknowledged == everything)
        self._mark("sent", "every message has been accepted by a broker")
        self._await(stage, "every message to arrive", lambda _: not self._ledger.outstanding)
        # A duplicate may follow the last message: wait for an empty queue, not for the last id.
        self._poll(stage, f"{QUEUE} to be empty", stage.is_empty)
        application.report_empty()
        self._mark("received", "every message has arrived")

    # Waiting.

    def _await(self, stage: Stage, what: str, holds: Callable[[Score], bool]) -> None:
        has_come = self._board.wait_for(lambda score: stage.failure is not None or holds(score), PATIENCE)
        self._check(stage, what, has_come)

    def _poll(self, stage: Stage, what: str, holds: Callable[[], bool]) -> None:
        deadline = time.monotonic() + PATIENCE
        while not (has_come := holds()) and stage.failure is None and time.monotonic() < deadline:
            time.sleep(GLANCE)
        self._check(stage, what, has_come)

    def _check(self, stage: Stage, what: str, has_come: bool) -> None:
        if stage.failure is not None:
            text = f"the demo failed, {type(stage.failure).__name__}: {one_line(stage.failure)}"
            raise CommandError(text, ExitCode.FAILED) from stage.failure
        if not has_come:
            text = f"timed out after {PATIENCE:g} s, waiting for {what}; {self._ledger.check()}"
            raise CommandError(text, ExitCode.FAILED)

    # The timeline.

    def _mark(self, name: str, text: str) -> None:
        self._marks[name] = self._board.elapsed_seconds()
        self._board.note(text)

    def _power(self, *, is_up: bool, text: str) -> None:
        self._board.update(lambda score: setattr(score, "primary_is_up", is_up))
        self._mark("up" if is_up else "down", text)

    def _on_pairing_event(self, event: PairingEvent) -> None:
        match event:
            case EntitySuspected():
                self._became(EntityState.SUSPECT, "is SUSPECT: what the primary does not accept is parked")
            case EntityFailedOver():
                self._marks["failed over"] = self._board.elapsed_seconds()
                self._became(EntityState.FAILED_OVER, "has FAILED OVER: its messages are parked")
            case EntityRecovered():
                self._marks["recovered"] = self._board.elapsed_seconds()
                self._became(EntityState.HEALTHY, "is HEALTHY again: sends go to the primary")
            case FenceOpened(backlog=backlog, sessions=sessions) if sessions:
                its_sessions = "1 session uses" if sessions == 1 else f"{sessions} sessions use"
                self._board.note(f"backlog {backlog} is empty: {its_sessions} the primary again")
            case PingSent(number=number):
                self._board.note(f"ping {number}")
            case PingFailed():
                self._board.note("the ping was not accepted")
            case BacklogsCreated(created=created):
                self._board.note(f"{len(created)} backlog queues made on {SECONDARY_NAME}")
            case BacklogsNotCreated(cause=cause) | BacklogWithdrawn(cause=cause):
                self._board.note(f"trouble with a backlog: {cause}")

    def _became(self, state: EntityState, text: str) -> None:
        self._board.update(lambda score: setattr(score, "state", state.name))
        self._board.note(f"{QUEUE} {text}")

    def _outcome(self, stage: Stage) -> DemoResult:
        spans = {name: (self._marks.get(a), self._marks.get(b)) for name, (a, b) in SPANS.items()}
        known = {n: round(b - a, 3) for n, (a, b) in spans.items() if a is not None and b is not None}
        durations = {"total": round(self._board.elapsed_seconds(), 3)} | known
        numbers = billed_operations(stage.primary, stage.secondary, lands=self._has_consumers)
        return DemoResult(self._ledger.check(), self._board.read(), numbers, durations)


class Journals:
    """The journals of one story, closed with ``pieces``; without a directory nothing is written."""

    def __init__(self, directory: Path | None, pieces: ExitStack) -> None:
        self._directory = directory
        self._pieces = pieces

    @property
    def is_wanted(self) -> bool:
        return self._directory is not None

    def of(self, role: WriterRole) -> Write:
        """Open a journal and return its write function.

        Raises CommandError when the directory cannot be used.
        """
        if self._directory is None:
            return lambda event: None
        from sbpair.pair.observation.journal import Journal
        from sbpair.pair.observation.journal_reading import JournalError
        from sbpair.pair.observation.record import PairLabels

        try:
            journal = Journal(self._directory, role=role, pair=PairLabels(PRIMARY_NAME, SECONDARY_NAME))
        except JournalError as error:
            raise CommandError(str(error), ExitCode.CONFIGURATION) from error
        return self._pieces.enter_context(journal).write
