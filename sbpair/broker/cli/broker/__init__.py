"""`sbpair broker`: serve one or more Service Bus namespaces on this machine until a signal."""

from __future__ import annotations

import json
import logging
import shlex
import signal
from collections import Counter
from dataclasses import replace
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, TypeVar

import click
from click.core import ParameterSource

from sbpair.broker.cli.broker.arguments import (
    ANYWHERE_FREE,
    NAME,
    HostName,
    NamespaceAtPort,
    PageAddress,
    PartitionsOfNamespace,
    QueueAtStart,
    QueueInNamespace,
    TopicAtStart,
    TopicInNamespace,
)
from sbpair.broker.cli.broker.config import planned_namespaces, with_broker_config
from sbpair.broker.cli.broker.endpoints import read_faults, serving_control, serving_page
from sbpair.broker.cli.broker.export import export
from sbpair.broker.cli.broker.long_lived import short_collections
from sbpair.pair.cli.errors import ConfigurationError, ExitCode
from sbpair.pair.cli.parameters import ExistingPath
from sbpair.pair.cli.signals import SIGNALS, StopRequest, stop_with_stdin
from sbpair.pair.ground.entity_settings import SESSIONS

if TYPE_CHECKING:
    from sbpair.broker import Broker, NamespaceControl, QueueDescription, TopicDescription
    from sbpair.broker.configuration import NamespacePlan

NAMESPACES = ("contoso:5672", "contoso-dr:5673")
USUAL_PORT = 5672
# the entities of the vendor's emulator
EMULATOR_NAMESPACES = (("sbemulatorns", USUAL_PORT),)
EMULATOR_MANAGEMENT = 5300
TIERS = ("Basic", "Standard", "Premium")
Description = TypeVar("Description", "QueueDescription", "TopicDescription")
LOOPBACK = ("127.0.0.1", "localhost", "::1")


@with_broker_config
@click.group("broker", invoke_without_command=True, subcommand_metavar="[export ...]")
@click.option(
    "--namespace",
    "namespaces",
    type=NamespaceAtPort(),
    multiple=True,
    default=NAMESPACES,
    show_default=True,
    help="A namespace and its port; repeat for more. Port 0 takes any free one.",
)
@click.option(
    "--queue",
    "queues",
    type=QueueInNamespace(),
    multiple=True,
    help=f"Create this queue at start, with the settings of a file, e.g. contoso/carts,{SESSIONS.name}=true.",
)
@click.option(
    "--topic",
    "topics",
    type=TopicInNamespace(),
    multiple=True,
    help="Create this topic, and the subscription if one is named, at start; settings as for --queue.",
)
@click.option(
    "--one-port", is_flag=True, help="Serve all namespaces on the first one's port, selected by host name."
)
@click.option("--host", default="127.0.0.1", show_default=True, help="The address to listen on.")
@click.option(
    "--advertise",
    type=HostName(),
    help="The host that clients use for this machine: connection strings and certificate name it.",
)
@click.option(
    "--emulator",
    is_flag=True,
    help="Stand in for Microsoft's emulator: its ports, its key, the namespace sbemulatorns.",
)
@click.option(
    "--management-port",
    type=click.IntRange(0, 65535),
    metavar="PORT",
    help="A second port of the first namespace, for its administration API.  [default: none; 5300 with --emulator]",
)
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
    help="Throttle each namespace to this many credits a second; the service grants 1000.",
)
@click.option(
    "--data",
    type=click.Path(file_okay=False, path_type=Path),
    metavar="DIR",
    help="Store everything in this directory; it survives restarts. Without it, in memory only.",
)
@click.option(
    "--journal",
    type=click.Path(file_okay=False, path_type=Path),
    metavar="DIR",
    help="Write a journal of every message to this directory, for `sbpair audit`.",
)
@click.option(
    "--partitions",
    type=PartitionsOfNamespace(),
    multiple=True,
    help="A partitioned Premium namespace: 1, 2 or 4 partitions, e.g. contoso:4.",
)
@click.option(
    "--front-end-cache",
    is_flag=True,
    help="Let front ends cache messages of partitioned entities, over AMQP and HTTP, as the service does.",
)
@click.option(
    "--driven-time",
    is_flag=True,
    help="Let clients advance the broker's clock over HTTP, on a loopback port of its own.",
)
@click.option(
    "--fast",
    is_flag=True,
    help="Announce larger frames, windows and numbers of links than the service, for tests of throughput.",
)
@click.option(
    "--strict",
    is_flag=True,
    help="Print what clients send and the service would not read; end with exit code 1 if there was any. "
    "Refuse an emulator's file with a key that has no effect.",
)
@click.option("--open-access", is_flag=True, help="Accept any key. For a laptop, never for a network.")
@click.option("--allow-faults", is_flag=True, help="Accept faults over HTTP, on a loopback port of its own.")
@click.option(
    "--faults",
    "plan",
    type=ExistingPath(dir_okay=False),
    help="Apply the faults of this TOML plan at start.",
)
@click.option(
    "--page",
    "page",
    type=PageAddress(),
    default=ANYWHERE_FREE,
    show_default=True,
    help="The address of the web page, or off. Port 0 takes any free one.",
)
@click.option(
    "--story",
    type=click.Path(file_okay=False, path_type=Path),
    metavar="DIR",
    help="Show on the page what the journals in this directory report about the pairing.",
)
@click.option(
    "--stop-with-stdin",
    "ends_with_stdin",
    is_flag=True,
    help="Stop when standard input ends: a test suite that is killed leaves no broker behind.",
)
@click.option("--json", "as_json", is_flag=True, help="Print the namespaces as one line of JSON.")
@click.option(
    "--print-env",
    is_flag=True,
    help="Print the environment variables for commands and clients, as lines for a shell to evaluate.",
)
def command(
    namespaces: tuple[tuple[str, int], ...],
    queues: tuple[QueueAtStart, ...],
    topics: tuple[TopicAtStart, ...],
    one_port: bool,
    host: str,
    advertise: str | None,
    emulator: bool,
    management_port: int | None,
    tier: str,
    credits_per_second: int | None,
    data: Path | None,
    journal: Path | None,
    partitions: tuple[tuple[str, int], ...],
    front_end_cache: bool,
    driven_time: bool,
    fast: bool,
    strict: bool,
    open_access: bool,
    allow_faults: bool,
    plan: Path | None,
    page: tuple[str, int] | None,
    story: Path | None,
    ends_with_stdin: bool,
    as_json: bool,
    print_env: bool,
) -> int:
    """Run a Service Bus broker on this machine, for tests.

    Prints the connection strings once it accepts connections, and the address
    of a web page that shows its contents. Keys are generated at every start,
    with --data only at the first, and are valid only for this broker.
    SIGTERM or Ctrl-C stops it with exit code 0.

    \b
    Examples:
      sbpair broker --queue contoso/orders
      sbpair broker --namespace test:0 --topic test/prices/Subscriptions/audit --json
      sbpair broker --queue contoso/orders --faults plan.toml --allow-faults
      sbpair broker --config config.json --emulator
      sbpair broker --queue contoso/orders --print-env > broker.env &
      sbpair broker export --from contoso=env:CONTOSO > broker.toml
    """
    if click.get_current_context().invoked_subcommand is not None:
        return ExitCode.OK  # serves nothing
    if as_json and print_env:
        raise click.UsageError("--json and --print-env exclude each other", click.get_current_context())
    if one_port and print_env:
        problem = (
            "--one-port and --print-env exclude each other: on one port a namespace is chosen by its cloud name, "
            "which a shell's programs would look up on the internet; leave out --one-port"
        )
        raise click.UsageError(problem, click.get_current_context())
    plans = planned_namespaces(is_strict=strict)
    if emulator:
        open_access = True
        management_port = EMULATOR_MANAGEMENT if management_port is None else management_port
        namespaces = _of_emulator(namespaces, plans)
    namespaces = _with_planned(namespaces, plans)
    _check(namespaces, queues, topics, partitions)
    _hint_at_subscriptions(topics)
    if open_access and host not in LOOPBACK:
        click.echo(f"sbpair: warning: anyone who can reach {host} may send and receive", err=True)
    unread = UnreadLines.listen() if strict else None
    faults_at_start = read_faults(plan)
    stop = StopRequest()
    for number in SIGNALS:
        signal.signal(number, stop.set)
    if ends_with_stdin:
        stop_with_stdin(stop)

    from sbpair.broker import Broker, ShiftedClock  # late: --help does not need it

    with (
        short_collections(),
        Broker(
            dict(namespaces),
            host=host,
            tier=tier,
            credits_per_second=credits_per_second,
            open_access=open_access,
            data=data,
            journal=journal,
            on_failure=stop.set,
            one_port=one_port,
            clock=ShiftedClock() if driven_time else None,
            partitions={each.name: each.partitions for each in plans if each.partitions} | dict(partitions),
            policies={each.name: each.policies for each in plans},
            advertise=advertise,
            management_port=management_port,
            fast=fast,
        ) as broker,
    ):
        for each in plans:
            broker.namespace(each.name).create_entities(each)
        for queue in queues:
            _create_queue(broker.namespace(queue.namespace), queue, is_kept=data is not None)
        # topics with their own settings before those that only a subscription needs
        for topic in sorted(topics, key=lambda each: each.subscription is not None):
            _create_topic(broker.namespace(topic.namespace), topic, is_kept=data is not None)
        names = [name for name, _ in namespaces]
        for name in names:
            broker.namespace(name).let_front_ends_cache(front_end_cache)
        with (
            serving_control(
                broker, faults_at_start, faults=allow_faults, time=driven_time
            ) as control_endpoints,
            serving_page(broker, page, story) as page_endpoints,
        ):
            endpoints = {**control_endpoints, **page_endpoints, **_management(broker, names[0])}
            if print_env:
                click.echo(_as_environment(broker, names, control_endpoints))
                for url in page_endpoints.values():  # for people: no command reads it
                    click.echo(f"Web page: {url}", err=True)
            else:
                render = _as_json if as_json else partial(_as_text, data=data)
                click.echo(render(broker, names, endpoints))
            stop.wait()
    if broker.failure is not None:
        raise broker.failure
    return ExitCode.FAILED if unread is not None and unread.count else ExitCode.OK


command.add_command(export)


class UnreadLines(logging.Handler):
    """Prints a line for each element of a client's request that the service would not read, and counts them."""

    def __init__(self) -> None:
        super().__init__()
        self.count = 0

    @classmethod
    def listen(cls) -> UnreadLines:
        """Return an instance that from now on listens in place of the log."""
        lines = cls()
        logger = logging.getLogger("sbpair.broker.unread")
        logger.addHandler(lines)
        logger.propagate = False
        return lines

    def emit(self, record: logging.LogRecord) -> None:
        """Print one log line."""
        self.count += 1
        click.echo(f"sbpair: strict: {record.getMessage()}", err=True)


def _of_emulator(
    namespaces: tuple[tuple[str, int], ...], plans: list[NamespacePlan]
) -> tuple[tuple[str, int], ...]:
    """Return the emulator's namespace if the flags name none."""
    source = click.get_current_context().get_parameter_source("namespaces")
    return EMULATOR_NAMESPACES if source is ParameterSource.DEFAULT and not plans else namespaces


def _management(broker: Broker, name: str) -> dict[str, str]:
    url = broker.namespace(name).management_url
    return {} if url is None else {"management_url": url}


def _with_planned(
    namespaces: tuple[tuple[str, int], ...], plans: list[NamespacePlan]
) -> tuple[tuple[str, int], ...]:
    """Return the namespaces of the flags and of the file; a port given by a flag wins over the file's."""
    if not plans:
        return namespaces
    source = click.get_current_context().get_parameter_source("namespaces")
    given = {} if source is ParameterSource.DEFAULT else dict(namespaces)
    for number, plan in enumerate(plans):
        if not NAME.fullmatch(plan.name):
            raise ConfigurationError(f"{plan.source}: {plan.name!r:.60}: expected the name of a namespace")
        given.setdefault(plan.name, USUAL_PORT + number if plan.port is None else plan.port)
    return tuple(given.items())


def _create_queue(namespace: NamespaceControl, queue: QueueAtStart, *, is_kept: bool) -> None:
    there = (name.casefold() for name in namespace.queue_names())
    if not is_kept or queue.path.casefold() not in there:  # else created at an earlier start
        namespace.create_queue(queue.path, description=_fit(queue.description, namespace))


def _create_topic(namespace: NamespaceControl, topic: TopicAtStart, *, is_kept: bool) -> None:
    if topic.path.casefold() not in (name.casefold() for name in namespace.topic_names()):
        namespace.create_topic(topic.path, description=_fit(topic.description, namespace))
    name = topic.subscription
    if name is not None and not (is_kept and _has(namespace, topic.path, name)):
        namespace.create_subscription(topic.path, name, description=topic.of_subscription)


def _fit(description: Description, namespace: NamespaceControl) -> Description:
    """Return the description, partitioned in a partitioned namespace."""
    return replace(
        description, enable_partitioning=description.enable_partitioning or namespace.is_partitioned
    )


def _has(namespace: NamespaceControl, topic: str, subscription: str) -> bool:
    names = (name.casefold() for name in namespace.subscription_names(topic))
    return subscription.casefold() in names


def _check(
    namespaces: tuple[tuple[str, int], ...],
    queues: tuple[QueueAtStart, ...],
    topics: tuple[TopicAtStart, ...],
    partitions: tuple[tuple[str, int], ...],
) -> None:
    names = Counter(name.casefold() for name, _ in namespaces)
    ports = Counter(port for _, port in namespaces if port)
    for what, counted in (("namespace", names), ("port", ports)):
        twice = [str(key) for key, times in counted.items() if times > 1]
        if twice:
            raise click.UsageError(f"{what} {twice[0]} is given twice", click.get_current_context())
    asked = [("--queue", each.namespace) for each in queues]
    asked += [("--topic", each.namespace) for each in topics]
    asked += [("--partitions", name) for name, _ in partitions]
    for flag, name in asked:
        if name not in dict(namespaces):
            raise click.UsageError(f"{flag} names no --namespace: {name}", click.get_current_context())


def _hint_at_subscriptions(topics: tuple[TopicAtStart, ...]) -> None:
    """Say on standard error which topics look like subscriptions, and how those are written."""
    meant = {(each.namespace, each.path) for each in topics if each.subscription is not None}
    for topic in topics:
        parent, slash, name = topic.path.rpartition("/")
        if slash and (topic.namespace, topic.path) not in meant:
            written = f"{topic.namespace}/{parent}/Subscriptions/{name}"
            click.echo(
                f"sbpair: {topic.path!r} is the name of a topic; a subscription is written {written}",
                err=True,
            )


def _as_json(broker: Broker, names: list[str], endpoints: dict[str, str]) -> str:
    rows = [_row(broker, name) for name in names]
    return json.dumps({"namespaces": rows, "ca_file": str(Path(broker.ca_file)), **endpoints})


def _as_environment(broker: Broker, names: list[str], endpoints: dict[str, str]) -> str:
    """Return the first two namespaces as primary and secondary, their CA file, and ``endpoints``, as shell exports."""
    values = {
        variable: broker.namespace(name).connection_string
        for variable, name in zip(("SBPAIR_PRIMARY", "SBPAIR_SECONDARY"), names, strict=False)
    } | {"SBPAIR_CA_FILE": str(broker.ca_file)}
    values |= {f"SBPAIR_{name.upper()}": value for name, value in endpoints.items()}
    return "\n".join(f"export {variable}={shlex.quote(value)}" for variable, value in values.items())


def _row(broker: Broker, name: str) -> dict[str, object]:
    namespace = broker.namespace(name)
    return {
        "name": name,
        "port": namespace.port,
        "connection_string": namespace.connection_string,
        "queues": list(namespace.queue_names()),
        "topics": list(namespace.topic_names()),
    }


def _as_text(broker: Broker, names: list[str], endpoints: dict[str, str], data: Path | None) -> str:
    lines = []
    for name in names:
        namespace = broker.namespace(name)
        queues = ", ".join(namespace.queue_names()) or "none yet"
        topics = "".join(f"  topics: {', '.join(found)}" for found in [namespace.topic_names()] if found)
        lines.append(f"{name}  port {namespace.port}  queues: {queues}{topics}")
        lines.append(f"  {namespace.connection_string}")
    lines += [
        f"{what.title()}: {url}, with Authorization: Bearer {endpoints[f'{what}_token']}"
        for what in ("faults", "time")
        if (url := endpoints.get(f"{what}_url"))
    ]
    if url := endpoints.get("management_url"):
        lines.append(f"Administration API: {url}")
    lines.append(f"CA file, for the administration client (JavaScript: tlsOptions.ca): {broker.ca_file}")
    if "page_url" in endpoints:
        lines.append(f"Web page: {endpoints['page_url']}")
    lines.append(
        "Ready. Nothing is stored on disk: the queues are lost when this process ends (Ctrl-C)."
        if data is None
        else f"Ready. Everything is stored in {data} and survives restarts. Ctrl-C stops."
    )
    return "\n".join(lines)
