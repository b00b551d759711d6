"""Acknowledged spooled messages are delivered by whichever way is open, whatever the backlogs answer."""

from __future__ import annotations

from pathlib import Path

import pytest
from azure.servicebus import ServiceBusMessage

from sbpair import StoredIn
from sbpair.events import SpooledMessageRefused, SpoolReplayed
from sbpair.pair.envelope.copies import raw
from sbpair.pair.pairing.request.headroom import encoded_size
from sbpair.pair.pairing.spool.store import Spool
from tests.pair.outage.conftest import Either

LIMIT = 256 * 1024  # bytes of a message on the Standard tier


@pytest.fixture
def spool(tmp_path: Path) -> str:
    return str(tmp_path / "spool")


def down(either: Either) -> None:
    either.primary.take_down("refuse")
    either.secondary.take_down("refuse")


def create_backlogs(either: Either, **fields: bool) -> None:
    for index in range(2):
        either.secondary.create_queue(f"contoso/x-servicebus-transfer/{index}", **fields)


def just_fitting(message_id: str) -> ServiceBusMessage:
    """Create a message that leaves no room for the properties added when it is parked."""

    def of(size: int) -> ServiceBusMessage:
        return ServiceBusMessage(bytes(size), message_id=message_id)

    return of(2 * (LIMIT - 1000) - encoded_size(raw(of(LIMIT - 1000))) + 990)


def refused(either: Either) -> list[str]:
    return [event.message_id for event in either.told if isinstance(event, SpooledMessageRefused)]


@pytest.mark.slow
@pytest.mark.spec("R-2")
async def test_session_only_backlogs_lose_no_acknowledged_message(either: Either, spool: str) -> None:
    create_backlogs(either, requires_session=True)
    client = either.client(interval=0, ping=1, spool=spool, assume_backlogs_exist=True)
    sender = client.get_queue_sender("orders")
    down(either)
    for n in range(5):
        assert (await either.send(sender, ServiceBusMessage(str(n)))).stored_in is StoredIn.SPOOL
    either.secondary.bring_up()
    await either.until(lambda: either.secondary.inspect(lambda server: server.frontend.rejections.total) > 0)
    assert refused(either) == []
    either.primary.bring_up()
    await either.until(lambda: client.count_spooled() == 0)
    assert sorted(await either.bodies()) == [str(n).encode() for n in range(5)]
    assert refused(either) == []


@pytest.mark.slow
@pytest.mark.spec("R-2", "P-22")
async def test_messages_too_large_once_rewritten_wait_for_the_primary_and_the_others_are_parked(
    either: Either, spool: str
) -> None:
    create_backlogs(either)
    client = either.client(interval=0, ping=60, spool=spool, headroom="off")
    sender = client.get_queue_sender("orders")
    down(either)
    large = just_fitting("large")
    for message in (ServiceBusMessage(b"0"), large, ServiceBusMessage(b"1")):
        assert (await either.send(sender, message)).stored_in is StoredIn.SPOOL
    either.secondary.bring_up()
    await either.until(lambda: sum(either.parked()) == 2)
    await either.until(lambda: client.count_spooled() == 1)
    assert (
        await either.send(sender, ServiceBusMessage(b"2"))
    ).stored_in is StoredIn.BACKLOG  # they do not wait behind the large one
    either.primary.bring_up()
    assert (await either.send(sender, ServiceBusMessage(b"3"))).stored_in is StoredIn.BACKLOG
    client.mark_path_healthy("orders")
    await either.until(lambda: client.count_spooled() == 0)
    assert await either.bodies() == [b"".join(large.body)]
    assert refused(either) == []


@pytest.mark.spec("R-2")
async def test_messages_the_primary_refused_come_home_by_redrive_once_it_accepts_them(
    either: Either, spool: str
) -> None:
    either.primary.create_queue("sessions", requires_session=True)
    create_backlogs(either)
    client = either.client(interval=0, ping=1, spool=spool)
    sender = client.get_queue_sender("sessions")
    down(either)
    for n in range(3):
        session = None if n == 1 else "s"
        await either.send(sender, ServiceBusMessage(str(n), message_id=str(n), session_id=session))
    either.primary.bring_up()
    await either.until(lambda: client.count_spooled() == 0)
    await either.heard(SpoolReplayed)
    assert refused(either) == ["1"]
    assert {"0", "2"} <= set(either.primary.message_ids("sessions"))  # and a ping
    await either.done(client.close())

    either.primary.delete_queue("sessions")
    either.primary.create_queue("sessions")
    file = Spool(spool, primary=None)
    assert file.redrive("sessions") == 1
    file.close()
    again = either.client(interval=0, ping=1, spool=spool)
    await either.done(again.get_queue_sender("sessions").send_messages(ServiceBusMessage("2")))
    await either.until(lambda: again.count_spooled() == 0)
    assert await either.bodies("sessions") in ([b"1", b"2"], [b"2", b"1"])
