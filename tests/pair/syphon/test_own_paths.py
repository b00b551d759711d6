"""Which refusal of a path is one by the primary as a whole (R-119)."""

from __future__ import annotations

import pytest

from sbpair.pair.syphon.watch.claims import MAX_OWN, OwnPaths

pytestmark = pytest.mark.spec("R-119")


def refused(own: OwnPaths, *paths: str) -> list[bool]:
    return [own.note_refusal(path, others_are_open=False) for path in paths]


def test_a_key_for_single_entities_is_refused_with_the_last_of_them() -> None:
    own = OwnPaths()
    own.accepted("orders")
    own.accepted("invoices")
    assert refused(own, "invented", "ORDERS", "invented", "invoices") == [False, False, False, True]
    own.accepted("orders")
    assert refused(own, "invoices") == [False]


def test_a_namespace_key_is_refused_with_the_first_path_or_an_accepted_one() -> None:
    own = OwnPaths()
    own.is_for_namespace = True
    assert refused(own, "orders") == [True]
    own.accepted("orders")
    own.accepted("invoices")
    assert refused(own, "invented", "orders") == [False, True]


def test_a_refusal_beside_an_open_link_concerns_only_its_path() -> None:
    own = OwnPaths()
    own.accepted("orders")
    assert not own.note_refusal("orders", others_are_open=True)


def test_the_latest_paths_are_remembered() -> None:
    own = OwnPaths()
    for number in range(MAX_OWN + 1):
        own.accepted(f"orders-{number}")
    own.accepted("orders-1")
    assert len(own.paths) == MAX_OWN
    assert own.paths[:2] == ("orders-1", f"orders-{MAX_OWN}")
    assert "orders-0" not in own.paths
