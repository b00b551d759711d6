"""The workflows call what runs here, pin what they use, and have no right that they do not need."""

from __future__ import annotations

import re
from pathlib import Path

import pytest
import yaml

from tests.tools.source import ROOT

WORKFLOWS = sorted((ROOT / ".github" / "workflows").glob("*.yml"))
READ = {"contents": "read"}
TO_PUBLISH = {"id-token": "write", "attestations": "write"}


def jobs(workflow: Path) -> dict[str, dict]:
    return yaml.safe_load(workflow.read_text("utf-8"))["jobs"]


def steps(workflow: Path) -> list[dict]:
    return [step for job in jobs(workflow).values() for step in job["steps"]]


@pytest.mark.parametrize("workflow", WORKFLOWS, ids=lambda path: path.stem)
def test_a_workflow_uses_what_is_pinned_by_its_hash_and_asks_for_few_rights(workflow: Path) -> None:
    for step in steps(workflow):
        if "uses" in step:
            assert re.fullmatch(r"actions/[a-z-]+@[0-9a-f]{40}", step["uses"])
    assert yaml.safe_load(workflow.read_text("utf-8"))["permissions"] == {}
    for name, job in jobs(workflow).items():
        assert job["permissions"] == (TO_PUBLISH if name == "publish" else READ)
        assert job["timeout-minutes"] <= 60


@pytest.mark.parametrize("workflow", WORKFLOWS, ids=lambda path: path.stem)
def test_what_a_change_or_a_release_must_pass_is_what_runs_here(workflow: Path) -> None:
    assert {"run": ".ci/run"} in steps(workflow)
    folders = {folder for step in steps(workflow) for folder in re.findall(r"tests/\w+", step.get("run", ""))}
    assert all((ROOT / folder).is_dir() for folder in folders)


def test_a_release_has_the_version_of_its_tag() -> None:
    (release,) = [path for path in WORKFLOWS if path.stem == "release"]
    said = "".join(step.get("run", "") for step in steps(release))

    assert '[ "$GITHUB_REF_NAME" = "v$version" ]' in said
    assert "python -m build" in said
