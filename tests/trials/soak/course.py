"""The trial: senders, syphon and consumer work while the primary goes down again and again.

|--- up ---|- refuse -|--- up ---|- reset -|--- up ---|- silent -|--- up ---| ... | all must come home
"""

from __future__ import annotations

import json
import sys
import threading
import time
from collections import Counter
from collections.abc import Iterator
from contextlib import ExitStack, suppress
from dataclasses import dataclass, field
from pathlib import Path

import httpx

from sbpair.broker.testing.ledger import Ledger, LedgerReport
from tests.waiting import PATIENCE

from .flatness import Trend, trend
from .processes import WINDOW, Process, broker, create_backlogs, create_orders, program, syphon
from .programs import BACKLOGS
from .usage import ALLOWANCES, Usage, usage_of

WAYS = ("refuse", "reset", "silent")  # in which the primary is down, in turn
HOME_WITHIN = 90.0  # seconds, after the last outage
QUIET = 2.0  # seconds without an arrival: nothing is under way any more
SAY_EVERY = 10.0  # seconds


@dataclass(frozen=True, slots=True)
class Plan:
    """All in seconds; ``rate`` in messages a second, over both senders."""

    seconds: float
    period: float
    down: float
    rate: float
    sample_every: float

    def outages(self) -> Iterator[tuple[str, float, float]]:
        """How, from when and until when the primary is down."""
        for number in range(int(self.seconds / self.period)):
            begin = self.period * (number + 1) - self.down
            yield WAYS[number % len(WAYS)], begin, begin + self.down

    def rules(self) -> Iterator[dict[str, object]]:
        """The same as faults of the broker."""
        for how, begin, end in self.outages():
            yield {
                "namespace": "contoso",
                "effect": "down",
                "how": how,
                "after": begin,
                "lasting": end - begin,
            }


@dataclass
class Notes:
    """What the programs said, from several threads."""

    ledger: Ledger = field(default_factory=Ledger)
    stored_in: Counter[str] = field(default_factory=Counter)
    ambiguous: Counter[str] = field(default_factory=Counter)
    parked: set[str] = field(default_factory=set)
    copies: set[tuple[str, str]] = field(default_factory=set)  # a copy has a sequence number of its own
    delivered_again: int = 0
    raised: int = 0

    def hear(self, words: list[str]) -> None:
        match words:
            case ["?", key]:
                self.ledger.attempted(key)
            case ["!", key]:
                self.raised += 1
                self._unsure(key)
            case ["+", key, stored_in, is_ambiguous]:
                self.stored_in[stored_in] += 1
                if stored_in != "primary":
                    self.parked.add(key)
                if is_ambiguous == "1":
                    self._unsure(key)
                self.ledger.acknowledged(key)
            case ["=", key, number]:
                if (key, number) in self.copies:
                    self.delivered_again += 1
                else:
                    self.copies.add((key, number))
                    self.ledger.received(key)

    def _unsure(self, key: str) -> None:
        self.ambiguous[key] += 1
        self.ledger.ambiguous(key)


@dataclass(frozen=True, slots=True)
class Sample:
    """One look at everything; ``at`` in seconds since the start."""

    at: float
    held: dict[str, Usage]
    on_disk: dict[str, int]  # KiB, by namespace
    outstanding: int


@dataclass(frozen=True, slots=True)
class Report:
    plan: Plan
    found: LedgerReport
    notes: Notes
    samples: list[Sample]
    trends: dict[str, dict[str, Trend]]
    exit_codes: dict[str, int]
    syphon: dict[str, object]

    @property
    def outages(self) -> int:
        return len(list(self.plan.outages()))

    @property
    def repeated_by_syphon(self) -> frozenset[str]:
        """Ids with a copy more than the senders' ambiguities explain."""
        return self.found.unexplained

    @property
    def repeats_allowed(self) -> int:
        """An outage leaves the syphon unsure of what it has in hands, and of nothing else (G-4)."""
        return self.outages * BACKLOGS * WINDOW

    @property
    def is_bounded(self) -> bool:
        repeated = self.repeated_by_syphon
        return repeated <= self.notes.parked and len(repeated) <= self.repeats_allowed

    @property
    def not_flat(self) -> list[str]:
        return [
            f"{process}: {what}"
            for process, mine in self.trends.items()
            for what, each in mine.items()
            if not each.is_flat
        ]

    @property
    def is_right(self) -> bool:
        ended_well = not any(self.exit_codes.values())
        return self.found.is_conserved and self.is_bounded and not self.not_flat and ended_well


class Soak:
    """The trial while it lasts."""

    def __init__(self, plan: Plan, folder: Path) -> None:
        self.plan, self.folder = plan, folder
        self.notes = Notes()
        self.samples: list[Sample] = []
        self._pause = threading.Event()  # never set: a bounded wait
        self._processes: dict[str, Process] = {}

    def run(self) -> Report:
        with ExitStack() as cleaning:
            self._cleaning = cleaning
            self._start()
            self._watch()
            return self._end()

    def _keep(self, process: Process) -> Process:
        self._cleaning.callback(process.clean)
        self._processes[process.name] = process
        return process

    def _start(self) -> None:
        primary, at_primary = broker("primary", "contoso", self.folder, "--allow-faults")
        self._keep(primary)
        secondary, at_secondary = broker("secondary", "contoso-dr", self.folder)
        self._keep(secondary)
        (one,), (other,) = at_primary["namespaces"], at_secondary["namespaces"]
        self.ends = {"PRIMARY": one["connection_string"], "SECONDARY": other["connection_string"]}
        create_orders(self.ends["PRIMARY"], at_primary["ca_file"])
        create_backlogs(self.ends["SECONDARY"], at_secondary["ca_file"])
        for kind in ("sender", "aio-sender", "consumer"):
            process = self._keep(program(kind, self.folder, self.plan.rate / 2, self.ends))
            process.follow(self.notes.hear)
        self._keep(syphon(self.folder, self.ends))
        self._faults = self._cleaning.enter_context(
            httpx.Client(headers={"Authorization": f"Bearer {at_primary['faults_token']}"}, timeout=PATIENCE)
        )
        self._faults_url = at_primary["faults_url"]
        for rule in self.plan.rules():
            self._faults.post(self._faults_url, json=rule).raise_for_status()

    def _watch(self) -> None:
        began = self._began = time.monotonic()
        said = 0.0
        while (at := time.monotonic() - began) < self.plan.seconds:
            held = {name: usage_of(process.pid) for name, process in self._processes.items()}
            disk = {name: _size(self.folder / name) for name in ("contoso", "contoso-dr")}
            self.samples.append(Sample(at, held, disk, self.notes.ledger.outstanding))
            if at - said >= SAY_EVERY:
                said = at
                self._say()
            next_at = began + len(self.samples) * self.plan.sample_every
            self._pause.wait(max(0.0, next_at - time.monotonic()))

    def _say(self) -> None:
        now = self.samples[-1]
        held = "  ".join(
            f"{name} {each.memory // 1024} MiB/{each.descriptors}/{each.threads}"
            for name, each in now.held.items()
        )
        self._tell(f"{sum(self.notes.stored_in.values())} accepted, {now.outstanding} under way  {held}")

    def _tell(self, what: str) -> None:
        print(f"{time.monotonic() - self._began:6.0f} s  {what}", file=sys.stderr, flush=True)

    def _end(self) -> Report:
        """No more sends, no more outages: everything must come home."""
        self._faults.delete(self._faults_url).raise_for_status()
        codes = {name: self._processes.pop(name).leave() for name in ("sender", "aio-sender")}
        self._tell("the senders have left")
        self._wait_for_home()
        self._tell("all is home")
        daemon = self._processes.pop("syphon")
        counters = self._ended_with_counters(daemon, codes)
        drain = self._keep(syphon(self.folder, self.ends, "--drain"))
        drain.answer()  # when the backlogs are empty
        self._tell("the backlogs are empty")
        self._wait_for_quiet()
        codes["drain"] = drain.leave()
        codes["consumer"] = self._processes.pop("consumer").leave()
        for name in ("primary", "secondary"):
            codes[name] = self._processes.pop(name).stop()
        self._tell("everybody has left")
        return Report(
            self.plan,
            self.notes.ledger.check(),
            self.notes,
            self.samples,
            classified(self.samples),
            codes,
            counters,
        )

    def _ended_with_counters(self, daemon: Process, codes: dict[str, int]) -> dict[str, object]:
        said: list[str] = []
        daemon.follow(lambda words: said.append(" ".join(words)))
        codes["syphon"] = daemon.stop()
        return dict(json.loads(said[-1])) if said else {}

    def _wait_for_home(self) -> None:
        until = time.monotonic() + HOME_WITHIN
        while self.notes.ledger.outstanding and time.monotonic() < until:
            self._pause.wait(0.05)

    def _wait_for_quiet(self) -> None:
        before = -1
        while before != self.notes.ledger.arrivals:
            before = self.notes.ledger.arrivals
            self._pause.wait(QUIET)


def classified(samples: list[Sample]) -> dict[str, dict[str, Trend]]:
    """By process and by what it holds; of the two brokers what is on disk too."""
    trends = {
        name: {
            what: trend([getattr(sample.held[name], what) for sample in samples], allowance)
            for what, allowance in ALLOWANCES.items()
        }
        for name in samples[0].held
    }
    for process, namespace in (("primary", "contoso"), ("secondary", "contoso-dr")):
        trends[process]["disk"] = trend(
            [sample.on_disk[namespace] for sample in samples], ALLOWANCES["memory"]
        )
    return trends


def _size(folder: Path) -> int:
    """KiB of the files of a data directory."""
    total = 0
    for each in folder.rglob("*"):
        with suppress(FileNotFoundError):  # it went meanwhile
            total += each.stat().st_size
    return total // 1024
