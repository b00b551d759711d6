"""Which commands are there, and how does each of them end?

The list below is all that `sbpair --help` needs: a command's own file, and what
that imports, is loaded when the command is called.
"""

from __future__ import annotations

import difflib
import os
import sys
from importlib import import_module

import click

from sbpair.cli.errors import explained
from sbpair.cli.exit_codes import ExitCode

COMMANDS = {
    "backlog": ("sbpair.cli.backlog", "See, create, redrive or purge the backlog queues."),
    "broker": ("sbpair.cli.broker", "Run a Service Bus broker on this machine, to test against."),
    "cost": ("sbpair.cli.cost", "Count the operations that a pairing bills, by kind."),
    "demo": ("sbpair.cli.demo", "Watch an outage, the failover, and every message coming home."),
    "doctor": (
        "sbpair.cli.doctor",
        "Look for what would go wrong in an outage: rights, queues, pings.",
    ),
    "drill": (
        "sbpair.cli.drill",
        "Fail over one entity on purpose, and see marked messages come home.",
    ),
    "spark": ("sbpair.cli.spark", "Audit journals, drain backlogs, settle checkpoints: with Spark."),
    "spool": ("sbpair.cli.spool", "See or purge the messages that wait on disk."),
    "syphon": ("sbpair.cli.syphon", "Bring the parked messages home: the daemon, or one drain."),
}

EPILOG = "Exit codes: 0 ok, 1 found or failed, 2 usage, 3 configuration, 4 authorization, 5 unavailable."


class LazyGroup(click.Group):
    """A group that knows its commands by name and one line, and loads them on demand."""

    def list_commands(self, ctx: click.Context) -> list[str]:
        return sorted(COMMANDS)

    def get_command(self, ctx: click.Context, cmd_name: str) -> click.Command | None:
        if cmd_name not in COMMANDS:
            return None
        command = import_module(COMMANDS[cmd_name][0]).command
        assert isinstance(command, click.Command)  # noqa: S101  a file of ours, under test
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
    """Give the command, or every command of a group, the flag --config."""
    from sbpair.cli.config_file import config_option

    if isinstance(command, click.Group):
        for each in command.commands.values():
            _add_config(each)
    elif not any(each.name == "config" for each in command.params):
        command.params.append(config_option())


@click.group(cls=LazyGroup, epilog=EPILOG, context_settings={"help_option_names": ["-h", "--help"]})
@click.version_option(package_name="sbpair", message="sbpair %(version)s")
def cli() -> None:
    """Paired-namespace high availability for Azure Service Bus."""


def main(arguments: list[str] | None = None) -> None:
    """Run the command line and exit with one of ExitCode's numbers; 130 after Ctrl-C."""
    _open_closed_streams()
    sys.exit(_run(arguments))


def _open_closed_streams() -> None:
    """Started with a stream closed (`>&-`), there is none: say it to nobody, do not fail."""
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
        return _ended(f"{_where(error)}{error.format_message()}", ExitCode.USAGE)
    except (click.Abort, KeyboardInterrupt):
        return _ended("interrupted", 130)
    except BrokenPipeError:
        return _reader_gone()
    except Exception as error:  # the outermost loop of a program: every ending is one line
        return _ended(*explained(error))


def _where(error: click.UsageError) -> str:
    path = error.ctx.command_path if error.ctx else "sbpair"
    return "" if path == "sbpair" else f"{path.removeprefix('sbpair ')}: "


def _ended(text: str, code: int) -> int:
    click.echo(f"sbpair: {text}", err=True)
    return int(code)


def _reader_gone() -> int:
    os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())  # else the flush at exit complains
    return int(ExitCode.FAILED)
