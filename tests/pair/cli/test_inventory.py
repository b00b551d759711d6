"""The inventory of a secondary: which queues are backlogs of which primary."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from sbpair.pair.envelope.names import backlog_queue_name, index_of, take_inventory


def backlogs(*indexes, namespace="contoso"):
    return [backlog_queue_name(namespace, index) for index in indexes]


@pytest.mark.spec("P-10", "P-13")
def test_queues_are_sorted_by_prefix_and_index():
    queues = [*backlogs(7, 2, 0, 10), *backlogs(0, 1, namespace="fabrikam"), "orders", "contoso/x/0"]

    found = take_inventory(queues, "contoso", 3)

    assert found.present == tuple(backlogs(0, 2))
    assert found.missing == tuple(backlogs(1))
    assert found.extra == tuple(backlogs(7, 10))
    assert found.others == {"fabrikam": 2}


def test_names_are_compared_without_regard_to_case():
    found = take_inventory(["CONTOSO/X-ServiceBus-Transfer/0"], "contoso", 1)

    assert (found.present, found.missing, found.extra) == (tuple(backlogs(0)), (), ())


def test_a_queue_number_in_another_notation_counts_as_extra():
    found = take_inventory(["contoso/x-servicebus-transfer/00"], "contoso", 1)

    assert found.extra == ("contoso/x-servicebus-transfer/00",)
    assert found.missing == tuple(backlogs(0))


def test_a_namespace_name_with_the_same_beginning_is_another_namespace():
    assert take_inventory(backlogs(5, namespace="contoso-dr"), "contoso", 1).extra == ()


@given(st.sets(st.integers(0, 40)), st.integers(1, 30))
def test_every_backlog_queue_is_present_or_extra_and_every_index_present_or_missing(indexes, count):
    found = take_inventory(backlogs(*indexes), "contoso", count)

    assert {index_of(name) for name in (*found.present, *found.extra)} == indexes
    assert {index_of(name) for name in (*found.present, *found.missing)} == set(range(count))
    assert all(index_of(name) >= count for name in found.extra)
