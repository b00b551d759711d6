"""Public files for the vendor's emulator, as others wrote them: only facts about them are kept here."""

from __future__ import annotations

import hashlib
import urllib.request
from typing import NamedTuple

import pytest

from sbpair.broker.configuration import read_emulator_file


class Public(NamedTuple):
    """A file at a commit: its digest, the paths of its entities, and their deliveries in the same order."""

    address: str
    digest: str
    paths: tuple[str, ...]
    deliveries: tuple[int, ...]


FILES = (
    Public(
        "Azure/azure-service-bus-emulator-installer/d7f4e328a362af3124572516222a9c2bf88a69c5/"
        "ServiceBus-Emulator/Config/Prover/Config.json",
        "79a21ebf8a5763a394136b54c1043e39e8fb5bdd75cbd413773bc3d0672d40c2",
        ("background-task", "import-event-status", "prover-worker"),
        (3, 3, 3),
    ),
    Public(
        "FoundatioFx/Foundatio.AzureServiceBus/527750abeb0e64d99114d365c3c93f5f7fc16101/"
        "ServiceBus-Emulator/Config/Config.json",
        "eaaefb190133c83a4a0ee31ec7607b961ccc1e9b6e54ae9f88b5936ae139eed0",
        (
            "foundatio-test-queue",
            "foundatio-test-queue-duplicate-detection",
            "test-messages/test-subscription",
        ),
        (5, 5, 5),
    ),
    Public(
        "ljtill/agent-stack/38491a494d3bbd116b72e16178a67cd698a5b699/servicebus-config.json",
        "0bcb1f02a2d88f041c96c15f54d319e26f2bc22f9213ad3ada87dc5e2896d232",
        ("pipeline-events/web-consumer",),
        (5,),
    ),
)


@pytest.mark.parametrize("public", FILES, ids=lambda public: public.address.split("/")[0])
def test_a_public_emulator_file_is_read_completely(public: Public) -> None:
    try:
        with urllib.request.urlopen(
            f"https://raw.githubusercontent.com/{public.address}", timeout=10
        ) as answer:
            raw = answer.read(1_000_000)
    except OSError as error:
        pytest.skip(f"not reachable from here: {error}")
    if hashlib.sha256(raw).hexdigest() != public.digest:
        pytest.skip("it is another file than the one whose facts are kept here")
    warnings: list[str] = []
    (plan,) = read_emulator_file("Config.json", raw.decode("utf-8-sig"), warnings.append)
    found = {path: queue.max_delivery_count for path, queue in plan.queues.items()}
    for topic, described in plan.topics.items():
        for name, subscription in described.subscriptions.items():
            found[f"{topic}/{name}"] = subscription.description.max_delivery_count
    assert found == dict(zip(public.paths, public.deliveries, strict=True))
    assert warnings == []
