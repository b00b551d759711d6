"""The processes that flame graphs are made of."""

from __future__ import annotations

import os
import sys

import pytest

from tests.trials.bench import flames


@pytest.mark.parametrize("way", flames.WAYS)
def test_each_workload_runs_in_a_process_that_ends_with_it(way, monkeypatch):
    monkeypatch.setattr(flames, "WAITING", 2_000)
    monkeypatch.setattr(flames, "STEP", 500)
    with flames.WAYS[way]() as pid:
        os.kill(pid, 0)
    with pytest.raises(ProcessLookupError):
        os.kill(pid, 0)


def test_a_workload_whose_sampling_fails_ends_its_process(monkeypatch):
    monkeypatch.setattr(flames, "STEP", 500)
    with pytest.raises(RuntimeError, match="no permission"), flames.WAYS["enqueue"]() as pid:
        raise RuntimeError("no permission to sample")
    with pytest.raises(ProcessLookupError):
        os.kill(pid, 0)


def test_without_py_spy_the_command_names_what_to_install(monkeypatch, capsys):
    monkeypatch.setattr(sys, "argv", ["flames"])
    monkeypatch.setenv("PATH", "")
    with pytest.raises(SystemExit):
        flames.main()
    assert "py-spy is not installed: pip install py-spy" in capsys.readouterr().err


def test_an_unknown_workload_is_refused_with_the_known_ones(monkeypatch, capsys):
    monkeypatch.setattr(sys, "argv", ["flames", "receive"])
    with pytest.raises(SystemExit):
        flames.main()
    assert (
        "no such way: receive; there are enqueue, settle, durable, syphon, sender" in capsys.readouterr().err
    )
