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
def test_each_side_is_given_by_a_string_or_by_a_name(
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
        reached = [side.access() for side in client._runtime.sides]
        assert [(each.host, each.port, each.route.over_websocket) for each in reached] == ways


@pytest.mark.spec("R-236")
@pytest.mark.parametrize("given", [STRINGS, NAMES], ids=["string", "name"])
def test_a_pair_of_one_namespace_is_refused_before_any_task_runs(given: dict[str, str]) -> None:
    one = next(iter(given.values()))
    with pytest.raises(ValueError, match="name the same namespace: a pair has two"):
        SinkOptions.of(dict.fromkeys(given, one))


@pytest.mark.spec("R-235")
def test_a_table_whose_options_did_not_arrive_is_told_of_the_view() -> None:
    with pytest.raises(ValueError, match="CREATE TEMPORARY VIEW"):
        SourceOptions.of({})
