"""A typed program passes mypy --strict with the SDK's client and, unchanged, with the paired one."""

from __future__ import annotations

import re
import subprocess
import sys
from collections.abc import Callable
from functools import partial
from pathlib import Path

import pytest

HERE = Path(__file__).resolve().parent
PROGRAMS = ["user_blocking.py", "user_asyncio.py"]


def with_the_sdk(program: str) -> str:
    """The same program, importing the SDK's own classes."""
    program = program.replace("from sbpair.aio import", "from azure.servicebus.aio import")
    program = program.replace("from sbpair import", "from azure.servicebus import")
    return re.sub(r"\bPaired(ServiceBus\w+)", r"\1", program)


@pytest.fixture(scope="module")
def strictly(tmp_path_factory: pytest.TempPathFactory) -> Callable[..., str]:
    """What mypy says of programs, with one cache for all the tests of this file."""
    return partial(checked, tmp_path_factory.mktemp("mypy"))


def checked(cache: Path, *programs: Path) -> str:
    command = [
        sys.executable,
        "-m",
        "mypy",
        "--strict",
        "--config-file=",
        "--cache-dir",
        str(cache),
    ]
    done = subprocess.run([*command, *map(str, programs)], capture_output=True, text=True, check=False)
    return "" if done.returncode == 0 else done.stdout + done.stderr


def test_typed_programs_pass_with_either_client(strictly: Callable[..., str], tmp_path: Path) -> None:
    twins = []
    for name in PROGRAMS:
        twin = tmp_path / f"sdk_{name}"
        twin.write_text(with_the_sdk((HERE / name).read_text("utf-8")), encoding="utf-8")
        assert "sbpair" not in twin.read_text("utf-8")
        twins.append(twin)
    assert not strictly(*(HERE / name for name in PROGRAMS), *twins)


def test_a_wrong_use_is_found_by_the_type_checker(strictly: Callable[..., str], tmp_path: Path) -> None:
    wrong = tmp_path / "wrong.py"
    wrong.write_text(
        "from sbpair import PairedServiceBusSender\n\n"
        "def f(sender: PairedServiceBusSender) -> None:\n"
        "    sender.send_messages(5)\n"
        '    sender.send_messages([], timeout="soon")\n'
        "    sender.send_message([])\n",
        encoding="utf-8",
    )
    found = strictly(wrong)
    assert "Found 3 errors" in found, found
