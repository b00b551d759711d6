"""A program needs no extra to send, park and process; what needs one says which line installs it.

`.ci/run` sets SBPAIR_BASE_PYTHON to an interpreter where the wheel is installed without any extra. Elsewhere the
packages of the extras are hidden from the child process.
"""

from __future__ import annotations

import os
import re
import subprocess
import sys
import tomllib
from pathlib import Path

import pytest

from sbpair.broker import Broker
from sbpair.pair.ground.extras import PACKAGES, install_line, installed_extras
from tests.tools.source import ROOT

BASE = os.environ.get("SBPAIR_BASE_PYTHON", "")
HIDDEN = [package for packages in PACKAGES.values() for package in packages]
HIDE = f"import sys; sys.modules.update(dict.fromkeys({HIDDEN!r}))\n"
PROGRAM = """
import sys, threading
from azure.servicebus import ServiceBusMessage
from sbpair import PairedNamespaceOptions, PairedServiceBusClient

handled = threading.Semaphore(0)
seen = []

def handle(message):
    seen.append(str(message))
    handled.release()

primary, secondary = sys.argv[1:]
options = PairedNamespaceOptions(primary_namespace_name="contoso")
client = PairedServiceBusClient.from_connection_strings(primary, secondary, options=options)
with client, client.get_queue_sender("orders") as sender, client.get_queue_processor("orders", handle):
    first = sender.send_messages(ServiceBusMessage("sent"))
    assert handled.acquire(timeout=60)
    client.fail_over("orders")
    second = sender.send_messages(ServiceBusMessage("parked"))
    print(first.stored_in.value, second.stored_in.value, seen)
"""


def run(program: str, *arguments: str, folder: Path, **more: str) -> subprocess.CompletedProcess[str]:
    command = [BASE, "-c", program] if BASE else [sys.executable, "-c", HIDE + program]
    kept = {name: value for name, value in os.environ.items() if name != "PYTHONPATH" or not BASE}
    return subprocess.run(
        [*command, *arguments],
        capture_output=True,
        text=True,
        timeout=110,
        cwd=folder,
        env=kept | more,
        check=False,
    )


@pytest.mark.slow
def test_a_program_sends_parks_and_processes_without_any_extra(tmp_path: Path) -> None:
    with Broker({"contoso": 0, "contoso-dr": 0}) as broker:
        for namespace in broker.namespaces:
            namespace.create_queue("orders")
        strings = [namespace.connection_string for namespace in broker.namespaces]
        authority = str(broker.ca_file)
        done = run(PROGRAM, *strings, folder=tmp_path, REQUESTS_CA_BUNDLE=authority, SSL_CERT_FILE=authority)

    assert (done.stdout, done.stderr) == ("primary backlog ['sent']\n", "")


@pytest.mark.parametrize(
    ("program", "said", "extra"),
    [
        ("from sbpair.broker import Broker", "sbpair.broker needs cryptography", "broker"),
        ("from sbpair.observation import Metrics; Metrics()", "Metrics needs prometheus_client", "observe"),
        ("from sbpair.pair.cli import main; main(['demo'])", "sbpair: the command sbpair needs click", "cli"),
    ],
)
def test_a_missing_extra_is_reported_with_the_line_that_installs_it(
    tmp_path: Path, program: str, said: str, extra: str
) -> None:
    done = run(program, folder=tmp_path)

    assert done.returncode != 0
    line = done.stderr.splitlines()[-1].removeprefix("sbpair.pair.ground.extras.ExtraMissingError: ")
    what, _, install = line.partition(", which is not installed: ")
    assert what == said
    assert re.fullmatch(rf"pip install (-e )?'.*\[{extra}\]'", install)


@pytest.mark.spec("X-28")
@pytest.mark.parametrize(
    ("origin", "line"),
    [
        (None, "pip install 'sbpair[cli,audit]'"),
        ('{"url": "file:///home/a%20b/sbpair", "dir_info": {}}', "pip install '/home/a b/sbpair[cli,audit]'"),
        (
            '{"url": "file:///home/me/sbpair", "dir_info": {"editable": true}}',
            "pip install -e '/home/me/sbpair[cli,audit]'",
        ),
        (
            '{"url": "file:///tmp/sbpair-0.1.0-py3-none-any.whl", "archive_info": {}}',
            "pip install '/tmp/sbpair-0.1.0-py3-none-any.whl[cli,audit]'",
        ),
        (
            '{"url": "https://forge.example/sbpair.git", "vcs_info": {"vcs": "git", "commit_id": "f00"}}',
            "pip install 'sbpair[cli,audit] @ git+https://forge.example/sbpair.git@f00'",
        ),
    ],
)
def test_an_extra_is_installed_from_the_source_of_this_installation(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, origin: str | None, line: str
) -> None:
    made = tmp_path / "sbpair-0.1.0.dist-info"
    made.mkdir()
    (made / "METADATA").write_text("Metadata-Version: 2.4\nName: sbpair\nVersion: 0.1.0\n")
    if origin is not None:
        (made / "direct_url.json").write_text(origin)
    monkeypatch.syspath_prepend(tmp_path)

    assert install_line("cli", "audit") == line


@pytest.mark.spec("X-28")
def test_an_uninstalled_source_tree_is_installed_by_name(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(sys, "path", [])

    assert install_line("cli") == "pip install 'sbpair[cli]'"


def test_every_extra_is_known_by_its_packages() -> None:
    project = tomllib.loads((ROOT / "pyproject.toml").read_text("utf-8"))["project"]
    beside = {"test", "connect", "jdk"}

    assert set(PACKAGES) == project["optional-dependencies"].keys() - beside
    assert len(project["dependencies"]) == 4


def test_the_version_names_the_installed_extras() -> None:
    shown = subprocess.run(
        [sys.executable, "-m", "sbpair", "--version"], capture_output=True, text=True, check=True
    )

    assert shown.stderr == f"extras: {', '.join(installed_extras())}\n"
    assert {"cli", "broker", "observe"} <= set(installed_extras())
