"""Install and start foreign AMQP peers: rhea, qpid-proton, and the SDKs for JavaScript, Java and Go.

`rhea_directory()` returns a directory whose `node_modules` holds rhea, installed once into the user's
cache and never into the tree, or skips the test with a message that names what is missing. Call
`needs_proton()` at the top of a file that imports proton. With SBPAIR_REQUIRE_PEERS=1, as in CI, a
missing peer fails the test.
"""

from __future__ import annotations

import importlib
import json
import os
import re
import shutil
import subprocess
import tempfile
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any, NoReturn

import pytest

RHEA_VERSION = "3.0.4"
SERVICE_BUS_VERSION = "7.9.5"
OLD_SERVICE_BUS_VERSIONS = (("7.0.0", "1.0.24"), ("7.9.5", "3.0.2"))
"""Versions of the JavaScript SDK and of a rhea before 3.0.3, which expects the ids of transfers near zero."""
FIRST_SERVICE_BUS_VERSION = "1.1.10"
JAVA_SERVICE_BUS_VERSION = "7.17.13"
JAVA_SERVICE_BUS = ("com.azure", "azure-messaging-servicebus", JAVA_SERVICE_BUS_VERSION)
JAVA_TRACK_ONE_VERSION = "3.6.7"
_POM = """<project xmlns="http://maven.apache.org/POM/4.0.0">
  <modelVersion>4.0.0</modelVersion>
  <groupId>sbpair</groupId><artifactId>peer</artifactId><version>1</version>
  <dependencies><dependency>
    <groupId>{group}</groupId>
    <artifactId>{artifact}</artifactId>
    <version>{version}</version>
  </dependency></dependencies>
</project>
"""
JAVA_MESSAGE_SERVICE_VERSION = "2.0.0"
WS_VERSION = "8.18.0"
FIRST_BUILD = 100  # seconds to compile everything on a busy machine
_GO_DIRECTIVE = re.compile(r"^go ([\d.]+)$", re.MULTILINE)


def missing(what: str) -> NoReturn:
    """Skip and name what is missing, or fail if SBPAIR_REQUIRE_PEERS requires every peer."""
    if os.environ.get("SBPAIR_REQUIRE_PEERS") == "1":
        pytest.fail(f"a peer is missing: {what}")
    pytest.skip(what, allow_module_level=True)


def needs_proton() -> None:
    """Skip the calling test module if proton is not installed (`pip install '.[interop]'`)."""
    try:
        importlib.import_module("proton")
    except ImportError:
        missing("qpid-proton is not installed")


def rhea_directory() -> Path:
    """Return a directory from which `require("rhea")` works; skips if node, npm or the package is unavailable."""
    return _package_directory("rhea", RHEA_VERSION)


def service_bus_directory() -> Path:
    """Return a directory from which `require("@azure/service-bus")` works, the JavaScript SDK; skips likewise."""
    return _package_directory("@azure/service-bus", SERVICE_BUS_VERSION)


def old_service_bus_directory(version: str, rhea: str) -> Path:
    """Return such a directory for another version of the JavaScript SDK, with this version of rhea; skips likewise."""
    return _package_directory("@azure/service-bus", version, f"rhea@{rhea}")


def first_service_bus_directory() -> Path:
    """Return such a directory for the JavaScript SDK of generation 1; skips likewise."""
    return _package_directory("@azure/service-bus", FIRST_SERVICE_BUS_VERSION)


def ws_directory() -> Path:
    """Return a directory from which `require("ws")` works, the JavaScript SDK's WebSocket; skips likewise."""
    return _package_directory("ws", WS_VERSION)


def java_classpath() -> str:
    """Return the class path of the Java SDK with its dependencies; skips if java, mvn or a package is unavailable."""
    return _jars("java-service-bus", *JAVA_SERVICE_BUS)


def track_one_classpath() -> str:
    """Return the class path of the Java SDK of Track 1; skips likewise."""
    return _jars("java-track-one", "com.microsoft.azure", "azure-servicebus", JAVA_TRACK_ONE_VERSION)


def message_service_classpath() -> str:
    """Return the class path of the JMS library of Service Bus; skips likewise."""
    return _jars("java-jms", "com.azure", "azure-servicebus-jms", JAVA_MESSAGE_SERVICE_VERSION)


def pom_of(group: str, artifact: str, version: str) -> str:
    """Return a project whose one dependency is this package."""
    return _POM.format(group=group, artifact=artifact, version=version)


def _jars(name: str, group: str, artifact: str, version: str) -> str:
    for tool in ("java", "mvn"):
        if shutil.which(tool) is None:
            missing(f"{tool} is not installed")
    directory = _cache() / f"{name}-{version}"
    if not (directory / "jars").is_dir():
        pom = pom_of(group, artifact, version)
        _install(directory, f"{artifact} {version}", _MAVEN, {"pom.xml": pom}, "jars")
    return f"{directory / 'jars'}{os.sep}*"


def run_java(
    program: Path,
    *arguments: str,
    within: float,
    classpath: Callable[[], str] = java_classpath,
    options: Sequence[str] = (),
) -> str:
    """Run a single-file Java program from source and return what it prints; fails if it fails or takes too long."""
    # light compilation and the serial collector: the program lives for seconds
    command = [
        "java",
        "-XX:TieredStopAtLevel=1",
        "-XX:+UseSerialGC",
        *options,
        "-cp",
        classpath(),
        str(program),
    ]
    done = subprocess.run([*command, *arguments], capture_output=True, text=True, timeout=within)
    assert done.returncode == 0, done.stderr[-2000:]
    return done.stdout


def java_trust(authority: Path, into: Path) -> list[str]:
    """Return the options with which java trusts ``authority``, a PEM file, by a store that is written to ``into``."""
    store = into / "trust.p12"
    command = ["keytool", "-importcert", "-noprompt", "-alias", "authority", "-storetype", "PKCS12"]
    command += ["-file", str(authority), "-keystore", str(store), "-storepass", "changeit"]
    subprocess.run(command, check=True, capture_output=True, timeout=60)
    return [f"-Djavax.net.ssl.trustStore={store}", "-Djavax.net.ssl.trustStorePassword=changeit"]


def prometheus_program(name: str) -> str:
    """Return the path of ``prometheus`` or ``promtool``; skips without Debian's package prometheus."""
    found = shutil.which(name)
    if found is None:
        missing(f"{name} is not installed (Debian's package prometheus)")
    return found


def start_java(program: Path, *arguments: str) -> subprocess.Popen[str]:
    """Start a single-file Java program with text pipes for its input and output."""
    command = ["java", "-XX:TieredStopAtLevel=1", "-XX:+UseSerialGC", "-cp", java_classpath(), str(program)]
    return _start([*command, *arguments], {})


def go_program(source: Path, into: Path) -> Path:
    """Build the Go module in ``source`` and return its executable; skips if go or a module is unavailable.

    Go caches what it downloads and compiles, so only the first build is slow.
    """
    version = _go_version()
    asked = tuple(int(part) for part in _GO_DIRECTIVE.search((source / "go.mod").read_text())[1].split("."))
    if version < asked:
        missing(f"go is not installed, or older than {'.'.join(map(str, asked))}")
    program = into / source.name
    try:
        done = subprocess.run(
            ["go", "build", "-trimpath", "-o", str(program), "."],
            cwd=source,
            env={**os.environ, "GOFLAGS": "-mod=readonly -buildvcs=false"},
            capture_output=True,
            text=True,
            timeout=FIRST_BUILD,
        )
    except subprocess.TimeoutExpired:
        missing(f"go did not build {source.name} within {FIRST_BUILD} s")
    if done.returncode != 0 and re.search(r"dial tcp|no such host|proxyconnect|: 40[34] ", done.stderr):
        missing(f"go could not fetch a module: {done.stderr.strip()[-200:]}")
    assert done.returncode == 0, done.stderr[-2000:]
    return program


def _go_version() -> tuple[int, ...]:
    if shutil.which("go") is None:
        return ()
    said = subprocess.run(["go", "env", "GOVERSION"], capture_output=True, text=True, timeout=30).stdout
    return tuple(int(part) for part in re.findall(r"\d+", said)[:3])


_MAVEN = ["mvn", "-B", "-q", "dependency:copy-dependencies", "-DoutputDirectory=jars"]


def _package_directory(package: str, version: str, *others: str) -> Path:
    for tool in ("node", "npm"):
        if shutil.which(tool) is None:
            missing(f"{tool} is not installed")
    directory = _cache() / "-".join((package.replace("/", "-"), version, *others))
    there = f"node_modules/{package}/package.json"
    if not (directory / there).is_file():
        command = [
            "npm",
            "install",
            "--no-audit",
            "--no-fund",
            "--ignore-scripts",
            f"{package}@{version}",
            *others,
        ]
        _install(directory, package, command, {}, there)
    return directory


def found_by_node(program: Path, *arguments: str, packages: Sequence[Path], **variables: str) -> Any:
    """Run a node program and decode the one line of JSON that it prints; fails if the program fails."""
    path = os.pathsep.join(str(package / "node_modules") for package in packages)
    done = subprocess.run(
        ["node", str(program), *arguments],
        env={**os.environ, "NODE_PATH": path, **variables},
        capture_output=True,
        text=True,
        timeout=60,
    )
    assert done.returncode == 0, done.stderr[-2000:]
    return json.loads(done.stdout)


def run_node(script: Path, *arguments: str, package: Path | None = None) -> subprocess.Popen[str]:
    """Start a node program that may `require` rhea, or the given package, with text pipes for input and output."""
    modules = (package or rhea_directory()) / "node_modules"
    return _start(["node", str(script), *arguments], {"NODE_PATH": str(modules)})


def _start(command: Sequence[str], variables: dict[str, str]) -> subprocess.Popen[str]:
    return subprocess.Popen(
        command,
        env={**os.environ, **variables},
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
    )


def _cache() -> Path:
    base = os.environ.get("XDG_CACHE_HOME") or Path.home() / ".cache"
    return Path(base) / "sbpair-tests"


def _install(directory: Path, what: str, command: list[str], files: dict[str, str], there: str) -> None:
    """Run `command` in a scratch directory that holds `files`, then move it to `directory`; `there` must exist."""
    directory.parent.mkdir(parents=True, exist_ok=True)
    with tempfile.TemporaryDirectory(dir=directory.parent) as scratch:
        for name, text in files.items():
            (Path(scratch) / name).write_text(text)
        try:
            done = subprocess.run(command, cwd=scratch, capture_output=True, text=True, timeout=180)
        except subprocess.TimeoutExpired:
            missing(f"{command[0]} did not install {what} within three minutes")
        if done.returncode != 0:
            missing(f"{command[0]} could not install {what}: {(done.stderr or done.stdout).strip()[-200:]}")
        try:
            os.rename(scratch, directory)
        except OSError:
            if not (directory / there).exists():  # otherwise another process was faster
                raise
        else:
            Path(scratch).mkdir()  # the context wants something to remove
