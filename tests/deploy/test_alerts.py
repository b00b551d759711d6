"""Alert rules and dashboard use metrics that exist, and every alert has its section in the runbook."""

from __future__ import annotations

import json
import re
import subprocess

import pytest
import yaml

from tests.peers import prometheus_program

from .reading import DEPLOY, EXPORTED, ROOT, RULES, named_in, panels, rules

RUNBOOK = ROOT / "docs" / "how-to" / "answer-alerts.md"
SEVERITIES = {"critical", "warning", "info"}


@pytest.mark.spec("R-62", "R-191")
def test_every_metric_that_an_alert_is_on_exists():
    named = set().union(*(named_in(rule["expr"]) for rule in rules()))
    assert named <= EXPORTED, named - EXPORTED
    assert {each for each in named if "backlog_" in each and "syphon" in each} == {
        "sbpair_syphon_backlog_dead_letters",
        "sbpair_syphon_backlog_depth",
        "sbpair_syphon_backlog_missing",
        "sbpair_syphon_backlog_oldest_seconds",
        "sbpair_syphon_backlog_stranded",
        "sbpair_syphon_backlog_untransferred",
    }


@pytest.mark.spec("R-191")
def test_every_dashboard_metric_exists_and_every_panel_shows_one():
    for panel in panels():
        named = set().union(*(named_in(target["expr"]) for target in panel["targets"]))
        assert named, panel["title"]
        assert named <= EXPORTED, named - EXPORTED


DOCS_PLACE = "{{ with $externalLabels.sbpair_docs }}{{ . }}{{ else }}https://sbpair.example/docs{{ end }}"


def test_the_panels_of_the_dashboard_do_not_overlap():
    board = json.loads((DEPLOY / "grafana-dashboard.json").read_text("utf-8"))
    taken: set[tuple[int, int]] = set()
    for panel in board["panels"]:
        place = panel["gridPos"]
        cells = {
            (x, y)
            for x in range(place["x"], place["x"] + place["w"])
            for y in range(place["y"], place["y"] + place["h"])
        }
        assert not cells & taken, panel["title"]
        assert max(x for x, _ in cells) < 24
        taken |= cells
    assert len({panel["id"] for panel in board["panels"]}) == len(board["panels"])


@pytest.mark.spec("R-191", "R-133")
def test_every_alert_has_a_section_in_the_runbook():
    sections = re.split(r"^### ", RUNBOOK.read_text("utf-8"), flags=re.MULTILINE)[1:]
    texts = {section.split("\n", 1)[0]: section for section in sections}
    names = [rule["alert"] for rule in rules()]
    assert sorted(texts) == sorted(names)
    for rule in rules():
        link = rule["annotations"]["runbook_url"]
        assert link == f"{DOCS_PLACE}/how-to/{RUNBOOK.stem}.html#{rule['alert'].lower()}"
        assert rule["annotations"]["summary"]
        assert rule["labels"]["severity"] in SEVERITIES
        assert texts[rule["alert"]].count("\n- ") >= 2, rule["alert"]  # what to look at, what to do


@pytest.mark.interop
@pytest.mark.spec("R-191")
def test_promtool_takes_the_rules_and_the_expressions_of_the_dashboard(tmp_path):
    expressions = [target["expr"] for panel in panels() for target in panel["targets"]]
    recorded = [
        {"record": f"panel:{number}", "expr": expression.replace("$__rate_interval", "5m")}
        for number, expression in enumerate(expressions)
    ]
    board = tmp_path / "dashboard.yml"
    board.write_text(yaml.safe_dump({"groups": [{"name": "dashboard", "rules": recorded}]}))
    done = promtool("check", "rules", str(RULES), str(board))
    assert done.returncode == 0, done.stdout + done.stderr


@pytest.mark.interop
@pytest.mark.spec("R-191", "H-52")
def test_the_alerts_fire_and_resolve_when_they_should(tmp_path):
    cases = ROOT / "tests" / "deploy" / "alerts.yml"
    copy = tmp_path / "alerts.yml"
    copy.write_text(cases.read_text("utf-8").replace("{rules}", str(RULES)))
    done = promtool("test", "rules", str(copy))
    assert done.returncode == 0, done.stdout + done.stderr


@pytest.mark.spec("R-191")
def test_every_rule_on_new_events_counts_those_before_the_first_scrape():
    for rule in rules():
        for name, span in re.findall(r"increase\((\w+)\[(\w+)\]\) > ", rule["expr"]):
            assert f"({name} unless {name} offset {span}) > " in rule["expr"], rule["alert"]


@pytest.mark.interop
@pytest.mark.spec("R-191")
def test_a_rule_that_misses_the_first_event_would_be_found(tmp_path):
    careless = re.sub(r"\n\s+or \(.*\) > \d", "", RULES.read_text("utf-8"))
    assert careless != RULES.read_text("utf-8")
    (tmp_path / "rules.yml").write_text(careless)
    cases = (ROOT / "tests" / "deploy" / "alerts.yml").read_text("utf-8")
    (tmp_path / "alerts.yml").write_text(cases.replace("{rules}", str(tmp_path / "rules.yml")))
    done = promtool("test", "rules", str(tmp_path / "alerts.yml"))
    assert done.returncode != 0
    assert "SbpairSetAside" in done.stdout + done.stderr


def promtool(*arguments: str) -> subprocess.CompletedProcess[str]:
    program = prometheus_program("promtool")
    return subprocess.run([program, *arguments], capture_output=True, text=True, timeout=60)
