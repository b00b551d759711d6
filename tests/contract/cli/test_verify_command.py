"""`sbpair verify` as a user starts it."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from sbpair.broker import Broker
from tests.pair.cli.conftest import Run


def _flags(broker: Broker) -> tuple[tuple[str, ...], dict[str, str]]:
    keys = {
        "SBPAIR_PRIMARY": broker.namespace("contoso").connection_string,
        "SBPAIR_SECONDARY": broker.namespace("contoso-dr").connection_string,
    }
    return ("verify", "--ca-file", str(broker.ca_file)), keys


@pytest.mark.spec("K-1", "K-5")
def test_a_run_announces_entities_and_cost_and_writes_reports_without_names(
    broker: Broker, sbpair: Run, tmp_path: Path
) -> None:
    flags, keys = _flags(broker)
    page, result = tmp_path / "page.html", tmp_path / "result.json"
    arguments = ("--only", "sending", "--yes", "--out", str(page), "--json", str(result))
    done = sbpair(*flags, *arguments, **keys)

    assert done.returncode == 0, done.stdout + done.stderr
    assert "deletes at the end" in done.stdout
    assert "operations" in done.stdout
    assert done.stdout.splitlines()[-1] == "of 7 entries 7 hold"
    told = json.loads(result.read_text("utf-8"))
    assert {each["verdict"] for each in told["findings"]} == {"holds"}
    for text in (page.read_text("utf-8"), result.read_text("utf-8")):
        for key in keys.values():
            assert key.split("SharedAccessKey=")[1].split(";")[0] not in text
        assert str(broker.namespace("contoso").port) not in text
    assert broker.namespace("contoso").queue_names() == ["orders"]


@pytest.mark.spec("K-1")
def test_verify_creates_nothing_without_consent(broker: Broker, sbpair: Run) -> None:
    flags, keys = _flags(broker)
    done = sbpair(*flags, "--only", "sending-1", **keys)

    assert done.returncode == 130
    assert broker.namespace("contoso").operations.sends == 0


@pytest.mark.spec("K-1")
def test_clean_deletes_only_entities_with_the_prefix(broker: Broker, sbpair: Run) -> None:
    flags, keys = _flags(broker)
    broker.namespace("contoso").create_queue("sbpair-verify-0badcafe-locks-1-q")
    broker.namespace("contoso-dr").create_topic("sbpair-verify-0badcafe-pings-4-t")
    broker.namespace("contoso").create_queue("not-sbpair-verify-1")
    done = sbpair(*flags, "--clean", "--yes", **keys)

    assert done.returncode == 0, done.stderr
    assert broker.namespace("contoso").queue_names() == ["not-sbpair-verify-1", "orders"]
    assert broker.namespace("contoso-dr").topic_names() == []


@pytest.mark.spec("K-5")
def test_a_difference_is_reported_with_its_consequences_and_exit_code_1(broker: Broker, sbpair: Run) -> None:
    from sbpair.broker import RejectWith

    flags, keys = _flags(broker)
    rejects = RejectWith("com.microsoft:server-busy", "busy")
    with broker.namespace("contoso").fault(None, rejects, operation="send"):
        done = sbpair(*flags, "--only", "sending-1", "--yes", **keys)

    assert done.returncode == 1, done.stdout + done.stderr
    assert "DIFFERS  sending-1" in done.stdout
    assert "breaks: G-1, P-2" in done.stdout


@pytest.mark.slow
@pytest.mark.spec("K-1", "K-5")
def test_a_key_without_manage_uses_a_named_queue_and_leaves_it_empty(broker: Broker, sbpair: Run) -> None:
    flags, keys = _flags(broker)
    contoso = broker.namespace("contoso")
    keys["SBPAIR_PRIMARY"] = contoso.add_policy("worker", ("Send", "Listen"))
    done = sbpair(*flags, "--only", "sending", "--queue", "orders", "--yes", **keys)

    assert done.returncode == 0, done.stdout + done.stderr
    assert "the key lacks Manage" not in done.stdout.split("operations")[0]
    assert contoso.message_ids("orders") == []


@pytest.mark.spec("K-5")
def test_an_unreachable_namespace_exits_with_5(sbpair: Run) -> None:
    from tests.pair.cli.conftest import connection_string

    done = sbpair("verify", "--yes", SBPAIR_PRIMARY=connection_string(), SBPAIR_SECONDARY=connection_string())

    assert done.returncode == 5
    assert len(done.stderr.splitlines()) == 1


@pytest.mark.spec("K-6")
def test_a_run_is_recorded_and_an_unwritable_file_is_reported_before_it(
    broker: Broker, sbpair: Run, tmp_path: Path
) -> None:
    flags, keys = _flags(broker)
    file = tmp_path / "run.jsonl"
    done = sbpair(*flags, "--only", "sending-1", "--yes", "--record", str(file), **keys)
    refused = sbpair(*flags, "--only", "sending-1", "--yes", "--record", str(tmp_path / "no" / "run"), **keys)

    head, line = (json.loads(each) for each in file.read_text("utf-8").splitlines())
    assert done.returncode == 0, done.stderr
    assert (head["format"], line["entry"], line["verdict"]) == (2, "sending-1", "holds")
    assert line["frames"]
    assert refused.returncode == 3
    assert "cannot be written" in refused.stderr
