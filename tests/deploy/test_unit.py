"""The systemd unit starts a command that exists, as it may run."""

from __future__ import annotations

import re
import shlex
import shutil
import subprocess

import click
import pytest

from sbpair.pair.cli.errors import ExitCode

from .reading import DEPLOY, STRING, parsed

UNIT = DEPLOY / "sbpair-syphon.service"


def directives(name: str) -> list[str]:
    """Every value a directive of the unit is given, in order."""
    return re.findall(rf"^{name}=(.*)$", UNIT.read_text("utf-8"), re.MULTILINE)


def unit_words(directory: object) -> list[str]:
    (line,) = directives("ExecStart")
    program, *words = shlex.split(line.replace("%d", str(directory)).replace("%S", str(directory)))
    assert program == "/opt/sbpair/bin/sbpair"
    return words


def test_the_unit_command_parses_with_its_credentials(credentials):
    loaded = dict(value.split(":", 1) for value in directives("LoadCredential"))
    used = {word.rpartition("/")[2] for word in unit_words("/run/credentials/x") if word.startswith("file:")}
    assert used == set(loaded) == {"primary", "secondary"}

    given = parsed(unit_words(credentials))

    assert given["primary"].connection_string == STRING.format("contoso")
    assert given["secondary"].connection_string == STRING.format("contoso-dr")
    assert given["drain"] is False
    assert given["status_port"] == 9464


def test_an_unknown_flag_would_be_found(credentials):
    with pytest.raises(click.NoSuchOption):
        parsed([*unit_words(credentials), "--no-such-flag"])


def test_the_stop_timeout_of_the_unit_exceeds_that_of_the_syphon(credentials):
    words = unit_words(credentials)
    stop = int(words[words.index("--stop-timeout") + 1].removesuffix("s"))
    assert int(directives("TimeoutStopSec")[0]) > stop + 5


@pytest.mark.spec("R-190")
def test_the_unit_restarts_transient_failures_and_not_configuration_errors():
    final = {ExitCode(int(code)) for code in directives("RestartPreventExitStatus")[0].split()}
    assert directives("Restart") == ["always"]
    assert final == {ExitCode.USAGE, ExitCode.CONFIGURATION}


def test_the_journal_of_the_unit_is_in_its_writable_directory():
    (state,) = directives("StateDirectory")
    words = unit_words("/var/lib")
    assert words[words.index("--journal") + 1] == f"/var/lib/{state}"
    assert directives("ProtectSystem") == ["strict"]


@pytest.mark.skipif(shutil.which("systemd-analyze") is None, reason="systemd-analyze is not installed")
def test_systemd_analyze_complains_only_about_the_missing_program():
    done = subprocess.run(
        ["systemd-analyze", "verify", str(UNIT)], capture_output=True, text=True, timeout=60, check=False
    )
    complaints = [line for line in done.stderr.splitlines() if UNIT.name in line]
    assert [line for line in complaints if "/opt/sbpair/bin/sbpair is not executable" not in line] == []


@pytest.mark.spec("S-13")
def test_no_key_is_in_arguments_or_environment():
    assert not directives("Environment") + directives("EnvironmentFile")
    for file in DEPLOY.rglob("*"):
        if file.is_file():
            assert "SharedAccessKey" not in file.read_text("utf-8"), file.name
