"""The workflows call what runs here, pin what they use, and have no right that they do not need."""

from __future__ import annotations

import re
import shutil
import sys
import tomllib
from pathlib import Path

import pytest
import yaml

from tests.tools import workflows
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


@pytest.mark.skipif(
    sys.platform == "win32", reason="the block is for bash, as the runner of a release has it"
)
def test_a_release_links_to_the_repository_that_made_it(tmp_path: Path) -> None:
    shutil.copy(ROOT / "pyproject.toml", tmp_path)
    (step,) = [
        step for step in workflows.steps_of("release", "build") if step.title.startswith("Where it is")
    ]
    github = {
        "GITHUB_SERVER_URL": "https://github.example",
        "GITHUB_REPOSITORY": "contoso/sbpair",
        "GITHUB_REF_NAME": "v0.1.0",
        "PATH": "/usr/bin:/bin",
    }

    assert [outcome for _, outcome, _ in workflows.run([step], tmp_path, github)] == ["ok"]

    address = "https://github.example/contoso/sbpair"
    assert tomllib.loads((tmp_path / "pyproject.toml").read_text("utf-8"))["project"]["urls"] == {
        "Repository": address,
        "Documentation": f"{address}/blob/v0.1.0/docs/index.md",
        "Changelog": f"{address}/blob/v0.1.0/CHANGELOG.md",
        "Issues": f"{address}/issues",
        "Security": f"{address}/security/policy",
    }
