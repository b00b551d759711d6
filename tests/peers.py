"""Peers that are not us: rhea, AMQP 1.0 in JavaScript, and qpid-proton, and what it takes to run them.

`rhea_directory()` answers a directory whose `node_modules` holds rhea, installed once into the
user's cache and never into the tree; or it skips the test, saying what is missing. `needs_proton()`
stands at the top of a file that imports proton. With SBPAIR_REQUIRE_PEERS=1 a peer that is missing
fails the test: that is how CI runs.
"""

from __future__ import annotations

import importlib
import os
import shutil
import subprocess
import tempfile
from pathlib import Path
from typing import NoReturn

import pytest

RHEA_VERSION = "3.0.4"
SERVICE_BUS_VERSION = "7.9.5"
WS_VERSION = "8.18.0"


def missing(what: str) -> NoReturn:
    """Skip with a word; or fail, where every peer has to be there."""
    if os.environ.get("SBPAIR_REQUIRE_PEERS") == "1":
        pytest.fail(f"a peer is missing: {what}")
    pytest.skip(what, allow_module_level=True)


def needs_proton() -> None:
    """Skip the file that calls this where proton is not installed (`pip install '.[interop]'`)."""
    try:
        importlib.import_module("proton")
    except ImportError:
        missing("qpid-proton is not installed")


def rhea_directory() -> Path:
    """Where `require("rhea")` works; skips when node, npm or the package cannot be had."""
    return _package_directory("rhea", RHEA_VERSION)


def service_bus_directory() -> Path:
    """Where `require("@azure/service-bus")` works, the JavaScript SDK; skips likewise."""
    return _package_directory("@azure/service-bus", SERVICE_BUS_VERSION)


def ws_directory() -> Path:
    """Where `require("ws")` works, the WebSocket that the JavaScript SDK is given; skips likewise."""
    return _package_directory("ws", WS_VERSION)


def _package_directory(package: str, version: str) -> Path:
    for tool in ("node", "npm"):
        if shutil.which(tool) is None:
            missing(f"{tool} is not installed")
    directory = _cache() / f"{package.replace('/', '-')}-{version}"
    if not _is_installed(directory, package):
        _install(directory, package, version)
    return directory


def run_node(script: Path, *arguments: str) -> subprocess.Popen[str]:
    """Start a node program that may `require("rhea")`; its output is text, by pipe."""
    environment = {**os.environ, "NODE_PATH": str(rhea_directory() / "node_modules")}
    return subprocess.Popen(
        ["node", str(script), *arguments],
        env=environment,
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
    )


def _cache() -> Path:
    base = os.environ.get("XDG_CACHE_HOME") or Path.home() / ".cache"
    return Path(base) / "sbpair-tests"


def _is_installed(directory: Path, package: str) -> bool:
    return (directory / "node_modules" / package / "package.json").is_file()


def _install(directory: Path, package: str, version: str) -> None:
    directory.parent.mkdir(parents=True, exist_ok=True)
    with tempfile.TemporaryDirectory(dir=directory.parent) as scratch:
        command = ["npm", "install", "--no-audit", "--no-fund", "--ignore-scripts", f"{package}@{version}"]
        try:
            done = subprocess.run(command, cwd=scratch, capture_output=True, text=True, timeout=120)
        except subprocess.TimeoutExpired:
            missing(f"npm did not install {package} within two minutes")
        if done.returncode != 0:
            missing(f"npm could not install {package}: {done.stderr.strip()[-200:]}")
        try:
            os.rename(scratch, directory)
        except OSError:
            if not _is_installed(directory, package):  # another process was first, or something is wrong
                raise
        else:
            Path(scratch).mkdir()  # the context wants something to remove
