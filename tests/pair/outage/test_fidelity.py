"""A message that went through a backlog looks to foreign clients like one that did not.

rhea sends, and rhea and proton receive. The broker and the syphon share one codec, in which two mistakes could
cancel out; foreign clients at both ends rule that out.
"""

from __future__ import annotations

import json
from collections.abc import Iterator
from pathlib import Path
from uuid import UUID

import pytest

from sbpair.broker import Broker
from sbpair.pair.amqp.sections import split
from sbpair.syphon import Syphon, SyphonOptions
from tests.peers import needs_proton, run_node

needs_proton()

import proton  # noqa: E402
from proton.utils import BlockingConnection  # noqa: E402

pytestmark = pytest.mark.interop

SCRIPT = Path(__file__).with_name("fidelity.js")
BACKLOG = "contoso/x-servicebus-transfer/0"


@pytest.fixture
def broker() -> Iterator[Broker]:
    with Broker({"contoso": 0, "contoso-dr": 0}, open_access=True) as broker:
        for path in ("direct", "detour"):
            broker.namespace("contoso").create_queue(path)
        broker.namespace("contoso-dr").create_queue(BACKLOG)
        yield broker


def node(*arguments: object) -> str:
    with run_node(SCRIPT, *map(str, arguments)) as process:
        try:
            said, complaint = process.communicate(timeout=30)
        finally:
            process.kill()
    assert process.returncode == 0, complaint
    return said


async def send_both_ways(broker: Broker) -> int:
    """Send the same typed message to ``direct`` and, through the syphon, to ``detour``; return the port."""
    primary, secondary = broker.namespace("contoso"), broker.namespace("contoso-dr")
    node("send", primary.port, "direct", "-")
    node("send", secondary.port, BACKLOG, "detour")
    options = SyphonOptions(backlog_queue_count=1, primary_namespace_name="contoso")
    syphon = Syphon.from_connection_strings(
        primary.connection_string, secondary.connection_string, options=options
    )
    counters = await syphon.drain()
    assert (counters.completed, counters.dead_lettered) == (1, 0)
    return primary.port


@pytest.mark.spec("F-82", "G-22", "G-5", "P-21")
async def test_rhea_reads_the_same_bytes_and_values_by_either_way(broker: Broker) -> None:
    port = await send_both_ways(broker)
    direct, detour = (json.loads(node("receive", port, path)) for path in ("direct", "detour"))

    straight, round_about = split(bytes.fromhex(direct.pop("raw"))), split(bytes.fromhex(detour.pop("raw")))
    assert round_about.properties == straight.properties
    assert round_about.application_properties == straight.application_properties
    assert round_about.body == straight.body
    assert round_about.footer == straight.footer
    assert detour == direct
    assert detour["long"] == 2**40
    assert detour["uint"] == 4_000_000_000
    assert detour["binary"] == "fffe8000c3"
    assert detour["uuid"] == "ffeeddccbbaa99887766554433221100"
    assert detour["group_id"] == "session-1"
    assert not [name for name in detour["names"] if name.startswith("x-")]


@pytest.mark.spec("F-82", "G-22", "P-21")
async def test_proton_reads_the_same_types_and_annotations_by_either_way(broker: Broker) -> None:
    port = await send_both_ways(broker)
    connection = BlockingConnection(f"localhost:{port}", timeout=10, allowed_mechs="ANONYMOUS")
    try:
        messages = []
        for path in ("direct", "detour"):
            receiver = connection.create_receiver(path, credit=1)
            messages.append(receiver.receive(timeout=10))
            receiver.accept()
    finally:
        connection.close()
    straight, round_about = messages

    assert typed(round_about.properties) == typed(straight.properties)
    expected = [
        ("long", "int", 2**40),
        ("uint", "uint", 4_000_000_000),
        ("timestamp", "timestamp", 1795219200000),
        ("symbol", "symbol", "a-symbol"),
        ("binary", "bytes", b"\xff\xfe\x80\x00\xc3"),
        ("uuid", "UUID", UUID("ffeeddcc-bbaa-9988-7766-554433221100")),
    ]
    assert [each for each in expected if each not in typed(round_about.properties)] == []
    assert round_about.id == straight.id == UUID("00112233-4455-6677-8899-aabbccddeeff")
    assert round_about.body == straight.body
    assert round_about.group_id == "session-1"
    assert annotations(round_about) == annotations(straight)
    assert annotations(round_about)["x-opt-scheduled-enqueue-time"] == ("timestamp", 1700000000000)


def typed(properties: dict[str, object]) -> list[tuple[str, str, object]]:
    plain = {name: bytes(v) if isinstance(v, memoryview) else v for name, v in properties.items()}
    return [(name, type(value).__name__, value) for name, value in plain.items()]


def annotations(message: proton.Message) -> dict[str, tuple[str, object]]:
    its_own = {
        "x-opt-sequence-number",
        "x-opt-enqueue-sequence-number",
        "x-opt-enqueued-time",
        "x-opt-locked-until",
    }
    found = {str(key): (type(value).__name__, value) for key, value in message.annotations.items()}
    return {key: value for key, value in found.items() if key not in its_own}
