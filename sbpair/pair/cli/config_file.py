"""The configuration file of --config: a TOML file of flags.

    primary = "env:SBPAIR_PRIMARY"       top level: every command that has the flag
    backlogs = 10
    [syphon]                             a table: that command
    window = 200
    [backlog.peek]                       one command of a group
    count = 50

Keys are flags without the leading dashes, or the field names of the options. A flag takes precedence over the
environment, and the environment over the file. Unknown keys and invalid values exit with code 3 and an error
naming the file, the key and the expected value.
"""

from __future__ import annotations

import difflib
import re
import stat
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path

import click

from sbpair.pair.cli.errors import ConfigurationError, one_line
from sbpair.pair.cli.parameters import DurationType

MAX_FILE_BYTES = 1_048_576  # bytes
META = "sbpair.config_file"
FIELDS = {"backlog_queue_count": "backlogs", "connection_verify": "ca_file"}  # where the flag is shorter
PATHS = ("ca_file", "connection_verify")  # paths among the text options
NEVER = ("config", "help", "yes", "dry_run")  # flags of a single run, not allowed in a file
SECRET = re.compile(r"(?i)SharedAccess(Key|Signature)\s*=")
OTHERS = stat.S_IRWXG | stat.S_IRWXO

Options = dict[str, click.Option]
Names = tuple[str, ...]


@dataclass(frozen=True, slots=True)
class FileValue:
    """One value of the file, and its table: () for the top level."""

    table: Names
    key: str
    value: object

    @property
    def where(self) -> str:
        return f"[{'.'.join(self.table)}] {self.key}" if self.table else self.key


def config_option() -> click.Option:
    """Return the flag --config; eager, so that its defaults are in place before other flags are read."""
    return click.Option(
        ["--config"],
        metavar="FILE",
        envvar="SBPAIR_CONFIG",
        show_envvar=True,
        is_eager=True,
        expose_value=False,
        callback=_loaded,
        help="A TOML file of options; flags and the environment take precedence over it.",
    )


def _loaded(context: click.Context, parameter: click.Parameter, value: str | None) -> None:
    if not value:
        return
    names: list[str] = []
    inner: click.Context | None = context
    while inner is not None and inner.parent is not None:
        names.insert(0, inner.info_name or "")
        inner = inner.parent
    root = inner.command if inner is not None else context.command
    file = Path(value)
    context.meta[META] = file
    context.default_map = settings(file, root, tuple(names), context)


def settings(file: Path, root: click.Command, command: Names, context: click.Context) -> dict[str, object]:
    """Return the values of the file for ``command``, by parameter name.

    The whole file is validated, including the tables of other commands. Raises ConfigurationError with the file
    and the key; it never contains a value that may be a secret.
    """
    scopes = dict(_scopes(root, (), context))
    content = read(file)
    namespaces_of(content)  # used only by the broker
    chosen: dict[str, object] = {}
    for given in sorted(_given_values(file, content, scopes), key=lambda each: len(each.table)):
        option = _option(file, given, scopes)
        own = scopes[command].get(_flag(given.key)) if given.table == command[: len(given.table)] else None
        value = _check(file, given, own or option, context)
        if own is not None:
            chosen[own.name or ""] = value
    return chosen


def namespaces_of(content: dict[str, object]) -> object:
    """Remove the table ``[broker.namespaces]`` from ``content`` and return it; None without one."""
    broker = content.get("broker")
    return broker.pop("namespaces", None) if isinstance(broker, dict) else None


def read(file: Path) -> dict[str, object]:
    """Parse the file. Raises ConfigurationError when it cannot be read or is not TOML."""
    import tomllib  # late: most commands run without a file

    try:
        return tomllib.loads(read_config_text(file))
    except tomllib.TOMLDecodeError as error:
        raise ConfigurationError(f"--config: {file} is not TOML: {one_line(error)}") from error


def read_config_text(file: Path) -> str:
    """Return the text of the file.

    Raises ConfigurationError when it cannot be read, or contains a key and is readable by other users.
    """
    from sbpair.pair.auth.connection_string import read_text  # late: most commands run without a file

    try:
        text = read_text(file, "--config", MAX_FILE_BYTES)
        if SECRET.search(text):
            _warn_of_keys(file, stat.S_IMODE(file.stat().st_mode))
    except (OSError, ValueError) as error:
        raise ConfigurationError(str(error)) from error
    return text


def _warn_of_keys(file: Path, mode: int) -> None:
    """Refuse a file with a key that other users can read; warn about any other file with a key."""
    better = "better keep the key elsewhere and write env:NAME or file:PATH"
    if mode & OTHERS:
        raise ConfigurationError(
            f"{file} contains a key and is readable by others ({mode:o}): run chmod 600; {better}"
        )
    click.echo(f"sbpair: warning: {file} contains a key; {better}", err=True)


def _scopes(command: click.Command, names: Names, context: click.Context) -> Iterator[tuple[Names, Options]]:
    """Iterate over the commands with their options by flag; a group has the options of all its commands."""
    found = {
        flag.lstrip("-").replace("-", "_"): each
        for each in command.params
        if isinstance(each, click.Option) and each.name not in NEVER
        for flag in each.opts
    }
    if isinstance(command, click.Group):
        for name in command.list_commands(context):
            inner = command.get_command(context, name)
            if inner is not None:
                for path, options in _scopes(inner, (*names, name), context):
                    found |= {key: option for key, option in options.items() if key not in found}
                    yield path, options
    yield names, found


def _given_values(
    file: Path, content: Mapping[str, object], scopes: Mapping[Names, Options]
) -> list[FileValue]:
    given: list[FileValue] = []
    waiting: list[tuple[Names, Mapping[str, object]]] = [((), content)]
    while waiting:
        table, values = waiting.pop()
        for key, value in values.items():
            if not isinstance(value, dict):
                given.append(FileValue(table, key, value))
            elif (*table, key) in scopes:
                waiting.append(((*table, key), value))
            else:
                inner = sorted({path[len(table)] for path in scopes if path[: len(table)] == table != path})
                name = ".".join((*table, key))
                raise ConfigurationError(f"{file}: no command [{name}]{_near(key, inner)}")
    return given


def _option(file: Path, given: FileValue, scopes: Mapping[Names, Options]) -> click.Option:
    options = scopes[given.table]
    option = options.get(_flag(given.key))
    if option is None:
        raise ConfigurationError(f"{file}: unknown key {given.where}{_near(given.key, sorted(options))}")
    return option


def _near(name: str, known: list[str]) -> str:
    near = difflib.get_close_matches(name.replace("-", "_"), known, n=1)
    if near:
        return f"; did you mean {near[0]}?"
    return f"; there are: {', '.join(known)}" if known else ""


def _flag(key: str) -> str:
    """Return the flag of a key, which may be the name of an options field."""
    spelt = key.replace("-", "_")
    return FIELDS.get(spelt, spelt)


# A kind of option, and the TOML value that it needs.
KINDS: tuple[tuple[type[click.ParamType[object]], tuple[type, ...], str], ...] = (
    (DurationType, (str, int, float), 'a duration such as "90s"'),
    (click.types.FloatParamType, (int, float), "a number"),
    (click.types.IntParamType, (int,), "a whole number"),
    (click.types.BoolParamType, (bool,), "true or false"),
)


def _check(file: Path, given: FileValue, option: click.Option, context: click.Context) -> object:
    """Return the value as click expects it. Raises ConfigurationError that names the expected value."""
    kinds, expected = next(
        ((kinds, words) for kind, kinds, words in KINDS if isinstance(option.type, kind)), ((str,), "text")
    )
    values = given.value if option.multiple else [given.value]
    if not isinstance(values, list):
        raise ConfigurationError(f"{file}: {given.where} must be a list of {expected}")
    if any(not isinstance(each, kinds) or (isinstance(each, bool) and bool not in kinds) for each in values):
        kind = type(given.value).__name__
        raise ConfigurationError(f"{file}: {given.where} must be {expected}, not {kind}")
    resolved = [_resolve(file, option, each) for each in values]
    try:
        for each in resolved:
            option.type.convert(str(each) if isinstance(option.type, DurationType) else each, option, context)
    except click.BadParameter as error:
        raise ConfigurationError(f"{file}: {given.where}: {error.message}") from error
    as_text = [str(each) if isinstance(option.type, DurationType) else each for each in resolved]
    return as_text if option.multiple else as_text[0]


def _resolve(file: Path, option: click.Option, value: object) -> object:
    """Return ``value``, with a path made relative to the directory of ``file``."""
    if not isinstance(value, str):
        return value
    if value.startswith("file:"):
        return f"file:{file.parent / value.removeprefix('file:')}"
    if isinstance(option.type, click.Path) or option.name in PATHS:
        return str(file.parent / value)
    return value
