"""The repository holds no key, never executes what it reads, and pins the SDK."""

from __future__ import annotations

import ast
import re
import subprocess
import tomllib
from collections.abc import Iterator
from pathlib import Path

import pytest

ROOT = Path(__file__).resolve().parent.parent

KEY = re.compile(r"SharedAccessKey=([A-Za-z0-9+/]{43}=)")
TOKEN = re.compile(r"sig=([A-Za-z0-9%+/]{43,})")
PRIVATE_KEY = re.compile(r"-----BEGIN [A-Z ]*PRIVATE KEY-----\s+[A-Za-z0-9+/]{20}")
PUBLISHED = (
    "CVi%2Fl3eCfBw31xDEndK8WCjbno6aksWua5PfKXruqEs%3D",  # of the vector that S-1 is held against
)
EXECUTES = {"pickle", "marshal", "shelve", "dill", "cloudpickle", "jsonpickle"}
# Its executors answer their driver in the same form as Spark's own; nothing of it comes from a file or a peer.
BETWEEN_PROCESSES_OF_ONE_JOB = {"sbpair/data/spark/audit/engine.py"}


def tracked() -> Iterator[tuple[str, str]]:
    """Every text file of the repository, or of the source distribution."""
    if (ROOT / ".git").exists():
        listed = subprocess.run(
            ["git", "ls-files", "-z"], cwd=ROOT, capture_output=True, check=True, text=True
        ).stdout
        names = [name for name in listed.split("\0") if name]
    else:
        names = [str(file.relative_to(ROOT)) for file in sorted(ROOT.rglob("*")) if file.is_file()]
    for name in names:
        try:
            yield name, (ROOT / name).read_text(encoding="utf-8")
        except (UnicodeDecodeError, FileNotFoundError):
            continue


def secrets_in(text: str) -> list[str]:
    found = [match[1] for pattern in (KEY, TOKEN) for match in pattern.finditer(text)]
    return [each for each in found if each not in PUBLISHED] + PRIVATE_KEY.findall(text)


@pytest.mark.spec("S-19")
def test_no_file_of_the_repository_holds_a_key_or_a_token() -> None:
    files = dict(tracked())
    assert len(files) > 300
    assert {name: found for name, text in files.items() if (found := secrets_in(text))} == {}


@pytest.mark.spec("S-19")
def test_a_committed_key_token_or_private_key_would_be_found() -> None:
    key = "A" * 43 + "="
    for text in (
        f"SharedAccessKeyName=Root;SharedAccessKey={key}",
        f"SharedAccessSignature sr=x&sig={'b' * 40}%3D&se=1",
        f"-----BEGIN RSA PRIVATE KEY-----\n{'C' * 64}",
    ):
        assert secrets_in(text)


@pytest.mark.spec("S-19")
def test_every_installed_library_has_a_minimum_version_and_the_sdk_a_maximum() -> None:
    project = tomllib.loads((ROOT / "pyproject.toml").read_text("utf-8"))["project"]
    needed = [
        *project["dependencies"],
        *(n for names in project["optional-dependencies"].values() for n in names),
    ]
    loose = [
        name for name in needed if not name.startswith("sbpair[") and not re.search(r"[<>=~]=?\s*\d", name)
    ]
    assert loose == []
    (sdk,) = {name for name in project["dependencies"] if name.startswith("azure-servicebus")}
    assert re.search(r">=7\.\d+,<8", sdk)


@pytest.mark.slow
@pytest.mark.spec("S-10")
def test_input_is_never_executed() -> None:
    for path in sorted((ROOT / "sbpair").rglob("*.py")):
        if path.relative_to(ROOT).as_posix() in BETWEEN_PROCESSES_OF_ONE_JOB:
            continue
        tree = ast.parse(path.read_text("utf-8"))
        for node in ast.walk(tree):
            if isinstance(node, ast.Import):
                assert not {alias.name.split(".")[0] for alias in node.names} & EXECUTES, path
            elif isinstance(node, ast.ImportFrom):
                assert (node.module or "").split(".")[0] not in EXECUTES, path
            elif isinstance(node, ast.Call) and isinstance(node.func, ast.Name):
                assert node.func.id not in {"eval", "exec", "compile"}, f"{path}:{node.lineno}"
