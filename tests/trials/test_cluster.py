"""The outage of a cluster without a cluster, in short."""

from __future__ import annotations

import pytest

from tests.trials.cluster import EXPECTED, scaled_rules, trial


@pytest.mark.long
@pytest.mark.trial
@pytest.mark.spec("R-61", "R-190", "R-191")
def test_an_outage_restarts_no_syphon_and_the_right_alerts_fire_and_end() -> None:
    report = trial(outage=20.0, scale=30.0)
    assert report.problems == []
    assert report.ended.keys() == EXPECTED
    assert report.probes > 0


@pytest.mark.long
def test_scaling_shortens_the_spans_of_the_rules_and_leaves_the_rest() -> None:
    text = "expr: increase(x_total[10m]) > 900 or (y unless y offset 1h) > 0\nfor: 5m\n"
    shorter = "expr: increase(x_total[60000ms]) > 900 or (y unless y offset 360000ms) > 0\nfor: 30000ms\n"
    assert scaled_rules(text, 10.0) == shorter
