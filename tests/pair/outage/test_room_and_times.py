"""Room of the backlog queues and the duration of sends, of clients over real sockets (H-52, H-53)."""

from __future__ import annotations

import asyncio
import json
import re
from collections.abc import Callable
from pathlib import Path

import pytest
from azure.servicebus import ServiceBusMessage
from azure.servicebus.exceptions import ServiceBusError

from sbpair import ObservationOptions, StoredIn
from sbpair.contract.cli.doctor.facts import SenderSeen
from sbpair.contract.cli.doctor.probes import read_sender, read_status
from sbpair.events import BacklogFilling
from sbpair.pair.pairing.decide import backlogs
from sbpair.pair.pairing.shared.base_runtime import BaseRuntime
from tests.pair.outage.conftest import AsyncPairing, Either, Pairing
from tests.pair.outage.test_watched_client import PAGES, page
from tests.pair.runtimes import runtime_of
from tests.waiting import wait_until

pytestmark = pytest.mark.spec("H-52", "H-53")


def value(text: str, series: str) -> float:
    """The value of one series of the page of metrics."""
    (found,) = re.findall(rf"^{re.escape(series)} (\S+)$", text, flags=re.MULTILINE)
    return float(found)


def test_the_page_of_a_client_tells_how_full_its_backlog_is_and_how_long_sends_take(pairing: Pairing) -> None:
    client = pairing.client(observation=ObservationOptions(status=PAGES), ping=60, backlogs=1)
    sender = client.get_queue_sender("orders")
    sender.send_messages(ServiceBusMessage("healthy"))
    pairing.primary.take_down()
    assert sender.send_messages(ServiceBusMessage("x" * 10_000)).stored_in is StoredIn.BACKLOG
    sender.send_messages([ServiceBusMessage("y" * 1000), ServiceBusMessage("z" * 1000)])

    _, text = page(client, "metrics")
    parked = value(text, 'sbpair_backlog_bytes{backlog="0",source="parked"}')
    assert 12_000 < parked < 14_000
    assert value(text, 'sbpair_backlog_limit_bytes{backlog="0"}') == 5120 * 1024**2
    assert value(text, 'sbpair_send_seconds_count{outcome="accepted",side="primary"}') == 1
    assert value(text, 'sbpair_send_seconds_count{outcome="accepted",side="secondary"}') == 2
    assert value(text, 'sbpair_send_seconds_bucket{le="+Inf",outcome="accepted",side="secondary"}') == 2

    pairing.secondary.take_down()
    with pytest.raises(ServiceBusError):
        sender.send_messages(ServiceBusMessage("lost"), timeout=1)
    assert (
        value(page(client, "metrics")[1], 'sbpair_send_seconds_count{outcome="raised",side="secondary"}') == 1
    )


@pytest.mark.spec("A-8", "R-161")
def test_the_client_page_shows_waiting_spool_messages_and_whether_it_is_writable(
    pairing: Pairing, tmp_path: Path
) -> None:
    pages = ObservationOptions(status=PAGES)
    client = pairing.client(observation=pages, ping=60, spool=tmp_path / "spool", spool_policy="always")
    sender = client.get_queue_sender("orders")
    pairing.primary.take_down()
    pairing.secondary.take_down()
    for n in range(3):
        sender.send_messages(ServiceBusMessage(str(n)))
    _, text = page(client, "metrics")
    assert value(text, 'sbpair_spool_messages{path="orders"}') == 3
    assert value(text, "sbpair_spool_writable") == 1
    pairing.primary.bring_up()
    wait_until(lambda: client.count_spooled() == 0)
    assert value(page(client, "metrics")[1], 'sbpair_spool_messages{path="orders"}') == 0
    pairing.secondary.bring_up()


def test_with_manage_the_true_size_and_count_come_from_the_service(pairing: Pairing) -> None:
    client = pairing.client(observation=ObservationOptions(status=PAGES), ping=60, backlogs=1)
    other = pairing.client(ping=60, backlogs=1)
    pairing.primary.take_down()
    for each in (client, other):  # what another process parked counts too
        sender = each.get_queue_sender("orders")
        for _ in range(2):
            sender.send_messages(ServiceBusMessage("x" * 1000))
    runtime = runtime_of(client)
    runtime._sized(runtime._backlogs.sizes([0]))

    _, text = page(client, "metrics")
    assert value(text, 'sbpair_backlog_messages{backlog="0"}') == 4
    assert value(text, 'sbpair_backlog_bytes{backlog="0",source="service"}') > 4000
    assert not [event for event in pairing.told if isinstance(event, BacklogFilling)]


async def test_an_asyncio_client_counts_the_same(aio_pairing: AsyncPairing) -> None:
    client = aio_pairing.client(ping=60, backlogs=1)
    sender = client.get_queue_sender("orders")
    await sender.send_messages(ServiceBusMessage("healthy"))
    aio_pairing.primary.take_down()
    await sender.send_messages(ServiceBusMessage("x" * 1000))
    runtime = runtime_of(client)
    await runtime._size([0])

    assert runtime.pair.room.levels()[0].messages == 1
    times = runtime.send_times.by_side()
    assert times["primary", "accepted"].cumulative_counts()[-1] == 1
    assert times["secondary", "accepted"].cumulative_counts()[-1] == 1


@pytest.mark.spec("H-55")
def test_the_pages_show_the_half_down_state_and_its_options(pairing: Pairing) -> None:
    client = pairing.client(observation=ObservationOptions(status=PAGES), ping=60)
    sender = client.get_queue_sender("orders")
    sender.send_messages(ServiceBusMessage("healthy"))
    pairing.secondary.take_down("refuse")
    client.hold("orders")
    with pytest.raises(ServiceBusError):
        sender.send_messages(ServiceBusMessage("lost"), timeout=3)

    text = page(client, "metrics")[1]
    assert value(text, 'sbpair_secondary_silent{side="secondary"}') == 1
    assert value(text, 'sbpair_failed_share{path="orders"}') == 0
    assert value(text, 'sbpair_keys_aside{path="orders"}') == 0
    state = json.loads(page(client, "state")[1])
    assert state["secondary_silent"] is True
    assert state["conditions"]["orders"]["is_returning"] is False
    assert state["options"]["failover_share"] == 0.5
    assert state["options"]["operation_timeout"] == 10.0


@pytest.mark.spec("H-55")
def test_the_doctor_reads_the_options_from_the_page_of_a_sender(pairing: Pairing) -> None:
    client = pairing.client(
        observation=ObservationOptions(status=PAGES), ping=60, failover_share=1.0, timeout=60.0
    )
    client.get_queue_sender("orders")
    port = runtime_of(client)._observer.port
    seen = asyncio.run(read_sender(f"http://127.0.0.1:{port}"))
    assert seen == SenderSeen(None, failover_share=1.0, operation_timeout=60.0, redirects_suspects=True)
    assert "not the status page of a syphon" in str(
        asyncio.run(read_status(f"http://127.0.0.1:{port}")).trouble
    )


async def test_parked_messages_do_not_wake_the_timers(
    either: Either, monkeypatch: pytest.MonkeyPatch
) -> None:
    client = either.client(ping=60, backlogs=1)
    sender = client.get_queue_sender("orders")
    client.hold("orders")
    await either.send(sender, ServiceBusMessage("opens the link"))
    looks = count_looks(runtime_of(client), monkeypatch)
    for _ in range(100):
        assert (await either.send(sender, ServiceBusMessage("parked"))).stored_in is StoredIn.BACKLOG
    assert looks() < 20


def test_the_first_parked_message_has_the_sizes_asked_for_while_no_other_timer_runs(
    pairing: Pairing, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(backlogs, "FIRST_LOOK", 0.1)
    client = pairing.client(ping=60, backlogs=1)
    sender = client.get_queue_sender("orders")
    client.hold("orders")
    for _ in range(2):
        sender.send_messages(ServiceBusMessage("parked"))
    levels = runtime_of(client).pair.room.levels
    wait_until(lambda: levels()[0].messages == 2)


def count_looks(runtime: BaseRuntime, monkeypatch: pytest.MonkeyPatch) -> Callable[[], int]:
    """How often the timers of a client are looked at from now on."""
    looks: list[float] = []
    look = runtime.pair.handle_timer

    def counting(now: float) -> list[str]:
        looks.append(now)
        return look(now)

    monkeypatch.setattr(runtime.pair, "handle_timer", counting)
    return lambda: len(looks)
