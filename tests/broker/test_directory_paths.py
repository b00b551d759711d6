"""Paths are compared without regard to the case of ASCII letters, and of no others."""

from __future__ import annotations

import pytest

from sbpair.broker.entities.descriptions import fold
from sbpair.pair.envelope.names import path_key

FOREIGN = ["order\u017f", "\u212aitchen", "stra\u00dfe", "\u0130"]


@pytest.mark.spec("R-119")
@pytest.mark.parametrize("path", [*FOREIGN, "Orders/EU", "orders"])
def test_client_syphon_and_broker_compare_paths_alike_ignoring_ascii_case(path: str) -> None:
    assert path_key(path) == fold(path)
    assert fold(path) not in {"orders", "kitchen", "strasse", "i"} or path.isascii()


@pytest.mark.spec("R-119")
def test_a_path_with_a_long_s_names_another_entity() -> None:
    assert path_key("order\u017f") != path_key("ORDERS") == path_key("orders")
