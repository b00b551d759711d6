"""Commands on a terminal: complete lines at 80 columns, signals, exit codes and addresses."""

from __future__ import annotations

import json
import os
import pty
import signal
import subprocess
import sys
from pathlib import Path

import pytest

from sbpair.broker import Broker
from sbpair.contract.cli.doctor.finding import Finding, Severity, alike
from tests.pair.cli.conftest import environment

pytestmark = pytest.mark.spec("R-63")


def on_a_terminal(*arguments: str, columns: int = 80, **env: str) -> str:
    """Run a command on a terminal of this width; return its output."""
    ours, theirs = pty.openpty()
    process = subprocess.Popen(
        [sys.executable, "-m", "sbpair", *arguments],
        stdin=subprocess.DEVNULL, stdout=theirs, stderr=subprocess.PIPE,
        env=environment(COLUMNS=str(columns), TERM="dumb", **env),
    )  # fmt: skip
    os.close(theirs)
    printed = b""
    try:
        while part := os.read(ours, 65_536):
            printed += part
    except OSError:  # Linux: the other end is closed
        pass
    finally:
        os.close(ours)
        process.communicate(timeout=60)
    return printed.decode()


@pytest.mark.slow
def test_the_list_of_backlogs_fits_80_columns(tmp_path: Path) -> None:
    with Broker({"contoso": 0, "contoso-dr": 0}) as broker:
        primary, secondary = (broker.namespace(name) for name in ("contoso", "contoso-dr"))
        for number in range(2):
            secondary.create_queue(f"contoso/x-servicebus-transfer/{number}")
        printed = on_a_terminal(
            "backlog", "list", "--backlogs", "3", "--primary-namespace-name", "contoso",
            SBPAIR_PRIMARY=primary.connection_string, SBPAIR_SECONDARY=secondary.connection_string,
            SBPAIR_CA_FILE=str(broker.ca_file),
        )  # fmt: skip
    assert "contoso/x-servicebus-transfer/NUMBER" in printed
    assert "missing" in printed
    assert "\N{HORIZONTAL ELLIPSIS}" not in printed
    assert max(map(len, printed.splitlines())) <= 80


def test_similar_findings_are_reported_once() -> None:
    same = [Finding(Severity.ERROR, f"queue/{n}", "it is gone", "why", "step") for n in range(10)]
    other = Finding(Severity.NOTE, "syphon", "unseen", "why", "step")
    assert alike([*same, other]) == [(same[0], [f"queue/{n}" for n in range(10)]), (other, ["syphon"])]


def test_a_command_to_copy_is_never_truncated(sbpair) -> None:
    with Broker({"contoso": 0, "contoso-dr": 0}) as broker:
        pair = {
            "SBPAIR_PRIMARY": broker.namespace("contoso").connection_string,
            "SBPAIR_SECONDARY": broker.namespace("contoso-dr").connection_string,
        }
        done = sbpair("doctor", **pair)
    assert "contoso" not in done.stderr
    assert "`sbpair backlog create`, or let senders with Manage create it\n" in done.stdout
    assert done.stdout.count("the backlog queue does not exist") == 1


def test_an_untrusted_certificate_is_not_reported_as_a_missing_right(sbpair) -> None:
    with Broker({"contoso": 0, "contoso-dr": 0}) as broker:
        pair = {
            "SBPAIR_PRIMARY": broker.namespace("contoso").connection_string,
            "SBPAIR_SECONDARY": broker.namespace("contoso-dr").connection_string,
        }
        done = sbpair("doctor", "--json", **pair)
    found = [each for each in json.loads(done.stdout)["findings"] if "certificate" in each["what"]]
    assert {each["about"] for each in found} == {"secondary"}
    assert all("--ca-file" in each["next_step"] for each in found)
    assert "a key that has Manage" not in done.stdout


@pytest.mark.skipif(not hasattr(signal, "SIGHUP"), reason="there is no such signal here")
def test_a_broker_whose_terminal_closes_exits_cleanly(start) -> None:
    running = start("broker", "--namespace", "contoso:0", "--json")
    running.line()
    assert running.stop(signal.SIGHUP) == (0, "")


@pytest.mark.parametrize("listening", ["0.0.0.0", "127.0.0.1", "::1"])
def test_a_connection_string_names_a_connectable_address(listening: str) -> None:
    with Broker({"contoso": 0}, host=listening) as broker:
        assert broker.namespace("contoso").connection_string.startswith("Endpoint=sb://localhost:")


@pytest.mark.parametrize(
    "arguments",
    [
        ("broker", "--faults", "missing.toml"),
        ("broker", "--config", "missing.toml"),
        ("spool", "list", "missing"),
    ],
    ids=" ".join,
)
def test_a_missing_file_is_a_configuration_error(sbpair, arguments) -> None:
    done = sbpair(*arguments)
    assert done.returncode == 3, done.stderr
    assert "missing" in done.stderr


def test_ctrl_c_during_loading_prints_one_line(tmp_path: Path) -> None:
    (tmp_path / "click.py").write_text("raise KeyboardInterrupt")
    done = subprocess.run(
        [sys.executable, "-m", "sbpair", "--version"],
        capture_output=True, text=True, env=environment(PYTHONPATH=str(tmp_path)), timeout=60,
    )  # fmt: skip
    assert (done.returncode, done.stderr) == (130, "sbpair: interrupted\n")
