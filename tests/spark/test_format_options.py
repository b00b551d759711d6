"""Naming the pair of a sink or a syphon: two connection strings, or two names and the ambient credential."""

from __future__ import annotations

import pytest

from sbpair.spark import format_options
from sbpair.spark.message_sink import SinkOptions

STRINGS = {
    "connectionString": "Endpoint=sb://one.example;SharedAccessKeyName=n;SharedAccessKey=k",
    "secondaryConnectionString": "Endpoint=sb://two.example;SharedAccessKeyName=n;SharedAccessKey=k",
}
NAMES = {"fullyQualifiedNamespace": "one.example", "secondaryFullyQualifiedNamespace": "two.example"}


def by_strings(*given: object) -> tuple[object, ...]:
    return ("strings", *given)


def by_names(*given: object) -> tuple[object, ...]:
    return ("names", *given)


def test_a_pair_is_connected_by_two_strings_or_by_two_names(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(format_options, "ambient", lambda: "credential")

    def connected(given: dict[str, str]) -> object:
        return SinkOptions.of(given).pair.constructor("sbpair", by_strings, by_names)()

    assert connected(STRINGS) == ("strings", *STRINGS.values())
    assert connected(NAMES) == ("names", *NAMES.values(), "credential")


@pytest.mark.parametrize("named", ["primary", "secondary"])
def test_a_string_beside_a_name_is_refused(named: str) -> None:
    strings, names = ([*each] for each in (STRINGS, NAMES))
    keys = [names[0], strings[1]] if named == "primary" else [strings[0], names[1]]
    given = {key: (STRINGS | NAMES)[key] for key in keys}
    pair = SinkOptions.of(given).pair

    with pytest.raises(
        ValueError, match="sbpair: give both namespaces by connection string, or both by name"
    ):
        pair.constructor("sbpair", by_strings, by_names)
