"""The blocks of the workflows are shell scripts that parse, and run in their order until one fails."""

from __future__ import annotations

import subprocess
from pathlib import Path

import pytest

from tests.tools import workflows
from tests.tools.workflows import SHELL, WORKFLOWS, Step, yaml

JOBS = [
    (file.stem, job)
    for file in sorted(WORKFLOWS.glob("*.yml"))
    for job in yaml.safe_load(file.read_text("utf-8"))["jobs"]
]


@pytest.mark.parametrize(("workflow", "job"), JOBS)
def test_every_run_block_is_a_valid_shell_script(workflow: str, job: str) -> None:
    steps = workflows.steps_of(workflow, job)
    assert steps
    for step in steps:
        done = subprocess.run([*SHELL, "-n", "-c", step.script], capture_output=True, text=True, check=False)
        assert done.stderr == ""


def test_steps_run_in_order_in_one_place_until_one_fails(tmp_path: Path) -> None:
    steps = [
        Step("an action", ""),
        Step("first", "echo $GREETING > greeting"),
        Step("second", "grep -q hello greeting"),
        Step("third", "false\ntrue"),
        Step("never", "touch never"),
    ]
    told = [
        each[:2] for each in workflows.run(steps, tmp_path, {"GREETING": "hello", "PATH": "/usr/bin:/bin"})
    ]

    assert told == [("an action", "passed over"), ("first", "ok"), ("second", "ok"), ("third", "failed (1)")]
    assert not (tmp_path / "never").exists()
