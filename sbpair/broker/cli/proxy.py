"""`sbpair proxy`: faults between any AMQP client and its namespace, planned in a file or set over HTTP."""

from __future__ import annotations

import json
import signal
import ssl
import time
from contextlib import ExitStack
from pathlib import Path
from typing import TYPE_CHECKING

import click

from sbpair.broker.cli.broker.arguments import ANYWHERE_FREE, PageAddress
from sbpair.pair.cli.errors import ConfigurationError, ExitCode
from sbpair.pair.cli.namespaces import ca_file_option
from sbpair.pair.cli.parameters import ExistingPath
from sbpair.pair.cli.signals import SIGNALS, StopRequest

if TYPE_CHECKING:
    from sbpair.broker.testing.proxy_plan import ProxyPlan

MAX_PLAN_BYTES = 1_048_576
TLS_PORT = 5671


class TargetAddress(click.ParamType[tuple[str, int]]):
    """`HOST:PORT`; the port of a host alone is 5671."""

    name = "host:port"

    def convert(
        self, value: str, param: click.Parameter | None, ctx: click.Context | None
    ) -> tuple[str, int]:
        host, colon, port = value.rpartition(":") if "]" not in value.rpartition(":")[2] else (value, "", "")
        if not colon:
            host, port = value, str(TLS_PORT)
        host = host.removeprefix("[").removesuffix("]")
        if not host or not port.isascii() or not port.isdigit() or not 0 < int(port) < 65536:
            self.fail(
                f"{value!r:.100} is not HOST:PORT, e.g. contoso.servicebus.windows.net:5671", param, ctx
            )
        return host, int(port)


@click.command("proxy")
@click.option("--target", type=TargetAddress(), required=True, help="The namespace to forward to.")
@click.option(
    "--listen",
    type=PageAddress(),
    default=ANYWHERE_FREE,
    show_default=True,
    help="The address for clients. Port 0 takes any free one.",
)
@click.option("--plan", type=ExistingPath(dir_okay=False), help="The faults to start with, a TOML file.")
@click.option(
    "--target-tls/--no-target-tls",
    default=None,
    help="Whether to speak TLS to the target.  [default: with port 5671]",
)
@ca_file_option
@click.option(
    "--tls", is_flag=True, help="Speak TLS to clients, with a certificate for --listen and the target's name."
)
@click.option(
    "--tls-dir",
    type=click.Path(file_okay=False, path_type=Path),
    metavar="DIR",
    help="Keep that certificate and its authority in this directory.  [default: for this run only]",
)
@click.option(
    "--control",
    type=PageAddress(),
    default=ANYWHERE_FREE,
    show_default=True,
    help="The address of the HTTP control, or off.",
)
@click.option("--json", "as_json", is_flag=True, help="Print the addresses as one line of JSON.")
def command(
    target: tuple[str, int],
    listen: tuple[str, int] | None,
    plan: Path | None,
    target_tls: bool | None,
    ca_file: str | None,
    tls: bool,
    tls_dir: Path | None,
    control: tuple[str, int] | None,
    as_json: bool,
) -> int:
    """Break the connections of any AMQP client, to the cloud or a broker.

    Forwards to --target and applies faults to AMQP frames: drops, delays, holds, cuts and
    resets, chosen by performative, direction and entity. They come from --plan, and over HTTP
    while it runs. With --tls the proxy decrypts the traffic, and clients must trust its
    authority; AMQP over WebSocket passes as bytes. SIGTERM or Ctrl-C ends it.

    \b
    Examples:
      sbpair proxy --target localhost:5672
      sbpair proxy --target localhost:5672 --listen 127.0.0.1:5673 --plan plan.toml
      sbpair proxy --target contoso.servicebus.windows.net:5671 --tls --json
    """
    if listen is None:
        raise click.UsageError("--listen needs an address", click.get_current_context())
    planned = read_plan(plan)
    stop = StopRequest()
    for number in SIGNALS:
        signal.signal(number, stop.set)

    from sbpair.broker.testing.chaos_proxy import ChaosProxy  # late: not needed for --help
    from sbpair.broker.testing.proxy_control import ProxyControl

    host, port = target
    encrypts = port == TLS_PORT if target_tls is None else target_tls
    with ExitStack() as until_the_end:
        printed: dict[str, str] = {}
        server_side = None
        if tls:
            server_side, printed["ca_file"] = _server_side(until_the_end, (listen[0], host), tls_dir)
        proxy = ChaosProxy(
            host, port,
            listen=listen,
            target_tls=_client_side(ca_file) if encrypts else None,
            client_tls=server_side,
        )  # fmt: skip
        endpoint = ProxyControl(proxy, planned, *(control or ("127.0.0.1", 0)))
        try:
            until_the_end.enter_context(proxy)
        except OSError as error:
            raise ConfigurationError(
                f"--listen {listen[0]}:{listen[1]}: {error.strerror or error}"
            ) from error
        address = {"host": listen[0], "port": proxy.port}
        if control is not None:
            until_the_end.enter_context(endpoint)
            printed |= {"control_url": endpoint.address, "control_token": endpoint.token}
        click.echo(
            json.dumps({**address, **printed}) if as_json else _as_text(f"{listen[0]}:{proxy.port}", printed)
        )
        stop.wait()
    return ExitCode.OK


def read_plan(path: Path | None) -> ProxyPlan:
    """Return the plan in a file; an empty one without a path. Raises ConfigurationError."""
    from sbpair.broker.testing.proxy_plan import ProxyPlan, read_proxy_plan
    from sbpair.pair.auth.connection_string import read_text

    if path is None:
        return ProxyPlan()
    try:
        return read_proxy_plan(str(path), read_text(path, "--plan", MAX_PLAN_BYTES))
    except ValueError as error:
        raise ConfigurationError(str(error)) from error


def _client_side(ca_file: str | None) -> ssl.SSLContext:
    from sbpair.pair.auth.dialling import trusting

    return trusting(ca_file)


def _server_side(
    until_the_end: ExitStack, names: tuple[str, ...], directory: Path | None
) -> tuple[ssl.SSLContext, str]:
    """Return the TLS context for clients, and the file of the authority that they must trust."""
    from sbpair.broker.certificates import provide

    made = until_the_end.enter_context(provide(names, int(time.time()), directory))
    return made.ssl_context(), str(made.ca_file)


def _as_text(address: str, printed: dict[str, str]) -> str:
    lines = [f"Clients connect to {address}"]
    if "control_url" in printed:
        lines.append(
            f"Control: {printed['control_url']}, with Authorization: Bearer {printed['control_token']}"
        )
    if "ca_file" in printed:
        lines.append(f"CA file, for clients: {printed['ca_file']}")
    return "\n".join([*lines, "Ready. Ctrl-C stops."])
