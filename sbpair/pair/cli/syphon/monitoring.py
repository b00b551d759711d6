"""Monitoring of a running syphon: journal, status pages and exported telemetry, each enabled by a flag.

A journal directory that may not be written or an impossible address ends the command with exit code 3 before any
message is received. A problem that may pass by itself, such as a full disk or a port in use, ends it with exit code 5.
"""

from __future__ import annotations

import asyncio
import errno
from collections.abc import AsyncIterator, Callable, Iterator, Mapping
from contextlib import AsyncExitStack, ExitStack, asynccontextmanager, contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, TypeVar

import click

from sbpair.pair.cli.errors import (
    OF_DISK,
    CommandError,
    ConfigurationError,
    ExitCode,
    configuration,
    one_line,
)
from sbpair.pair.cli.output import notice
from sbpair.pair.ground.extras import install_line
from sbpair.pair.tracing import current
from sbpair.pair.tracing.switch import MissingExtraError, use_opentelemetry

if TYPE_CHECKING:
    from sbpair.pair.auth.connection_string import NamespaceAccess
    from sbpair.pair.observation.journal import Journal
    from sbpair.pair.observation.metrics import Metrics
    from sbpair.pair.observation.record import PairLabels
    from sbpair.pair.observation.sinks import Sink
    from sbpair.pair.syphon.daemon import Syphon

    from ...syphon.status import SyphonStatus


Command = TypeVar("Command", bound=Callable[..., object])

PROBE_TIMEOUT = 5.0  # seconds for both sides together
SIDE_TIMEOUT = 4.5  # seconds for one side: less, so that the answer names it
PASSING = frozenset(
    (
        *(*OF_DISK, errno.EIO),
        *(errno.EADDRINUSE, errno.EADDRNOTAVAIL),  # the port
        *(errno.EMFILE, errno.ENFILE, errno.ENOMEM),
    )
)
"""Errors that a later start may not meet again: a service manager then restarts the command."""
LOOPBACK = "127.0.0.1"
SIDES = ("primary", "secondary")
SERVICE = "sbpair-syphon"


@dataclass(frozen=True, slots=True)
class Monitoring:
    """The monitoring flags of the command line."""

    journal: Path | None
    status_port: int | None
    status_host: str

    @property
    def is_wanted(self) -> bool:
        return self.journal is not None or self.status_port is not None


def monitoring_options(command: Command) -> Command:
    """Add the flags of the journal and the status pages."""
    for option in reversed(
        (
            click.option(
                "--journal",
                type=click.Path(file_okay=False, path_type=Path),
                metavar="DIR",
                help="Write every event to files in this directory, as JSON lines.",
            ),
            click.option(
                "--status-port",
                type=click.IntRange(0, 65535),
                metavar="PORT",
                help="Serve /live, /ready, /health, /metrics and /state on this port; 0 takes any free one.",
            ),
            click.option(
                "--status-host",
                metavar="ADDRESS",
                default=LOOPBACK,
                show_default=True,
                help="With --status-port: the address to listen on, 0.0.0.0 or :: for probes and scrapes "
                "from other hosts. The pages show names of namespaces and queues, but no keys.",
            ),
        )
    ):
        command = option(command)
    return command


@asynccontextmanager
async def monitor(syphon: Syphon, monitoring: Monitoring) -> AsyncIterator[None]:
    """Monitor the syphon until the block ends.

    Raises CommandError when the journal or the status server cannot start.
    """
    async with AsyncExitStack() as stack:
        if monitoring.is_wanted:
            with configuration(), _shortage():
                await _open(stack, syphon, monitoring)
        yield


@contextmanager
def _shortage() -> Iterator[None]:
    """Convert an error that may pass by itself to another exit code than that of a configuration error."""
    try:
        yield
    except ValueError as error:
        if isinstance(error.__cause__, OSError) and error.__cause__.errno in PASSING:
            raise CommandError(one_line(error), ExitCode.UNAVAILABLE) from error
        raise


async def _open(stack: AsyncExitStack, syphon: Syphon, monitoring: Monitoring) -> None:
    from sbpair.pair.envelope.names import namespace_label
    from sbpair.pair.observation.metrics import Metrics
    from sbpair.pair.observation.record import PairLabels
    from sbpair.pair.observation.sinks import attach
    from sbpair.pair.observation.syphon_gauges import show_syphon

    label, _, _ = syphon.backlogs[0].partition("/")
    pair = PairLabels(label, namespace_label(syphon.namespaces[1].netloc))
    metrics = Metrics()
    metrics.read_counters("sbpair_syphon", lambda: syphon.counters)
    metrics.read_state("sbpair_syphon_state", lambda: syphon.status.state)
    show_syphon(metrics, syphon)
    journal = _journal(stack, syphon, monitoring, pair)
    sinks: list[Sink] = [metrics]
    if journal is not None:
        metrics.read_counters("sbpair_journal", lambda: journal.counters)
        sinks.append(journal)
    if current.active is not None:
        current.active.export(metrics, is_last=True)
    stack.callback(attach(syphon, *sinks))
    if monitoring.status_port is not None:
        state = _state_of(syphon, pair, journal)
        await _serve(stack, syphon, (monitoring.status_host, monitoring.status_port), metrics, state)


def _journal(
    stack: AsyncExitStack, syphon: Syphon, monitoring: Monitoring, pair: PairLabels
) -> Journal | None:
    from sbpair.pair.observation.journal import Journal
    from sbpair.pair.observation.record import WriterRole

    if monitoring.journal is None:
        return None
    journal = stack.enter_context(Journal(monitoring.journal, role=WriterRole.SYPHON, pair=pair))
    # the last record before the closing one
    stack.callback(lambda: journal.write(syphon.counters.snapshot()))
    return journal


def _state_of(
    syphon: Syphon, pair: PairLabels, journal: Journal | None
) -> Callable[[], Mapping[str, object]]:
    def state() -> Mapping[str, object]:
        return {
            "role": "syphon",
            "pair": pair,
            "state": syphon.status.state,
            "reason": syphon.status.reason,
            "refused": syphon.refusals,
            "backlogs": syphon.backlogs,
            "missing": sorted(syphon.missing_backlogs),
            "max_rate": syphon.options.max_rate,
            "landing": syphon.landing,
            "untransferred": syphon.untransferred,
            "counters": syphon.counters,
            "journal": journal and journal.counters,
        }

    return state


async def _serve(
    stack: AsyncExitStack,
    syphon: Syphon,
    address: tuple[str, int],
    metrics: Metrics,
    state: Callable[[], Mapping[str, object]],
) -> None:
    from sbpair.pair.observation.status import Status, StatusServer

    def details() -> Mapping[str, object]:
        status = syphon.status
        return {"state": status.state, "why": status.reason, "refused": syphon.refusals}

    status = Status(
        probe=lambda: _probe_sides(syphon),
        is_ready=lambda: is_ready(syphon.status),
        state=state,
        metrics=metrics.exposition,
        probe_timeout=PROBE_TIMEOUT,
        details=details,
    )
    host, port = address
    server = await stack.enter_async_context(StatusServer(status, port=port, host=host))
    shown = f"[{server.host}]" if ":" in server.host else server.host
    notice(f"status on http://{shown}:{server.port}/state", "syphon")


def is_ready(status: SyphonStatus) -> bool:
    """Whether the syphon works, or is waiting for a side that is known to be down."""
    from ...syphon.status import SyphonState

    waits = status.state is SyphonState.CONNECTING and status.reason is not None
    return waits or status.state in (SyphonState.RUNNING, SyphonState.LANDING, SyphonState.DRAINING)


async def _probe_sides(syphon: Syphon) -> None:
    """Connect to both sides concurrently. Raises ClientError with the problem of each side."""
    from sbpair.pair.client.errors import ClientError

    probed = zip(syphon.namespaces, ("", syphon.backlogs[0]), strict=True)
    probes = [_probe_in_time(side, path) for side, path in probed]
    answers = await asyncio.gather(*probes, return_exceptions=True)
    wrong = [f"{side}: {error}" for side, error in zip(SIDES, answers, strict=True) if error is not None]
    if wrong:
        raise ClientError("; ".join(wrong))


async def _probe(side: NamespaceAccess, path: str) -> None:
    """Connect and authorize for ``path``: the smallest proof that the namespace accepts this client."""
    from sbpair.pair.client.connection import connect

    connection = await connect(side, timeout=SIDE_TIMEOUT)
    try:
        await connection.authorize(path)
        await connection.close(timeout=1.0)
    finally:
        connection.abort()


async def _probe_in_time(side: NamespaceAccess, path: str) -> None:
    from sbpair.pair.client.errors import ClientError

    try:
        async with asyncio.timeout(SIDE_TIMEOUT):
            await _probe(side, path)
    except TimeoutError as error:
        raise ClientError(f"no answer within {SIDE_TIMEOUT:g} s") from error


@contextmanager
def exported_telemetry(is_wanted: bool) -> Iterator[None]:
    """Export spans and metrics until the block ends, which waits for the last ones. Does nothing unless wanted.

    Raises ConfigurationError without the extra ``otel``.
    """
    if not is_wanted:
        yield
        return
    try:
        undo = use_opentelemetry()
        from opentelemetry import metrics, trace
        from opentelemetry.exporter.otlp.proto.http.metric_exporter import OTLPMetricExporter
        from opentelemetry.exporter.otlp.proto.http.trace_exporter import OTLPSpanExporter
        from opentelemetry.sdk.metrics import MeterProvider
        from opentelemetry.sdk.metrics.export import PeriodicExportingMetricReader
        from opentelemetry.sdk.resources import SERVICE_NAME, OTELResourceDetector, Resource
        from opentelemetry.sdk.trace import TracerProvider
        from opentelemetry.sdk.trace.export import BatchSpanProcessor
    except MissingExtraError as error:
        raise ConfigurationError(f"--otel: {error}") from error
    except ImportError as error:
        raise ConfigurationError(f"--otel: {error}; {install_line('otel')}") from error

    resource = Resource.create({SERVICE_NAME: SERVICE}).merge(OTELResourceDetector().detect())
    with ExitStack() as stack:
        stack.callback(undo)
        meters = MeterProvider(
            [PeriodicExportingMetricReader(OTLPMetricExporter())], resource, shutdown_on_exit=False
        )
        stack.callback(meters.shutdown)
        tracers = TracerProvider(resource=resource, shutdown_on_exit=False)
        stack.callback(tracers.shutdown)
        tracers.add_span_processor(BatchSpanProcessor(OTLPSpanExporter()))
        metrics.set_meter_provider(meters)
        trace.set_tracer_provider(tracers)
        yield
