"""A short run of the fuzzer of tests/pair/amqp/fuzz.py, and proof that it finds errors."""

from __future__ import annotations

import random

import pytest

from sbpair.pair.amqp.connection import Connection
from sbpair.pair.amqp.message import Message
from tests.pair.amqp import fuzz
from tests.pair.amqp.malformed import mutated


def test_broken_conversations_cause_answers_and_never_exceptions():
    assert list(fuzz.findings(0, 300)) == []


def test_a_live_broker_keeps_serving_after_broken_conversations():
    assert fuzz.broker_findings(0, 60) == []


@pytest.mark.parametrize(("owner", "name"), [(Message, "decode"), (Connection, "receive_data")])
def test_the_fuzzer_finds_an_injected_defect(monkeypatch, owner, name):
    def broken(*_: object, **__: object) -> None:
        raise KeyError("put in")

    monkeypatch.setattr(owner, name, staticmethod(broken) if name == "decode" else broken)
    assert any("put in" in found.what for found in fuzz.findings(0, 40))


def test_a_fuzzing_run_is_reproducible():
    def said(seed: int) -> bytes:
        return mutated(fuzz.CLIENT_SAID, fuzz.EVERY_FRAME, random.Random(f"server {seed}"))

    assert said(17) == said(17) != said(18)
