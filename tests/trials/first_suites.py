"""The suites of docs/how-to/use-the-broker.md in JavaScript, Java and Go, each from nothing to green, timed.

    python -m tests.trials.first_suites [javascript java go]

"Nothing" is an empty cache of npm, an empty Maven repository, an empty GOMODCACHE and GOCACHE: all packages are
downloaded and compiled. Node, npm, a JDK, Maven, Go and sbpair are installed. Prints one line of JSON, in seconds.
"""

from __future__ import annotations

import json
import os
import shlex
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable
from pathlib import Path

from tests.peers import JAVA_SERVICE_BUS, SERVICE_BUS_VERSION, pom_of

ROOT = Path(__file__).resolve().parents[2]
SUITES = ROOT / "samples" / "emulator"
WITHIN = 600  # seconds of one command
MAVEN_GOALS = ("dependency:copy-dependencies", "-DoutputDirectory=jars")


def javascript(where: Path, environment: dict[str, str]) -> None:
    """``npm install``, then ``node --test``."""
    environment = environment | {"npm_config_cache": str(where / "cache")}
    package = f"@azure/service-bus@{SERVICE_BUS_VERSION}"
    _run(["npm", "install", "--no-audit", "--no-fund", package], where, environment)
    modules = str(where / "node_modules")
    _run(["node", "--test", str(SUITES / "orders.test.js")], where, environment | {"NODE_PATH": modules})


def java(where: Path, environment: dict[str, str]) -> None:
    """``mvn dependency:copy-dependencies``, then ``java``."""
    (where / "pom.xml").write_text(pom_of(*JAVA_SERVICE_BUS))
    repository = f"-Dmaven.repo.local={where / 'repository'}"
    _run(["mvn", "-B", "-q", repository, *MAVEN_GOALS], where, environment)
    libraries = f"{where / 'jars'}{os.sep}*"
    _run(["java", "-cp", libraries, str(SUITES / "OrdersTest.java")], where, environment)


def go(where: Path, environment: dict[str, str]) -> None:
    """``go test``."""
    caches = {"GOMODCACHE": str(where / "modules"), "GOCACHE": str(where / "build")}
    flags = {"GOFLAGS": "-mod=readonly -modcacherw -buildvcs=false"}
    _run(["go", "test", "-count=1", "."], SUITES / "go", environment | caches | flags)


LANGUAGES: dict[str, Callable[[Path, dict[str, str]], None]] = {
    "javascript": javascript,
    "java": java,
    "go": go,
}


def timed(language: str) -> float:
    """The seconds that a suite takes from nothing. Raises CalledProcessError when it fails."""
    with tempfile.TemporaryDirectory(prefix="sbpair-first-") as scratch:
        where = Path(scratch)
        script = where / "bin" / "sbpair"
        script.parent.mkdir()
        script.write_text(f'#!/bin/sh\nexec {shlex.quote(sys.executable)} -m sbpair "$@"\n')
        script.chmod(0o755)
        path = f"{script.parent}{os.pathsep}{os.environ['PATH']}"
        began = time.monotonic()
        LANGUAGES[language](where, {**os.environ, "PATH": path, "PYTHONPATH": str(ROOT)})
        return round(time.monotonic() - began, 1)


def _run(command: list[str], where: Path, environment: dict[str, str]) -> None:
    subprocess.run(command, cwd=where, env=environment, check=True, timeout=WITHIN, stdout=subprocess.DEVNULL)


def main() -> int:
    asked = sys.argv[1:] or list(LANGUAGES)
    unknown = [each for each in asked if each not in LANGUAGES]
    if unknown:
        raise SystemExit(f"there is no suite in {unknown[0]}; there are: {', '.join(LANGUAGES)}")
    load = round(os.getloadavg()[0], 1)
    print(json.dumps({each: timed(each) for each in asked} | {"cores": os.cpu_count(), "load_before": load}))
    return 0


if __name__ == "__main__":
    sys.exit(main())
