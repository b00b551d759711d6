"""What help() and the site show of the public names: the contract, without the ids of requirements."""

from __future__ import annotations

import ast
import inspect
import re
import textwrap
from collections.abc import Iterator
from importlib import import_module
from pathlib import Path
from types import FunctionType, ModuleType

import pytest

PAGES = Path(__file__).resolve().parent.parent / "docs" / "reference" / "api"
NAMES = sorted(
    set(re.findall(r"^::: (\S+)$", "".join(p.read_text("utf-8") for p in PAGES.glob("*.md")), re.M))
)
ID = re.compile(r"\b[A-Z]{1,2}-\d+\b")
NO_IDS = {"UTF-8"}


def found(name: str) -> object:
    path, _, attribute = name.rpartition(".")
    try:
        return import_module(name)
    except ImportError:
        return getattr(import_module(path), attribute)


def docstrings(thing: object) -> Iterator[str]:
    """The docstrings of a module, a function or a class, its bases and their public members and fields included."""
    if isinstance(thing, ModuleType):
        yield thing.__doc__ or ""
    elif isinstance(thing, FunctionType):
        yield inspect.getdoc(thing) or ""
    elif isinstance(thing, type):
        for each in thing.__mro__:
            if each.__module__.startswith("sbpair"):
                source = textwrap.dedent(inspect.getsource(each))
                yield from _in_class(ast.parse(source).body[0])


def _in_class(node: ast.stmt) -> Iterator[str]:
    assert isinstance(node, ast.ClassDef)
    for each in node.body:
        if isinstance(each, ast.Expr) and isinstance(each.value, ast.Constant):
            yield str(each.value.value)
        elif isinstance(each, ast.FunctionDef | ast.AsyncFunctionDef) and not each.name.startswith("_"):
            yield ast.get_docstring(each) or ""


@pytest.mark.parametrize("name", NAMES)
def test_no_public_docstring_cites_a_requirement_id(name: str) -> None:
    texts = list(docstrings(found(name)))
    assert [each for text in texts for each in ID.findall(text) if each not in NO_IDS] == []


def test_the_public_names_and_their_members_are_found() -> None:
    from sbpair import PairedNamespaceOptions

    assert len(NAMES) > 150
    assert len(list(docstrings(PairedNamespaceOptions))) > 20
