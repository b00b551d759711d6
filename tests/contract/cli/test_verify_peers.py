"""`sbpair verify` against peers that are no Service Bus, are down, or are slow: a sentence, never a traceback."""

from __future__ import annotations

import json
import os
import signal
from collections.abc import Callable
from pathlib import Path

import pytest

from sbpair.broker import Broker
from sbpair.contract.book import entries
from sbpair.testing import ChaosProxy
from tests.contract import peers
from tests.pair.cli.conftest import Run, Running, connection_string


def _findings(result: Path) -> dict[str, tuple[str, str]]:
    told = json.loads(result.read_text("utf-8"))
    return {each["id"]: (each["verdict"], each["seen"]) for each in told["findings"]}


@pytest.mark.spec("K-1")
@pytest.mark.parametrize(
    "wrong",
    [
        pytest.param(name, marks=pytest.mark.slow) if name == "it never answers" else name
        for name in peers.WRONG
    ],
)
def test_an_unreachable_secondary_is_reported_and_the_primary_is_checked(
    broker: Broker, sbpair: Run, tmp_path: Path, wrong: str
) -> None:
    result = tmp_path / "result.json"
    with peers.listening(peers.WRONG[wrong]) as port:
        done = sbpair(
            "verify", "--yes", "--only", "sending", "--within", "20", "--json", str(result),
            "--ca-file", str(broker.ca_file),
            SBPAIR_PRIMARY=broker.namespace("contoso").connection_string,
            SBPAIR_SECONDARY=peers.connection_string(port),
        )  # fmt: skip

    found = _findings(result)
    verdict, seen = found.pop("sending-3")
    assert done.returncode == 5, done.stdout + done.stderr
    assert (verdict, seen.startswith("the secondary cannot be reached: ")) == ("unknown", True)
    assert str(port) not in seen
    assert {verdict for verdict, _ in found.values()} == {"holds"}
    assert broker.namespace("contoso").queue_names() == ["orders"]


@pytest.mark.slow
@pytest.mark.spec("K-1", "K-5")
def test_a_plain_amqp_broker_gets_a_sentence_for_each_entry(sbpair: Run, tmp_path: Path) -> None:
    result = tmp_path / "result.json"
    with peers.listening(peers.takes_everything) as port:
        text = peers.connection_string(port)
        done = sbpair(
            "verify", "--yes", "--queue", "orders", "--within", "4", "--json", str(result),
            SBPAIR_PRIMARY=text, SBPAIR_SECONDARY=text,
        )  # fmt: skip

    found = _findings(result)
    assert done.returncode == 1, done.stdout + done.stderr
    assert set(found) == {each.id for each in entries()}
    assert {verdict for verdict, _ in found.values()} == {"unknown", "differs"}
    assert "no answer within 4 s" in found["sending-1"][1]


@pytest.mark.slow
@pytest.mark.spec("K-1")
def test_a_run_ends_at_its_time_limit_and_leaves_no_entity(
    broker: Broker, sbpair: Run, tmp_path: Path
) -> None:
    result = tmp_path / "result.json"
    contoso = broker.namespace("contoso")
    with ChaosProxy("localhost", contoso.port) as proxy:
        proxy.on("attach", direction="out", address="sbpair-verify-*", action="hold", nth=None)
        done = sbpair(
            "verify", "--yes", "--only", "settling", "--within", "5", "--json", str(result),
            "--ca-file", str(broker.ca_file),
            SBPAIR_PRIMARY=proxy.connection_string(contoso.connection_string),
            SBPAIR_SECONDARY=broker.namespace("contoso-dr").connection_string,
        )  # fmt: skip

    assert done.returncode == 5, done.stdout + done.stderr
    assert "ends after 5 s in any case" in done.stdout
    assert set(_findings(result).values()) == {("unknown", "the 5 s of the run were over")}
    assert contoso.queue_names() == ["orders"]


@pytest.mark.spec("K-1")
def test_entities_left_over_are_deleted_on_the_side_that_answers(broker: Broker, sbpair: Run) -> None:
    contoso = broker.namespace("contoso")
    contoso.create_queue("sbpair-verify-0badcafe-locks-1-q")
    done = sbpair(
        "verify", "--clean", "--yes", "--ca-file", str(broker.ca_file),
        SBPAIR_PRIMARY=contoso.connection_string, SBPAIR_SECONDARY=connection_string(),
    )  # fmt: skip

    assert done.returncode == 5
    assert "the secondary cannot be asked" in done.stderr
    assert contoso.queue_names() == ["orders"]


@pytest.mark.spec("K-1")
@pytest.mark.skipif(os.name == "nt", reason="Windows ends a process without telling it")
@pytest.mark.parametrize("name", ["SIGINT", "SIGTERM", "SIGHUP"])
def test_a_signal_deletes_the_created_entities_and_reports_the_interruption(
    broker: Broker, start: Callable[..., Running], name: str
) -> None:
    contoso = broker.namespace("contoso")
    with ChaosProxy("localhost", contoso.port) as proxy:
        attach = proxy.on("attach", direction="out", address="sbpair-verify-*", action="drop", nth=None)
        running = start(
            "verify", "--yes", "--only", "settling", "--ca-file", str(broker.ca_file),
            SBPAIR_PRIMARY=proxy.connection_string(contoso.connection_string),
            SBPAIR_SECONDARY=broker.namespace("contoso-dr").connection_string,
        )  # fmt: skip
        assert attach.wait(60)
        made = contoso.queue_names()
        code, errors = running.stop(getattr(signal, name))

    assert len(made) > 1
    assert code == 130, errors
    assert "stopped; what it created is deleted" in errors
    assert "Traceback" not in errors
    assert contoso.queue_names() == ["orders"]
