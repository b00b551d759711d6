"""The README's shell blocks, pasted one after the other into a fresh shell, run to the end, and end.

Here pip, uv and pytest are stand-ins: pip installs the command of this environment, and the two demos are short.
`.ci/run` pastes the same blocks with the real ones.
"""

from __future__ import annotations

import re
import socket
import subprocess
import sys
from contextlib import closing
from pathlib import Path

import pytest

from tests.pair.cli.conftest import environment
from tests.tools.source import DOCS, ROOT

PATIENCE = 110  # seconds
PREAMBLE = """\
pip() {
  printf '#!/bin/sh\\n[ "$1" != demo ] || set -- "$@" --messages 100 --outage 1\\nexec "%s" -m sbpair "$@"\\n' \
    "$TESTED" > "$VIRTUAL_ENV/bin/sbpair" && chmod +x "$VIRTUAL_ENV/bin/sbpair"
}
uv() { :; }
pytest() { echo "pytest $*"; }
"""


def blocks(page: Path) -> list[str]:
    return re.findall(r"^```bash\n(.*?)^```$", page.read_text("utf-8"), re.MULTILINE | re.DOTALL)


def pasted(texts: list[str], folder: Path, *shell: str) -> subprocess.CompletedProcess[str]:
    """Run the blocks in a new bash; whatever they leave running keeps the pipes open, and fails the test."""
    env = environment(TESTED=sys.executable, PYTHONPATH=str(ROOT))
    return subprocess.run(
        [*(shell or ("bash", "-eu")), "-c", PREAMBLE + "\n".join(texts)],
        cwd=folder, env=env, capture_output=True, text=True, timeout=PATIENCE, check=False,
    )  # fmt: skip


@pytest.mark.long  # CI does this for each change, with the real ones
@pytest.mark.spec("R-120")
def test_the_blocks_run_when_pasted_one_after_another(tmp_path: Path) -> None:
    run = pasted(blocks(ROOT / "README.md"), tmp_path)

    assert run.returncode == 0, run.stdout + run.stderr
    assert "pytest -q -n 6" in run.stdout
    assert "sent 100, delivered 100, lost 0" in run.stdout
    assert "10 of 10 canaries came home" in run.stdout
    assert "100 messages, all accounted for" in run.stdout
    assert (tmp_path / "audit" / "report.html").is_file()


@pytest.mark.spec("R-120")
def test_ci_runs_every_block_of_the_page() -> None:
    commands = (ROOT / ".ci" / "run").read_text("utf-8")
    (reader,) = re.findall(r"^readme_blocks\(\) \{\n.*?^\}$", commands, re.MULTILINE | re.DOTALL)
    script = f"{reader}\nreadme_blocks"
    read = subprocess.run(["bash", "-c", script], cwd=ROOT, capture_output=True, text=True, check=True)

    assert read.stdout == "".join(blocks(ROOT / "README.md"))
    assert 'readme_blocks >"$work/readme.sh"\n' in commands
    assert 'bash -euo pipefail -v "$work/readme.sh"\n' in commands


def starting_a_broker(page: Path) -> str:
    (block,) = [text for text in blocks(page) if "until [" in text]
    return block


@pytest.mark.spec("R-120")
@pytest.mark.parametrize(
    "page", [ROOT / "README.md", DOCS / "how-to" / "use-the-broker.md"], ids=lambda page: page.stem
)
@pytest.mark.parametrize(
    ("broker", "said"),
    [("exit 1", "the broker did not start: it says why above"), ("echo NAME=value", "started value")],
)
def test_the_block_that_starts_a_broker_ends(tmp_path: Path, page: Path, broker: str, said: str) -> None:
    (tmp_path / "broker.env").write_text("NAME=yesterday\n")
    program = f"NAME=\nsbpair() {{ {broker}; }}\npip() {{ :; }}\n"
    told = '[ -z "$NAME" ] || echo "started $NAME"\n'
    run = pasted([program, starting_a_broker(page), told], tmp_path, "bash")
    assert run.stdout.splitlines() == [said]


@pytest.mark.spec("R-120")
def test_a_taken_port_is_reported_in_a_sentence_and_the_block_ends(tmp_path: Path) -> None:
    made = "python3 -m venv .venv && . .venv/bin/activate"
    block = starting_a_broker(DOCS / "how-to" / "use-the-broker.md")
    with closing(socket.create_server(("127.0.0.1", 0))) as holder:  # another may come and go on 5672
        port = holder.getsockname()[1]
        asked = block.replace("sbpair broker ", f"sbpair broker --namespace contoso:{port} ")
        run = pasted([made, asked], tmp_path, "bash")
    assert asked != block
    assert run.stdout == "the broker did not start: it says why above\n"
    assert run.stderr == (
        f"sbpair: Namespace 'contoso' cannot listen on 127.0.0.1:{port}: Address already in use. "
        "Port 0 takes a free one.\n"
    )
