"""The README's block that starts a broker ends in a fresh shell, whether or not the broker starts."""

from __future__ import annotations

import subprocess
from pathlib import Path

import pytest

from tests.tools.source import ROOT


@pytest.mark.spec("R-120")
@pytest.mark.parametrize(
    ("broker", "said"),
    [("exit 1", "the broker did not start: it says why above"), ("echo NAME=value", "started value")],
)
def test_the_block_that_starts_a_broker_ends(tmp_path: Path, broker: str, said: str) -> None:
    text = (ROOT / "README.md").read_text("utf-8")
    (block,) = [part for part in text.split("```") if "sbpair broker" in part and part.startswith("bash\n")]
    command = tmp_path / ".venv" / "bin" / "sbpair"
    command.parent.mkdir(parents=True)
    command.write_text(f"#!/bin/sh\n{broker}\n")
    command.chmod(0o755)
    script = block.removeprefix("bash\n") + '\n[ -z "$NAME" ] || echo "started $NAME"\n'
    run = subprocess.run(
        ["bash", "-c", script], cwd=tmp_path, capture_output=True, text=True, timeout=30, check=False
    )
    assert run.stdout.splitlines() == [said]
