"""`sbpair cost` as a process."""

from __future__ import annotations

import json

import pytest


@pytest.mark.spec("P-41", "P-43")
def test_the_figures_of_the_articles(sbpair):
    done = sbpair("cost", "--outages", "1", "--parked", "1000", "--failed-over", "59m", "--json")

    found = json.loads(done.stdout)
    assert found["idle_receives"] == 28_800
    assert found["pings"] == 60
    assert found["total"] == 28_800 + 4000 + 60
    assert found["beyond_direct"] == 28_800 + 2000 + 60
    assert found["price"] is None


@pytest.mark.spec("P-41")
@pytest.mark.parametrize(("days", "receives"), [(1, 960), (30, 28_800)])
def test_ten_idle_backlogs_are_forty_receives_an_hour(sbpair, days, receives):
    done = sbpair("cost", "--outages", "0", "--days", str(days), "--json")

    assert json.loads(done.stdout)["total"] == receives


def test_people_read_a_table_with_a_price(sbpair):
    done = sbpair("cost", "--outages", "0", "--price-per-million", "10")

    assert done.returncode == 0, done.stderr
    assert "28 800" in done.stdout
    assert "0.29" in done.stdout


@pytest.mark.parametrize("wrong", [("--ping-interval", "0"), ("--backlogs", "-1"), ("--days", "x")])
def test_what_cannot_be_counted_is_a_usage_error(sbpair, wrong):
    done = sbpair("cost", *wrong)

    assert done.returncode == 2
    assert wrong[0].lstrip("-") in done.stderr
