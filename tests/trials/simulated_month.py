"""Journals of a month of simulated outages: each day some runs of tests/trials/simulation, in virtual time.

What the runs do is written by those who would: acknowledgements and failovers by senders, deliveries by a receiver, and
the syphons' own events, which are the product's. Every third run begins shortly before midnight and goes on after it.
A process that crashes leaves its journal without an end.
"""

from __future__ import annotations

import random
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass, field, fields, replace
from pathlib import Path
from typing import Any
from unittest.mock import patch

from sbpair.observation import Journal, MessagesReceived, PairLabels, SendAccepted, WriterRole
from sbpair.pair.observation.record import Instant
from sbpair.pair.pairing import events
from sbpair.pair.pairing.events import MessageParked, MessageSpooled, SendRaised, SpoolReplayed
from tests.trials.simulation.client import Client
from tests.trials.simulation.history import History
from tests.trials.simulation.network import HOST
from tests.trials.simulation.plan import PRIMARY, SECONDARY
from tests.trials.simulation.run import Run, run
from tests.trials.simulation.virtual_loop import EPOCH
from tests.trials.simulation.world import World

DAY = 86_400.0
FIRST_DAY = EPOCH // DAY * DAY + DAY  # midnight
LONGEST = 1_500.0  # seconds that a run can take
STATES = (events.EntitySuspected, events.EntityFailedOver, events.EntityRecovered)


@dataclass(frozen=True, slots=True)
class Heard:
    """What one process records; None when it crashes."""

    at: float
    role: WriterRole
    host: str
    event: Any


@dataclass
class Ear:
    """Hears one run."""

    heard: list[Heard] = field(default_factory=list)
    _paths: dict[tuple[str, str], str] = field(default_factory=dict)  # by process and message

    def hear(self, at: float, role: WriterRole, host: str, event: object) -> None:
        self.heard.append(Heard(at, role, host, event))

    def note(self, at: float, who: str, what: str, name: str, more: str) -> None:
        """A line of the history: what a sender's journal would have of it."""
        if what == "attempt":
            self._paths[who, name] = more
        elif what == "crash":
            self.hear(at, WriterRole.SYPHON, who, None)
        elif what in ("ack", "refused", "replayed"):
            path = self._paths.get((who, name), more)
            self.hear(at, WriterRole.SENDER, who, _of_sender(at, what, name, path, more))

    @contextmanager
    def listening(self) -> Iterator[None]:
        note, told, delivered = History.note, Client._told, World.delivered

        def hear_note(
            history: History, at: float, who: str, what: str, message_id: str = "", more: str = ""
        ) -> None:
            note(history, at, who, what, message_id, more)
            self.note(at, who, what, message_id, more)

        def hear_state(client: Client, event: events.PairingEvent) -> None:
            told(client, event)
            if isinstance(event, STATES):
                self.hear(client.world.now, WriterRole.SENDER, client.name, event)

        def hear_delivery(world: World, path: str, message: Any) -> None:
            delivered(world, path, message)
            received = (
                (str(message.message_id),),
                (message.session_id or "",),
                (message.sequence_number or 0,),
            )
            self.hear(world.now, WriterRole.RECEIVER, "consumer", MessagesReceived(path, *received))

        def hear_syphon(run: Run, event: object) -> None:
            self.hear(run.loop.time(), WriterRole.SYPHON, HOST.get(), event)

        with ExitStack() as stack:
            for owner, name, new in (
                (History, "note", hear_note),
                (Client, "_told", hear_state),
                (World, "delivered", hear_delivery),
                (Run, "_on_event", hear_syphon),
            ):
                stack.enter_context(patch.object(owner, name, new))
            yield


def _of_sender(at: float, what: str, name: str, path: str, more: str) -> object:
    ids, session = (name,), name.rpartition(".")[0]
    if what == "refused":
        return SendRaised(at, path, more, ids, True)
    if what == "replayed":
        return SpoolReplayed(at, path, None, 1, 0, ids)
    if more == "spool":
        return MessageSpooled(at, path, 1, ids, session_id=session)
    if more == "primary":
        return SendAccepted(path, "primary", None, ids, False)
    return MessageParked(at, path, int(more.removeprefix("backlog ")), 1, ids, False, session)


def play(seed: int) -> list[Heard]:
    """What the processes of a run record, in order of time."""
    ear = Ear()
    with ear.listening():
        run(seed)
    return sorted(ear.heard, key=lambda each: each.at)


@dataclass
class Writers:
    """The journals of all processes, on the clock of what was heard last."""

    directory: Path
    now: float = 0.0
    _open: dict[str, Journal] = field(default_factory=dict)

    def write(self, heard: Heard) -> None:
        self.now = heard.at
        if heard.event is not None:
            self._of(heard).write(heard.event)
        elif (journal := self._open.pop(heard.host, None)) is not None:
            journal.abandon()

    def _of(self, heard: Heard) -> Journal:
        if heard.host not in self._open:
            self._open[heard.host] = Journal(
                self.directory, role=heard.role, pair=PairLabels(PRIMARY, SECONDARY),
                clock=lambda: Instant(self.now, self.now - FIRST_DAY),
            )  # fmt: skip
        return self._open[heard.host]

    def close(self, of_run: str) -> None:
        for host in [each for each in self._open if each.startswith(of_run)]:
            self._open.pop(host).close()


def simulated_month(directory: Path, *, days: int, runs: int, seed: int = 1) -> Iterator[int]:
    """Write the journals below ``directory`` day by day: yields the number of each day when it is written."""
    luck, writers = random.Random(seed), Writers(directory)
    left: list[tuple[str, list[Heard]]] = []
    for day in range(days):
        midnight = FIRST_DAY + (day + 1) * DAY
        for number in range(day * runs, (day + 1) * runs):
            is_late = number % 3 == 2
            begin = midnight - 180.0 if is_late else midnight - DAY + luck.random() * (DAY - LONGEST)
            left.append((f"run {number} ", _moved(play(seed + number), f"run {number} ", begin)))
        left.sort(key=lambda each: each[1][0].at)
        goes_on = []
        for name, heard in left:
            for each in heard:
                if each.at < midnight:
                    writers.write(each)
            if later := [each for each in heard if each.at >= midnight]:
                goes_on.append((name, later))
            else:
                writers.close(name)
        left = goes_on
        yield day


def _moved(heard: list[Heard], of_run: str, begin: float) -> list[Heard]:
    """The same at another time, with the processes and the messages of a run of their own."""
    return [
        replace(each, at=begin + each.at, host=of_run + each.host, event=_named(each.event, of_run, begin))
        for each in heard
    ]


def _named(event: Any, of_run: str, begin: float) -> Any:
    """The event with this run's ids of messages and sessions, and its time."""
    if event is None:
        return None
    new: dict[str, Any] = {}
    for name in (each.name for each in fields(event)):
        value = getattr(event, name)
        if name in ("message_ids", "session_ids"):
            new[name] = tuple(of_run + each if each else each for each in value)
        elif name in ("message_id", "session_id") and value:
            new[name] = of_run + value
        elif name == "at":
            new[name] = value - EPOCH + begin if value > EPOCH / 2 else value + begin - FIRST_DAY
    return replace(event, **new)
