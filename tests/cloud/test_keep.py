"""A recording of `sbpair verify` becomes data of the tests by one command."""

from __future__ import annotations

import asyncio
import json
from collections.abc import Callable
from pathlib import Path

import pytest

from sbpair.broker import Broker
from sbpair.contract.book import entries
from sbpair.contract.cli.verify import names_of
from sbpair.contract.plan import Rights, make_plan, select
from sbpair.contract.record import Recorder
from sbpair.contract.run import Run
from sbpair.pair.ground.side import Side
from tests.cloud import keep as keeping
from tests.cloud.exchanges import of_runs
from tests.cloud.verified import DATA, runs
from tests.contract.conftest import NAMES, over_tls_with_the_sdk

pytestmark = [pytest.mark.client("sbpair"), pytest.mark.spec("W-7", "W-8")]


def recorded(file: Path, *only: str, tier: str = "Standard") -> None:
    """Record a run of entries against a broker."""
    with Broker(dict.fromkeys(NAMES.values(), 0), tier=tier) as broker:
        ca_file = str(broker.ca_file)
        targets = {
            side: over_tls_with_the_sdk(broker.namespace(name), ca_file) for side, name in NAMES.items()
        }
        plan = make_plan(select(entries(), only), {side: Rights() for side in Side}, run="0badcafe")

        async def run() -> None:
            recorder = Recorder(file, plan, names_of(targets), tiers=dict.fromkeys(Side, tier))
            await Run(targets, plan, recorder=recorder).findings()
            recorder.close()

        asyncio.run(run())


def test_a_kept_recording_is_replayed_over_http_and_amqp_and_is_a_witness(tmp_path: Path) -> None:
    recorded(tmp_path / "sent.jsonl", "names-2", "sending-1", "fidelity-8", "forwarding-1")
    kept = keeping.keep(tmp_path / "sent.jsonl", "2026-12-01-here-standard", tmp_path / "data")

    assert list(keeping.differences(kept, tmp_path / "data")) == []
    assert {each.tier for each in of_runs(tmp_path / "data")} == {"Standard"}
    statuses = {exchange.seen.status for each in of_runs(tmp_path / "data") for exchange in each.exchanges}
    assert statuses >= {200, 201}
    assert {"sending-1", "fidelity-8"} <= {each.entry for each in kept.frames()}
    assert set(kept.with_verdict("holds")) == {"names-2", "sending-1", "fidelity-8", "forwarding-1"}


def test_a_kept_recording_that_the_broker_does_not_match_is_told(tmp_path: Path) -> None:
    recorded(tmp_path / "sent.jsonl", "sending-1")
    sent = (tmp_path / "sent.jsonl").read_text("utf-8").replace('"status": 201', '"status": 202')
    (tmp_path / "sent.jsonl").write_text(sent, "utf-8")
    kept = keeping.keep(tmp_path / "sent.jsonl", "other", tmp_path / "data")

    assert any("status : 202" in each for each in keeping.differences(kept, tmp_path / "data"))


@pytest.mark.parametrize("tier", ["Basic", "Premium"])
def test_a_kept_recording_is_replayed_on_the_tier_that_it_names(tmp_path: Path, tier: str) -> None:
    recorded(tmp_path / "sent.jsonl", "sending-1", "names-5", tier=tier)
    kept = keeping.keep(tmp_path / "sent.jsonl", tier.lower(), tmp_path / "data")

    assert kept.tier == tier
    assert list(keeping.differences(kept, tmp_path / "data")) == []
    assert {each.tier for each in of_runs(tmp_path / "data")} == {tier}


@pytest.mark.parametrize(
    ("change", "why"),
    [
        (lambda head: {**head, "format": 1}, "is of form 1, not 2"),
        (lambda head: {**head, "run": "SharedAccessKey=c2VjcmV0"}, "has a key or a signature"),
    ],
    ids=["an older form", "a key"],
)
def test_a_file_of_another_form_or_with_a_key_is_not_kept(
    tmp_path: Path, change: Callable[[dict[str, object]], object], why: str
) -> None:
    head: dict[str, object] = {"format": 2, "at": "2026-12-01T00:00:00", "hosts": [], "tiers": {}, "run": "r"}
    (tmp_path / "sent.jsonl").write_text(json.dumps(change(head)) + "\n", "utf-8")
    with pytest.raises(ValueError, match=why):
        keeping.keep(tmp_path / "sent.jsonl", "none", tmp_path / "data")
    assert not list(tmp_path.glob("data/*"))


@pytest.mark.slow
def test_the_broker_answers_as_every_kept_run_of_the_service() -> None:
    assert [text for run in runs() for text in keeping.differences(run)] == []
    assert all(run.name for run in runs(DATA))
