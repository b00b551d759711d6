"""The broker's journal has the fate of every message, and a truncated journal is recognised as such."""

from __future__ import annotations

import json
import signal
import subprocess
import sys
from collections import Counter
from pathlib import Path

import pytest
from azure.servicebus import ServiceBusClient, ServiceBusMessage

from sbpair.broker import Broker, BrokerError
from sbpair.observation import journal_files, read
from sbpair.pair.observation.record import Record
from tests.waiting import PATIENCE, wait_until


def records(directory: Path) -> list[Record]:
    return [record for file in journal_files(directory, with_open=True) for record in read(file)]


def ids(told: list[Record], event: str) -> Counter[str]:
    return Counter(key for each in told if each["event"] == event for key in each["message_ids"])


def wait_for(directory: Path, count: int) -> None:
    """Wait until the journal reports ``count`` messages as stored."""
    wait_until(lambda: len(ids(records(directory), "messages_stored")) >= count)


def send(connection_string: str, keys: list[str]) -> None:
    with (
        ServiceBusClient.from_connection_string(connection_string, retry_total=0) as client,
        client.get_queue_sender("orders") as sender,
    ):
        for key in keys:
            sender.send_messages(ServiceBusMessage("body", message_id=key))


def take(connection_string: str, most: int) -> None:
    with (
        ServiceBusClient.from_connection_string(connection_string) as client,
        client.get_queue_receiver("orders") as receiver,
    ):
        for message in receiver.receive_messages(most, max_wait_time=PATIENCE):
            receiver.complete_message(message)


@pytest.mark.spec("G-2")
def test_each_namespace_writes_a_complete_journal(tmp_path: Path) -> None:
    with Broker({"contoso": 0, "contoso-dr": 0}, journal=tmp_path) as broker:
        broker.namespace("contoso").create_queue("orders")
        send(broker.namespace("contoso").connection_string, ["a", "b", "c"])
        take(broker.namespace("contoso").connection_string, 1)
    told = records(tmp_path)
    names = {record["pair"]["primary"] for record in told}
    assert names == {"contoso", "contoso-dr"}
    assert {record["role"] for record in told} == {"broker"}
    assert ids(told, "messages_stored") == Counter("abc")
    assert sum(ids(told, "messages_removed").values()) == 1
    for name in names:
        mine = [record for record in told if record["pair"]["primary"] == name]
        assert [record["ordinal"] for record in mine] == list(range(len(mine)))
        assert mine[-1]["event"] == "journal_closed"
        assert mine[-1]["is_last"]


def test_operator_deletions_are_recorded(tmp_path: Path) -> None:
    with Broker({"contoso": 0}, journal=tmp_path) as broker:
        contoso = broker.namespace("contoso")
        contoso.create_queue("orders")
        send(contoso.connection_string, ["a"])
        contoso.delete_queue("orders")
    (removed,) = [record for record in records(tmp_path) if record["event"] == "messages_removed"]
    assert (removed["how"], removed["message_ids"]) == ("deleted", ["a"])


def test_a_restarted_broker_is_a_new_writer(tmp_path: Path) -> None:
    broker = Broker({"contoso": 0}, journal=tmp_path)
    for _ in range(2):
        broker.start()
        broker.stop()
    assert len(journal_files(tmp_path)) == 2


def test_an_unwritable_directory_prevents_the_start_of_the_broker(tmp_path: Path) -> None:
    (tmp_path / "file").write_text("")
    with pytest.raises(BrokerError, match="cannot write a journal to"):
        Broker({"contoso": 0}, journal=tmp_path / "file").start()


@pytest.mark.slow
@pytest.mark.spec("G-2")
def test_a_killed_broker_lacks_at_most_its_last_moment_and_its_closing_record(
    tmp_path: Path,
) -> None:
    command = [sys.executable, "-m", "sbpair", "broker", "--namespace", "contoso:0", "--json"]
    command += ["--queue", "contoso/orders", "--journal", str(tmp_path)]
    broker = subprocess.Popen(command, stdout=subprocess.PIPE, text=True)
    try:
        assert broker.stdout is not None
        told = json.loads(broker.stdout.readline())
        sent = [f"m{number}" for number in range(50)]
        send(told["namespaces"][0]["connection_string"], sent)
        wait_for(tmp_path, len(sent))
    finally:
        broker.send_signal(signal.SIGKILL)
        broker.wait(PATIENCE)
        broker.stdout.close()
    assert sorted(ids(records(tmp_path), "messages_stored")) == sorted(sent)
    assert not journal_files(tmp_path)  # no journal was closed
    assert not any(record["event"] == "journal_closed" for record in records(tmp_path))


@pytest.mark.spec("G-26")
def test_a_broker_with_a_store_records_only_synced_changes(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    from sbpair.broker.errors import StoreFailedError
    from sbpair.broker.store.sqlite import SqliteStore

    with Broker({"contoso": 0}, data=tmp_path / "data", journal=tmp_path / "journal") as broker:
        contoso = broker.namespace("contoso")
        contoso.create_queue("orders")
        send(contoso.connection_string, ["kept"])

        wait_for(tmp_path / "journal", 1)

        def fail(self: SqliteStore) -> None:
            raise StoreFailedError(tmp_path / "data", "it is full")

        monkeypatch.setattr(SqliteStore, "commit", fail)
        with pytest.raises(StoreFailedError):
            contoso.delete_queue("orders")
        monkeypatch.undo()
    told = records(tmp_path / "journal")
    assert ids(told, "messages_stored") == Counter(["kept"])
    assert not ids(told, "messages_removed")
    assert not any(record["event"] == "journal_closed" for record in told)
