"""The programs of docs/how-to/use-the-broker.md: snippets and test suites, each from its first line to its end."""

from __future__ import annotations

import os
import re
import select
import shlex
import shutil
import signal
import socket
import subprocess
import sys
from collections.abc import Callable
from contextlib import closing
from pathlib import Path

import pytest

from sbpair.broker import Broker
from tests import peers
from tests.waiting import PATIENCE

SNIPPETS = Path(__file__).resolve().parents[3] / "samples" / "emulator"


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
const fs = require("node:fs");
const { ServiceBusAdministrationClient } = require("@azure/service-bus");
%s
administration.getQueue("orders").then((queue) => console.log(queue.name), (error) => console.log(error.code))
  .then(() => administration.queueExists("orders")).then(console.log);
"""
WITHOUT_THE_FILE = "const administration = new ServiceBusAdministrationClient(process.env.SBPAIR_PRIMARY);"


@pytest.mark.interop
@pytest.mark.spec("R-129")
def test_the_javascript_administration_client_trusts_the_authority_as_documented(environment):
    modules = str(peers.service_bus_directory() / "node_modules")
    given = {**environment, "NODE_PATH": modules}
    given.pop("NODE_EXTRA_CA_CERTS", None)
    page = (SNIPPETS.parents[1] / "docs" / "how-to" / "use-the-broker.md").read_text("utf-8")
    (as_printed,) = re.findall(r"^const administration = .*?;$", page, re.MULTILINE | re.DOTALL)
    assert printed(["node", "-e", ADMINISTRATION % as_printed], given).splitlines() == ["orders", "true"]

    without = ["node", "-e", ADMINISTRATION % WITHOUT_THE_FILE]
    error, exists = printed(without, given).splitlines()
    assert f"fail with `{error}`" in page
    assert (exists, "`queueExists` answers false" in page) == ("false", True)
    assert 'NODE_EXTRA_CA_CERTS="$SBPAIR_CA_FILE" node program.js' in page
    with_variable = {**given, "NODE_EXTRA_CA_CERTS": given["SBPAIR_CA_FILE"]}
    assert printed(without, with_variable).splitlines() == ["orders", "true"]


@pytest.mark.interop
def test_the_java_snippet_receives_what_it_sends(environment):
    command = ["java", "-cp", peers.java_classpath(), str(SNIPPETS / "Emulator.java")]
    assert printed(command, environment, within=100).splitlines()[-1] == "received: hello from Java"


@pytest.mark.interop
@pytest.mark.timeout(240)
def test_the_go_snippet_receives_what_it_sends(environment, tmp_path):
    program = peers.go_program(SNIPPETS / "go", tmp_path)
    assert printed([str(program)], environment) == "received: hello from Go"


COMMAND = f"{shlex.quote(sys.executable)} -m sbpair"
PLAIN = """#!/bin/sh
exec {command} "$@" {flags}
"""
ANNOUNCING = """#!/bin/sh
exec 3> {announced}
sh -c 'echo $$ >&3; exec "$0" "$@"' {command} "$@" {flags} | {{
  IFS= read -r line; printf '%s\\n' "$line"; echo serves >&3; cat
}}
"""
Install = Callable[..., dict[str, str]]


@pytest.fixture
def installed(tmp_path) -> Install:
    """Return the environment of a person who has installed sbpair, whose broker has more ``flags``.

    The broker writes its process id to the pipe ``announced``, says when it serves, and holds it open until it ends.
    """

    def install(*flags: str, announced: Path | None = None) -> dict[str, str]:
        text = PLAIN if announced is None else ANNOUNCING
        script = tmp_path / "bin" / "sbpair"
        script.parent.mkdir()
        script.write_text(text.format(command=COMMAND, flags=shlex.join(flags), announced=announced))
        script.chmod(0o755)
        kept = {name: value for name, value in os.environ.items() if name != "NODE_EXTRA_CA_CERTS"}
        path = f"{script.parent}{os.pathsep}{os.environ['PATH']}"
        return {**kept, "PATH": path, "PYTHONPATH": str(SNIPPETS.parents[1])}

    return install


def suite_of(language: str, environment: dict[str, str], tmp_path: Path) -> subprocess.Popen[str]:
    """Start the suite in a process of its own, which is the one that starts the broker."""
    where = SNIPPETS
    if language == "javascript":
        command = ["node", "orders.test.js"]
        environment = environment | {"NODE_PATH": str(peers.service_bus_directory() / "node_modules")}
    elif language == "java":
        command = ["java", "-cp", peers.java_classpath(), "OrdersTest.java"]
    else:
        where = SNIPPETS / "go"
        peers.go_program(where, tmp_path)  # builds what the suite needs, or skips
        command = [str(tmp_path / "suite")]
        build = ["go", "test", "-c", "-trimpath", "-mod=readonly", "-o", command[0], "."]
        printed(build, environment, within=200, where=where)
    pipe = subprocess.PIPE
    return subprocess.Popen(command, env=environment, cwd=where, text=True, stdout=pipe, stderr=pipe)


LANGUAGES = ("javascript", "java", "go")


@pytest.mark.interop
@pytest.mark.timeout(300)
@pytest.mark.spec("E-6")
@pytest.mark.parametrize("language", LANGUAGES)
def test_a_suite_that_is_killed_leaves_no_broker(installed, tmp_path, language):
    announced, plan = tmp_path / "announced", tmp_path / "plan.toml"
    os.mkfifo(announced)
    plan.write_text(
        '[[fault]]\nnamespace = "test"\neffect = "down"\nhow = "silent"\n'
    )  # the suite would not end
    suite = suite_of(language, installed("--faults", str(plan), announced=announced), tmp_path)
    with announced.open() as pipe:
        broker = int(pipe.readline())
        assert pipe.readline() == "serves\n"
        suite.kill()
        suite.communicate()
        ended, _, _ = select.select([pipe], [], [], PATIENCE)
        if not ended:
            os.kill(broker, signal.SIGKILL)
    assert ended, "the broker is still running"


@pytest.mark.interop
@pytest.mark.timeout(300)
@pytest.mark.spec("E-6")
@pytest.mark.parametrize("language", LANGUAGES)
def test_a_broker_that_does_not_start_says_why_in_a_suite(installed, tmp_path, language):
    with closing(socket.create_server(("127.0.0.1", 0))) as holder:
        taken = f"127.0.0.1:{holder.getsockname()[1]}"
        suite = suite_of(language, installed("--page", taken), tmp_path)
        told = "".join(suite.communicate(timeout=100))
    assert suite.returncode != 0
    assert f"The page cannot be served on {taken}: Address already in use." in told
    assert "the broker did not start: it says why above" in told


@pytest.mark.interop
@pytest.mark.spec("E-6")
def test_a_javascript_suite_names_the_missing_sbpair_command(tmp_path):
    node = shutil.which("node") or peers.missing("node")
    environment = {"PATH": str(tmp_path), "NODE_PATH": str(peers.service_bus_directory() / "node_modules")}
    run = subprocess.run(
        [node, str(SNIPPETS / "orders.test.js")], env=environment, capture_output=True, text=True, timeout=60
    )
    assert run.returncode != 0
    assert "spawn sbpair ENOENT" in run.stdout


@pytest.mark.interop
@pytest.mark.spec("E-6")
def test_a_javascript_suite_starts_the_broker_and_passes(installed):
    modules = str(peers.service_bus_directory() / "node_modules")
    command = ["node", "--test", str(SNIPPETS / "orders.test.js")]
    assert "# pass 1" in printed(command, {**installed(), "NODE_PATH": modules})


@pytest.mark.interop
@pytest.mark.spec("E-6")
def test_a_java_suite_starts_the_broker_and_passes(installed):
    command = ["java", "-cp", peers.java_classpath(), str(SNIPPETS / "OrdersTest.java")]
    assert printed(command, installed(), within=100).splitlines()[-1] == "ok"


@pytest.mark.interop
@pytest.mark.timeout(240)
@pytest.mark.spec("E-6")
def test_a_go_suite_starts_the_broker_and_passes(installed, tmp_path):
    peers.go_program(SNIPPETS / "go", tmp_path)  # builds what the suite needs, or skips
    command = ["go", "test", "-trimpath", "-count=1", "-mod=readonly", "."]
    assert printed(command, installed(), within=200, where=SNIPPETS / "go").startswith("ok")
