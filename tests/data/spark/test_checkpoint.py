"""Reading committed offsets from a checkpoint, and the command that settles from it, without a JVM."""

from __future__ import annotations

import json
from pathlib import Path

import pytest
from click.testing import CliRunner

from sbpair.broker import Broker
from sbpair.data.spark.checkpoint import CheckpointError, Offset, committed_offset, with_origin
from sbpair.data.spark.entities import Entities
from sbpair.data.spark.ranges import Mark
from sbpair.data.spark.source_errors import SourceError
from sbpair.data.spark.source_options import SourceOptions
from sbpair.pair.cli.errors import ExitCode
from sbpair.pair.cli.group import cli
from tests.data.spark.ledger import ids_in, send, string

FAR = 2**50  # ms


def checkpoint(directory: Path, *offsets: object, done: int) -> Path:
    """Write a checkpoint like Spark's, with the batches up to ``done`` in the commit log."""
    for name in ("offsets", "commits"):
        (directory / name).mkdir()
    for batch, offset in enumerate(offsets):
        sources = offset if isinstance(offset, tuple) else (offset,)
        lines = ["v1", json.dumps({"batchTimestampMs": 1}), *map(json.dumps, sources)]
        (directory / "offsets" / str(batch)).write_text("\n".join(lines))
        (directory / "offsets" / f".{batch}.crc").write_text("crc")
        if batch <= done:
            (directory / "commits" / str(batch)).write_text('v1\n{"nextBatchWatermarkMs":0}')
    return directory


def of(broker: Broker, read: dict[str, int], namespace: str = "contoso") -> Offset:
    return with_origin(read, SourceOptions.of(given(broker, namespace)).namespace.origin)


def given(broker: Broker, namespace: str = "contoso") -> dict[str, str]:
    return {"connectionString": string(broker, namespace), "queueName": "orders", "settlement": "complete"}


def test_a_planned_but_uncommitted_batch_does_not_count(tmp_path: Path) -> None:
    offsets = [{"orders": each, "orders@until": FAR} for each in (5, 9, 12)]
    assert committed_offset(checkpoint(tmp_path, *offsets, done=1)) == offsets[1]


@pytest.mark.parametrize(
    ("offset", "told"),
    [
        (({"orders": 5}, {"orders": 5}), "with 2 sources"),
        ({"file": {"at": 1}}, 'does not belong to a query that reads format("sbpair")'),
        ([1], 'does not belong to a query that reads format("sbpair")'),
    ],
    ids=["two sources", "another source", "no offset"],
)
def test_an_unusable_checkpoint_is_reported_in_one_line(tmp_path: Path, offset: object, told: str) -> None:
    with pytest.raises(CheckpointError) as raised:
        committed_offset(checkpoint(tmp_path, offset, done=0))
    assert told in str(raised.value)
    assert str(tmp_path) in str(raised.value)
    assert "\n" not in str(raised.value)


def test_a_directory_that_is_no_checkpoint_is_named(tmp_path: Path) -> None:
    with pytest.raises(CheckpointError, match="not the checkpoint of a query that has committed a batch"):
        committed_offset(tmp_path)


@pytest.mark.spec("G-1")
def test_only_read_messages_are_completed(tmp_path: Path) -> None:
    with Broker({"contoso": 0}) as broker:
        broker.namespace("contoso").create_queue("orders")
        send(broker, "orders", [f"m{number}" for number in range(10)])
        there = checkpoint(tmp_path, of(broker, {"orders": 7, "orders@until": FAR}), done=0)
        command = ["spark", "settle", "--checkpoint", str(there), "--json"]
        environment = {"SBPAIR_NAMESPACE": string(broker, "contoso")}
        results = [CliRunner().invoke(cli, command, env=environment) for _ in range(2)]

        assert [json.loads(each.stdout)["completed"] for each in results] == [7, 0]
        assert {each.exit_code for each in results} == {ExitCode.OK}
        assert ids_in(broker, "orders") == ["m7", "m8", "m9"]
        assert "SharedAccessKey" not in results[0].output


def test_a_deleted_queue_is_named_with_the_next_step(tmp_path: Path) -> None:
    with Broker({"contoso": 0}) as broker:
        there = checkpoint(tmp_path, of(broker, {"orders": 7, "orders@until": FAR}), done=0)
        result = CliRunner().invoke(
            cli,
            ["spark", "settle", "--checkpoint", str(there)],
            env={"SBPAIR_NAMESPACE": string(broker, "contoso")},
        )
    assert "sbpair: orders:" in str(result.exception)
    assert "check its name" in str(result.exception)


def test_a_silent_namespace_is_no_success(tmp_path: Path) -> None:
    with Broker({"contoso": 0}) as broker:
        broker.namespace("contoso").create_queue("orders")
        there = checkpoint(tmp_path, of(broker, {"orders": 7, "orders@until": FAR}), done=0)
        broker.namespace("contoso").take_down()
        result = CliRunner().invoke(
            cli,
            ["spark", "settle", "--checkpoint", str(there)],
            env={"SBPAIR_NAMESPACE": string(broker, "contoso")},
        )
    assert result.exit_code != ExitCode.OK
    assert "check the address and the network" in str(result.exception)


def test_settling_once_reports_a_silent_namespace() -> None:
    with Broker({"contoso": 0}) as broker:
        options = {
            "connectionString": string(broker, "contoso"),
            "queueName": "orders",
            "settlement": "complete",
            "operationTimeoutSeconds": "1",
            "settleTimeoutSeconds": "1",
        }
        entities = Entities(SourceOptions.of(options))
        broker.namespace("contoso").take_down("silent")
        with pytest.raises(SourceError, match="orders"):
            entities.settle_now("orders", (Mark("orders", 7),))
        assert entities.settle("orders", (Mark("orders", 7),)).remain, "the next batch does it"


@pytest.mark.spec("R-71")
@pytest.mark.parametrize(
    ("offset", "told"),
    [
        (
            {"@namespace": "elsewhere.example", "orders": 5, "orders@until": FAR},
            "belongs to the namespace elsewhere",
        ),
        ({"orders": 5, "orders@until": FAR}, "does not record its namespace"),
        ({"orders": 5}, "does not record its namespace"),
        (None, "settlement=none and completed nothing"),
    ],
    ids=["another namespace", "without one", "without one and browsed", "browsed"],
)
def test_a_checkpoint_of_another_namespace_completes_nothing(
    tmp_path: Path, offset: Offset | None, told: str
) -> None:
    with Broker({"contoso": 0}) as broker:
        broker.namespace("contoso").create_queue("orders")
        send(broker, "orders", [f"m{number}" for number in range(5)])
        kept = of(broker, {"orders": 5}) if offset is None else offset
        there = checkpoint(tmp_path, kept, done=0)
        command = ["spark", "settle", "--checkpoint", str(there)]
        result = CliRunner().invoke(cli, command, env={"SBPAIR_NAMESPACE": string(broker, "contoso")})

        assert result.exit_code != ExitCode.OK
        assert told in str(result.exception)
        assert "\n" not in str(result.exception)
        assert len(ids_in(broker, "orders")) == 5
