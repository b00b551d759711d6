"""A syphon on a driven clock with connections and forwarding sessions that the test plays."""

from __future__ import annotations

import asyncio
from collections import deque
from collections.abc import AsyncIterator, Callable, Iterable
from contextlib import asynccontextmanager
from dataclasses import dataclass, field
from typing import Any

import pytest

from sbpair.pair.auth.connection_string import NamespaceAccess
from sbpair.pair.client.errors import ClientError, ConnectionLostError, TokenRefusedError
from sbpair.pair.ground.side import Side
from sbpair.pair.syphon import daemon as module
from sbpair.pair.syphon.events import SyphonEvent
from sbpair.pair.syphon.watch import claims
from sbpair.syphon import Syphon, SyphonOptions
from tests.pair.syphon.scripted import now, turns

STRING = "Endpoint=sb://{}.example;SharedAccessKeyName=Root;SharedAccessKey=SAS_KEY_VALUE"
NO_ROUTE = ConnectionLostError("no route")


class PlayedConnection:
    """A connection to a side."""

    def __init__(self, side: str) -> None:
        self.side = side
        self.is_open = True
        self.claims = 0
        self.aborted_at: float | None = None

    def abort(self) -> None:
        self.is_open = False
        self.aborted_at = now()


class PlayedSession:
    """A forwarding session that a test can break and drain."""

    def __init__(
        self, primary: Any, secondary: Any, backlogs: Iterable[str], options: Any, **given: Any
    ) -> None:
        self.primary, self.secondary, self.backlogs, self.options, self.given = (
            primary, secondary, tuple(backlogs), options, given,
        )  # fmt: skip
        self.has_primary, self.is_connected, self.is_aborted = primary is not None, True, False
        self.began = now()
        self.stopped_at: float | None = None
        self.finishes_in = 0.0  # seconds
        loop = asyncio.get_running_loop()
        self.broken: asyncio.Future[str] = loop.create_future()
        self.drained: asyncio.Future[None] = loop.create_future()
        self.busy: tuple[str, ...] = ()
        self.wakes = 0
        self.lost_side = Side.SECONDARY

    def adopt(self, primary: Any) -> None:
        self.primary, self.has_primary = primary, True

    async def wait_broken(self) -> str:
        return await asyncio.shield(self.broken)

    async def drain(self) -> None:
        await asyncio.shield(self.drained)

    async def finish(self) -> None:
        await asyncio.sleep(self.finishes_in)

    async def stop(self) -> None:
        self.stopped_at = now()
        self.is_connected = False

    def wake(self) -> None:
        self.wakes += 1

    def abort(self) -> None:
        self.is_aborted = True

    def busy_backlogs(self) -> tuple[str, ...]:
        return self.busy


class PlayedStranded:
    """The check of the backlogs beyond the count."""

    made: list[PlayedStranded]

    def __init__(self, label: str, count: int, emit: Callable[[SyphonEvent], None]) -> None:
        self.label, self.count = label, count
        self.found: dict[str, bool] = {"b9": True}
        self.ran: list[Any] = []
        self.checked: list[Any] = []
        self.fails: ClientError | None = None
        PlayedStranded.made.append(self)

    async def run(self, connection: Callable[[], Any]) -> None:
        self.ran.append(connection())
        await asyncio.get_running_loop().create_future()

    async def check(self, connection: Any) -> None:
        self.checked.append(connection)
        if self.fails is not None:
            raise self.fails


@dataclass
class World:
    """The two sides; ``dials`` holds the next outcomes of connecting to each, after which connecting succeeds."""

    syphon: Syphon
    events: list[SyphonEvent]
    dials: dict[str, deque[ClientError | float]] = field(
        default_factory=lambda: {"primary": deque(), "secondary": deque()}
    )
    """An error, or the seconds that connecting takes."""
    refuses: dict[str, list[TokenRefusedError | None]] = field(default_factory=dict)
    dialled: list[tuple[str, float]] = field(default_factory=list)
    routes: list[tuple[Any, Any]] = field(default_factory=list)
    claimed: list[tuple[str, tuple[str, ...]]] = field(default_factory=list)
    connections: list[PlayedConnection] = field(default_factory=list)
    sessions: list[PlayedSession] = field(default_factory=list)
    parked: list[str] = field(default_factory=list)
    searches: int = 0
    """The searches for parked paths in progress."""

    @property
    def stranded(self) -> PlayedStranded:
        return PlayedStranded.made[-1]

    @property
    def session(self) -> PlayedSession:
        return self.sessions[-1]

    def said(self, kind: type) -> list[Any]:
        return [event for event in self.events if isinstance(event, kind)]

    def to(self, side: str) -> list[float]:
        """Return the times at which this side was dialled."""
        return [at for each, at in self.dialled if each == side]

    async def connect(
        self, namespace: NamespaceAccess, *, timeout: float | None = None, answer_timeout: float | None = None
    ) -> PlayedConnection:
        side = "primary" if namespace is self.syphon._primary else "secondary"
        self.dialled.append((side, now()))
        self.routes.append((namespace.route, (timeout, answer_timeout)))
        outcome = self.dials[side].popleft() if self.dials[side] else 0.0
        if isinstance(outcome, ClientError):
            outcome.side = None  # it may have been raised before
            raise outcome
        await asyncio.sleep(outcome)
        self.connections.append(PlayedConnection(side))
        return self.connections[-1]

    async def refusal_of(
        self, connection: PlayedConnection, paths: tuple[str, ...]
    ) -> TokenRefusedError | None:
        self.claimed.append((connection.side, tuple(paths)))
        connection.claims += 1
        answers = self.refuses.get(connection.side)
        return answers.pop(0) if answers else None

    async def parked_paths(self, connection: PlayedConnection, backlogs: Iterable[str], walk: Any) -> Any:
        assert connection.side == "secondary"
        assert tuple(backlogs) == self.syphon.backlogs
        self.searches += 1
        try:
            for path in self.parked:
                yield path
        finally:
            self.searches -= 1

    def open_session(self, *given: Any, **named: Any) -> PlayedSession:
        self.sessions.append(PlayedSession(*given, **named))
        return self.sessions[-1]


class Worlds:
    """Create the syphon of a test."""

    def __init__(self, patch: pytest.MonkeyPatch) -> None:
        self._patch = patch
        PlayedStranded.made = []
        patch.setattr(module, "StrandedBacklogs", PlayedStranded)

    def __call__(self, **options: Any) -> World:
        syphon = Syphon.from_connection_strings(
            STRING.format("contoso"),
            STRING.format("contoso-dr"),
            options=SyphonOptions(**{"backlog_queue_count": 2} | options),
        )
        events: list[SyphonEvent] = []
        syphon.on_event(events.append)
        world = World(syphon, events)
        for name, played in (
            ("connect", world.connect),
            ("refusal_of", world.refusal_of),
            ("ForwardingSession", world.open_session),
        ):
            self._patch.setattr(module, name, played)
        self._patch.setattr(claims, "refusal_of", world.refusal_of)
        self._patch.setattr(claims, "parked_paths", world.parked_paths)
        return world


@pytest.fixture
def worlds(monkeypatch: pytest.MonkeyPatch) -> Worlds:
    return Worlds(monkeypatch)


@asynccontextmanager
async def running(world: World) -> AsyncIterator[None]:
    shutdown = asyncio.Event()
    task = asyncio.ensure_future(world.syphon.run(shutdown))
    await turns(20)
    try:
        yield
    finally:
        shutdown.set()
        await task
