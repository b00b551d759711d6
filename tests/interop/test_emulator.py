"""The programs of docs/how-to/use-the-broker.md: snippets and test suites, each from its first line to its end."""

from __future__ import annotations

import os
import shlex
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
        variables = {"SBPAIR_PRIMARY": namespace.connection_string, "SBPAIR_CA_FILE": str(broker.ca_file)}
        yield {**os.environ, **variables}
        assert namespace.counts("orders").total == 0


def printed(
    command: list[str], environment: dict[str, str], within: float = 60, where: Path | None = None
) -> str:
    done = subprocess.run(command, env=environment, capture_output=True, text=True, timeout=within, cwd=where)
    assert done.returncode == 0, (done.stdout + done.stderr)[-2000:]
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


ADMINISTRATION = """
const { ServiceBusAdministrationClient } = require("@azure/service-bus");
const admin = new ServiceBusAdministrationClient(process.env.SBPAIR_PRIMARY);
admin.getQueue("orders").then((queue) => console.log(queue.name), (error) => console.log(error.code));
"""


@pytest.mark.interop
@pytest.mark.spec("R-129")
def test_javascripts_administration_needs_the_certificate_authority_as_the_page_says(environment):
    modules = str(peers.service_bus_directory() / "node_modules")
    given = {**environment, "NODE_PATH": modules}
    given.pop("NODE_EXTRA_CA_CERTS", None)
    command = ["node", "-e", ADMINISTRATION]
    without = printed(command, given)
    page = (SNIPPETS.parents[1] / "docs" / "how-to" / "use-the-broker.md").read_text("utf-8")
    assert f"fail with `{without}`" in page
    assert 'NODE_EXTRA_CA_CERTS="$SBPAIR_CA_FILE" node program.js' in page
    assert printed(command, {**given, "NODE_EXTRA_CA_CERTS": given["SBPAIR_CA_FILE"]}) == "orders"


@pytest.mark.interop
def test_the_java_snippet_receives_what_it_sends(environment):
    command = ["java", "-cp", peers.java_classpath(), str(SNIPPETS / "Emulator.java")]
    assert printed(command, environment, within=100).splitlines()[-1] == "received: hello from Java"


@pytest.mark.interop
@pytest.mark.timeout(240)
def test_the_go_snippet_receives_what_it_sends(environment, tmp_path):
    program = peers.go_program(SNIPPETS / "go", tmp_path)
    assert printed([str(program)], environment) == "received: hello from Go"


@pytest.fixture
def on_the_path(tmp_path):
    """The environment of a person who has installed sbpair."""
    script = tmp_path / "bin" / "sbpair"
    script.parent.mkdir()
    script.write_text(f'#!/bin/sh\nexec {shlex.quote(sys.executable)} -m sbpair.cli "$@"\n')
    script.chmod(0o755)
    environment = {**os.environ, "PATH": f"{script.parent}{os.pathsep}{os.environ['PATH']}"}
    return {**environment, "PYTHONPATH": str(SNIPPETS.parents[1])}


@pytest.mark.interop
@pytest.mark.spec("E-6")
def test_a_javascript_suite_starts_the_broker_and_passes(on_the_path):
    modules = str(peers.service_bus_directory() / "node_modules")
    command = ["node", "--test", str(SNIPPETS / "orders.test.js")]
    assert "# pass 1" in printed(command, {**on_the_path, "NODE_PATH": modules})


@pytest.mark.interop
@pytest.mark.spec("E-6")
def test_a_java_suite_starts_the_broker_and_passes(on_the_path):
    command = ["java", "-cp", peers.java_classpath(), str(SNIPPETS / "OrdersTest.java")]
    assert printed(command, on_the_path, within=100).splitlines()[-1] == "ok"


@pytest.mark.interop
@pytest.mark.timeout(240)
@pytest.mark.spec("E-6")
def test_a_go_suite_starts_the_broker_and_passes(on_the_path, tmp_path):
    peers.go_program(SNIPPETS / "go", tmp_path)  # builds what the suite needs, or skips
    command = ["go", "test", "-trimpath", "-count=1", "-mod=readonly", "."]
    assert printed(command, on_the_path, within=200, where=SNIPPETS / "go").startswith("ok")
