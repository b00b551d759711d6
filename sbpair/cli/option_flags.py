"""How do the options of a room become flags, without copying them by hand?

Each field of an options dataclass is one flag: its name, its type, its default, and as help
the string that stands below the field. What the user gave is collected in the context, and
`options_from` makes the dataclass of it, whose own checks say what is out of range.
"""

from __future__ import annotations

import ast
import dataclasses
import inspect
import itertools
import math
import re
import textwrap
from collections.abc import Callable, Mapping
from datetime import timedelta
from types import NoneType
from typing import TypeVar, get_args, get_origin, get_type_hints

import click
from click.core import ParameterSource

Options = TypeVar("Options")
Command = TypeVar("Command", bound=Callable[..., object])

UNITS = {"ms": 0.001, "s": 1.0, "m": 60.0, "h": 3600.0}
SPAN = re.compile(r"(\d+(?:\.\d+)?)(ms|s|m|h)?", re.ASCII)
CITATION = re.compile(r"\s*\((?:[PQTGF]-\d|0\d)[^)]*\)")  # for readers of the code, not of --help
META = "sbpair.option_flags"


class Span(click.ParamType[timedelta]):
    """A span of time: `90s`, `500ms`, `2m`, `1h`, or a plain number of seconds."""

    name = "span"

    def convert(
        self, value: str | timedelta, param: click.Parameter | None, ctx: click.Context | None
    ) -> timedelta:
        if isinstance(value, timedelta):
            return value
        match = SPAN.fullmatch(value.strip())
        seconds = float(match[1]) * UNITS[match[2] or "s"] if match else math.nan
        if not 0 <= seconds <= timedelta.max.total_seconds():
            self.fail(f"{value!r} is not a span of time such as 90s, 500ms, 2m or 1h", param, ctx)
        return timedelta(seconds=seconds)


def span_text(span: timedelta) -> str:
    """A span as `Span` reads it, in the largest unit that is whole."""
    milliseconds = span / timedelta(milliseconds=1)
    if not milliseconds.is_integer():
        return f"{milliseconds:.3f}ms"
    whole = int(milliseconds)
    in_ms = {"h": 3_600_000, "m": 60_000, "s": 1000}
    unit = next((unit for unit, size in in_ms.items() if whole and whole % size == 0), None)
    return f"{whole // in_ms[unit]}{unit}" if unit else f"{whole}ms"


def flag_name(field: str, names: Mapping[str, str]) -> str:
    return f"--{names.get(field, field).replace('_', '-')}"


def options_as_flags(
    options: type, *, names: Mapping[str, str] | None = None, leave_out: frozenset[str] = frozenset()
) -> Callable[[Command], Command]:
    """Give a command one flag for each field of ``options``; ``names`` shortens some of them."""
    helps, hints = field_docs(options), get_type_hints(options)

    def decorate(command: Command) -> Command:
        for field in reversed(dataclasses.fields(options)):
            if field.name not in leave_out:
                command = _flag(field, hints[field.name], helps.get(field.name, ""), names or {})(command)
        return command

    return decorate


def _flag(
    field: dataclasses.Field[object], hint: object, text: str, names: Mapping[str, str]
) -> Callable[[Command], Command]:
    kind, is_list = _kind(hint)
    text = f"{text} Give the flag once for each." if is_list else text
    if isinstance(field.default, timedelta):
        text = f"{text}  [default: {span_text(field.default)}]"
    elif field.default not in (None, False):
        text = f"{text}  [default: {field.default}]"
    return click.option(
        flag_name(field.name, names),
        field.name,
        type=kind,
        is_flag=kind is click.BOOL,
        multiple=is_list,
        default=None,
        expose_value=False,
        callback=_collect,
        help=text,
    )


def _kind(hint: object) -> tuple[click.ParamType[object], bool]:
    plain = next((arm for arm in get_args(hint) if arm is not NoneType), hint)
    if get_origin(hint) is tuple or get_origin(plain) is tuple:
        return click.STRING, True
    kinds: dict[object, click.ParamType[object]] = {int: click.INT, bool: click.BOOL, timedelta: Span()}
    return kinds.get(plain, click.STRING), False


def _collect(context: click.Context, parameter: click.Parameter, value: object) -> None:
    given = context.meta.setdefault(META, {})
    if value is not None and value != () and not (value is False and parameter.default is None):
        given[parameter.name] = value


def options_from(options: type[Options], *, names: Mapping[str, str] | None = None) -> Options:
    """The options the flags of the running command say. A value out of range is a usage error."""
    context = click.get_current_context()
    given: dict[str, object] = context.meta.get(META, {})
    try:
        return options(**given)
    except (ValueError, TypeError) as error:
        text = str(error)
        for field in given:
            text = re.sub(rf"\b{field}\b", flag_name(field, names or {}), text)
        if any(context.get_parameter_source(field) is ParameterSource.DEFAULT_MAP for field in given):
            text = f"{text} (flags, or the file of --config)"
        raise click.UsageError(text, context) from error


def field_docs(options: type) -> dict[str, str]:
    """The string below each field of a dataclass, on one line; empty when its source is not there."""
    try:
        (body,) = ast.parse(textwrap.dedent(inspect.getsource(options))).body
    except (OSError, SyntaxError, ValueError):
        return {}
    statements = body.body if isinstance(body, ast.ClassDef) else []
    docs = {}
    for statement, after in itertools.pairwise(statements):
        match statement, after:
            case ast.AnnAssign(target=ast.Name(id=name)), ast.Expr(value=ast.Constant(value=str(text))):
                docs[name] = CITATION.sub("", " ".join(text.replace("``", "").split()))
    return docs
