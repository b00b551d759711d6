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
TO_PUBLISH = {"id-token": "write", "attestations": "write", "contents": "write"}


def jobs(workflow: Path) -> dict[str, dict]:
    return yaml.safe_load(workflow.read_text("utf-8"))["jobs"]


def steps(workflow: Path) -> list[dict]:
    return [step for job in jobs(workflow).values() for step in job["steps"]]


@pytest.mark.parametrize("workflow", WORKFLOWS, ids=lambda path: path.stem)
def test_a_workflow_pins_actions_by_hash_and_requests_few_permissions(workflow: Path) -> None:
    for step in steps(workflow):
        if "uses" in step:
            assert re.fullmatch(r"actions/[a-z-]+@[0-9a-f]{40}", step["uses"])
    assert yaml.safe_load(workflow.read_text("utf-8"))["permissions"] == {}
    for name, job in jobs(workflow).items():
        assert job["permissions"] == (TO_PUBLISH if name == "publish" else READ)
        assert job["timeout-minutes"] <= 60


@pytest.mark.parametrize("workflow", WORKFLOWS, ids=lambda path: path.stem)
def test_changes_and_releases_run_the_ci_script(workflow: Path) -> None:
    assert {"run": ".ci/run"} in steps(workflow)
    folders = {folder for step in steps(workflow) for folder in re.findall(r"tests/\w+", step.get("run", ""))}
    assert all((ROOT / folder).is_dir() for folder in folders)


def test_a_release_has_the_version_of_its_tag() -> None:
    (release,) = [path for path in WORKFLOWS if path.stem == "release"]
    said = "".join(step.get("run", "") for step in steps(release))

    assert '[ "$GITHUB_REF_NAME" = "v$version" ]' in said
    assert "python -m build" in said


TARGET = re.compile(r"(!?)\[[^\]]*\]\(([^)\s]+)\)")
ADDRESS = "https://github.example/contoso/sbpair"
GITHUB = {
    "GITHUB_SERVER_URL": "https://github.example",
    "GITHUB_REPOSITORY": "contoso/sbpair",
    "GITHUB_REF_NAME": "v0.1.0",
    "PATH": "/usr/bin:/bin",
}
FOR_BASH = pytest.mark.skipif(sys.platform == "win32", reason="a release is made with bash")


def run_step(title: str, where: Path) -> None:
    """Run the step of the release whose title begins so."""
    (step,) = [step for step in workflows.steps_of("release", "build") if step.title.startswith(title)]
    assert [outcome for _, outcome, _ in workflows.run([step], where, GITHUB)] == ["ok"]


@FOR_BASH
def test_a_release_links_to_the_repository_that_built_it(tmp_path: Path) -> None:
    shutil.copy(ROOT / "pyproject.toml", tmp_path)

    run_step("Where it is", tmp_path)

    assert tomllib.loads((tmp_path / "pyproject.toml").read_text("utf-8"))["project"]["urls"] == {
        "Repository": ADDRESS,
        "Documentation": f"{ADDRESS}/blob/v0.1.0/docs/index.md",
        "Changelog": f"{ADDRESS}/blob/v0.1.0/CHANGELOG.md",
        "Issues": f"{ADDRESS}/issues",
        "Security": f"{ADDRESS}/security/policy",
    }


@FOR_BASH
@pytest.mark.parametrize("page", ["README.md", "CHANGELOG.md"])
def test_readme_and_changelog_of_a_release_link_to_the_repository(tmp_path: Path, page: str) -> None:
    for each in ("README.md", "CHANGELOG.md"):
        shutil.copy(ROOT / each, tmp_path)
    before = TARGET.findall((tmp_path / page).read_text("utf-8"))

    run_step("The links of", tmp_path)

    assert [target for _, target in before if target.startswith("docs/")]
    assert TARGET.findall((tmp_path / page).read_text("utf-8")) == [
        (mark, target if ":" in target else f"{ADDRESS}/{'raw' if mark else 'blob'}/v0.1.0/{target}")
        for mark, target in before
    ]


@FOR_BASH
def test_the_notes_of_a_release_are_its_section_of_the_changelog(tmp_path: Path) -> None:
    sections = [("0.2.0", "later"), ("0.1.0", "new"), ("0.0.1", "old")]
    text = "".join(f"\n## [{version}] - 2027-01-01\n\n{entry}\n" for version, entry in sections)
    (tmp_path / "CHANGELOG.md").write_text(f"# Changelog\n{text}")

    run_step("What is said of it", tmp_path)

    assert (tmp_path / "notes.md").read_text("utf-8").strip() == "new"
