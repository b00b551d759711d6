"""Every cell of the table of docs/evidence/interop.md is a test or has a reason."""

from __future__ import annotations

from tests.broker.interop.matrix import CANNOT, CAPABILITIES, PEERS, cells

EVERY = {(peer, capability) for peer in PEERS for capability in CAPABILITIES}


def test_every_cell_has_a_test_or_a_reason_why_not():
    assert EVERY - cells().keys() - CANNOT.keys() == set()


def test_unsupported_combinations_are_not_tested():
    assert cells().keys() & CANNOT.keys() == set()


def test_marks_name_only_known_peers_and_capabilities():
    assert (cells().keys() | CANNOT.keys()) - EVERY == set()
