"""`sbpair faults`: list, set and clear the faults of a running broker, over its HTTP control."""

from __future__ import annotations

import json
from collections.abc import Callable
from typing import TypeVar

import click

from sbpair.pair.cli.errors import CommandError, ConfigurationError, ExitCode
from sbpair.pair.cli.namespaces import fetch
from sbpair.pair.cli.output import plain, remember
from sbpair.pair.cli.parameters import read_setting

Command = TypeVar("Command", bound=Callable[..., object])
TIMEOUT = 15.0  # seconds
SOURCES = ("env:", "file:")


@click.group("faults")
def command() -> None:
    """List, set and clear the faults of a running broker.

    The broker must have been started with --allow-faults, and prints the address and the token;
    with --print-env it exports them.
    """


def _control(command: Command) -> Command:
    """Add the flags that name the broker's fault control."""
    for option in (
        click.option(
            "--token",
            metavar="SOURCE",
            default="env:SBPAIR_FAULTS_TOKEN",
            show_default=True,
            help="The token that the broker printed: env:NAME or file:PATH.",
        ),
        click.option(
            "--url",
            metavar="URL",
            envvar="SBPAIR_FAULTS_URL",
            help="The address that the broker printed.  [env: SBPAIR_FAULTS_URL]",
        ),
    ):
        command = option(command)
    return command


@command.command("list")
@_control
@click.option("--json", "as_json", is_flag=True, help="Print one line of JSON for each fault.")
def list_(url: str | None, token: str, as_json: bool) -> None:
    """List the faults that are set, with how often each took effect.

    \b
    Example:
      sbpair faults list --url http://127.0.0.1:40123/faults
    """
    for row in json.loads(_ask("GET", url, token)):
        click.echo(json.dumps(row) if as_json else _line(row))


@command.command("set")
@_control
@click.argument("settings", nargs=-1, required=True, metavar="NAME=VALUE...")
def set_(url: str | None, token: str, settings: tuple[str, ...]) -> None:
    """Set a fault or a scenario; prints the ids.

    The settings are those of a fault plan: namespace, effect or scenario, and for example
    entity, operation, times, probability.

    \b
    Examples:
      sbpair faults set namespace=contoso effect=throttle entity=orders times=3
      sbpair faults set namespace=contoso scenario=flapping
    """
    fault = dict(map(read_setting, settings))
    answer = json.loads(_ask("POST", url, token, json.dumps(fault)))
    click.echo(" ".join(map(str, answer["ids"])))


@command.command("clear")
@_control
@click.argument("ids", nargs=-1, type=int, metavar="[ID]...")
@click.option("--all", "clears_all", is_flag=True, help="Clear all faults.")
def clear(url: str | None, token: str, ids: tuple[int, ...], clears_all: bool) -> None:
    """Clear faults by their ids, or all of them.

    \b
    Examples:
      sbpair faults clear 1 2
      sbpair faults clear --all
    """
    if clears_all == bool(ids):
        raise click.UsageError("name the ids of faults, or --all", click.get_current_context())
    for part in [""] if clears_all else [f"/{number}" for number in ids]:
        _ask("DELETE", url, token, part=part)


def _line(row: dict[str, object]) -> str:
    number, namespace, effect, hits = (row.pop(name) for name in ("id", "namespace", "effect", "hits"))
    rest = "".join(f", {name} {value}" for name, value in row.items() if value is not None)
    return plain(f"{number}: {effect} on {namespace}{rest}; took effect {hits} times")


def _ask(method: str, given: str | None, token: str, body: str | None = None, part: str = "") -> str:
    """The body of the answer. Raises CommandError when the broker refuses, or does not answer."""
    import httpx

    if given is None:
        raise ConfigurationError("which broker? Give --url, or set SBPAIR_FAULTS_URL")
    url = given.rstrip("/") + part
    if not token.startswith(SOURCES):
        raise ConfigurationError("--token must be env:NAME or file:PATH")
    secret = fetch(token, "--token").strip()
    remember(secret)
    headers = {"Authorization": f"Bearer {secret}", "Content-Type": "application/json"}
    try:
        answer = httpx.request(method, url, headers=headers, content=body, timeout=TIMEOUT)
    except httpx.InvalidURL as error:
        raise ConfigurationError(f"--url: {error}") from error
    except httpx.HTTPError as error:
        why = str(error) or type(error).__name__
        raise CommandError(
            f"{url} does not answer: {why}; is the broker running?", ExitCode.UNAVAILABLE
        ) from error
    if answer.status_code in (401, 403):
        raise CommandError(f"{url} refuses the token", ExitCode.AUTHORIZATION)
    if answer.is_error:
        raise CommandError(f"{url} refuses the request: {answer.text.strip()}", ExitCode.FAILED)
    return answer.text
