"""The command group: the table of commands, the option --version, and how each command ends.

`sbpair --help` needs only the table below. A command's module, with all its imports, is loaded when the command
is called.
"""

from __future__ import annotations

import difflib
import logging
import os
import sys
from importlib import import_module

import click

from sbpair import __version__
from sbpair.pair.amqp.build import build
from sbpair.pair.cli import INTERRUPTED
from sbpair.pair.cli.errors import ExitCode, explain
from sbpair.pair.cli.output import end_log, notice
from sbpair.pair.ground.extras import installed_extras

COMMANDS = {
    "audit": ("sbpair.data.cli.audit", "Prove from journals that every message is accounted for."),
    "backlog": ("sbpair.pair.cli.backlog", "List, create, redrive or purge the backlog queues."),
    "broker": ("sbpair.broker.cli.broker", "Run a Service Bus broker on this machine, for tests."),
    "demo": ("sbpair.contract.cli.demo", "Watch an outage, the failover, and every message coming home."),
    "doctor": ("sbpair.contract.cli.doctor", "Check a pairing for problems before an outage shows them."),
    "drill": ("sbpair.contract.cli.drill", "Fail over one entity on purpose and watch canaries come home."),
    "faults": ("sbpair.broker.cli.faults", "List, set and clear the faults of a running broker."),
    "journal": ("sbpair.data.cli.journal", "List the writers of journals, for an audit elsewhere."),
    "peek": (
        "sbpair.broker.cli.entity.peek",
        "Show messages without locking or changing them, oldest first.",
    ),
    "proxy": (
        "sbpair.broker.cli.proxy",
        "Break the connections of any AMQP client, to the cloud or a broker.",
    ),
    "purge": (
        "sbpair.broker.cli.entity.purge",
        "Permanently delete the messages of a queue or subscription.",
    ),
    "receive": (
        "sbpair.broker.cli.entity.receive",
        "Receive messages, print them, and remove them from the entity.",
    ),
    "send": ("sbpair.broker.cli.entity.send", "Send messages to a queue or topic, from standard input."),
    "spark": ("sbpair.data.cli.spark", "Audit journals, drain backlogs and settle checkpoints with Spark."),
    "spool": ("sbpair.pair.cli.spool", "List, export, redrive or purge the messages in a spool on disk."),
    "syphon": ("sbpair.pair.cli.syphon", "Bring parked messages home: as a daemon, or one drain."),
    "verify": ("sbpair.contract.cli.verify", "Check what sbpair assumes about Service Bus against yours."),
}

EPILOG = (
    "Exit codes: 0 ok, 1 problem found or failed, 2 usage, 3 configuration, 4 authorization, 5 unavailable."
)


class LazyGroup(click.Group):
    """A group that lists its commands from a table and imports each on demand."""

    def list_commands(self, ctx: click.Context) -> list[str]:
        return sorted(COMMANDS)

    def get_command(self, ctx: click.Context, cmd_name: str) -> click.Command | None:
        if cmd_name not in COMMANDS:
            return None
        command = import_module(COMMANDS[cmd_name][0]).command
        assert isinstance(command, click.Command)  # noqa: S101  for mypy
        _add_config(command)
        return command

    def format_commands(self, ctx: click.Context, formatter: click.HelpFormatter) -> None:
        with formatter.section("Commands"):
            formatter.write_dl([(name, COMMANDS[name][1]) for name in self.list_commands(ctx)])

    def resolve_command(
        self, ctx: click.Context, args: list[str]
    ) -> tuple[str | None, click.Command | None, list[str]]:
        name = args[0]
        if name not in COMMANDS and not name.startswith("-"):
            near = difflib.get_close_matches(name, COMMANDS, n=1)
            hint = f"did you mean {near[0]!r}?" if near else f"there are: {', '.join(sorted(COMMANDS))}"
            raise click.UsageError(f"no such command {name!r}; {hint}", ctx)
        return super().resolve_command(ctx, args)


def _add_config(command: click.Command) -> None:
    """Add the flag --config to a command, or to every command of a group."""
    from sbpair.pair.cli.config_file import config_option

    if isinstance(command, click.Group):
        for each in command.commands.values():
            _add_config(each)
    elif not any(each.name == "config" for each in command.params):
        command.params.append(config_option())


def print_version(context: click.Context, _option: click.Parameter, is_given: bool) -> None:
    """Print the version and end the command, if the option was given."""
    if is_given and not context.resilient_parsing:
        click.echo(f"sbpair {__version__} ({build()})")
        click.echo(f"extras: {', '.join(installed_extras())}", err=True)
        context.exit()


def read_environment(_context: click.Context, _option: click.Parameter, file: str | None) -> None:
    """Add the variables of a file to the environment; those that are set already stay. Raises UsageError."""
    if file is None:
        return
    from dotenv import load_dotenv

    if not os.path.isfile(file):
        raise click.UsageError(f"--env-file {file}: there is no such file")
    load_dotenv(file)


@click.group(cls=LazyGroup, epilog=EPILOG, context_settings={"help_option_names": ["-h", "--help"]})
@click.option(
    "-V",
    "--version",
    is_flag=True,
    is_eager=True,
    expose_value=False,
    callback=print_version,
    help="Show the version and the build, and exit.",
)
@click.option(
    "--env-file",
    metavar="FILE",
    expose_value=False,
    callback=read_environment,
    help="Read variables such as SBPAIR_PRIMARY from a file of NAME=value lines; those already set stay.",
)
def cli() -> None:
    """Paired-namespace high availability for Azure Service Bus."""


def run(arguments: list[str] | None = None) -> int:
    """Run the command line. Returns an ExitCode, or 130 after Ctrl-C."""
    _open_closed_streams()
    try:
        return _run(arguments)
    finally:
        end_log()


def _open_closed_streams() -> None:
    """Replace streams that were closed at start (`>&-`) by the null device, so that writing does not fail."""
    for name in ("stdout", "stderr"):
        if getattr(sys, name) is None:
            setattr(sys, name, open(os.devnull, "w", encoding="utf-8"))  # noqa: SIM115  for the whole run


def _run(arguments: list[str] | None) -> int:
    try:
        result = cli.main(arguments, prog_name="sbpair", standalone_mode=False)
        sys.stdout.flush()
        return int(result or 0)
    except click.exceptions.NoArgsIsHelpError as shown:
        click.echo(shown.format_message())
        return int(ExitCode.USAGE)
    except click.UsageError as error:
        return _end(f"{_where(error)}{error.format_message()}", ExitCode.USAGE)
    except (click.Abort, KeyboardInterrupt):
        return _end("interrupted", INTERRUPTED)
    except BrokenPipeError:
        return _reader_gone()
    except Exception as error:  # outermost handler: every failure becomes one line
        return _end(*explain(error))


def _where(error: click.UsageError) -> str:
    path = error.ctx.command_path if error.ctx else "sbpair"
    return "" if path == "sbpair" else f"{path.removeprefix('sbpair ')}: "


def _end(text: str, code: int) -> int:
    notice(text, level=logging.ERROR)
    return int(code)


def _reader_gone() -> int:
    os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())  # else the flush at exit complains
    return int(ExitCode.FAILED)
