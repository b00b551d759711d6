"""Run the `run:` blocks of a workflow's job here, in their order: `python -m tests.tools.workflows ci rooms`.

They run as shell scripts in a fresh clone, with the `python` of a fresh virtual environment, as on the system of the
first entry of the job's matrix. Steps that use an action are named and passed over: their work is the clone, the
interpreter, or something that only GitHub can do.
"""

from __future__ import annotations

import argparse
import os
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path

import yaml

ROOT = Path(__file__).resolve().parents[2]
WORKFLOWS = ROOT / ".github" / "workflows"
SHELL = ("bash", "--noprofile", "--norc", "-eo", "pipefail")  # as GitHub runs a block


@dataclass(frozen=True, slots=True)
class Step:
    """One step: its script, or empty and the action that it uses."""

    title: str
    script: str


def steps_of(workflow: str, job: str) -> list[Step]:
    """The steps of a job. Raises KeyError when there is no such job."""
    jobs = yaml.safe_load((WORKFLOWS / f"{workflow}.yml").read_text("utf-8"))["jobs"]
    return [
        Step(step.get("name") or step.get("run") or f"uses {step['uses']}", step.get("run", ""))
        for step in jobs[job]["steps"]
    ]


def run(steps: list[Step], clone: Path, environment: Mapping[str, str]) -> Iterator[tuple[str, str, float]]:
    """Run them until one fails: each with what became of it and its seconds."""
    for step in steps:
        title = step.title.strip().splitlines()[0]
        if not step.script:
            yield title, "passed over", 0.0
            continue
        began = time.monotonic()
        done = subprocess.run((*SHELL, "-c", step.script), cwd=clone, env=dict(environment), check=False)
        yield title, f"failed ({done.returncode})" if done.returncode else "ok", time.monotonic() - began
        if done.returncode:
            return


def main() -> int:
    parser = argparse.ArgumentParser(description=(__doc__ or "").partition("\n")[0])
    parser.add_argument("workflow", choices=sorted(file.stem for file in WORKFLOWS.glob("*.yml")))
    parser.add_argument("job")
    parser.add_argument(
        "--without", nargs="*", default=[], metavar="TEXT", help="pass over scripts with this text"
    )
    asked = parser.parse_args()
    steps = [
        Step(step.title, "" if any(text in step.script for text in asked.without) else step.script)
        for step in steps_of(asked.workflow, asked.job)
    ]
    with tempfile.TemporaryDirectory(prefix="sbpair-workflow-") as place:
        clone, venv = Path(place, "sbpair"), Path(place, "venv")
        subprocess.run(["git", "clone", "-q", str(ROOT), str(clone)], check=True)
        subprocess.run([sys.executable, "-m", "venv", str(venv)], check=True)
        kept = {name: value for name, value in os.environ.items() if name != "PYTHONPATH"}
        path = f"{venv / 'bin'}{os.pathsep}{kept['PATH']}"
        told = list[str]()
        for title, result, seconds in run(steps, clone, kept | {"PATH": path, "VIRTUAL_ENV": str(venv)}):
            told.append(f"{result:12} {seconds:6.1f} s  {title}")
    sys.stdout.write("\n".join(told) + "\n")
    return int(any("failed" in line for line in told))


if __name__ == "__main__":
    sys.exit(main())
