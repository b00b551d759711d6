"""Do the unit and the container of samples/deploy/ start what the command line really understands?"""

from __future__ import annotations

import json
import re
import shlex
import shutil
import subprocess
from pathlib import Path

import click
import pytest
import yaml

from sbpair.cli.group import cli
from sbpair.observation.metrics import METRICS, READ

ROOT = Path(__file__).resolve().parent.parent.parent
DEPLOY = ROOT / "samples" / "deploy"
UNIT = DEPLOY / "sbpair-syphon.service"
DOCKERFILE = DEPLOY / "Dockerfile"
STRING = "Endpoint=sb://{}.servicebus.windows.net/;SharedAccessKeyName=a;SharedAccessKey=CANARYkey="


def directives(name):
    """Every value a directive of the unit is given, in order."""
    return re.findall(rf"^{name}=(.*)$", UNIT.read_text("utf-8"), re.MULTILINE)


def instructions(name):
    """The arguments of every instruction of that name; lines that go on are one."""
    text = re.sub(r"\\\n", " ", DOCKERFILE.read_text("utf-8"))
    return re.findall(rf"^\s*{name}\s+(.*)$", text, re.MULTILINE)


def unit_words(directory):
    (line,) = directives("ExecStart")
    return shlex.split(line.replace("%d", str(directory)).replace("%S", str(directory)))


def docker_words():
    (entry,), (arguments,) = instructions("ENTRYPOINT"), instructions("CMD")[-1:]
    return [*json.loads(entry), *json.loads(arguments)]


def parsed(words):
    """What the syphon would be given: every flag known, every value read."""
    program, command, *arguments = words
    assert program == "/opt/sbpair/bin/sbpair"
    parent = click.Context(cli, **cli.context_settings)  # click keeps what the first context says of --help
    return cli.get_command(parent, command).make_context(command, arguments, parent=parent).params


@pytest.fixture
def credentials(tmp_path):
    for side, host in (("primary", "contoso"), ("secondary", "contoso-dr")):
        (tmp_path / side).write_text(STRING.format(host), "utf-8")
    return tmp_path


def test_the_command_of_the_unit_is_understood_with_the_credentials_it_loads(credentials):
    loaded = dict(value.split(":", 1) for value in directives("LoadCredential"))
    used = {word.rpartition("/")[2] for word in unit_words("/run/credentials/x") if word.startswith("file:")}
    assert used == set(loaded) == {"primary", "secondary"}

    given = parsed(unit_words(credentials))

    assert given["primary"].connection_string == STRING.format("contoso")
    assert given["secondary"].connection_string == STRING.format("contoso-dr")
    assert given["drain"] is False
    assert given["status_port"] == 9464


def test_a_flag_that_does_not_exist_would_be_noticed(credentials):
    with pytest.raises(click.NoSuchOption):
        parsed([*unit_words(credentials), "--no-such-flag"])


def test_the_unit_waits_longer_for_the_end_than_the_syphon_takes(credentials):
    words = unit_words(credentials)
    stop = int(words[words.index("--stop-timeout") + 1].removesuffix("s"))
    assert int(directives("TimeoutStopSec")[0]) > stop + 5


def test_the_journal_of_the_unit_is_in_the_directory_it_may_write():
    (state,) = directives("StateDirectory")
    words = unit_words("/var/lib")
    assert words[words.index("--journal") + 1] == f"/var/lib/{state}"
    assert directives("ProtectSystem") == ["strict"]


@pytest.mark.skipif(shutil.which("systemd-analyze") is None, reason="systemd-analyze is not installed")
def test_systemd_finds_nothing_wrong_but_the_program_that_is_not_installed_here():
    done = subprocess.run(
        ["systemd-analyze", "verify", str(UNIT)], capture_output=True, text=True, timeout=60, check=False
    )
    complaints = [line for line in done.stderr.splitlines() if UNIT.name in line]
    assert [line for line in complaints if "/opt/sbpair/bin/sbpair is not executable" not in line] == []


@pytest.mark.spec("S-13")
def test_no_key_is_in_arguments_or_environment():
    assert not directives("Environment") + directives("EnvironmentFile")
    for text in (UNIT.read_text("utf-8"), DOCKERFILE.read_text("utf-8")):
        assert "SharedAccessKey" not in text


def test_the_command_of_the_container_is_understood(credentials):
    words = [word.replace("/run/secrets/sbpair_", f"{credentials}/") for word in docker_words()]

    given = parsed(words)

    assert given["primary"].connection_string == STRING.format("contoso")
    (health,) = instructions("HEALTHCHECK")
    assert f"127.0.0.1:{given['status_port']}/live" in health


def test_the_container_copies_what_is_there_and_runs_as_nobody_in_particular():
    for line in instructions("COPY"):
        *sources, _ = line.split()
        if not line.startswith("--from"):
            assert all((ROOT / source).exists() for source in sources), line
    assert instructions("USER") == ["65532:65532"]


@pytest.mark.spec("R-62")
def test_every_metric_that_an_alert_is_on_exists():
    alerts = yaml.safe_load((DOCKERFILE.parent / "prometheus-alerts.yml").read_text("utf-8"))
    rules = [rule for group in alerts["groups"] for rule in group["rules"]]
    named = {name for rule in rules for name in re.findall(r"sbpair_\w+", rule["expr"])}
    assert len({rule["alert"] for rule in rules}) == len(rules)
    assert all(rule["labels"]["severity"] and rule["annotations"]["summary"] for rule in rules)
    shown = {metric.name for metric in (*METRICS, *READ)} | {
        "sbpair_syphon_state",
        "sbpair_journal_lost_total",
    }
    assert named <= shown, named - shown
    assert {each for each in named if "backlog" in each} == {
        "sbpair_syphon_backlog_depth",
        "sbpair_syphon_backlog_oldest_seconds",
        "sbpair_syphon_backlog_stranded",
    }
