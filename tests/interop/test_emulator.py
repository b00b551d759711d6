"""The snippets of docs/how-to/emulator.md: each sends one message to the broker and receives it."""

from __future__ import annotations

import os
import shutil
import subprocess
import sys
from pathlib import Path

import pytest

from sbpair.broker import Broker
from tests import peers

SNIPPETS = Path(__file__).resolve().parents[2] / "samples" / "emulator"


@pytest.fixture
def environment():
    """The variables that `sbpair broker --print-env` prints, for a broker with the queue orders."""
    with Broker({"contoso": 0}) as broker:
        namespace = broker.namespace("contoso")
        namespace.create_queue("orders")
        yield {**os.environ, "SBPAIR_PRIMARY": namespace.connection_string}
        assert namespace.counts("orders").total == 0


def printed(command: list[str], environment: dict[str, str], within: float = 60) -> str:
    done = subprocess.run(command, env=environment, capture_output=True, text=True, timeout=within)
    assert done.returncode == 0, done.stderr[-2000:]
    return done.stdout.strip()


def test_the_python_snippet_receives_what_it_sends(environment):
    assert (
        printed([sys.executable, str(SNIPPETS / "emulator.py")], environment) == "received: hello from Python"
    )


@pytest.mark.skipif(not (shutil.which("curl") and shutil.which("openssl")), reason="needs curl and openssl")
def test_the_curl_snippet_receives_what_it_sends(environment):
    assert printed(["bash", str(SNIPPETS / "emulator.sh")], environment) == "received: hello from curl"


@pytest.mark.interop
def test_the_javascript_snippet_receives_what_it_sends(environment):
    modules = str(peers.service_bus_directory() / "node_modules")
    command = ["node", str(SNIPPETS / "emulator.js")]
    assert printed(command, {**environment, "NODE_PATH": modules}) == "received: hello from JavaScript"


@pytest.mark.interop
def test_the_java_snippet_receives_what_it_sends(environment):
    command = ["java", "-cp", peers.java_classpath(), str(SNIPPETS / "Emulator.java")]
    assert printed(command, environment, within=100).splitlines()[-1] == "received: hello from Java"


@pytest.mark.interop
@pytest.mark.timeout(240)
def test_the_go_snippet_receives_what_it_sends(environment, tmp_path):
    program = peers.go_program(SNIPPETS / "go", tmp_path)
    assert printed([str(program)], environment) == "received: hello from Go"
