"""The blocks of the docs about the command line."""

from __future__ import annotations

from collections.abc import Callable

import click

from tests.tools.source import commented_members, table

HELP_WIDTH = 100


def cli() -> str:
    from sbpair.pair.cli.group import COMMANDS

    pages: list[list[str]] = [[]]
    for name in sorted(COMMANDS):
        pages += [[name], *([name, inner] for inner in subcommands(name))]
    return "\n".join(
        f"##{'#' * (len(page) > 1)} {' '.join(['sbpair', *page])}\n\n```text\n{_help(page)}```\n"
        for page in pages
    )


def subcommands(name: str) -> list[str]:
    """The commands within a command; none for most."""
    import click

    from sbpair.pair.cli.group import cli as group

    found = group.get_command(click.Context(group), name)
    return sorted(found.commands) if isinstance(found, click.Group) else []


def _help(arguments: list[str]) -> str:
    from click.testing import CliRunner

    from sbpair.pair.cli.group import cli as group

    _forget_help_options(group)
    widths = {"terminal_width": HELP_WIDTH, "max_content_width": HELP_WIDTH}
    result = CliRunner().invoke(group, [*arguments, "--help"], prog_name="sbpair", **widths)
    if result.exit_code != 0:
        raise RuntimeError(
            f"sbpair {' '.join(arguments)} --help failed: {result.output}"
        ) from result.exception
    return result.output


def _forget_help_options(command: click.Command) -> None:
    """click keeps the help option of the first context a command was called in; ours is the group's."""
    vars(command)["_help_option"] = None
    if isinstance(command, click.Group):
        for name in command.list_commands(click.Context(command)):
            inner = command.get_command(click.Context(command), name)
            if inner is not None:
                _forget_help_options(inner)


def exit_codes() -> str:
    rows = commented_members("sbpair/pair/cli/errors.py", "ExitCode")
    return table(("exit code", "name", "meaning"), [(v, name, doc or name.lower()) for name, v, doc in rows])


def cli_errors() -> str:
    from sbpair.pair.cli.errors import KNOWN

    rows = [(f"`{name}`", str(int(row.code)), row.next_step or "as it says") for name, row in KNOWN.items()]
    return table(("error", "exit code", "next step"), rows)


BLOCKS: dict[str, Callable[[], str]] = {
    "exit-codes": exit_codes,
    "cli": cli,
    "cli-errors": cli_errors,
}
