"""The time to live and schedule of a restored message, and envelopes of unknown versions. (R-35)"""

from __future__ import annotations

import asyncio
import time
from datetime import timedelta
from types import SimpleNamespace

import pytest

from sbpair.pair.amqp.message import DataBody, Header, Message, Properties
from sbpair.pair.amqp.types import Described, Symbol, Timestamp, UInt
from sbpair.pair.envelope import aliases as names
from sbpair.pair.envelope.aliases import format_instant
from sbpair.pair.envelope.restore import UNKNOWN_VERSION, Forward, restore
from sbpair.pair.syphon.events import BacklogsDrained, ClockDiffers, DestinationHeld, MessageSetAside
from sbpair.syphon import SyphonState
from tests.pair.syphon.pair import Pair, parked
from tests.pair.syphon.test_sides import running
from tests.waiting import PATIENCE, until

NOW = 1_790_000_000_000  # ms
MINUTE, HOUR = 60_000, 3_600_000  # ms
OFTEN = timedelta(milliseconds=100)


def parked_with(carried: dict[str, object], header: Header | None = None) -> bytes:
    return Message(
        header=header,
        properties=Properties(message_id="m"),
        application_properties={names.PATH: "orders", **carried},
        body=DataBody((b"hello",)),
    ).encode()


def restored(carried: dict[str, object], header: Header | None = None) -> Message:
    found = restore(parked_with(carried, header), NOW)
    assert isinstance(found, Forward), found
    return Message.decode(found.payload)


def ttl_of(message: Message) -> int | None:
    return None if message.header is None else message.header.ttl


@pytest.mark.spec("R-35", "G-15")
@pytest.mark.parametrize(
    ("ahead", "left"), [(2 * HOUR, 30 * MINUTE), (0, 30 * MINUTE), (-10 * MINUTE, 20 * MINUTE)]
)
def test_a_deadline_of_a_clock_that_is_ahead_gives_no_more_than_the_time_to_live(
    ahead: int, left: int
) -> None:
    deadline = format_instant(NOW + 30 * MINUTE + ahead)
    carried = {names.VERSION: "1", names.TIME_TO_LIVE: "PT30M", names.DEADLINE: deadline}
    assert ttl_of(restored(carried)) == left


@pytest.mark.spec("R-35")
def test_a_foreign_time_to_live_in_the_header_is_kept() -> None:
    header = Header(durable=True, ttl=UInt(5 * MINUTE), delivery_count=UInt(3))
    message = restored({}, header)
    assert ttl_of(message) == 5 * MINUTE
    assert message.header is not None
    assert not message.header.delivery_count


@pytest.mark.spec("R-35")
def test_an_alias_of_the_time_to_live_overrides_the_header() -> None:
    assert ttl_of(restored({names.TIME_TO_LIVE: "PT1H"}, Header(ttl=UInt(5 * MINUTE)))) == HOUR


@pytest.mark.spec("R-35")
def test_a_message_parked_without_a_time_to_live_gets_none_from_the_backlog() -> None:
    assert ttl_of(restored({names.VERSION: "1"}, Header(durable=True, ttl=UInt(5 * MINUTE)))) is None


@pytest.mark.spec("R-35")
@pytest.mark.parametrize("version", [2, None, [], "2", "", "1.0", 1, {"1": 1}, Symbol("1")], ids=repr)
def test_an_envelope_of_another_version_is_not_forwarded(version: object) -> None:
    payload = parked_with({names.VERSION: version})
    assert restore(payload, NOW) == Forward(UNKNOWN_VERSION, payload, None)


@pytest.mark.spec("R-35")
async def test_an_envelope_of_another_version_waits_is_reported_and_blocks_nobody(pair: Pair) -> None:
    syphon = pair.syphon(retry_backoff_max=OFTEN, stop_timeout=timedelta(seconds=1))
    await pair.park([parked(0, x_sbpair_version=2), parked(1)])
    async with running(syphon):
        await until(lambda: syphon.counters.completed == 1)
        await until(lambda: bool(pair.said(DestinationHeld)))
        assert syphon.status.state is SyphonState.RUNNING
    assert "x-sbpair-version" in pair.said(DestinationHeld)[0].reason
    assert (pair.waiting(), pair.set_aside()) == (1, 0)
    assert pair.primary.counts("orders").active == 1


@pytest.mark.spec("R-35", "R-25")
async def test_a_drain_does_not_end_while_a_message_of_another_version_waits(pair: Pair) -> None:
    syphon = pair.syphon(retry_backoff_max=OFTEN, stop_timeout=timedelta(seconds=1))
    await pair.park([parked(0, x_sbpair_version=2)])
    draining = asyncio.create_task(syphon.drain())
    await until(lambda: len(pair.said(DestinationHeld)) >= 2)
    assert not draining.done()
    draining.cancel()
    await asyncio.gather(draining, return_exceptions=True)
    assert not pair.said(BacklogsDrained)
    assert pair.waiting() == 1


@pytest.mark.spec("R-35", "R-25")
async def test_drained_is_not_reported_where_no_backlog_exists(pair: Pair) -> None:
    syphon = pair.syphon(primary_namespace_name="kontoso")
    async with asyncio.timeout(PATIENCE):
        await syphon.drain()
    assert not pair.said(BacklogsDrained)
    assert syphon.missing_backlogs == set(syphon.backlogs)


@pytest.mark.spec("R-35")
async def test_the_first_expired_message_reports_a_clock_difference(
    pair: Pair, monkeypatch: pytest.MonkeyPatch
) -> None:
    syphon = pair.syphon()
    await pair.park([parked(0, x_sbpair_deadline=format_instant(int(time.time() * 1000) + 30 * MINUTE))])
    ahead = time.time() + 7200  # frozen, so that a pause of this machine does not age a lock
    for module in ("pump", "locks"):
        monkeypatch.setattr(f"sbpair.pair.syphon.forward.{module}.time", SimpleNamespace(time=lambda: ahead))
    async with asyncio.timeout(PATIENCE):
        await syphon.drain()
    assert pair.said(MessageSetAside)[0].reason == "TTLExpiredException"
    assert -7300 < pair.said(ClockDiffers)[0].ahead < -7100


@pytest.mark.spec("R-28")
@pytest.mark.parametrize(
    "unset",
    [
        "0001-01-01T00:00:00",
        "0001-01-01T00:00:00.0000000Z",
        "0001-01-01T00:00:00+02:00",
        Timestamp(-62_135_596_800_000),
        -62_135_596_800_000,
        Described(Symbol("com.microsoft:datetime-offset"), 0),
        "1969-12-31T23:59:59Z",
    ],
    ids=repr,
)
def test_an_unset_or_long_past_schedule_is_ignored(unset: object) -> None:
    message = restored({names.SCHEDULED: unset})
    assert not message.message_annotations
