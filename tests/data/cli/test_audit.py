"""`sbpair audit` from the command line."""

from __future__ import annotations

import asyncio
import json
import subprocess
import sys
import time
from pathlib import Path

import pytest
from click.testing import CliRunner, Result

from sbpair.broker import Broker
from sbpair.pair.cli.errors import ExitCode
from sbpair.pair.cli.group import cli
from sbpair.pair.ground.extras import install_line
from tests.data.audit.story import NOON, Story
from tests.pair.syphon.pair import parked, put


def audited(journals: Path, out: Path, *options: str) -> Result:
    return CliRunner().invoke(cli, ["audit", "--journal", str(journals), "--out", str(out), *options])


def told(directory: Path) -> Story:
    """Write the journals of a sender and a killed syphon."""
    story = Story(directory)
    syphon = story.syphon()
    story.sender().parked("m")
    story.end(but=(syphon.journal,))
    return story


def test_unproven_messages_are_printed_with_the_reason(tmp_path: Path) -> None:
    told(tmp_path / "journals")
    result = audited(tmp_path / "journals", tmp_path / "out")

    assert "1  unproven" in result.stdout
    assert "it was parked, but was it forwarded? a journal is incomplete (syphon " in result.stdout
    assert f"report: {tmp_path}/out/report.html" in result.stdout


@pytest.mark.spec("O-7")
def test_a_session_out_of_order_is_printed_with_its_messages(tmp_path: Path) -> None:
    story = Story(tmp_path / "journals")
    story.sender().parked("1", "2", session="s")
    story.receiver().received("2", "1", numbers=(1, 2), session="s")
    story.end()
    result = audited(tmp_path / "journals", tmp_path / "out")

    assert "2 messages: lost 0, waiting 0, 1 ordered sessions out of order" in result.stdout
    assert "1 sessions: 1 out of order" in result.stdout
    assert "out of order: orders, session s: 2 arrived before 1" in result.stdout


def test_the_summary_is_one_line_of_json(tmp_path: Path) -> None:
    told(tmp_path / "journals")
    result = audited(tmp_path / "journals", tmp_path / "out", "--json")

    assert json.loads(result.stdout)["verdicts"]["unproven"] == 1


@pytest.mark.spec("R-79")
def test_a_directory_that_is_no_earlier_audit_is_not_replaced(tmp_path: Path) -> None:
    told(tmp_path / "journals")
    out = tmp_path / "out"
    audited(tmp_path / "journals", out)
    audited(tmp_path / "journals", out)  # an earlier audit is replaced
    (out / "thesis.txt").write_text("years of work")

    result = audited(tmp_path / "journals", out)

    assert f"{out} holds 'thesis.txt', which is not of an earlier audit" in str(result.exception)
    assert (out / "report.html").exists()


def test_an_audit_needs_neither_spark_nor_java(tmp_path: Path) -> None:
    told(tmp_path / "journals")
    program = (
        "import sys; sys.modules['pyspark'] = None\n"
        "from sbpair.pair.cli import main\n"
        f"main(['audit', '--journal', {str(tmp_path / 'journals')!r}, '--out', {str(tmp_path / 'out')!r}])\n"
    )
    done = subprocess.run(
        [sys.executable, "-c", program], capture_output=True, text=True, timeout=60, check=False
    )

    assert done.returncode == ExitCode.FAILED, done.stderr
    assert "1 messages: lost 0, waiting 0, unproven 1" in done.stdout


def test_without_pyarrow_the_installing_command_is_shown(tmp_path: Path) -> None:
    told(tmp_path / "journals")
    program = (
        "import sys; sys.modules['pyarrow'] = None\n"
        "from sbpair.pair.cli import main\n"
        f"main(['audit', '--journal', {str(tmp_path / 'journals')!r}, '--out', {str(tmp_path / 'out')!r}])\n"
    )
    done = subprocess.run(
        [sys.executable, "-c", program], capture_output=True, text=True, timeout=60, check=False
    )

    assert done.returncode == ExitCode.CONFIGURATION
    assert done.stderr.strip() == f"sbpair: pyarrow is not installed; {install_line('audit')}"


def test_a_directory_without_journals_is_an_error_that_names_it(tmp_path: Path) -> None:
    result = CliRunner().invoke(cli, ["audit", "--journal", str(tmp_path), "--out", str(tmp_path) + "-o"])

    assert f"{tmp_path} contains no journals" in str(result.exception)
    (tmp_path / "sender-a-000001.jsonl.zst").write_bytes(b"packed")
    result = CliRunner().invoke(cli, ["audit", "--journal", str(tmp_path), "--out", str(tmp_path) + "-o"])
    assert "there is sender-a-000001.jsonl.zst" in str(result.exception)


@pytest.mark.parametrize("place", ["../{name}", "out"])
def test_a_report_among_the_journals_is_refused(tmp_path: Path, place: str) -> None:
    (tmp_path / "sender-a-000001.jsonl").write_text("")
    out = f"{tmp_path}/{place.format(name=tmp_path.name)}"
    result = CliRunner().invoke(cli, ["audit", "--journal", str(tmp_path), "--out", out])

    assert f"--out {out} is in the directory of the journals, {tmp_path}: choose one" in str(result.exception)


def test_an_unreadable_journal_is_named(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    file = tmp_path / "sender-a-000001.jsonl"
    file.write_text("")
    monkeypatch.setattr("os.access", lambda path, mode: path != file)  # root may read everything
    result = CliRunner().invoke(cli, ["audit", "--journal", str(tmp_path), "--out", str(tmp_path) + "-o"])

    assert f"{file} cannot be read" in str(result.exception)


def test_journals_and_results_may_be_uris(tmp_path: Path) -> None:
    told(tmp_path / "journals")
    uris = (tmp_path / "journals").as_uri(), (tmp_path / "out").as_uri()
    result = CliRunner().invoke(cli, ["audit", "--journal", uris[0], "--out", uris[1]])

    assert "1  unproven" in result.stdout
    assert (tmp_path / "out" / "report.html").exists()
    wrong = CliRunner().invoke(cli, ["audit", "--journal", "ftp://nowhere/journals", "--out", uris[1]])
    assert "ftp://nowhere/journals cannot be listed" in str(wrong.exception)


@pytest.mark.spec("R-141")
def test_a_manifest_written_by_the_command_is_accepted_by_an_audit(tmp_path: Path) -> None:
    told(tmp_path / "journals")
    made = CliRunner().invoke(cli, ["journal", "manifest", str(tmp_path / "journals")])
    (tmp_path / "host.manifest").write_text(made.stdout, "utf-8")
    story = Story(tmp_path / "elsewhere")
    story.sender().sent("m")
    story.end()
    result = audited(tmp_path / "elsewhere", tmp_path / "out", "--expect", str(tmp_path / "host.manifest"))

    assert (
        result.stdout.count("not as expected: the journal of the") == 3
    )  # two are missing, one is a stranger


@pytest.mark.parametrize(
    ("given", "said"),
    [
        ("sender=many", "'many' is no number of journals"),
        ("writer=3", "roles are sender, syphon, receiver, broker"),
        ("nowhere.manifest", "it does not exist"),
    ],
)
def test_an_invalid_expectation_is_named(tmp_path: Path, given: str, said: str) -> None:
    told(tmp_path / "journals")
    result = audited(tmp_path / "journals", tmp_path / "out", "--expect", given)

    assert f"--expect {given}: {said}" in str(result.exception)


def test_a_directory_without_journals_has_no_manifest(tmp_path: Path) -> None:
    result = CliRunner().invoke(cli, ["journal", "manifest", str(tmp_path)])

    assert "contains no journals" in str(result.exception)


@pytest.mark.spec("R-132")
@pytest.mark.parametrize("directory", ["nowhere", "nowhere/"])
def test_missing_journals_are_named(sbpair, tmp_path, directory):
    done = sbpair("audit", "--journal", f"{tmp_path}/{directory}", "--out", str(tmp_path / "out"), "--json")

    assert (done.returncode, done.stdout) == (3, "")
    assert done.stderr == f"sbpair: {tmp_path}/{directory} cannot be listed: No such file or directory\n"


def test_missing_journals_are_a_configuration_error_with_spark(tmp_path: Path) -> None:
    command = [sys.executable, "-m", "sbpair", "spark", "audit", "--journal", "missing", "--out", "out"]
    done = subprocess.run(command, cwd=tmp_path, capture_output=True, text=True, timeout=60, check=False)

    assert (done.returncode, "missing" in done.stderr) == (3, True), done.stderr


@pytest.mark.slow
@pytest.mark.spec("G-2", "P-42")
def test_a_real_drill_leaves_the_audit_green(sbpair, tmp_path: Path) -> None:
    names = {"contoso": 0, "contoso-dr": 0}
    with Broker(names, journal=tmp_path / "journals") as broker:
        primary, secondary = map(broker.namespace, names)
        primary.create_queue("orders")
        for index in range(2):
            secondary.create_queue(f"contoso/x-servicebus-transfer/{index}")
        story = Story(tmp_path / "journals", now=time.time() - NOON)
        asyncio.run(put(primary, "orders", [parked(0)]))
        story.sender().sent("m0")
        keys = {"SBPAIR_PRIMARY": primary.connection_string, "SBPAIR_SECONDARY": secondary.connection_string}
        flags = ("--backlogs", "2", "--primary-namespace-name", "contoso", "--ca-file", str(broker.ca_file))
        done = sbpair("drill", *flags, "--entity", "orders", "--with-syphon", "--canaries", "3", **keys)
        assert done.returncode == 0, done.stderr
        story.end()

    result = sbpair("audit", "--journal", str(tmp_path / "journals"), "--out", str(tmp_path / "out"))

    assert result.returncode == 0, result.stdout
    assert "lost 0, waiting 1" in result.stdout
    assert "canaries: 4 of the drill " in result.stdout
