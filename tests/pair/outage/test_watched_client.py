"""A client observed through its journal and status pages, with both clients."""

from __future__ import annotations

import asyncio
import json
import os
import urllib.error
import urllib.request
from collections.abc import Iterator
from pathlib import Path
from zlib import crc32

import pytest
from azure.servicebus import ServiceBusMessage
from azure.servicebus.exceptions import ServiceBusAuthenticationError, ServiceBusError

from sbpair import ObservationOptions, StoredIn
from sbpair.events import BacklogsCreated, EntityFailedOver, PairFaulted, SideFaulted
from sbpair.observation import Journal, JournalError, StatusError
from sbpair.pair.observation.journal_reading import journal_files, read
from sbpair.pair.observation.record import WriterRole
from sbpair.syphon import SyphonState
from tests.children import exit_code_of
from tests.pair.outage.conftest import AsyncPairing, Pairing, options_of
from tests.pair.outage.test_close_and_fault import soon, strings  # noqa: F401  (soon is a fixture)
from tests.pair.runtimes import runtime_of
from tests.waiting import wait_until

PAGES = ("127.0.0.1", 0)
CONNECTED = (SyphonState.RUNNING, SyphonState.NO_BACKLOGS)  # whether or not its queues are there yet


def records(directory: Path) -> list[dict]:
    return [record for file in journal_files(directory) for record in read(file)]


def page(client: object, name: str) -> tuple[int, str]:
    """Return the status code and the text of a page."""
    port = runtime_of(client)._observer.port
    try:
        with urllib.request.urlopen(f"http://127.0.0.1:{port}/{name}", timeout=60) as answer:
            return answer.status, answer.read().decode()
    except urllib.error.HTTPError as refused:
        with refused:
            return refused.code, refused.read().decode()


def test_the_journal_has_every_event_and_its_closing_record_and_no_healthy_send(
    pairing: Pairing, tmp_path: Path
) -> None:
    client = pairing.client(observation=ObservationOptions(journal=tmp_path), ping=60)
    assert not list(tmp_path.iterdir())  # it starts on first need
    with client, client.get_queue_sender("orders") as sender:
        sender.send_messages(ServiceBusMessage("healthy"))
        client.hold("orders")
        sender.send_messages(ServiceBusMessage("parked"))
    told = [record["event"] for record in records(tmp_path)]
    assert told[0] == "journal_opened"
    assert told[-1] == "journal_closed"
    assert told.count("entity_failed_over") == told.count("message_parked") == 1
    assert "send_accepted" not in told


def test_accepted_sends_are_logged_one_per_line_where_so_configured(pairing: Pairing, tmp_path: Path) -> None:
    watched = ObservationOptions(journal=tmp_path, journal_sends=True)
    with pairing.client(observation=watched) as client, client.get_queue_sender("orders") as sender:
        for name in ("m-1", "m-2", "m-3"):
            sender.send_messages(ServiceBusMessage("x", message_id=name))
    sent = [record for record in records(tmp_path) if record["event"] == "send_accepted"]
    assert [record["message_ids"] for record in sent] == [["m-1"], ["m-2"], ["m-3"]]
    assert {record["stored_in"] for record in sent} == {"primary"}


@pytest.mark.spec("R-226")
def test_the_journal_has_a_checksum_of_each_body_wherever_it_is_stored(
    pairing: Pairing, tmp_path: Path
) -> None:
    watched = ObservationOptions(journal=tmp_path, journal_sends=True)
    with pairing.client(observation=watched) as client, client.get_queue_sender("orders") as sender:
        sender.send_messages(ServiceBusMessage("a"))
        batch = sender.create_message_batch()
        batch.add_message(ServiceBusMessage("b"))
        sender.send_messages(batch)
        client.hold("orders")
        sender.send_messages([ServiceBusMessage(b"cc"), ServiceBusMessage(b"")])
    told = [(record["event"], record["checksums"]) for record in records(tmp_path) if "checksums" in record]
    parked = [crc32(b"cc"), crc32(b"")]
    assert told == [
        ("send_accepted", [crc32(b"a")]),
        ("send_accepted", [crc32(b"b")]),
        ("message_parked", parked),
        ("send_accepted", parked),
    ]


def test_the_pages_tell_how_the_client_is(pairing: Pairing) -> None:
    with (
        pairing.client(observation=ObservationOptions(status=PAGES), ping=60) as client,
        client.get_queue_sender("orders") as sender,
    ):
        sender.send_messages(ServiceBusMessage("x"))
        wait_until(lambda: page(client, "health")[0] == 200)  # the probe allows five seconds for a round trip
        assert page(client, "ready")[0] == 200
        client.hold("orders")
        assert 'sbpair_failovers_total{path="orders"} 1.0' in page(client, "metrics")[1]
        state = json.loads(page(client, "state")[1])
        assert state["entities"] == {"orders": "failed_over"}
        assert state["sides"]["secondary"]["state"] == "open"
        pairing.primary.take_down("refuse")
        wait_until(lambda: page(client, "health")[0] == 200)  # messages can still be stored
        pairing.secondary.take_down("refuse")
        code, said = page(client, "health")
        assert (code, json.loads(said)["status"]) == (503, "failing")


@pytest.mark.spec("P-50")
@pytest.mark.spec("R-61")
def test_a_client_refused_by_its_primary_is_not_ready_unless_sends_are_redirected(
    pairing: Pairing,
) -> None:
    watched = options_of(observation=ObservationOptions(status=PAGES))
    with (
        pairing.client_of(*strings(pairing, wrong="primary"), options=watched) as client,
        client.get_queue_sender("orders") as sender,
    ):
        with pytest.raises(ServiceBusAuthenticationError):
            sender.send_messages(ServiceBusMessage("refused"))
        assert pairing.wait_for(SideFaulted).side == "primary"
        wait_until(lambda: page(client, "ready")[0] == 503)
        client.fail_over("orders")
        wait_until(lambda: page(client, "ready")[0] == 200)
        assert sender.send_messages(ServiceBusMessage("parked")).stored_in is StoredIn.BACKLOG


def test_the_pages_tell_of_a_faulted_pair_until_the_client_is_closed(
    pairing: Pairing,
    soon: None,  # noqa: F811
) -> None:
    client = pairing.client(observation=ObservationOptions(status=PAGES))
    client.get_queue_sender("orders").send_messages(ServiceBusMessage("x"))
    client.primary.close()
    pairing.wait_for(PairFaulted)
    assert page(client, "ready")[0] == 503
    assert "the primary was closed" in json.loads(page(client, "state")[1])["fault"]


@pytest.mark.spec("R-1")
def test_the_pages_and_the_metrics_tell_of_a_side_that_refuses_its_key(pairing: Pairing) -> None:
    client = pairing.client_of(
        *strings(pairing, wrong="secondary"), options=options_of(observation=ObservationOptions(status=PAGES))
    )
    sender = client.get_queue_sender("orders")
    sender.send_messages(ServiceBusMessage("x"))
    client.hold("orders")
    with pytest.raises(ServiceBusError):
        sender.send_messages(ServiceBusMessage("y"))
    pairing.wait_for(SideFaulted)
    secondary = json.loads(page(client, "state")[1])["sides"]["secondary"]
    assert secondary["state"] == "refused"
    assert "401" in secondary["reason"]
    assert page(client, "ready")[0] == 200
    assert 'sbpair_side_state{side="secondary",state="refused"} 1.0' in page(client, "metrics")[1]


@pytest.mark.spec("F-19")
def test_a_forked_child_writes_its_own_journal_and_serves_its_own_pages(
    pairing: Pairing, tmp_path: Path
) -> None:
    client = pairing.client(observation=ObservationOptions(journal=tmp_path, status=PAGES))
    sender = client.get_queue_sender("orders")
    sender.send_messages(ServiceBusMessage("x"))
    mine = runtime_of(client)._observer.port
    pairing.wait_for(BacklogsCreated)  # no background thread is busy during the fork
    child = os.fork()
    if child == 0:
        try:
            sender.send_messages(ServiceBusMessage("of the child"), timeout=30)
            is_own = runtime_of(client)._observer.port not in (mine, None)
            wait_until(lambda: page(client, "health")[0] == 200)
            client.hold("orders")
            client.close()
            os._exit(0 if is_own else 3)
        except BaseException:
            os._exit(1)
    assert exit_code_of(child) == 0
    wait_until(lambda: page(client, "health")[0] == 200)
    client.close()
    closed = [record for record in records(tmp_path) if record["event"] == "journal_closed"]
    assert len({record["writer"] for record in closed}) == 2


def test_an_observer_that_cannot_start_is_reported_at_the_first_sender(
    pairing: Pairing, tmp_path: Path
) -> None:
    (tmp_path / "file").write_text("")
    client = pairing.client(observation=ObservationOptions(journal=tmp_path / "file"))
    with pytest.raises(JournalError, match="file"):
        client.get_queue_sender("orders")
    other = pairing.client(observation=ObservationOptions(status=("127.0.0.1", pairing.primary.port)))
    with pytest.raises(StatusError, match=str(pairing.primary.port)):
        other.get_queue_sender("orders")


def test_an_observer_that_cannot_start_hinders_nothing_and_starts_later(
    pairing: Pairing, tmp_path: Path
) -> None:
    blocked = tmp_path / "journal"
    blocked.write_text("")
    client = pairing.client(enable_syphon=True, observation=ObservationOptions(journal=blocked), ping=60)
    for _ in range(2):
        with pytest.raises(JournalError, match="journal"):
            client.get_queue_sender("orders")
    wait_until(lambda: runtime_of(client)._syphon.status.state in CONNECTED)
    blocked.unlink()
    client.get_queue_sender("orders").send_messages(ServiceBusMessage("x"))
    client.close()
    assert "journal_opened" in [record["event"] for record in records(blocked)]


def test_an_observer_that_starts_beside_a_late_one_counts_each_event_once(
    pairing: Pairing, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def unavailable(*_: object, **settings: object) -> Journal:
        if settings["role"].value == "syphon":  # type: ignore[attr-defined]
            raise JournalError("the syphon's journal is not there yet")
        return Journal(*_, **settings)  # type: ignore[arg-type]

    watched = ObservationOptions(journal=tmp_path, status=PAGES)
    client = pairing.client(enable_syphon=True, observation=watched, ping=60)
    with monkeypatch.context() as patched:
        patched.setattr("sbpair.pair.paired_client.observer.Journal", unavailable)
        with pytest.raises(JournalError, match="not there yet"):
            client.get_queue_sender("orders")
    with client:
        client.get_queue_sender("orders")
        lines = page(client, "metrics")[1].splitlines()
    told = [line.split()[0] for line in lines if not line.startswith("#")]
    assert len(told) > 20
    assert sorted(told) == sorted(set(told))


@pytest.fixture
def no_receiver_journal(monkeypatch: pytest.MonkeyPatch) -> Iterator[pytest.MonkeyPatch]:
    """The disk is full for the journal of the processors, until the patch is undone."""

    def unavailable(*_: object, **settings: object) -> Journal:
        if settings["role"] is WriterRole.RECEIVER:
            raise JournalError("the disk is full")
        return Journal(*_, **settings)  # type: ignore[arg-type]

    with monkeypatch.context() as patched:
        patched.setattr("sbpair.pair.paired_client.observer.Journal", unavailable)
        yield patched


def roles_opened(directory: Path) -> list[str]:
    return sorted(record["role"] for record in records(directory) if record["event"] == "journal_opened")


@pytest.mark.spec("C-19", "R-14")
def test_processors_are_observed_once_the_journal_can_be_opened(
    pairing: Pairing, tmp_path: Path, no_receiver_journal: pytest.MonkeyPatch
) -> None:
    with pairing.client(observation=ObservationOptions(journal=tmp_path), ping=60) as client:
        client.get_queue_sender("orders")
        with pytest.raises(JournalError, match="disk is full"):
            client.get_queue_processor("orders", print)
        no_receiver_journal.undo()
        client.get_queue_processor("orders", print)
    assert roles_opened(tmp_path) == ["receiver", "sender"]


@pytest.mark.spec("C-19", "R-14")
async def test_with_asyncio_processors_are_observed_once_the_journal_can_be_opened(
    aio_pairing: AsyncPairing, tmp_path: Path, no_receiver_journal: pytest.MonkeyPatch
) -> None:
    client = aio_pairing.client(observation=ObservationOptions(journal=tmp_path), ping=60)
    processor = client.get_queue_processor("orders", print)
    for _ in range(2):
        with pytest.raises(JournalError, match="disk is full"):
            await client.__aenter__()
    no_receiver_journal.undo()
    async with client:
        assert processor.reports_messages
    assert roles_opened(tmp_path) == ["receiver", "sender"]


async def test_with_asyncio_an_observer_that_could_not_start_starts_later(
    aio_pairing: AsyncPairing, tmp_path: Path
) -> None:
    blocked = tmp_path / "journal"
    blocked.write_text("")
    watched = ObservationOptions(journal=blocked)
    client = aio_pairing.client(enable_syphon=True, observation=watched, ping=60)
    for _ in range(2):
        with pytest.raises(JournalError, match="journal"):
            await client.__aenter__()
    blocked.unlink()
    async with client:
        pass
    assert "journal_opened" in [record["event"] for record in records(blocked)]


async def test_with_asyncio_journal_and_pages_are_written_and_served(
    aio_pairing: AsyncPairing, tmp_path: Path
) -> None:
    watched = ObservationOptions(journal=tmp_path, journal_sends=True, status=PAGES)
    client = aio_pairing.client(observation=watched, ping=60)
    async with client, client.get_queue_sender("orders") as sender:
        await sender.send_messages(ServiceBusMessage("x"))
        assert (await asyncio.to_thread(page, client, "health"))[0] == 200
        client.hold("orders")
        await aio_pairing.heard(EntityFailedOver)
        state = json.loads((await asyncio.to_thread(page, client, "state"))[1])
        assert state["entities"] == {"orders": "failed_over"}
    told = [record["event"] for record in records(tmp_path)]
    assert told[-1] == "journal_closed"
    assert "send_accepted" in told


async def test_with_asyncio_an_observer_that_cannot_start_is_reported_on_entering(
    aio_pairing: AsyncPairing, tmp_path: Path
) -> None:
    (tmp_path / "file").write_text("")
    client = aio_pairing.client(observation=ObservationOptions(journal=tmp_path / "file"))
    with pytest.raises(JournalError, match="file"):
        async with client:
            pass


def test_a_client_with_a_hosted_syphon_shows_the_syphon_on_its_pages(
    pairing: Pairing, tmp_path: Path
) -> None:
    watched = ObservationOptions(journal=tmp_path, status=PAGES)
    with pairing.client(enable_syphon=True, observation=watched, ping=60) as client:
        client.hold("orders")
        client.get_queue_sender("orders").send_messages(ServiceBusMessage("x"))
        wait_until(lambda: "sbpair_syphon_completed_total 1.0" in page(client, "metrics")[1])
        assert json.loads(page(client, "state")[1])["syphon"]["state"] == "running"
    roles = {record["role"] for record in records(tmp_path) if record["event"] == "journal_closed"}
    assert roles == {"sender", "syphon"}
