"""Naming the pair of a sink or a syphon, each side by a connection string or by its name and the ambient credential."""

from __future__ import annotations

import pytest
from azure.core.credentials import AzureNamedKeyCredential

from sbpair.data.spark import format_options
from sbpair.data.spark.message_sink import SinkOptions, paired_client
from sbpair.data.spark.source_options import SourceOptions
from sbpair.data.spark.syphon_source import DrainOptions, syphon_between

HOSTS = ("one.example", "two.example")
STRINGS = {
    "connectionString": "Endpoint=sb://one.example;SharedAccessKeyName=n;SharedAccessKey=k",
    "secondaryConnectionString": "Endpoint=sb://two.example;SharedAccessKeyName=n;SharedAccessKey=k",
}
NAMES = {"fullyQualifiedNamespace": "one.example", "secondaryFullyQualifiedNamespace": "two.example"}
WAYS = {
    "endpointAddress": "gate.example:5671",
    "secondaryEndpointAddress": "gate.example:5672",
    "overWebSocket": "true",
}


@pytest.mark.parametrize("primary", [STRINGS, NAMES], ids=["string", "name"])
@pytest.mark.parametrize("secondary", [STRINGS, NAMES], ids=["string", "name"])
def test_each_side_is_given_by_connection_string_or_name(
    monkeypatch: pytest.MonkeyPatch, primary: dict[str, str], secondary: dict[str, str]
) -> None:
    monkeypatch.setattr(format_options, "ambient", lambda: AzureNamedKeyCredential("n", "k"))
    given = dict([next(iter(primary.items())), [*secondary.items()][1]]) | WAYS

    syphon = syphon_between(DrainOptions.of(given), 0)
    assert tuple(each.netloc for each in syphon.namespaces) == HOSTS
    with paired_client(SinkOptions.of(given)) as client:
        assert (client.primary.endpoint, client.secondary.endpoint) == HOSTS
        ways = [(each.host, each.port, each.route.over_websocket) for each in syphon.namespaces]
        assert ways == [("gate.example", 5671, True), ("gate.example", 5672, True)]
        reached = [side.access() for side in client._runtime.namespaces]
        assert [(each.host, each.port, each.route.over_websocket) for each in reached] == ways


@pytest.mark.spec("R-236")
@pytest.mark.parametrize("given", [STRINGS, NAMES], ids=["string", "name"])
def test_a_pair_of_one_namespace_is_refused_before_any_task_runs(given: dict[str, str]) -> None:
    one = next(iter(given.values()))
    with pytest.raises(ValueError, match="name the same namespace: a pair has two"):
        SinkOptions.of(dict.fromkeys(given, one))


SAME = "name the same namespace: a pair has two"
TO_ONE = {
    "secondaryConnectionString": "Endpoint=sb://ONE.example/;SharedAccessKeyName=other;SharedAccessKey=x"
}
FAULTS = {
    "the same by another key": (TO_ONE, SAME),
    "the same by another way": (TO_ONE | {"endpointAddress": "gate.example:5671"}, SAME),
    "no connection string": (
        {"connectionString": "Endpoint=sb://one.example"},
        "connectionString: .* no SharedAccessKeyName",
    ),
    "no address": (
        {"secondaryEndpointAddress": "gate.example:high"},
        "secondaryConnectionString: .* is not an address",
    ),
    "no name for backlogs": ({"primaryNamespaceName": "a/b"}, "primaryNamespaceName must be a plain name"),
    "one short name": (
        {"secondaryConnectionString": "Endpoint=sb://one.other;SharedAccessKeyName=n;SharedAccessKey=k"},
        "both called 'one'; set primaryNamespaceName",
    ),
}


@pytest.mark.spec("R-236")
@pytest.mark.parametrize("options", [SinkOptions, DrainOptions])
@pytest.mark.parametrize("fault", FAULTS)
def test_unusable_options_are_refused_on_the_driver(
    options: type[SinkOptions | DrainOptions], fault: str
) -> None:
    given, said = FAULTS[fault]
    with pytest.raises(ValueError, match=said):
        options.of(STRINGS | given)


@pytest.mark.spec("R-236")
def test_an_invalid_endpoint_for_a_namespace_name_is_refused() -> None:
    with pytest.raises(ValueError, match="fullyQualifiedNamespace: the custom endpoint address is not"):
        SinkOptions.of(NAMES | {"endpointAddress": "gate.example:high"})


@pytest.mark.spec("R-236")
def test_a_drain_to_an_invalid_destination_is_refused_on_the_driver() -> None:
    with pytest.raises(ValueError, match="cannot contain 'a//b'"):
        DrainOptions.of(STRINGS | {"allowedDestinations": "a//b"})


@pytest.mark.spec("R-236")
def test_a_reference_resolvable_only_on_executors_is_left_to_the_tasks() -> None:
    SinkOptions.of(STRINGS | {"secondaryConnectionString": "env:SBPAIR_NOT_ON_THE_DRIVER"})


@pytest.mark.spec("R-235")
def test_a_table_without_options_explains_the_view_to_use() -> None:
    with pytest.raises(ValueError, match=r"CREATE TEMPORARY VIEW .* SELECT \* FROM orders WITH"):
        SourceOptions.of({})
