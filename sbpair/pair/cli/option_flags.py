"""Command-line flags generated from the fields of an options dataclass.

Each field becomes one flag with its name, type and default; the string below the field is the help text. Values
collect in click's context, and `options_from` builds the dataclass, whose own validation rejects values out of
range.
"""

from __future__ import annotations

import ast
import dataclasses
import inspect
import itertools
import re
import textwrap
from collections.abc import Callable, Mapping
from datetime import timedelta
from types import NoneType
from typing import Literal, TypeVar, get_args, get_origin, get_type_hints

import click
from click.core import ParameterSource

from sbpair.pair.cli.parameters import DurationType, span_text

Options = TypeVar("Options")
Command = TypeVar("Command", bound=Callable[..., object])

CITATION = re.compile(r" ?\([PQTGFSRCOE]-\d[^()]*\)")  # ids that help texts omit
META = "sbpair.option_flags"
ENVIRONMENT = {"ca_file": "SBPAIR_CA_FILE"}  # by the name of the flag; shared by every command and the client


def flag_name(field: str, names: Mapping[str, str]) -> str:
    return f"--{names.get(field, field).replace('_', '-')}"


def options_as_flags(
    options: type, *, names: Mapping[str, str] | None = None, leave_out: frozenset[str] = frozenset()
) -> Callable[[Command], Command]:
    """Add one flag to a command for each field of ``options``; ``names`` maps fields to shorter flags."""
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
    variable = ENVIRONMENT.get(names.get(field.name, field.name))
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
        envvar=variable,
        show_envvar=variable is not None,
        help=text,
    )


def _kind(hint: object) -> tuple[click.ParamType[object], bool]:
    if get_origin(hint) is Literal:
        return click.Choice(get_args(hint)), False
    plain = next((arm for arm in get_args(hint) if arm is not NoneType), hint)
    if get_origin(hint) is tuple or get_origin(plain) is tuple:
        return click.STRING, True
    kinds: dict[object, click.ParamType[object]] = {
        int: click.INT,
        bool: click.BOOL,
        timedelta: DurationType(),
    }
    return kinds.get(plain, click.STRING), False


def _collect(context: click.Context, parameter: click.Parameter, value: object) -> None:
    given = context.meta.setdefault(META, {})
    if value is not None and value != () and not (value is False and parameter.default is None):
        given[parameter.name] = value


def options_from(options: type[Options], *, names: Mapping[str, str] | None = None) -> Options:
    """Build ``options`` from the flags of the running command.

    Raises UsageError when a value is out of range.
    """
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
    """Return the string below each field of a dataclass, on one line; empty when its source code is unavailable."""
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
