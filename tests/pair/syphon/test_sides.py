"""A side that refuses the syphon's credential (P-50, R-26)."""

from __future__ import annotations

import asyncio
from dataclasses import replace
from datetime import timedelta

import pytest

from sbpair.pair.amqp.errors import SERVER_BUSY, TIMEOUT
from sbpair.pair.amqp.performatives import Condition
from sbpair.pair.auth.credential import SharedKey, Token, TokenSource
from sbpair.pair.client.errors import ConnectionLostError, LinkRefusedError, TokenRefusedError
from sbpair.pair.syphon.events import (
    BacklogsDrained,
    DestinationHeld,
    SideAccepted,
    SideRefused,
    SyphonConnected,
    SyphonDisconnected,
)
from sbpair.pair.syphon.watch.claims import refusal_of
from sbpair.syphon import NamespaceUnusableError, Syphon, SyphonState
from tests.pair.syphon.pair import BACKLOGS, Pair, parked, running
from tests.waiting import PATIENCE, until

WRONG = SharedKey(lambda: ("RootManageSharedAccessKey", "d3Jvbmcga2V5"))
OFTEN = timedelta(milliseconds=100)


class Switched:
    """Valid tokens, or tokens of a wrong key, as the test selects."""

    def __init__(self, right: TokenSource) -> None:
        self.right, self.is_right = right, False

    async def token(self, audience: str) -> Token:
        return await (self.right if self.is_right else WRONG).token(audience)


class RefusedFor:
    """Valid tokens except for audiences with this suffix."""

    def __init__(self, right: TokenSource, path: str) -> None:
        self.right, self.path = right, path

    async def token(self, audience: str) -> Token:
        return await (WRONG if audience.endswith(self.path) else self.right).token(audience)


class OnlyFor(RefusedFor):
    """Valid tokens only for audiences with this suffix, like a key for one entity."""

    async def token(self, audience: str) -> Token:
        return await (self.right if audience.endswith(self.path) else WRONG).token(audience)


class Withheld(RefusedFor):
    """Valid tokens, withheld until the test releases them."""

    def __init__(self, right: TokenSource) -> None:
        super().__init__(right, "")
        self.go, self.asked = asyncio.Event(), 0

    async def token(self, audience: str) -> Token:
        self.asked += 1
        await self.go.wait()
        return await self.right.token(audience)


def give(syphon: Syphon, side: str, kind, *more):
    """Wrap the token source of one side of ``syphon``."""
    namespace = getattr(syphon, f"_{side}")
    tokens = kind(namespace.tokens, *more)
    setattr(syphon, f"_{side}", replace(namespace, tokens=tokens))
    return tokens


def cut(pair: Pair) -> None:
    """Lose the connections to the primary."""
    pair.primary.take_down("reset")
    pair.primary.bring_up()


@pytest.fixture
def soon(monkeypatch: pytest.MonkeyPatch) -> None:
    """Shorten the grace period from five seconds to a fifth of a second."""
    monkeypatch.setattr("sbpair.pair.syphon.status.GRACE", 0.2)


@pytest.mark.spec("R-26", "P-50")
@pytest.mark.parametrize("side", ["primary", "secondary"])
async def test_a_refusing_side_is_reported_settles_nothing_and_recovers_with_the_key(
    pair: Pair, soon: None, side: str
) -> None:
    syphon = pair.syphon(retry_backoff_max=OFTEN)
    key = give(syphon, side, Switched)
    await pair.park([parked(n) for n in range(10)])
    async with running(syphon):
        await until(lambda: len(pair.said(SyphonDisconnected)) >= 5)  # it goes on trying
        assert syphon.status.state is SyphonState.REFUSED
        assert f"the {side} refuses the syphon" in (syphon.status.reason or "")
        assert list(syphon.refusals) == [side]
        await until(lambda: [event.side for event in pair.said(SideRefused)] == [side])
        await until(lambda: len(pair.said(SyphonDisconnected)) >= 10)
        assert len(pair.said(SideRefused)) == 1
        assert {event.side for event in pair.said(SyphonDisconnected)} == {side}
        assert not pair.said(SyphonConnected)
        assert syphon.counters.received == 0
        assert (pair.waiting(), pair.set_aside()) == (10, 0)
        key.is_right = True
        await until(lambda: syphon.counters.completed == 10)
        assert syphon.status.state is SyphonState.RUNNING
        assert [event.side for event in pair.said(SideAccepted)] == [side]
        assert not syphon.refusals


@pytest.mark.spec("R-26")
async def test_a_replaced_connection_string_is_read_for_each_token(pair: Pair) -> None:
    given = pair.primary.connection_string
    text, asked = "no connection string", False
    syphon = Syphon.from_connection_strings(
        lambda: text if asked else given, pair.secondary.connection_string, options=pair.syphon().options
    )
    asked = True
    syphon.on_event(pair.events.append)
    await pair.park([parked(0)])
    async with running(syphon):
        await until(lambda: syphon.status.state is SyphonState.REFUSED)
        text = given
        await until(lambda: syphon.counters.completed == 1)


@pytest.mark.spec("R-26", "P-50")
@pytest.mark.parametrize("side", ["primary", "secondary"])
async def test_with_exit_on_refusal_the_syphon_stops_after_a_lasting_refusal(
    pair: Pair, soon: None, side: str
) -> None:
    syphon = pair.syphon(exit_on_refusal=True, retry_backoff_max=OFTEN)
    give(syphon, side, Switched)
    await pair.park([parked(n) for n in range(10)])
    async with asyncio.timeout(PATIENCE):
        with pytest.raises(NamespaceUnusableError, match=f"the {side} refuses the syphon: .*unauthorized"):
            await syphon.run(asyncio.Event())
    assert syphon.status.state is SyphonState.IDLE
    await until(lambda: pair.secondary.connection_count == 0 and pair.primary.connection_count == 0)
    assert (pair.waiting(), pair.set_aside()) == (10, 0)


@pytest.mark.spec("R-26", "R-25")
@pytest.mark.parametrize("side", ["primary", "secondary"])
async def test_a_drain_of_empty_backlogs_between_refusing_sides_proves_nothing(pair: Pair, side: str) -> None:
    syphon = pair.syphon()
    give(syphon, side, Switched)
    async with asyncio.timeout(PATIENCE):
        with pytest.raises(NamespaceUnusableError, match="unauthorized"):
            await syphon.drain()
    assert not pair.said(BacklogsDrained)


@pytest.mark.spec("R-26")
@pytest.mark.parametrize("side", ["primary", "secondary"])
async def test_the_syphon_reports_running_only_after_both_claims_were_accepted(pair: Pair, side: str) -> None:
    syphon = pair.syphon()
    key = give(syphon, side, Withheld)
    await pair.park([parked(0)])
    async with running(syphon):
        await until(lambda: key.asked > 0)
        assert syphon.status.state is SyphonState.CONNECTING
        assert syphon.counters.received == 0
        assert not pair.said(SyphonConnected)
        key.go.set()
        await until(lambda: syphon.counters.completed == 1)
        assert syphon.status.state is SyphonState.RUNNING


@pytest.mark.spec("R-26")
async def test_a_key_revoked_while_idle_is_noticed_when_its_token_expires(
    pair: Pair, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("sbpair.pair.auth.credential.TOKEN_SPAN", 2)
    monkeypatch.setattr("sbpair.pair.client.claims.REFRESH_MARGIN", 1.0)
    syphon = pair.syphon(retry_backoff_max=OFTEN)
    key = give(syphon, "primary", Switched)
    key.is_right = True
    async with running(syphon):
        await until(lambda: syphon.status.state is SyphonState.RUNNING)
        key.is_right = False
        await until(lambda: syphon.status.state is SyphonState.REFUSED)
        key.is_right = True
        await pair.park([parked(0)])
        await until(lambda: syphon.counters.completed == 1)
        await until(lambda: syphon.status.state is SyphonState.RUNNING)


@pytest.mark.spec("R-26", "F-61")
async def test_a_key_for_one_entity_is_proved_by_messages_parked_for_it(pair: Pair) -> None:
    syphon = pair.syphon(retry_backoff_max=OFTEN)
    give(syphon, "primary", OnlyFor, "/orders")
    async with running(syphon):
        await until(lambda: syphon.status.state is SyphonState.REFUSED)
        await pair.park([parked(0, "invoices"), parked(1, "orders")])
        await until(lambda: syphon.counters.completed == 1)
    assert (pair.waiting(), pair.set_aside()) == (1, 0)


@pytest.mark.spec("R-26", "F-61")
async def test_a_key_for_one_entity_is_proved_by_the_allowed_destinations(pair: Pair) -> None:
    syphon = pair.syphon(allowed_destinations=("invoices", "orders"))
    give(syphon, "primary", OnlyFor, "/orders")
    async with asyncio.timeout(PATIENCE):
        await syphon.drain()
    assert pair.said(BacklogsDrained)
    assert not pair.said(SideRefused)


@pytest.mark.spec("R-26", "F-61")
async def test_a_key_for_only_the_backlogs_is_proved_by_one_of_them(pair: Pair) -> None:
    syphon = pair.syphon()
    give(syphon, "secondary", OnlyFor, "/1")
    async with running(syphon):
        await pair.park([parked(0)], index=1)
        await until(lambda: syphon.counters.completed == 1)
        await until(lambda: syphon.status.state is SyphonState.REFUSED)  # it cannot serve the other one
        assert f"{pair.backlog(0)} is not attached" in (syphon.status.reason or "")
    assert not pair.said(SideRefused)


@pytest.mark.spec("R-26")
async def test_a_wrong_primary_key_is_reported_while_the_secondary_is_down(pair: Pair) -> None:
    syphon = pair.syphon(retry_backoff_max=OFTEN)
    give(syphon, "primary", Switched)
    pair.secondary.take_down("refuse")
    async with running(syphon):
        await until(lambda: "primary" in syphon.refusals)
    pair.secondary.bring_up()


@pytest.mark.spec("G-21", "F-61")
async def test_an_uncovered_path_ends_nothing_while_others_are_served(pair: Pair) -> None:
    syphon = pair.syphon(retry_backoff_max=timedelta(milliseconds=200))
    give(syphon, "primary", RefusedFor, "/invoices")
    async with running(syphon):
        await pair.park([parked(0)])
        await until(lambda: syphon.counters.completed == 1)
        await pair.park([parked(1, "invoices")])
        await until(lambda: sum(event.path == "invoices" for event in pair.said(DestinationHeld)) >= 8)
        await pair.park([parked(2)])
        await until(lambda: syphon.counters.completed == 2)
    assert not pair.said(SideRefused)
    assert (pair.waiting(), pair.set_aside()) == (1, 0)


@pytest.mark.slow
@pytest.mark.spec("R-119")
async def test_a_hundred_invented_paths_before_the_covered_ones_delay_only_themselves(
    pair: Pair,
) -> None:
    syphon = pair.syphon(retry_backoff_max=OFTEN)
    give(syphon, "primary", OnlyFor, "/orders")
    for index in range(BACKLOGS):
        await pair.park([parked(number, f"invented-{index}-{number}") for number in range(100)], index)
    await pair.park([parked(number) for number in range(20)], 1)
    async with running(syphon):
        await until(lambda: pair.primary.counts("orders").active == 20)
        assert syphon.status.state is SyphonState.RUNNING
    assert not pair.said(SideRefused)
    assert (pair.waiting(), pair.set_aside()) == (100 * BACKLOGS, 0)


@pytest.mark.spec("R-119")
async def test_one_invented_path_is_no_refusal_by_the_side(pair: Pair, soon: None) -> None:
    syphon = pair.syphon(retry_backoff_max=OFTEN, exit_on_refusal=True)
    give(syphon, "primary", OnlyFor, "/orders")
    await pair.park([parked(0)])
    async with running(syphon):
        await until(lambda: syphon.counters.completed == 1)
        cut(pair)  # and no link is open after it
        await pair.park([parked(1, "invented")])
        await until(lambda: len(pair.said(DestinationHeld)) >= 5)
        assert syphon.status.state is SyphonState.RUNNING
        await pair.park([parked(2)], 1)
        await until(lambda: syphon.counters.completed == 2)
    assert not pair.said(SideRefused)


@pytest.mark.spec("R-119")
async def test_with_exit_on_refusal_the_syphon_ends_once_its_only_entity_is_refused(
    pair: Pair, soon: None
) -> None:
    syphon = pair.syphon(retry_backoff_max=OFTEN, exit_on_refusal=True)
    key = give(syphon, "primary", OnlyFor, "/orders")
    await pair.park([parked(0), parked(1, "invented")])
    task = asyncio.create_task(syphon.run(asyncio.Event()))
    await until(lambda: syphon.counters.completed == 1)
    key.path = "/another"
    cut(pair)
    async with asyncio.timeout(PATIENCE):
        with pytest.raises(NamespaceUnusableError, match=r"the primary refuses the syphon: .*unauthorized"):
            await task


async def test_a_side_whose_claims_node_does_not_answer_is_retried() -> None:
    """A refused link to $cbs says nothing about the credential, so the syphon keeps trying."""

    class Silent:
        async def authorize(self, path: str) -> None:
            raise LinkRefusedError("no link to $cbs: no answer within 60 s")

    with pytest.raises(ConnectionLostError, match=r"\$cbs"):
        await refusal_of(Silent(), ("orders",))  # type: ignore[arg-type]


@pytest.mark.spec("R-26", "H-40")
@pytest.mark.parametrize("symbol", [SERVER_BUSY, TIMEOUT])
async def test_a_side_too_busy_to_judge_a_claim_has_not_refused_it(symbol: str) -> None:
    class Busy:
        async def authorize(self, path: str) -> None:
            raise TokenRefusedError("no access", Condition(symbol, "later"))

    with pytest.raises(ConnectionLostError, match="no claim can be made"):
        await refusal_of(Busy(), ("", "orders"))  # type: ignore[arg-type]
