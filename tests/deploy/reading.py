"""The files of samples/deploy, read for the tests."""

from __future__ import annotations

import json
import re
from pathlib import Path
from typing import Any

import click
import yaml

from sbpair.pair.cli.group import cli
from sbpair.pair.observation.metrics import METRICS, READ, SEND_SECONDS

ROOT = Path(__file__).resolve().parent.parent.parent
DEPLOY = ROOT / "samples" / "deploy"
RULES = DEPLOY / "prometheus-alerts.yml"
STRING = "Endpoint=sb://{}.servicebus.windows.net/;SharedAccessKeyName=a;SharedAccessKey=CANARYkey="
BY_THE_COMMAND = {  # of `sbpair syphon`, beyond the tables
    "sbpair_syphon_state",
    *(f"sbpair_syphon_{name}_total" for name in ("received", "forwarded", "landed", "completed")),
    *(f"sbpair_syphon_{name}_total" for name in ("dead_lettered", "released", "lock_lost", "receives")),
    "sbpair_syphon_pending",
    "sbpair_journal_lost_total",
}
SEND_SERIES = {f"{SEND_SECONDS.name}_{part}" for part in ("bucket", "sum", "count")}
EXPORTED = {metric.name for metric in (*METRICS, *READ)} | BY_THE_COMMAND | SEND_SERIES


def named_in(expression: str) -> set[str]:
    """The metrics of ours in an expression of Prometheus."""
    return set(re.findall(r"\bsbpair_\w+", expression))


def rules() -> list[dict[str, Any]]:
    """All alert rules, of all groups."""
    groups = yaml.safe_load(RULES.read_text("utf-8"))["groups"]
    return [rule for group in groups for rule in group["rules"]]


def panels() -> list[dict[str, Any]]:
    """The panels of the dashboard that show something."""
    board = json.loads((DEPLOY / "grafana-dashboard.json").read_text("utf-8"))
    return [panel for panel in board["panels"] if panel["type"] != "row"]


def manifest(name: str) -> dict[str, Any]:
    """One of the Kubernetes manifests, by its path below ``kubernetes``."""
    (document,) = yaml.safe_load_all((DEPLOY / "kubernetes" / name).read_text("utf-8"))
    return document


def syphon_container(name: str = "base/deployment.yaml") -> dict[str, Any]:
    """The container of the syphon in a Deployment."""
    (container,) = manifest(name)["spec"]["template"]["spec"]["containers"]
    return container


def parsed(words: list[str]) -> dict[str, Any]:
    """The parameters that a command would be given: every flag known, every value valid."""
    command, *arguments = words
    parent = click.Context(cli, **cli.context_settings)  # click keeps what the first context says of --help
    return cli.get_command(parent, command).make_context(command, arguments, parent=parent).params
