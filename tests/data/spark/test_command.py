"""From an outage to its audit with two commands."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from pathlib import Path

import pytest
from click.testing import CliRunner

from sbpair.broker import Broker
from sbpair.pair.cli.errors import ExitCode
from sbpair.pair.cli.group import cli
from sbpair.pair.ground.extras import install_line
from tests.data.spark.ledger import BACKLOGS, backlogs, ids_in, park, string


def sbpair(*arguments: str) -> subprocess.CompletedProcess[str]:
    command = [sys.executable, "-m", "sbpair", *arguments]
    return subprocess.run(command, capture_output=True, text=True, timeout=240, check=False)


@pytest.mark.long
@pytest.mark.trial  # a Spark of its own
@pytest.mark.spec("G-1", "G-2", "G-4")
def test_the_audit_of_a_demo_agrees_with_its_ledger(tmp_path: Path) -> None:
    journals, out = str(tmp_path / "journals"), tmp_path / "audit"
    demo = sbpair("demo", "--messages", "300", "--outage", "1", "--journal", journals, "--json")
    ledger = json.loads(demo.stdout.splitlines()[-1])

    done = sbpair("spark", "audit", "--journal", journals, "--out", str(out), "--json")

    assert done.returncode == ExitCode.OK, done.stderr
    said = json.loads(done.stdout)
    verdicts = said["verdicts"]
    assert verdicts["delivered"] == ledger["delivered"] == 300
    assert {writer["role"] for writer in said["writers"]} == {"broker", "receiver", "sender", "syphon"}
    assert verdicts["lost"] == ledger["lost"]
    assert verdicts["unexpected"] == ledger["unexpected"]
    assert said["duplicated"] == ledger["duplicated"]
    assert (
        len([each for each in said["timeline"] if each["failed_over_at"]]) == 1
    )  # suspicions may precede it
    billed = {
        charge["kind"]: charge["operations"] for charge in said["bill"] if charge["meter"] == "operations"
    }
    assert billed["sends to a backlog"] == ledger["billed_operations"]["send_to_backlog"]
    assert billed["pings"] == ledger["billed_operations"]["pings"]
    assert (out / "report.html").stat().st_size > 10_000


def test_without_java_the_installing_command_is_shown(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (tmp_path / "sender-a-000001.jsonl").write_text("")
    monkeypatch.setattr("sbpair.data.spark.requirements._homes", lambda: iter(()))
    monkeypatch.setattr("sbpair.data.spark.requirements._wheel_home", lambda: None)
    result = CliRunner().invoke(
        cli, ["spark", "audit", "--journal", str(tmp_path), "--out", str(tmp_path) + "-o"]
    )

    assert "Spark needs Java 17 or later" in str(result.exception)
    assert "\n" not in str(result.exception)


def test_without_pyspark_the_installing_command_is_shown(tmp_path: Path) -> None:
    (tmp_path / "sender-a-000001.jsonl").write_text("")
    program = (
        "import sys; sys.modules['pyspark'] = None\n"
        "from sbpair.pair.cli import main\n"
        f"main(['spark', 'audit', '--journal', {str(tmp_path)!r}, '--out', {str(tmp_path) + '-o'!r}])\n"
    )
    done = subprocess.run(
        [sys.executable, "-c", program], capture_output=True, text=True, timeout=60, check=False
    )

    assert done.returncode == ExitCode.CONFIGURATION
    assert done.stderr.splitlines()[-1] == f"sbpair: pyspark is not installed; {install_line('spark')}"


@pytest.mark.long
@pytest.mark.trial  # a Spark of its own
@pytest.mark.spec("P-40", "P-44")
def test_a_single_machine_syphon_job_drains_the_backlogs_and_reports_it(tmp_path: Path) -> None:
    sent = [f"m{number}" for number in range(30)]
    with Broker({"contoso": 0, "contoso-dr": 0}) as broker:
        broker.namespace("contoso").create_queue("orders")
        park(broker, "orders", sent)
        given = {
            "SBPAIR_PRIMARY": string(broker, "contoso"),
            "SBPAIR_SECONDARY": string(broker, "contoso-dr"),
        }
        command = [sys.executable, "-m", "sbpair", "spark", "syphon", "--backlogs", str(BACKLOGS)]
        command += ["--primary-namespace-name", "contoso", "--journal", str(tmp_path), "--json"]
        done = subprocess.run(
            command, capture_output=True, text=True, timeout=240, check=False, env=os.environ | given
        )

        assert done.returncode == ExitCode.OK, done.stderr
        rows = [json.loads(line) for line in done.stdout.splitlines()]
        assert [row["backlog"] for row in rows] == backlogs()
        assert sum(row["completed"] for row in rows) == 30
        assert sorted(ids_in(broker, "orders")) == sorted(sent)
        assert len([*tmp_path.glob("syphon-*.jsonl")]) == BACKLOGS
        key = given["SBPAIR_PRIMARY"].split("SharedAccessKey=")[1].split(";")[0]
        assert key not in done.stdout + done.stderr


@pytest.mark.spec("R-229")
def test_only_a_dry_run_of_a_replay_works_without_a_connection(tmp_path: Path) -> None:
    (tmp_path / "missing").mkdir()
    place = ["--audit", str(tmp_path), "--archive", str(tmp_path)]
    result = CliRunner().invoke(cli, ["spark", "replay", *place], standalone_mode=False)

    assert "give --primary and --secondary" in str(result.exception)
