"""What does a configuration file say to the command that runs?

    primary = "env:SBPAIR_PRIMARY"       at the top: for every command that has the flag
    backlogs = 10
    [syphon]                             a table: for that command
    window = 200
    [backlog.peek]                       and for one of a group
    count = 50

Keys are the flags, without the dashes before them, or the names of the options' fields. A flag wins over the
environment, which wins over the file. Nothing unknown is passed over: a misspelt key would be a setting
that is silently missing.
"""

from __future__ import annotations

import difflib
import re
import stat
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path

import click

from sbpair.cli.errors import ConfigurationError, one_line
from sbpair.cli.option_flags import Span

LARGEST = 1_048_576  # bytes
META = "sbpair.config_file"
FIELDS = {"backlog_queue_count": "backlogs", "connection_verify": "ca_file"}  # where the flag is shorter
PATHS = ("ca_file", "connection_verify")  # names of options that are text, and paths all the same
NEVER = ("config", "help", "yes", "dry_run")  # said for one run, or not at all
SECRET = re.compile(r"(?i)SharedAccess(Key|Signature)\s*=")
OTHERS = stat.S_IRWXG | stat.S_IRWXO

Options = dict[str, click.Option]
Names = tuple[str, ...]


@dataclass(frozen=True, slots=True)
class Given:
    """One value of the file, and the table it stands in: () for the top."""

    table: Names
    key: str
    value: object

    @property
    def where(self) -> str:
        return f"[{'.'.join(self.table)}] {self.key}" if self.table else self.key


def config_option() -> click.Option:
    """--config, for a command that is to read it before its other flags."""
    return click.Option(
        ["--config"],
        metavar="FILE",
        envvar="SBPAIR_CONFIG",
        show_envvar=True,
        is_eager=True,
        expose_value=False,
        callback=_loaded,
        help="A TOML file of options; flags and environment win over it.",
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
    """What the file says to ``command``, by parameter name. All of the file is checked, whoever it speaks to.

    Raises ConfigurationError, which names file and key, and never repeats a value that may be a key.
    """
    scopes = dict(_scopes(root, (), context))
    content = read(file)
    namespaces_of(content)  # read by the broker alone
    chosen: dict[str, object] = {}
    for given in sorted(_given(file, content, scopes), key=lambda each: len(each.table)):
        option = _option(file, given, scopes)
        own = scopes[command].get(_flag(given.key)) if given.table == command[: len(given.table)] else None
        value = _checked(file, given, own or option, context)
        if own is not None:
            chosen[own.name or ""] = value
    return chosen


def namespaces_of(content: dict[str, object]) -> object:
    """The table ``[broker.namespaces]``, taken out of the file's content; None without one."""
    broker = content.get("broker")
    return broker.pop("namespaces", None) if isinstance(broker, dict) else None


def read(file: Path) -> dict[str, object]:
    """The file as TOML. Raises ConfigurationError."""
    import tomllib  # late: most starts are without a file

    try:
        return tomllib.loads(read_config_text(file))
    except tomllib.TOMLDecodeError as error:
        raise ConfigurationError(f"--config: {file} is not TOML: {one_line(error)}") from error


def read_config_text(file: Path) -> str:
    """What is in the file. Raises ConfigurationError, and where others may read a key in it."""
    from sbpair.syphon.reference import read_text  # late: a start without a file does not wait for it

    try:
        text = read_text(file, "--config", LARGEST)
        if SECRET.search(text):
            _warn_of_keys(file, stat.S_IMODE(file.stat().st_mode))
    except (OSError, ValueError) as error:
        raise ConfigurationError(str(error)) from error
    return text


def _warn_of_keys(file: Path, mode: int) -> None:
    """A key in the file is refused where others may read it, and earns a warning where they may not."""
    better = "better keep it elsewhere and write env:NAME or file:PATH"
    if mode & OTHERS:
        raise ConfigurationError(f"{file} holds a key and others may read it ({mode:o}): chmod 600; {better}")
    click.echo(f"sbpair: warning: {file} holds a key; {better}", err=True)


def _scopes(command: click.Command, names: Names, context: click.Context) -> Iterator[tuple[Names, Options]]:
    """The options of every command, by flag, and of groups those of all their commands."""
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


def _given(file: Path, content: Mapping[str, object], scopes: Mapping[Names, Options]) -> list[Given]:
    given: list[Given] = []
    waiting: list[tuple[Names, Mapping[str, object]]] = [((), content)]
    while waiting:
        table, values = waiting.pop()
        for key, value in values.items():
            if not isinstance(value, dict):
                given.append(Given(table, key, value))
            elif (*table, key) in scopes:
                waiting.append(((*table, key), value))
            else:
                inner = sorted({path[len(table)] for path in scopes if path[: len(table)] == table != path})
                name = ".".join((*table, key))
                raise ConfigurationError(f"{file}: no command [{name}]{_near(key, inner)}")
    return given


def _option(file: Path, given: Given, scopes: Mapping[Names, Options]) -> click.Option:
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
    """The flag of a key, which may be spelt as the field of the options."""
    spelt = key.replace("-", "_")
    return FIELDS.get(spelt, spelt)


# A kind of option, and what TOML must have for it.
KINDS: tuple[tuple[type[click.ParamType[object]], tuple[type, ...], str], ...] = (
    (Span, (str, int, float), 'a span of time such as "90s"'),
    (click.types.FloatParamType, (int, float), "a number"),
    (click.types.IntParamType, (int,), "a whole number"),
    (click.types.BoolParamType, (bool,), "true or false"),
)


def _checked(file: Path, given: Given, option: click.Option, context: click.Context) -> object:
    """The value as click takes it. Raises ConfigurationError that says what was expected."""
    kinds, expected = next(
        ((kinds, words) for kind, kinds, words in KINDS if isinstance(option.type, kind)), ((str,), "text")
    )
    values = given.value if option.multiple else [given.value]
    if not isinstance(values, list):
        raise ConfigurationError(f"{file}: {given.where} must be a list of {expected}")
    if any(not isinstance(each, kinds) or (isinstance(each, bool) and bool not in kinds) for each in values):
        kind = type(given.value).__name__
        raise ConfigurationError(f"{file}: {given.where} must be {expected}, not {kind}")
    resolved = [_resolved(file, option, each) for each in values]
    try:
        for each in resolved:
            option.type.convert(str(each) if isinstance(option.type, Span) else each, option, context)
    except click.BadParameter as error:
        raise ConfigurationError(f"{file}: {given.where}: {error.message}") from error
    as_text = [str(each) if isinstance(option.type, Span) else each for each in resolved]
    return as_text if option.multiple else as_text[0]


def _resolved(file: Path, option: click.Option, value: object) -> object:
    """Paths are relative to the file they stand in."""
    if not isinstance(value, str):
        return value
    if value.startswith("file:"):
        return f"file:{file.parent / value.removeprefix('file:')}"
    if isinstance(option.type, click.Path) or option.name in PATHS:
        return str(file.parent / value)
    return value
