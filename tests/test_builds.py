"""The two builds of the engine: pure Python, and compiled by mypyc (hatch_build.py)."""

from __future__ import annotations

import ast
import tomllib
from importlib import import_module
from importlib.machinery import EXTENSION_SUFFIXES
from pathlib import Path

import pytest

from sbpair.pair.amqp.build import build

ROOT = Path(__file__).resolve().parent.parent
EXTENSIONS = tuple(EXTENSION_SUFFIXES)


def compiled_modules() -> tuple[str, ...]:
    """The table COMPILED of the build hook, which imports the build system and so cannot be imported here."""
    for node in ast.parse((ROOT / "hatch_build.py").read_text()).body:
        if isinstance(node, ast.Assign) and ast.unparse(node.targets[0]) == "COMPILED":
            names: tuple[str, ...] = ast.literal_eval(node.value)
            return names
    pytest.fail("hatch_build.py has no COMPILED")


@pytest.mark.spec("R-110", "R-111")
@pytest.mark.parametrize("name", compiled_modules())
def test_each_engine_module_belongs_to_the_build_named_by_the_version(name):
    module = import_module(f"sbpair.pair.amqp.{name}")

    is_compiled = str(module.__file__).endswith(EXTENSIONS)
    assert is_compiled == (build() == "compiled")


@pytest.mark.spec("R-110")
def test_a_plain_build_needs_neither_mypy_nor_a_compiler():
    project = tomllib.loads((ROOT / "pyproject.toml").read_text())

    assert project["build-system"]["requires"] == ["hatchling>=1.25"]
