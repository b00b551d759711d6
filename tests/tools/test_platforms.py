"""Importing sbpair needs no module that only some systems have."""

from __future__ import annotations

import ast
from collections.abc import Iterator

import pytest

from tests.tools.source import ROOT

SOME_SYSTEMS = {
    "fcntl",
    "resource",
    "pwd",
    "grp",
    "termios",
    "tty",
    "pty",
    "posix",
    "syslog",
    "msvcrt",
    "winreg",
    "uvloop",
}


def imported_at_once(tree: ast.AST) -> Iterator[str]:
    """The modules that importing a module imports: those within functions, and behind a `try`, are not among them."""
    for node in ast.iter_child_nodes(tree):
        match node:
            case ast.FunctionDef() | ast.AsyncFunctionDef() | ast.Try():
                continue
            case ast.Import(names=names):
                yield from (alias.name for alias in names)
            case ast.ImportFrom(module=str(module), level=0):
                yield module
            case _:
                yield from imported_at_once(node)


@pytest.mark.parametrize(
    ("source", "found"),
    [
        ("import fcntl, os", ["fcntl", "os"]),
        ("if True:\n    from resource import getrlimit", ["resource"]),
        ("def f():\n    import fcntl", []),
        ("try:\n    import uvloop\nexcept ImportError:\n    pass", []),
    ],
)
def test_the_unconditional_imports_of_a_module_are_found(source: str, found: list[str]) -> None:
    assert list(imported_at_once(ast.parse(source))) == found


@pytest.mark.slow
def test_no_module_of_the_package_imports_a_platform_specific_one() -> None:
    found = {
        str(file.relative_to(ROOT)): wrong
        for file in sorted((ROOT / "sbpair").rglob("*.py"))
        if (wrong := SOME_SYSTEMS & set(imported_at_once(ast.parse(file.read_text("utf-8")))))
    }
    assert found == {}
