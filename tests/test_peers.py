"""The brokers that the benchmarks compare with: found, skipped, installed, and compared."""

from __future__ import annotations

import signal
import subprocess
import sys
import time
from pathlib import Path

import pytest

from tests.trials.bench import install_peers
from tests.trials.bench.aims import AIMS, AT_LEAST, Aim, of
from tests.trials.bench.peers import OTHERS, PEERS, others
from tests.trials.bench.peers.peer import ServerProcess, free_ports

ROOT = Path(__file__).parents[1]


@pytest.fixture(autouse=True)
def no_peers(tmp_path, monkeypatch):
    monkeypatch.setenv(PEERS, str(tmp_path / "peers"))


def test_a_missing_peer_is_skipped_with_the_installing_command(capsys):
    with others() as peers:
        assert peers == []
    printed = capsys.readouterr().out.splitlines()
    assert printed == [
        f"# without {name}: python -m tests.trials.bench.install_peers {name}" for name in OTHERS
    ]


def test_a_peer_that_does_not_start_is_skipped_with_the_reason(tmp_path, capsys):
    (tmp_path / "peers" / "artemis" / "bin").mkdir(parents=True)
    with others() as peers:
        assert peers == []
    assert "# without artemis: [Errno 2] No such file or directory" in capsys.readouterr().out


def test_a_server_that_ends_before_it_listens_is_an_error_with_its_output(tmp_path):
    server = ServerProcess([sys.executable, "-c", "print('no disk')"], tmp_path)
    try:
        with pytest.raises(OSError, match="it does not start: no disk"):
            server.wait_for_port(free_ports(1)[0])
    finally:
        server.close()


def test_a_closed_server_leaves_no_process_of_its_group(tmp_path):
    program = "import subprocess; subprocess.Popen(['sleep', '600']); print('up', flush=True); input()"
    server = ServerProcess(["sh", "-c", f'"{sys.executable}" -c "{program}"; sleep 600'], tmp_path)
    try:
        server.wait_for_line("up")
        assert is_running(server.pid)
    finally:
        server.close()
    deadline = time.monotonic() + 30
    while is_running(server.pid) and time.monotonic() < deadline:
        time.sleep(0.01)
    assert not is_running(server.pid)


def is_running(group: int) -> bool:
    """Whether a process of the group runs: a zombie does not."""
    found = subprocess.run(
        ["pgrep", "-g", str(group), "-r", "D,R,S"], capture_output=True, text=True, check=False
    )
    return bool(found.stdout)


def test_a_terminated_benchmark_closes_its_resources():
    program = """
import time
from tests.trials.bench.report import settings
settings("a benchmark", 1)
try:
    print("open", flush=True)
    time.sleep(600)
finally:
    print("closed", flush=True)
"""
    with subprocess.Popen(
        [sys.executable, "-c", program], stdout=subprocess.PIPE, text=True, cwd=ROOT
    ) as process:
        assert process.stdout is not None
        assert process.stdout.readline() == "open\n"
        process.terminate()
        assert process.stdout.read() == "closed\n"
    assert process.returncode == 128 + signal.SIGTERM


def test_a_failed_installation_is_reported_with_a_remedy_and_leaves_nothing(tmp_path, monkeypatch, capsys):
    monkeypatch.setenv("PATH", "")
    assert install_peers.install("broker-j", tmp_path, install_peers.MIRROR) is False
    assert "mvn is not installed: apt-get install maven default-jdk-headless" in capsys.readouterr().err
    assert list(tmp_path.iterdir()) == []


def test_an_installed_peer_is_left_unchanged(tmp_path, monkeypatch):
    monkeypatch.setenv("PATH", "")
    (tmp_path / "artemis").mkdir()
    assert install_peers.install("artemis", tmp_path, install_peers.MIRROR) is True


def test_an_aim_without_a_figure_for_each_of_the_three_brokers_is_not_measured():
    aim = next(aim for aim in AIMS if aim.figure.name == "broker.enqueue.over_best")
    assert aim.figure.find([{"name": "broker.enqueue.over_best", "brokers": 1, "median": 9.0}]) is None


def test_no_two_aims_share_words_or_figure():
    assert len({aim.what for aim in AIMS}) == len({aim.figure for aim in AIMS}) == len(AIMS)


def test_the_reason_of_a_missed_aim_has_the_figures():
    aim = Aim("enqueue", of("ratio"), AT_LEAST, 5, "{0} µs: at most {rate0}", (of("cpu", peer="sbpair"),))
    figures = [{"name": "ratio", "median": 4}, {"name": "cpu", "peer": "sbpair", "median": 8.0}]
    assert not aim.holds(4)
    assert aim.because(figures) == "8 µs: at most 125,000"
