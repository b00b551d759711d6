"""`sbpair broker`: one or more Service Bus namespaces on this machine, until a signal."""

from __future__ import annotations

import json
import re
import signal
import threading
from collections import Counter
from pathlib import Path
from typing import TYPE_CHECKING

import click
from click.core import ParameterSource

from sbpair.cli import broker_config, broker_faults, broker_page
from sbpair.cli.errors import ConfigurationError
from sbpair.cli.exit_codes import ExitCode

if TYPE_CHECKING:
    from sbpair.broker import Broker, NamespaceControl
    from sbpair.broker.configuration import NamespacePlan

NAMESPACES = ("contoso:5672", "contoso-dr:5673")
NAME = re.compile("[A-Za-z][A-Za-z0-9-]{0,49}")  # as the service's, but for its least length
SUBSCRIPTIONS = re.compile("/subscriptions/", re.IGNORECASE)
USUAL_PORT = 5672
PARTITIONED = ",partitioned"
TIERS = ("Basic", "Standard", "Premium")
LOOPBACK = ("127.0.0.1", "localhost", "::1")


class NamespaceAtPort(click.ParamType[tuple[str, int]]):
    """`contoso:5672`; port 0 takes any free one."""

    name = "name:port"

    def convert(
        self, value: str, param: click.Parameter | None, ctx: click.Context | None
    ) -> tuple[str, int]:
        name, _, port = value.rpartition(":")
        if not NAME.fullmatch(name) or not port.isascii() or not port.isdigit() or int(port) > 65535:
            self.fail(
                f"{value!r} is not NAME:PORT with a port from 0 to 65535, e.g. contoso:5672", param, ctx
            )
        return name, int(port)


class PartitionsOfNamespace(click.ParamType[tuple[str, int]]):
    """`contoso:4`: a Premium namespace of so many partitions (Q-2)."""

    name = "name:partitions"

    def convert(
        self, value: str, param: click.Parameter | None, ctx: click.Context | None
    ) -> tuple[str, int]:
        name, _, count = value.rpartition(":")
        if count not in ("1", "2", "4") or not name:
            self.fail(f"{value!r} is not NAME:1, NAME:2 or NAME:4", param, ctx)
        return name, int(count)


class QueueInNamespace(click.ParamType[tuple[str, str, bool]]):
    """`contoso/orders`, or `contoso/orders,partitioned`."""

    name = "namespace/queue[,partitioned]"

    def convert(
        self, value: str, param: click.Parameter | None, ctx: click.Context | None
    ) -> tuple[str, str, bool]:
        path, is_partitioned = _without_partitioned(value)
        namespace, _, queue = path.partition("/")
        if not namespace or not queue or "," in queue:
            self.fail(f"{value!r} is not NAMESPACE/QUEUE or NAMESPACE/QUEUE,partitioned", param, ctx)
        return namespace, queue, is_partitioned


class TopicInNamespace(click.ParamType[tuple[str, str, str | None, bool]]):
    """`contoso/events`, or `contoso/events/Subscriptions/billing`; and `,partitioned` after either."""

    name = "namespace/topic[/Subscriptions/name][,partitioned]"

    def convert(
        self, value: str, param: click.Parameter | None, ctx: click.Context | None
    ) -> tuple[str, str, str | None, bool]:
        whole, is_partitioned = _without_partitioned(value)
        namespace, _, path = whole.partition("/")
        topic, *subscription = SUBSCRIPTIONS.split(path, maxsplit=1)
        if not namespace or not topic or "," in path or subscription == [""]:
            self.fail(
                f"{value!r} is not NAMESPACE/TOPIC or NAMESPACE/TOPIC/Subscriptions/NAME",
                param,
                ctx,
            )
        return namespace, topic, subscription[0] if subscription else None, is_partitioned


def _without_partitioned(value: str) -> tuple[str, bool]:
    path = value.removesuffix(PARTITIONED)
    return path, path != value


@broker_config.with_broker_config
@click.command("broker")
@click.option(
    "--namespace",
    "namespaces",
    type=NamespaceAtPort(),
    multiple=True,
    default=NAMESPACES,
    show_default=True,
    help="A namespace and its port; repeat for more. Port 0 takes any free one.",
)
@click.option("--queue", "queues", type=QueueInNamespace(), multiple=True, help="Create this queue at start.")
@click.option(
    "--topic",
    "topics",
    type=TopicInNamespace(),
    multiple=True,
    help="Create this topic, and the subscription if one is named, at start.",
)
@click.option(
    "--one-port", is_flag=True, help="All namespaces behind the first one's port, told apart by host name."
)
@click.option("--host", default="127.0.0.1", show_default=True, help="The address to listen on.")
@click.option(
    "--tier",
    type=click.Choice(TIERS),
    default="Standard",
    show_default=True,
    help="The tier of every namespace: Basic has no topics, sessions or forwarding.",
)
@click.option(
    "--credits",
    "credits_per_second",
    type=click.IntRange(1),
    metavar="N",
    help="Throttle each namespace to this many credits a second; the service gives 1000.",
)
@click.option(
    "--data",
    type=click.Path(file_okay=False, path_type=Path),
    metavar="DIR",
    help="Keep everything in this directory, over restarts. Without it, in memory only.",
)
@click.option(
    "--journal",
    type=click.Path(file_okay=False, path_type=Path),
    metavar="DIR",
    help="Write what becomes of each message to files in this directory, for an audit.",
)
@click.option(
    "--partitions",
    type=PartitionsOfNamespace(),
    multiple=True,
    help="A partitioned Premium namespace: 1, 2 or 4 partitions, e.g. contoso:4.",
)
@click.option(
    "--driven-time", is_flag=True, help="Let time be set ahead over HTTP, on a loopback port of its own."
)
@click.option("--open-access", is_flag=True, help="Accept any key: for a laptop, never for a network.")
@click.option("--allow-faults", is_flag=True, help="Take faults over HTTP, on a loopback port of its own.")
@click.option(
    "--faults",
    "plan",
    type=click.Path(exists=True, dir_okay=False, path_type=Path),
    help="Set the faults of this TOML plan at start.",
)
@click.option(
    "--page",
    "page",
    type=broker_page.PageAddress(),
    default=broker_page.ANYWHERE_FREE,
    show_default=True,
    help="Where the web page is served, or off. Port 0 takes any free one.",
)
@click.option(
    "--story",
    type=click.Path(file_okay=False, path_type=Path),
    metavar="DIR",
    help="Tell on the page what the journals in this directory say of the pairing.",
)
@click.option("--json", "as_json", is_flag=True, help="Print the namespaces as one line of JSON.")
def command(
    namespaces: tuple[tuple[str, int], ...],
    queues: tuple[tuple[str, str, bool], ...],
    topics: tuple[tuple[str, str, str | None, bool], ...],
    one_port: bool,
    host: str,
    tier: str,
    credits_per_second: int | None,
    data: Path | None,
    journal: Path | None,
    partitions: tuple[tuple[str, int], ...],
    driven_time: bool,
    open_access: bool,
    allow_faults: bool,
    plan: Path | None,
    page: tuple[str, int] | None,
    story: Path | None,
    as_json: bool,
) -> int:
    """Run a Service Bus broker on this machine, to test against.

    Prints the connection strings once it answers, and the address of a web
    page that shows what is in it. Keys are made at the first start with
    --data, else at each, and open nothing but this broker. SIGTERM or Ctrl-C
    stops it.

    \b
    Examples:
      sbpair broker --queue contoso/orders
      sbpair broker --namespace test:0 --topic test/prices/Subscriptions/audit --json
      sbpair broker --queue contoso/orders --faults plan.toml --allow-faults
      sbpair broker --config config.json --open-access
    """
    plans = broker_config.plans()
    namespaces = _with_planned(namespaces, plans)
    _check(namespaces, queues, topics, partitions)
    if open_access and host not in LOOPBACK:
        click.echo(f"sbpair: warning: anybody who reaches {host} may send and receive", err=True)
    planned = broker_faults.read(plan)
    stop = threading.Event()
    for number in (signal.SIGTERM, signal.SIGINT):
        signal.signal(number, lambda *_: stop.set())

    from sbpair.broker import Broker, ShiftedClock  # late: its certificates are not needed for --help

    with Broker(
        dict(namespaces),
        host=host,
        tier=tier,
        credits_per_second=credits_per_second,
        open_access=open_access,
        data=data,
        journal=journal,
        on_failure=lambda _: stop.set(),
        one_port=one_port,
        clock=ShiftedClock() if driven_time else None,
        partitions={each.name: each.partitions for each in plans if each.partitions} | dict(partitions),
        policies={each.name: each.policies for each in plans},
    ) as broker:
        for each in plans:
            broker.namespace(each.name).follow(each)
        for namespace, queue, is_partitioned in queues:
            _create_queue(broker.namespace(namespace), queue, is_partitioned, is_kept=data is not None)
        for namespace, topic, subscription, is_partitioned in topics:
            _create_topic(broker, namespace, topic, subscription, is_partitioned, data is not None)
        names = [name for name, _ in namespaces]
        with (
            broker_faults.serving(broker, planned, faults=allow_faults, time=driven_time) as faults,
            broker_page.serving(broker, page, story) as shown,
        ):
            doors = {**faults, **shown}
            click.echo(_as_json(broker, names, doors) if as_json else _for_people(broker, names, doors, data))
            stop.wait()
    if broker.failure is not None:
        raise broker.failure
    return ExitCode.OK


def _with_planned(
    namespaces: tuple[tuple[str, int], ...], plans: list[NamespacePlan]
) -> tuple[tuple[str, int], ...]:
    """The namespaces of the file at their ports, or where a flag puts them, and those of the flags."""
    if not plans:
        return namespaces
    source = click.get_current_context().get_parameter_source("namespaces")
    given = {} if source is ParameterSource.DEFAULT else dict(namespaces)
    for number, plan in enumerate(plans):
        if not NAME.fullmatch(plan.name):
            raise ConfigurationError(f"{plan.source}: {plan.name!r:.60}: expected the name of a namespace")
        given.setdefault(plan.name, USUAL_PORT + number if plan.port is None else plan.port)
    return tuple(given.items())


def _create_queue(namespace: NamespaceControl, queue: str, is_partitioned: bool, *, is_kept: bool) -> None:
    there = (name.casefold() for name in namespace.queue_names())
    if not is_kept or queue.casefold() not in there:  # else it is there since an earlier start
        namespace.create_queue(queue, enable_partitioning=is_partitioned)


def _create_topic(
    broker: Broker, namespace: str, topic: str, subscription: str | None, is_partitioned: bool, is_kept: bool
) -> None:
    control = broker.namespace(namespace)
    if topic.casefold() not in (name.casefold() for name in control.topic_names()):
        control.create_topic(topic, enable_partitioning=is_partitioned)
    if subscription is not None and not (is_kept and _has(control, topic, subscription)):
        control.create_subscription(topic, subscription)


def _has(namespace: NamespaceControl, topic: str, subscription: str) -> bool:
    names = (name.casefold() for name in namespace.subscription_names(topic))
    return subscription.casefold() in names


def _check(
    namespaces: tuple[tuple[str, int], ...],
    queues: tuple[tuple[str, str, bool], ...],
    topics: tuple[tuple[str, str, str | None, bool], ...],
    partitions: tuple[tuple[str, int], ...],
) -> None:
    names = Counter(name.casefold() for name, _ in namespaces)
    ports = Counter(port for _, port in namespaces if port)
    for what, counted in (("namespace", names), ("port", ports)):
        twice = [str(key) for key, times in counted.items() if times > 1]
        if twice:
            raise click.UsageError(f"{what} {twice[0]} is given twice", click.get_current_context())
    asked = [("--queue", name) for name, _, _ in queues] + [("--topic", name) for name, *_ in topics]
    asked += [("--partitions", name) for name, _ in partitions]
    for flag, name in asked:
        if name not in dict(namespaces):
            raise click.UsageError(f"{flag} names no --namespace: {name}", click.get_current_context())


def _as_json(broker: Broker, names: list[str], doors: dict[str, str]) -> str:
    rows = [_row(broker, name) for name in names]
    return json.dumps({"namespaces": rows, "ca_file": str(Path(broker.ca_file)), **doors})


def _row(broker: Broker, name: str) -> dict[str, object]:
    namespace = broker.namespace(name)
    return {
        "name": name,
        "port": namespace.port,
        "connection_string": namespace.connection_string,
        "queues": list(namespace.queue_names()),
        "topics": list(namespace.topic_names()),
    }


def _for_people(broker: Broker, names: list[str], doors: dict[str, str], data: Path | None) -> str:
    lines = []
    for name in names:
        namespace = broker.namespace(name)
        queues = ", ".join(namespace.queue_names()) or "none yet"
        lines += [f"{name}  port {namespace.port}  queues: {queues}", f"  {namespace.connection_string}"]
    token = doors.get("faults_token") or doors.get("time_token")
    for what in ("faults", "time"):
        if url := doors.get(f"{what}_url"):
            lines.append(f"{what.title()}: {url}, with Authorization: Bearer {token}")
    lines.append(f"CA file, for the administration client: {broker.ca_file}")
    if "page_url" in doors:
        lines.append(f"Web page: {doors['page_url']}")
    lines.append(
        "Ready. Nothing is stored on disk: what is in the queues ends with this process (Ctrl-C)."
        if data is None
        else f"Ready. All of it is kept in {data}, over restarts. Ctrl-C stops."
    )
    return "\n".join(lines)
