"""A destination on a driven clock sends at the pace that its entity bears, and a whole syphon does no harm."""

from __future__ import annotations

import asyncio
from dataclasses import dataclass, field, replace
from datetime import timedelta

import pytest

from sbpair.broker.access import OpenAccess
from sbpair.broker.entities.descriptions import QueueDescription
from sbpair.broker.entities.namespace import Namespace
from sbpair.broker.entities.quotas import Tier
from sbpair.broker.faults import Operation, RejectWith, Throttle
from sbpair.broker.server.namespace_server import NamespaceServer
from sbpair.pair.amqp.performatives import Accepted, Condition, Rejected
from sbpair.pair.auth.connection_string import parse
from sbpair.pair.client.connection import connect
from sbpair.pair.client.errors import LinkRefusedError
from sbpair.pair.envelope.names import ordered_backlog_name
from sbpair.pair.syphon.forward.credit import AFTER_LOSS
from sbpair.pair.syphon.forward.delivery import EMIT_HELD_AFTER, METERED, OPEN, WAITING
from sbpair.pair.syphon.forward.pace import BURST, FIRST_RATE, FIRST_WINDOW, Pace
from tests.pair.syphon.driven import BACKLOGS, CLOCK, ROOMY, STRING, Driven, _no_tls, play
from tests.pair.syphon.pair import parked
from tests.pair.syphon.scripted import INTERNAL, PlayedLink, Scene, driven, now, turns
from tests.pair.syphon.test_ordered_backlogs import in_session

pytestmark = pytest.mark.spec("H-10")
WAIT = Rejected(Condition("com.microsoft:server-busy", "Please wait 2 seconds and try again."))


@driven
async def test_messages_in_flight_are_limited_to_the_accepted_number_plus_a_first_few() -> None:
    scene = Scene(opens=[PlayedLink(credit=10_000)])
    scene.post(range(1, 3001))
    await turns()
    assert len(scene.link.all_sent) == FIRST_WINDOW
    assert scene.told_of("held") == []  # they wait for answers only
    assert not scene.orders.takes_more
    scene.link.accept_all()
    assert len(scene.link.all_sent) == 3 * FIRST_WINDOW
    scene.link.accept_all()
    assert len(scene.link.all_sent) == 7 * FIRST_WINDOW
    assert scene.orders.state is OPEN


@driven
async def test_after_busy_the_syphon_pauses_as_requested_and_then_sends_evenly() -> None:
    scene = Scene(opens=[PlayedLink(credit=10_000)])
    scene.post(range(1, 1001))
    await turns()
    for _ in range(100):
        scene.link.answer()
    scene.link.answer(WAIT)
    assert scene.told_of("held")  # what waits leaves its backlog's window to other destinations
    sent = len(scene.link.all_sent)
    while scene.link.sent:
        scene.link.answer()
    await asyncio.sleep(1.99)
    assert len(scene.link.all_sent) == sent
    for _ in range(101):
        await asyncio.sleep(0.01)
        scene.link.accept_all()
    assert BURST < len(scene.link.all_sent) - sent <= 100
    assert scene.orders.state is OPEN
    assert scene.host == []  # no stall, and nobody is told that it is out of reach


@pytest.mark.spec("H-13")
@driven
async def test_a_lost_link_with_messages_halves_the_number_in_flight_once_down_to_64() -> None:
    scene = Scene()
    scene.post(range(1, 401))
    await turns()
    for window in (FIRST_WINDOW // 2, AFTER_LOSS, AFTER_LOSS):
        scene.link.detach()
        assert scene.pace.room(now(), 0) == window
        await asyncio.sleep(9.0)
        assert scene.link.is_open


@driven
async def test_other_rejections_and_full_entities_do_not_change_the_pace() -> None:
    scene = Scene()
    scene.post([1, 2, 3])
    await turns()
    scene.link.answer(INTERNAL)
    scene.link.answer(Rejected(Condition("amqp:resource-limit-exceeded", "Please wait 9 seconds")))
    scene.link.answer(Rejected())
    assert scene.pace.is_free


@driven
async def test_a_link_refused_as_busy_is_retried_after_the_pause() -> None:
    scene = Scene(opens=[LinkRefusedError("no link", WAIT.error)])
    scene.post([1])
    await turns()
    assert scene.orders.state is WAITING
    await asyncio.sleep(1.9)
    assert len(scene.opened_at) == 1
    await asyncio.sleep(0.2)
    assert scene.opened_at == [0.0, 2.0]


@driven
async def test_a_returning_entity_starts_slowly() -> None:
    scene = Scene(opens=[PlayedLink(credit=0)])
    scene.post(range(1, 200))
    await asyncio.sleep(EMIT_HELD_AFTER + 1.0)
    began = now()
    scene.link.grant(1000)
    scene.link.answer()
    while now() < began + 1.0:
        await asyncio.sleep(0.01)
        scene.link.accept_all()
    assert len(scene.link.all_sent) <= 1.6 * FIRST_RATE + BURST


@driven
async def test_a_metered_destination_keeps_its_pace() -> None:
    scene = Scene(pace=Pace(max_rate=10), opens=[PlayedLink(credit=1)])
    scene.post(range(1, 100))
    await asyncio.sleep(1.0)
    assert scene.orders.state is METERED
    scene.link.credit = 1000
    scene.link.answer()
    for _ in range(200):
        await asyncio.sleep(0.01)
        scene.link.accept_all()
    assert 20 <= len(scene.link.all_sent) <= 20 + 2 * BURST


@driven
async def test_a_destination_waiting_for_its_pace_releases_its_link_and_opens_another() -> None:
    scene = Scene(pace=Pace(max_rate=2))
    scene.post(range(1, BURST + 3))
    await turns()
    scene.link.accept_all()
    assert (scene.orders.in_flight, scene.orders.waiting) == (0, 2)
    assert scene.orders.takes_more  # less waits than goes within two seconds
    scene.orders.release_link()
    await asyncio.sleep(0.6)
    assert (len(scene.links), scene.link.all_sent) == (2, [BURST + 1])


@driven
async def test_a_stopped_destination_does_not_wait_for_its_pace() -> None:
    scene = Scene(pace=Pace(max_rate=1))
    scene.post(range(1, BURST + 3))
    await turns()
    scene.orders.stop()
    await asyncio.sleep(10.0)
    assert scene.link.all_sent == list(range(1, BURST + 1))


# --- a primary with little room, and live traffic


@dataclass
class LiveTraffic:
    """Sends at an even rate; waits as long as a busy service says, within the timeout of a send."""

    rate: float
    timeout: float = 6.0
    took: list[float] = field(default_factory=list)
    raised: int = 0
    sends: set[asyncio.Task[None]] = field(default_factory=set)

    async def run(self, path: str, payload: bytes) -> None:
        connection = await connect(parse(STRING.format("contoso")))
        sender = await connection.open_sender(path)
        began, number = now(), 0
        try:
            while True:
                self.sends.add(task := asyncio.ensure_future(self._send(sender, payload)))
                task.add_done_callback(self.sends.discard)
                number += 1
                await asyncio.sleep(max(0.0, began + number / self.rate - now()))
        finally:
            await asyncio.gather(*self.sends)
            await connection.close()

    async def _send(self, sender, payload: bytes) -> None:
        began = now()
        while not isinstance(await sender.send(payload), Accepted):
            if now() + 2.0 >= began + self.timeout:
                self.raised += 1
                break
            await asyncio.sleep(2.0)
        self.took.append(now() - began)

    def percentile(self, part: float) -> float:
        return sorted(self.took)[int(len(self.took) * part)]


def throttled(world: Driven, rate: int) -> None:
    """Give the primary a limit of messages per second."""
    namespace = Namespace("contoso", created_at=CLOCK.now(), tier=Tier.STANDARD, credits_per_second=rate)
    namespace.create_queue("orders", QueueDescription(max_delivery_count=2**31 - 1), CLOCK.now())
    world.servers["contoso"] = NamespaceServer(namespace, OpenAccess(), CLOCK, "contoso", 0, _no_tls)


async def drained_beside(world: Driven, traffic: LiveTraffic, count: int, within: float) -> int:
    """Drain ``count`` parked messages beside live traffic, after an outage; return how many came home."""
    for number in range(count // 1000 + 1):
        some = range(number * 1000, min(count, (number + 1) * 1000))
        await world.park((parked(each) for each in some), BACKLOGS[number % len(BACKLOGS)])
    world.cut("contoso")
    syphon = world.syphon(retry_backoff_max=timedelta(seconds=1))
    async with world.running(syphon):
        await asyncio.sleep(20.0)
        world.restored("contoso")
        live = asyncio.ensure_future(traffic.run("orders", parked(0)))
        began = now()
        while syphon.counters.completed < count and now() < began + within:
            await asyncio.sleep(0.1)
        live.cancel()
        await asyncio.gather(live, return_exceptions=True)
        return syphon.counters.completed


@pytest.mark.parametrize("share", [0.2, 0.67, 0.9, 1.0])
def test_messages_parked_while_the_primary_was_busy_come_home_within_20_seconds_after_it(
    share: float,
) -> None:
    async def story(world: Driven) -> None:
        syphon = world.syphon()
        async with world.running(syphon):
            with world.fault("contoso", "orders", Throttle(), Operation.SEND, probability=share, seed=3):
                for number in range(60):
                    await world.park(parked(20 * number + each) for each in range(20))
                    await asyncio.sleep(1.0)
            assert await world.until(lambda: world.active("contoso", "orders") == 1200) <= 20.0
        assert syphon.counters.completed == 1200

    play(story)


def test_a_destination_that_is_always_busy_is_probed_every_few_seconds() -> None:
    async def story(world: Driven) -> None:
        await world.park([parked(0)])
        busy = RejectWith("com.microsoft:server-busy", "no time is named")
        async with world.running(world.syphon()):
            with world.fault("contoso", "orders", busy, Operation.SEND):
                await asyncio.sleep(120.0)
            assert await world.until(lambda: world.active("contoso", "orders") == 1) <= 4.0

    play(story)


@pytest.mark.slow
@pytest.mark.spec("H-14")
def test_live_sends_to_a_weak_recovered_primary_are_unaffected_by_the_drain() -> None:
    async def story(world: Driven) -> None:
        throttled(world, 500)
        traffic = LiveTraffic(200.0)
        assert await drained_beside(world, traffic, 10_400, 90.0) == 10_400
        assert (traffic.raised, traffic.percentile(0.99) <= 1.0) == (0, True)

    play(story)


@pytest.mark.slow
@pytest.mark.spec("H-14")
def test_a_weak_primary_serves_its_clients_while_2500_messages_come_home() -> None:
    async def story(world: Driven) -> None:
        throttled(world, 100)
        traffic = LiveTraffic(20.0)
        assert await drained_beside(world, traffic, 2500, 40.0) >= 800
        assert traffic.raised <= len(traffic.took) / 100
        assert traffic.percentile(0.99) <= 2.1

    play(story)


@pytest.mark.spec("H-15")
def test_sessions_of_an_ordered_backlog_keep_the_pace_of_their_destination() -> None:
    async def story(world: Driven) -> None:
        name = ordered_backlog_name("contoso", 0)
        world.make(name, "contoso-dr", replace(ROOMY, requires_session=True))
        await world.park([in_session(number, str(number), "orders") for number in range(200)], name)
        syphon = world.syphon(ordering="session", max_rate=20)
        async with world.running(syphon):
            await world.until(lambda: syphon.counters.completed > 0)
            await asyncio.sleep(5.0)
            assert 80 <= world.active("contoso", "orders") <= 100 + 2 * BURST

    play(story)


@pytest.mark.spec("H-15")
def test_messages_that_land_keep_the_pace_over_all_backlogs() -> None:
    async def story(world: Driven) -> None:
        world.make("orders", "contoso-dr")
        for backlog in BACKLOGS:
            await world.park((parked(number) for number in range(200)), backlog)
        world.cut("contoso")
        syphon = world.syphon(land="either", land_after=timedelta(0), max_rate=20)
        async with world.running(syphon):
            await world.until(lambda: syphon.counters.landed > 0)
            await asyncio.sleep(5.0)
            assert 80 <= world.active("contoso-dr", "orders") <= 100 + 2 * BURST

    play(story)
