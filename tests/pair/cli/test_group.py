"""`sbpair` itself: help, version, lazy imports and unknown commands."""

from __future__ import annotations

import logging
import os
import shlex
import subprocess
import sys
from pathlib import Path

import pytest

import sbpair as package
import sbpair.pair.amqp.connection as engine_module
from sbpair.pair.cli.errors import ConfigurationError
from sbpair.pair.cli.group import COMMANDS, LazyGroup, cli, run
from sbpair.pair.cli.output import as_log, end_log
from tests.tools.blocks.command_line import subcommands

HEAVY = ("azure", "rich", "aiohttp", "cryptography", "asyncio", "sbpair.broker", "sbpair.pair.syphon")

LEAVES = [[name, *inner] for name in COMMANDS for inner in ([[each] for each in subcommands(name)] or [[]])]

NO_WORDS = (">", "&", "backlogs.bicep", "broker.env")  # the part of an example for the shell


def test_help_names_every_command_and_the_exit_codes(sbpair):
    done = sbpair("--help")

    assert done.returncode == 0
    for name, (_, line) in COMMANDS.items():
        assert name in done.stdout
        assert line in done.stdout
    assert "Exit codes" in done.stdout


def test_help_loads_no_command():
    program = (
        "import sys\n"
        "from sbpair.pair.cli import main\n"
        "try: main(['--help'])\n"
        f"finally: print([m for m in {HEAVY!r} if m in sys.modules], file=sys.stderr)"
    )
    done = subprocess.run([sys.executable, "-c", program], capture_output=True, text=True, check=True)
    assert done.stderr.strip() == "[]"


@pytest.mark.parametrize("name", COMMANDS)
def test_the_summary_of_a_command_is_the_first_line_of_its_help(name):
    command = LazyGroup.get_command(
        cli, cli.make_context("sbpair", ["--help-not-asked"], resilient_parsing=True), name
    )

    assert command is not None
    assert command.name == name
    assert command.help is not None
    assert command.help.splitlines()[0] == COMMANDS[name][1]


@pytest.mark.parametrize("name", COMMANDS)
def test_a_command_shows_its_help_without_configuration_or_network(sbpair, name):
    done = sbpair(name, "--help")

    assert done.returncode == 0
    assert done.stdout.startswith(f"Usage: sbpair {name}")
    assert done.stderr == ""


@pytest.mark.spec("R-110")
def test_the_version_names_the_build(sbpair):
    engine = Path(engine_module.__file__)
    build = "pure Python" if engine.suffix == ".py" else "compiled"

    assert sbpair("--version").stdout == f"sbpair {package.__version__} ({build})\n"


def test_an_unknown_command_is_a_usage_error_with_a_suggestion(sbpair):
    done = sbpair("brocker")

    assert done.returncode == 2
    assert done.stderr == "sbpair: no such command 'brocker'; did you mean 'broker'?\n"


def test_an_unknown_command_unlike_any_other_lists_them(sbpair):
    there_are = ", ".join(sorted(COMMANDS))
    assert sbpair("zzz").stderr == f"sbpair: no such command 'zzz'; there are: {there_are}\n"


def test_an_unknown_flag_is_a_usage_error(sbpair):
    done = sbpair("demo", "--mesages", "5")

    assert done.returncode == 2
    assert "--mesages" in done.stderr
    assert len(done.stderr.splitlines()) == 1


def test_no_command_shows_the_help_as_a_usage_error(sbpair):
    done = sbpair()

    assert done.returncode == 2
    assert "Commands:" in done.stdout


def test_a_closed_pipe_ends_the_command_quietly():
    read, write = os.pipe()
    os.close(read)
    with os.fdopen(write, "w") as closed:
        done = subprocess.run(
            [sys.executable, "-m", "sbpair", "--help"], stdout=closed, stderr=subprocess.PIPE, text=True
        )
    assert "Traceback" not in done.stderr
    assert "BrokenPipe" not in done.stderr


@pytest.mark.slow
def test_a_command_works_with_closed_streams():
    program = '"$0" -m sbpair demo --messages 3 --outage 0.5 --json >&- <&-'
    done = subprocess.run(
        ["/bin/sh", "-c", program, sys.executable], capture_output=True, text=True, timeout=60
    )

    assert (done.returncode, done.stderr) == (0, "")


@pytest.mark.parametrize("arguments", LEAVES, ids=" ".join)
def test_every_command_help_has_a_parsable_example(arguments):
    """The command itself parses its examples without running them."""
    command, context = cli, cli.make_context("sbpair", [*arguments], resilient_parsing=True)
    for name in arguments:
        command = command.get_command(context, name)
    examples = [
        line.strip() for line in (command.help or "").splitlines() if f"sbpair {arguments[0]}" in line
    ]

    assert examples
    for line in examples:
        words = [word for word in shlex.split(line, comments=True) if word not in NO_WORDS]
        given = words[words.index("sbpair") + 1 + len(arguments) :]
        environment = {"SBPAIR_PRIMARY": "contoso", "SBPAIR_SECONDARY": "contoso-dr"}
        with pytest.MonkeyPatch.context() as patch:
            for name, value in environment.items():
                patch.setenv(name, value)
            given = [
                word for word in given if word not in ("--config", "sbpair.toml", "config.json", "main.json")
            ]
            try:
                command.make_context(arguments[-1], given)
            except ConfigurationError as error:
                assert "does not exist" in str(error)  # noqa: PT017  a file of the reader's


@pytest.mark.spec("R-126")
def test_a_log_setup_of_one_run_does_not_leak_into_the_next(capsys):
    run(
        [
            "syphon",
            "--primary",
            "env:NOWHERE",
            "--secondary",
            "env:NOWHERE",
            "--status-host",
            "x",
            "--journal",
            "/proc/x",
        ]
    )
    as_log(logging.INFO, is_json=True)
    end_log()
    assert logging.getLogger("sbpair").propagate
    capsys.readouterr()
    run(["spool", "list", "missing"])
    assert capsys.readouterr().err.startswith("sbpair: ")


def test_variables_are_loaded_from_a_file_and_set_ones_win(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    file = tmp_path / ".env"
    file.write_text(
        "# of the broker\nSBPAIR_PRIMARY='Endpoint=sb://one/;x'\nexport SBPAIR_SECONDARY=theirs\n"
    )
    monkeypatch.delenv("SBPAIR_PRIMARY", raising=False)
    monkeypatch.setenv("SBPAIR_SECONDARY", "mine")
    program = (
        "import os; from sbpair.pair.cli import main\n"
        "try: main()\n"
        "finally: print(os.environ['SBPAIR_PRIMARY'], os.environ['SBPAIR_SECONDARY'])"
    )
    command = [sys.executable, "-c", program, "--env-file", str(file), "doctor", "--help"]
    done = subprocess.run(command, capture_output=True, text=True, check=False)

    assert done.stdout.splitlines()[-1] == "Endpoint=sb://one/;x mine"


def test_a_missing_environment_file_is_an_error(sbpair) -> None:
    done = sbpair("--env-file", "nowhere.env", "doctor")

    assert (done.returncode, done.stderr) == (2, "sbpair: --env-file nowhere.env: there is no such file\n")
