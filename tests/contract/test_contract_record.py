"""A recording of a run has no secret, and is replayed against another broker (K-6)."""

from __future__ import annotations

import asyncio
import base64
import json
import stat
import zlib
from collections.abc import Callable, Mapping
from pathlib import Path

import pytest

from sbpair.broker import Broker, RejectWith
from sbpair.broker.testing.frames import IN, OUT
from sbpair.contract import record as recording
from sbpair.contract.book import entries
from sbpair.contract.cli.verify import names_of
from sbpair.contract.entry import Verdict
from sbpair.contract.plan import Rights, Step, make_plan, select
from sbpair.contract.record import EntryRecord, Recorder
from sbpair.contract.run import Run
from sbpair.contract.target import Target as Namespace
from sbpair.pair.amqp.composite import encode_composite
from sbpair.pair.amqp.encoding import AMQP_HEADER, frame
from sbpair.pair.amqp.message import Message, ValueBody
from sbpair.pair.amqp.performatives import Attach, Source, Target, Transfer
from sbpair.pair.ground.side import Side
from tests.contract.conftest import NAMES, over_tls_with_the_sdk, targets_of
from tests.contract.replay import Recorded, parts, read_recording, replay

ENTRIES = (
    "sending-2",
    "settling-1",
    "locks-6",
    "peeking-1",
    "sessions-1",
    "transactions-3",
    "schedule-1",
    "wire-2",
)


def _record(
    broker: Broker,
    file: Path,
    only: tuple[str, ...] = ENTRIES,
    through: Mapping[Side, Namespace] | None = None,
) -> list[Recorded]:
    targets = through or targets_of(broker)
    plan = make_plan(select(entries(), only), {side: Rights() for side in Side}, run="0badcafe")

    async def run() -> None:
        recorder = Recorder(file, plan, names_of(targets), tiers=dict.fromkeys(Side, "Standard"))
        found = await Run(targets, plan, recorder=recorder).findings()
        recorder.close()
        assert {each.verdict for each in found} == {Verdict.HOLDS}

    asyncio.run(run())
    return read_recording(file)


def _replay(broker: Broker, those: list[Recorded]) -> dict[str, list[str]]:
    targets = targets_of(broker)

    async def all_of_them() -> list[list[str]]:
        return await asyncio.gather(*(replay(each, targets) for each in those))

    return dict(zip([each.entry for each in those], asyncio.run(all_of_them()), strict=True))


@pytest.mark.slow
@pytest.mark.client("sbpair")
@pytest.mark.spec("K-6")
def test_a_recorded_run_is_matched_by_another_broker_and_not_by_a_wrong_one(
    broker_of: Callable[..., Broker], tmp_path: Path
) -> None:
    with broker_of() as broker:
        recorded = _record(broker, tmp_path / "run.jsonl")
    with broker_of() as another:
        same = _replay(another, recorded)
    busy = RejectWith("com.microsoft:server-busy", "busy")
    with broker_of() as wrong, wrong.namespace("contoso").fault(None, busy, operation="settle"):
        (settling,) = [each for each in recorded if each.entry == "settling-1"]
        otherwise = _replay(wrong, [settling])["settling-1"]

    assert same == {name: [] for name in ENTRIES if name in same}
    assert set(same) == set(ENTRIES)
    assert any("it answered 'confirmed accepted, settled'" in each for each in otherwise), otherwise


@pytest.mark.client("sbpair")
@pytest.mark.spec("K-6", "W-8")
def test_a_recording_has_what_the_sdk_sends_and_is_answered_and_is_replayed(
    broker_of: Callable[..., Broker], tmp_path: Path
) -> None:
    with broker_of() as broker:
        ca_file = str(broker.ca_file)
        targets = {
            side: over_tls_with_the_sdk(broker.namespace(name), ca_file) for side, name in NAMES.items()
        }
        recorded = _record(broker, tmp_path / "run.jsonl", ("fidelity-8", "fidelity-9"), targets)
    passed = {each.entry: b"".join(frame.raw for frame in each.frames) for each in recorded}
    with broker_of() as another:
        same = _replay(another, recorded)

    assert all(b"azsdk-python-servicebus" in each for each in passed.values())
    assert all(len(each.connections) == 2 for each in recorded)
    assert same == {"fidelity-8": [], "fidelity-9": []}


@pytest.mark.client("sbpair")
@pytest.mark.spec("K-6", "W-8")
def test_a_recording_has_the_exchanges_with_the_administration_api(
    broker_of: Callable[..., Broker], tmp_path: Path
) -> None:
    file = tmp_path / "run.jsonl"
    with broker_of() as broker:
        _record(broker, file, ("names-2", "sending-1"))
        keys = [
            broker.namespace(name).connection_string.split("SharedAccessKey=")[1] for name in NAMES.values()
        ]
    head, *lines = [json.loads(line) for line in file.read_text("utf-8").splitlines()]
    found = {line["entry"]: [each for _, each in line["exchanges"]] for line in lines}

    created, deleted = found["sending-1"][0], found["sending-1"][-1]
    assert (created["method"], created["status"]) == ("PUT", 201)
    assert (deleted["method"], deleted["status"]) == ("DELETE", 200)
    assert created["target"].startswith("/sbpair-verify-0badcafe-")
    assert "<QueueDescription" in created["request_body"]
    assert "<QueueDescription" in created["body"]
    assert "authorization" not in {
        name.lower() for each in found["sending-1"] for name in each["request_headers"]
    }
    assert not any(key.split(";")[0] in file.read_text("utf-8") for key in keys)
    assert head["tiers"] == {"primary": "Standard", "secondary": "Standard"}


@pytest.mark.slow
@pytest.mark.spec("K-6")
def test_a_recording_contains_no_key_signature_or_host_name(
    broker_of: Callable[..., Broker], tmp_path: Path
) -> None:
    file = tmp_path / "run.jsonl"
    with broker_of() as broker:
        recorded = _record(broker, file, ("sending", "tokens"))
        targets = targets_of(broker)
        keys = [
            broker.namespace(name).connection_string.split("SharedAccessKey=")[1].split(";")[0].encode()
            for name in NAMES.values()
        ]
    passed = b"".join(frame.raw for each in recorded for frame in each.frames)

    assert passed.count(b"&sig=") > 8
    assert passed.count(b"&sig=") == passed.count(b"&sig=***&")
    for text in (passed, file.read_bytes()):
        assert not any(key in text for key in keys)
        assert not any(name.encode() in text for name in names_of(targets))
    assert stat.S_IMODE(file.stat().st_mode) == 0o600


@pytest.mark.spec("K-6")
def test_a_token_is_redacted_however_it_is_split() -> None:
    token = "eyJhbGciOiJub25lIn0.eyJhdWQiOiJhIn0." + "c2lnbmF0dXJl" * 9
    payload = Message(application_properties={"operation": "put-token"}, body=ValueBody(token)).encode()
    attach = encode_composite(Attach("cbs", 0, False, source=Source("cbs"), target=Target("$cbs")))
    begin, rest = Transfer(0, 1, b"\0", more=True), Transfer(0, more=False)
    half = len(payload) // 2
    data = AMQP_HEADER + frame(0, attach)
    for transfer, piece in ((begin, payload[:half]), (rest, payload[half:])):
        data += frame(0, encode_composite(transfer), len(piece)) + piece
    record = EntryRecord(Step(select(entries(), ["tokens-1"])[0], {"q": "q"}), str, str)
    tap = record.tap(Side.PRIMARY)
    for at in range(len(data)):
        tap(True, data[at : at + 1])
    kept = [zlib.decompress(base64.b64decode(packed)) for *_, packed in record.line()["frames"]]

    assert len(kept) == 3
    assert b"***" in kept[-1]
    assert b"c2lnbmF0dXJl" not in b"".join(kept)


@pytest.mark.spec("K-6")
def test_an_entry_whose_recording_was_truncated_is_not_replayed(
    broker_of: Callable[..., Broker], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(recording, "MAX_ENTRY", 500)
    with broker_of() as broker:
        (each,) = _record(broker, tmp_path / "run.jsonl", ("sending-1",))

    assert sum(len(json.dumps(frame.raw.hex())) for frame in each.frames) < 5_000
    with pytest.raises(ValueError, match="sending-1 cannot be replayed"):
        asyncio.run(replay(each, {}))


@pytest.mark.spec("K-6")
def test_a_recording_ends_at_its_size_limit_and_says_so(
    broker_of: Callable[..., Broker], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(recording, "MAX_FILE", 400)
    plan = make_plan((), {side: Rights() for side in Side}, run="0badcafe")
    recorder = Recorder(tmp_path / "run.jsonl", plan, {})
    record = recorder.begin(Step(select(entries(), ["sending-1"])[0], {"q": "q" * 400}))
    from sbpair.contract.entry import Finding

    recorder.end(record, Finding(select(entries(), ["sending-1"])[0], Verdict.HOLDS, "seen"))
    recorder.close()

    assert "larger than" in recorder.failure
    assert read_recording(tmp_path / "run.jsonl") == []


@pytest.mark.client("sbpair")
@pytest.mark.spec("K-2", "K-4")
def test_the_price_counts_each_64_kb_of_a_message_sent_and_received(
    broker_of: Callable[..., Broker], tmp_path: Path
) -> None:
    with broker_of("Premium") as broker:
        (large,) = _record(broker, tmp_path / "run.jsonl", ("limits-2",))
    sent = {
        way: sum(len(parts(each.raw)[2]) for each in large.frames if each.direction == way)
        for way in (IN, OUT)
    }

    assert select(entries(), ["limits-2"])[0].price.total == sum(-(-size // 65_536) for size in sent.values())
