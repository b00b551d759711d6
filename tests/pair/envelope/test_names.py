"""The names of backlog queues and of namespaces."""

from __future__ import annotations

import pytest

from sbpair.pair.envelope.names import backlog_queue_name, is_backlog_queue, namespace_label, path_key


@pytest.mark.spec("P-10")
def test_a_backlog_queue_is_named_after_the_primary_namespace_and_its_number() -> None:
    assert backlog_queue_name("contoso", 0) == "contoso/x-servicebus-transfer/0"
    assert backlog_queue_name("contoso", 19) == "contoso/x-servicebus-transfer/19"


@pytest.mark.spec("P-10")
@pytest.mark.parametrize(
    ("endpoint", "label"),
    [
        ("sb://Contoso.servicebus.windows.net/", "contoso"),
        ("contoso.servicebus.windows.net", "contoso"),
        ("contoso.servicebus.windows.net:5671", "contoso"),
        ("10.0.0.4:5672", "10.0.0.4"),
        ("sb://[fe80::1]:5672", "fe80::1"),
    ],
)
def test_a_namespace_is_called_by_the_first_label_of_its_host(endpoint: str, label: str) -> None:
    assert namespace_label(endpoint) == label


@pytest.mark.spec("R-60")
@pytest.mark.parametrize(
    ("endpoint", "label"),
    [
        ("sb://localhost:5672", "localhost-5672"),
        ("127.0.0.1:5672", "127.0.0.1-5672"),
        ("sb://[::1]:5672/", "::1-5672"),
        ("localhost", "localhost"),
    ],
)
def test_a_local_namespace_name_includes_its_port(endpoint: str, label: str) -> None:
    assert namespace_label(endpoint) == label


def test_an_endpoint_without_a_host_has_no_name() -> None:
    with pytest.raises(ValueError, match="without a host"):
        namespace_label("sb:///orders")


@pytest.mark.spec("P-10")
@pytest.mark.parametrize(
    ("path", "is_one"),
    [
        ("contoso/x-servicebus-transfer/0", True),
        ("Contoso/X-ServiceBus-Transfer/12", True),
        ("contoso/x-servicebus-transfer/x", False),
        ("x-servicebus-transfer/0", False),
        ("orders", False),
    ],
)
def test_a_backlog_queue_is_known_by_its_path(path: str, is_one: bool) -> None:
    assert is_backlog_queue(path) is is_one


@pytest.mark.spec("P-6")
def test_paths_that_differ_only_in_case_are_one_entity() -> None:
    assert path_key("Orders/EU") == path_key("orders/eu")
