"""Two namespaces in one broker process, reached on loopback or over lines with a round trip."""

from __future__ import annotations

import multiprocessing as mp
from collections.abc import Callable, Iterator, Mapping
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass
from multiprocessing.connection import Connection
from types import TracebackType
from typing import Any, Self

from sbpair.pair.auth.connection_string import parse
from tests.trials.bench.delay_line import by_way_of, delay_lines
from tests.trials.bench.process import cpu_seconds


@dataclass(frozen=True, slots=True)
class Site:
    """Two namespaces, by connection string, and the certificate authority of their broker."""

    primary: str
    secondary: str
    ca_file: str


@contextmanager
def at_distance(near: Site, rtt: float) -> Iterator[Site]:
    """The same namespaces at a round trip of ``rtt`` seconds; 0 for as they are."""
    if not rtt:
        yield near
        return
    ports = [parse(each).port for each in (near.primary, near.secondary)]
    with delay_lines(rtt, ports) as (first, second):
        yield Site(by_way_of(near.primary, first), by_way_of(near.secondary, second), near.ca_file)


class BrokerProcess:
    """A broker that ``serve`` runs: it sends its :class:`Site`, then an answer to each request, until it gets None."""

    def __init__(self, serve: Callable[[Connection], None]) -> None:
        self._pipe, theirs = mp.Pipe()
        self._process = mp.get_context("spawn").Process(target=serve, args=(theirs,))
        self._process.start()
        theirs.close()  # so that a broker that dies is noticed
        self.site: Site = self._pipe.recv()

    def ask(self, request: str) -> Any:
        """Its answer to a request."""
        self._pipe.send(request)
        return self._pipe.recv()

    @property
    def cpu_seconds(self) -> float:
        """The processor time it has used."""
        assert self._process.pid is not None
        return cpu_seconds(self._process.pid)

    def close(self) -> None:
        """Let it end."""
        self._pipe.send(None)
        self._process.join()
        self._pipe.close()

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.close()


@contextmanager
def sites_of(
    serve: Callable[[Connection], None], networks: Mapping[str, float]
) -> Iterator[tuple[BrokerProcess, dict[str, Site]]]:
    """A broker process, and its namespaces at each network's round trip in seconds."""
    with BrokerProcess(serve) as broker, ExitStack() as lines:
        yield (
            broker,
            {name: lines.enter_context(at_distance(broker.site, rtt)) for name, rtt in networks.items()},
        )
