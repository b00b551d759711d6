"""How is a running syphon seen from outside: journal, status pages, webhook?

Each is off unless asked for. A journal's directory that cannot be written, a port that is taken, and a
webhook that cannot work end the command with exit code 3 before a message is touched.
"""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Callable, Mapping
from contextlib import AsyncExitStack, asynccontextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, TypeVar

import click

from sbpair.cli.errors import ConfigurationError, configuration
from sbpair.cli.namespaces import fetched
from sbpair.cli.redaction import remember
from sbpair.cli.source import Source

if TYPE_CHECKING:
    from sbpair.observation import Journal, Metrics, PairLabels, Webhook
    from sbpair.observation.attach import Sink
    from sbpair.syphon import Syphon
    from sbpair.syphon.connection_string import Namespace
    from sbpair.syphon.route import Route

Command = TypeVar("Command", bound=Callable[..., object])

PROBE_TIMEOUT = 5.0  # seconds for both sides
SOURCES = ("env:", "file:")


@dataclass(frozen=True, slots=True)
class Watch:
    """What was asked for on the command line."""

    journal: Path | None
    status_port: int | None
    webhook: str | None
    webhook_secret: str | None

    @property
    def is_wanted(self) -> bool:
        return any(each is not None for each in (self.journal, self.status_port, self.webhook))


def watch_options(command: Command) -> Command:
    """Add --journal, --status-port, --webhook and --webhook-secret; `watch_from` reads them."""
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
                help="Answer /health, /ready, /metrics and /state on this port of 127.0.0.1; 0: a free one.",
            ),
            click.option(
                "--webhook",
                metavar="URL",
                help="POST a signed notice of dead letters, and of what is overdue (--overdue-after): a URL, "
                "env:NAME or file:PATH.",
            ),
            click.option(
                "--webhook-secret",
                metavar="SOURCE",
                help="What the notices are signed with, 16 characters or more: env:NAME or file:PATH.",
            ),
        )
    ):
        command = option(command)
    return command


def watch_from(
    journal: Path | None, status_port: int | None, webhook: str | None, webhook_secret: str | None
) -> Watch:
    """The options, fetched and checked. Raises ConfigurationError, which repeats no secret."""
    if (webhook is None) != (webhook_secret is None):
        raise ConfigurationError("--webhook and --webhook-secret go together; one of them is missing")
    if webhook is None or webhook_secret is None:
        return Watch(journal, status_port, None, None)
    if not webhook_secret.startswith(SOURCES):
        raise ConfigurationError("--webhook-secret must be env:NAME or file:PATH")
    url, secret = fetched(webhook, "--webhook"), fetched(webhook_secret, "--webhook-secret")
    remember(url)
    remember(secret)
    return Watch(journal, status_port, url, secret)


@asynccontextmanager
async def watched(syphon: Syphon, watch: Watch, primary: Source, secondary: Source) -> AsyncIterator[None]:
    """Show the syphon between two namespaces to those who watch, until the block ends.

    Raises ConfigurationError when one of what was asked for cannot begin.
    """
    async with AsyncExitStack() as stack:
        if watch.is_wanted:
            options = syphon.options
            with configuration():
                sides = (
                    primary.namespace(options.primary_endpoint_address),
                    secondary.namespace(options.secondary_endpoint_address),
                )
                await _open(stack, syphon, watch, sides)
        yield


async def _open(
    stack: AsyncExitStack, syphon: Syphon, watch: Watch, sides: tuple[Namespace, Namespace]
) -> None:
    from sbpair.observation import Metrics, PairLabels, attach
    from sbpair.pairing.names import namespace_label

    label, _, _ = syphon.backlogs[0].partition("/")
    pair = PairLabels(label, namespace_label(sides[1].netloc))
    metrics = Metrics()
    metrics.read_counters("sbpair_syphon", lambda: syphon.counters)
    metrics.read_state("sbpair_syphon_state", lambda: syphon.status.state)
    journal = _journal(stack, syphon, watch, pair)
    webhook = _webhook(stack, watch, pair)
    sinks: list[Sink] = [metrics]
    if journal is not None:
        metrics.read_counters("sbpair_journal", lambda: journal.counters)
        sinks.append(journal)
    if webhook is not None:
        metrics.read_counters("sbpair_webhook", lambda: webhook.counters)
        sinks.append(webhook)
    stack.callback(attach(syphon, *sinks))
    if watch.status_port is not None:
        state = _state_of(syphon, pair, journal, webhook)
        await _serve(stack, syphon, watch.status_port, sides, metrics, state)


def _journal(stack: AsyncExitStack, syphon: Syphon, watch: Watch, pair: PairLabels) -> Journal | None:
    from sbpair.observation import Journal, Role

    if watch.journal is None:
        return None
    journal = stack.enter_context(Journal(watch.journal, role=Role.SYPHON, pair=pair))
    stack.callback(lambda: journal.write(syphon.counters.snapshot()))  # the last but for the closing record
    return journal


def _webhook(stack: AsyncExitStack, watch: Watch, pair: PairLabels) -> Webhook | None:
    from sbpair.observation import Role, Webhook

    if watch.webhook is None or watch.webhook_secret is None:
        return None
    webhook = Webhook(watch.webhook, watch.webhook_secret, role=Role.SYPHON, pair=pair)
    stack.push_async_callback(asyncio.to_thread, webhook.close)
    return webhook


def _state_of(
    syphon: Syphon, pair: PairLabels, journal: Journal | None, webhook: Webhook | None
) -> Callable[[], Mapping[str, object]]:
    def state() -> Mapping[str, object]:
        return {
            "role": "syphon",
            "pair": pair,
            "state": syphon.status.state,
            "reason": syphon.status.reason,
            "backlogs": syphon.backlogs,
            "counters": syphon.counters,
            "journal": journal and journal.counters,
            "webhook": webhook and webhook.counters,
        }

    return state


async def _serve(
    stack: AsyncExitStack,
    syphon: Syphon,
    port: int,
    sides: tuple[Namespace, Namespace],
    metrics: Metrics,
    state: Callable[[], Mapping[str, object]],
) -> None:
    from sbpair.observation import Status, StatusServer
    from sbpair.syphon.counters import SyphonState

    ready = (SyphonState.RUNNING, SyphonState.DRAINING)

    async def probe() -> None:
        for side, path in zip(sides, ("", syphon.backlogs[0]), strict=True):
            await _round_trip(side, path, syphon.options.route)

    status = Status(
        probe=probe,
        is_ready=lambda: syphon.status.state in ready,
        state=state,
        metrics=metrics.exposition,
        probe_timeout=PROBE_TIMEOUT,
    )
    server = await stack.enter_async_context(StatusServer(status, port=port))
    click.echo(f"sbpair syphon: status on http://{server.host}:{server.port}/state", err=True)


async def _round_trip(side: Namespace, path: str, route: Route) -> None:
    """Connect and have our token for ``path`` accepted: the least that shows a namespace works for us."""
    from sbpair.syphon.dial import connect

    connection = await connect(side, route=route, timeout=PROBE_TIMEOUT)
    try:
        await connection.authorize(path)
        await connection.close(timeout=1.0)
    finally:
        connection.abort()
