"""The paths that a parked message may name."""

from __future__ import annotations

import pytest

from sbpair.pair.envelope.names import path_refusal


@pytest.mark.spec("P-42")
@pytest.mark.parametrize("path", ["orders", "Orders", "sales/eu/orders", "a.b-c_d", "Zürich", "x" * 260])
def test_a_path_of_a_sendable_entity_is_accepted(path: str) -> None:
    assert path_refusal(path) is None


@pytest.mark.spec("F-74", "S-16")
@pytest.mark.parametrize(
    ("path", "says"),
    [
        ("", "empty"),
        ("x" * 261, "260"),
        ("https://elsewhere.example/orders", "absolute"),
        ("sb://elsewhere/orders", "absolute"),
        ("$management", "reserved"),
        ("$cbs", "reserved"),
        ("orders/$management", "reserved"),
        ("orders/$DeadLetterQueue", "reserved"),
        ("orders/$deadletterqueue", "reserved"),
        ("orders/$Transfer/$DeadLetterQueue", "reserved"),
        ("news/Subscriptions/all", "subordinate"),
        ("..", "segments"),
        ("a/../b", "segments"),
        ("a/./b", "segments"),
        ("/orders", "segments"),
        ("orders/", "segments"),
        ("a//b", "segments"),
        ("contoso/x-servicebus-transfer/3", "backlog"),
        ("contoso/X-ServiceBus-Transfer/3", "backlog"),
        ("orders\r\nx", "character"),
        ("orders?x", "character"),
        ("%2e%2e/orders", "character"),
        ("orders\\x", "character"),
    ],
)
def test_a_path_that_leads_elsewhere_is_refused_with_the_reason(path: str, says: str) -> None:
    refusal = path_refusal(path)

    assert refusal is not None
    assert says in refusal
