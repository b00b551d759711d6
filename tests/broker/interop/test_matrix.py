"""Every cell of the table of docs/evidence/interop.md is a test or has a reason."""

from __future__ import annotations

from tests.broker.interop.matrix import CANNOT, CAPABILITIES, PEERS, cells

EVERY = {(peer, capability) for peer in PEERS for capability in CAPABILITIES}


def test_every_cell_has_a_test_or_a_reason_why_not():
    assert EVERY - cells().keys() - CANNOT.keys() == set()


def test_what_cannot_be_is_not_tested():
    assert cells().keys() & CANNOT.keys() == set()


def test_no_mark_names_an_unknown_peer_or_capability():
    assert (cells().keys() | CANNOT.keys()) - EVERY == set()
