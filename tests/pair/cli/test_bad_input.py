"""Mistyped arguments and unusual directories give one line that names the mistake, and an exit code."""

from __future__ import annotations

import os
import re
import socket
import subprocess
import sys

import pytest

from sbpair.pair.cli import main
from tests.pair.cli.conftest import assert_clean, connection_string, environment

PAIR = ("--primary", "env:P", "--secondary", "env:S")
ALIKE = ("--primary", "contoso.example", "--secondary", "contoso.other.example")
NAMED = (*PAIR, "--primary-namespace-name", "contoso")
DRY = ("drill", "--dry-run", "--entity", "größe", "--primary", "contoso", "--secondary", "contoso-dr")
"""A command that needs no network, and prints what is not ASCII."""


@pytest.fixture
def ended(monkeypatch, capsys, tmp_path):
    """Run a command in this process; return the exit code and the standard error output."""
    for name in list(os.environ):
        if name.startswith("SBPAIR_"):
            monkeypatch.delenv(name)
    monkeypatch.setenv("P", connection_string("127.0.0.1:1"))
    monkeypatch.setenv("S", connection_string("127.0.0.1:2"))
    monkeypatch.chdir(tmp_path)

    def run(*arguments):
        with pytest.raises(SystemExit) as exited:
            main(list(arguments))
        written = capsys.readouterr()
        assert_clean(written.out + written.err)
        return exited.value.code, written.err

    return run


WRONG = [
    # counts and spans
    (("syphon", *PAIR, "--backlogs", "-1"), 2, "--backlogs"),
    (("syphon", *PAIR, "--backlogs", "1000000"), 2, "--backlogs"),
    (("syphon", *PAIR, "--window", "ten"), 2, "--window"),
    (("syphon", *PAIR, "--stop-timeout", "-1"), 2, "not a duration"),
    (("syphon", *PAIR, "--stop-timeout", "61m"), 2, "--stop-timeout must be"),
    (("syphon", *PAIR, "--stop-timeout", "inf"), 2, "not a duration"),
    (("syphon", *PAIR, "--stop-timeout", "nan"), 2, "not a duration"),
    (("demo", "--messages", "0"), 2, "--messages"),
    (("drill", *PAIR, "--entity", "orders", "--wait", "soon"), 2, "not a duration"),
    (("drill", *PAIR, "--entity", "orders", "--canaries", "1001"), 2, "--canaries"),
    # names
    (("drill", *PAIR, "--entity", ""), 2, "it is empty"),
    (("drill", *PAIR, "--entity", "orders/$deadletterqueue"), 2, "reserved"),
    (("drill", *PAIR, "--entity", "contoso/x-servicebus-transfer/0"), 2, "it is a backlog queue"),
    (("drill", *PAIR, "--entity", "sb://contoso/orders"), 2, "absolute address"),
    (("drill", *ALIKE, "--entity", "orders"), 3, "--primary-namespace-name of a command"),
    (("doctor", *PAIR, "--queue", ""), 2, "it is empty"),
    (("doctor", *PAIR, "--primary-namespace-name", "a/b"), 2, "plain name"),
    (("backlog", "list", *PAIR, "--primary-namespace-name", " "), 2, "plain name"),
    (("doctor", *PAIR, "--role", "boss"), 2, "--role"),
    # ports and addresses
    (("broker", "--namespace", "contoso:65536"), 2, "a port from 0 to 65535"),
    (("broker", "--namespace", "contoso"), 2, "NAME:PORT"),
    (("broker", "--namespace", "a:1", "--namespace", "A:2"), 2, "given twice"),
    (("syphon", *PAIR, "--status-port", "65536"), 2, "--status-port"),
    # files
    (("syphon", *PAIR, "--primary-namespace-name", "a", "--journal", "/proc/nope"), 3, "/proc/nope"),
    (("spool", "list", "missing"), 3, "missing"),
    (("spool", "list", "."), 3, "is not a regular file"),
    # pairs
    (("syphon", "--primary", "env:P", "--secondary", "env:P"), 3, "same namespace"),
    (("drill", "--entity", "orders", "--primary", "env:P", "--secondary", "env:P"), 3, "same namespace"),
    (("syphon", "--primary", "env:P"), 2, "--secondary"),
    (("syphon", "--primary", "env:NOT_SET", "--secondary", "env:S"), 3, "'NOT_SET' is not set"),
    (("syphon", "--primary", "env:", "--secondary", "env:S"), 3, "is not set"),
    (("syphon", "--primary", "file:.", "--secondary", "env:S"), 3, "cannot read"),
    (("syphon", "--primary", "file:", "--secondary", "env:S"), 3, "cannot read"),
    (("syphon", "--primary", "", "--secondary", "env:S"), 3, "--primary is empty"),
    # no server answers
    (("drill", *NAMED, "--entity", "orders"), 5, "cannot be reached"),
    (("backlog", "list", *NAMED), 5, "check the address"),
    (("backlog", "peek", *NAMED), 5, "check the address"),
]


@pytest.mark.spec("S-12")
@pytest.mark.parametrize(("arguments", "code", "says"), WRONG, ids=[" ".join(row[0]) for row in WRONG])
def test_a_mistake_is_reported_in_one_line_that_names_it(ended, arguments, code, says):
    found, errors = ended(*arguments)

    assert found == code, errors
    assert says in errors
    assert re.match(r"sbpair: |\S+Z ERROR sbpair\.command: ", errors)  # the syphon's is a line of its log
    assert len(errors.splitlines()) == 1


def test_a_port_in_use_is_named(ended):
    with socket.socket() as taken:
        taken.bind(("127.0.0.1", 0))
        taken.listen()
        port = taken.getsockname()[1]
        code, errors = ended("broker", "--namespace", f"contoso:{port}")
        status, said = ended("syphon", *NAMED, "--status-port", str(port))

    assert (code, status) == (3, 5)  # a syphon is started again, and by then the port may be free
    assert str(port) in errors
    assert str(port) in said


def test_open_access_on_all_interfaces_is_warned_of(start):
    running = start("broker", "--host", "0.0.0.0", "--open-access", "--namespace", "contoso:0")
    running.line()

    assert "warning: anyone who can reach 0.0.0.0 may send and receive" in running.stop()[1]


@pytest.mark.parametrize(
    "surroundings",
    [
        {"LC_ALL": "C", "PYTHONUTF8": "0", "PYTHONCOERCECLOCALE": "0"},
        {"TZ": "Pacific/Chatham"},
        {"HOME": "/nonexistent", "XDG_CONFIG_HOME": "/nonexistent"},
        {"PYTHONHASHSEED": "1"},
        {"COLUMNS": "20", "TERM": "dumb"},
    ],
    ids=str,
)
def test_a_command_works_from_any_directory(surroundings):
    """The output is not ASCII, and the current directory belongs to another user."""
    done = subprocess.run(
        [sys.executable, "-m", "sbpair", *DRY],
        capture_output=True,
        cwd="/proc",
        stdin=subprocess.DEVNULL,
        env=environment(**surroundings) | {"PYTHONPATH": os.pathsep.join(filter(None, sys.path))},
    )

    assert (done.returncode, done.stderr) == (0, b"")
    assert b" in failover, in this process only" in done.stdout


@pytest.mark.slow
def test_a_reader_that_leaves_during_a_table_ends_the_command_quietly():
    program = (
        '"$0" -m sbpair drill --dry-run --entity orders --primary a --secondary b | true; '
        '"$0" -m sbpair backlog create --print bicep --primary contoso | head -c 1'
    )
    done = subprocess.run(
        ["/bin/bash", "-o", "pipefail", "-c", program, sys.executable],
        capture_output=True,
        text=True,
        timeout=60,
    )

    assert done.stderr == ""


@pytest.mark.parametrize("arguments", [["--version"], ["--help"], ["drill", "--help"], DRY])
def test_a_command_without_input_runs_with_all_streams_closed(arguments):
    program = '"$0" -m sbpair "$@" <&- >&- 2>&-'
    done = subprocess.run(["/bin/sh", "-c", program, sys.executable, *arguments], timeout=60)

    assert done.returncode == 0
