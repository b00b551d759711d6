"""The build hook: with SBPAIR_COMPILE=1 the wheel contains the AMQP engine compiled by mypyc.

Without it the wheel is pure Python, and nobody needs a compiler. Both wheels are made of the same sources, and the
compiled one contains them too: for tracebacks and type checkers.
"""

from __future__ import annotations

import contextlib
import os
import shutil
import tempfile
from pathlib import Path
from typing import Any

from hatchling.builders.hooks.plugin.interface import BuildHookInterface

VARIABLE = "SBPAIR_COMPILE"
PACKAGE = Path("sbpair", "pair", "amqp")
COMPILED = (
    "connection",
    "decoding",
    "encoding",
    "endpoint",
    "fast_path",
    "handshake",
    "limits",
    "link",
    "session",
)
"""The modules of the engine that mypyc can compile; the others declare types, and little of them runs per message."""
REQUIREMENTS = ["mypy>=2,<3", "setuptools>=80"]


class CompiledEngine(BuildHookInterface[Any]):
    """Adds extension modules to the wheel, when asked to."""

    PLUGIN_NAME = "custom"

    def dependencies(self) -> list[str]:
        """Return what the build needs beyond hatchling."""
        return REQUIREMENTS if is_asked_for() else []

    def initialize(self, version: str, build_data: dict[str, Any]) -> None:
        """Compile, and add the results to a wheel; an editable installation runs the sources."""
        if version == "editable" or not is_asked_for():
            return
        self._work = tempfile.TemporaryDirectory(prefix="sbpair-compile-")
        work = Path(self._work.name)
        build_data["pure_python"] = False
        build_data["infer_tag"] = True
        for extension in compile_into(work, Path(self.root)):
            build_data["force_include"][str(extension)] = str(extension.relative_to(work / "built"))

    def finalize(self, version: str, build_data: dict[str, Any], artifact_path: str) -> None:
        """Remove the compiler's files."""
        if hasattr(self, "_work"):
            self._work.cleanup()


def is_asked_for() -> bool:
    """Whether SBPAIR_COMPILE is 1. Raises ValueError for a value other than 0 and 1."""
    value = os.environ.get(VARIABLE, "") or "0"
    if value not in ("0", "1"):
        raise ValueError(f"{VARIABLE} is 1 for a compiled wheel, else 0 or unset, not {value!r}")
    return value == "1"


def compile_into(work: Path, root: Path) -> list[Path]:
    """Compile the engine of the source tree `root`; return the extension modules, in `work`/built.

    Works on a copy: the generated C stays out of the tree. The copy has the engine alone, with which mypy is done in
    seconds.
    """
    from mypyc.build import mypycify
    from setuptools import Distribution

    shutil.copytree(root / PACKAGE, work / PACKAGE, ignore=shutil.ignore_patterns("*.so", "__pycache__"))
    for package in (PACKAGE.parent.parent, PACKAGE.parent):
        (work / package / "__init__.py").touch()
    sources = [str(PACKAGE / f"{name}.py") for name in COMPILED]
    with contextlib.chdir(work):
        extensions = mypycify(["--config-file=", "--strict", *sources], debug_level="0", group_name="sbpair")
        command = Distribution({"name": "sbpair", "ext_modules": extensions}).get_command_obj("build_ext")
        command.build_lib = "built"
        command.build_temp = "objects"
        command.ensure_finalized()
        command.run()
    return [path for path in (work / "built").rglob("*") if path.is_file()]
