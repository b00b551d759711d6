"""Reopening clients in a forked process."""

from __future__ import annotations

import threading

import pytest

from sbpair.pair.ground import fork
from tests.waiting import PATIENCE


class Forkable:
    """A client as the fork handlers see it."""

    def __init__(self) -> None:
        self.lock = threading.Lock()
        self.reopened = 0

    def reopen_in_child(self) -> None:
        self.reopened += 1


@pytest.mark.spec("R-101")
def test_concurrent_forks_of_two_threads_run_one_after_another(monkeypatch: pytest.MonkeyPatch) -> None:
    client, order = Forkable(), []
    monkeypatch.setattr(fork, "_alive", {client})
    fork._before()

    def fork_again() -> None:
        fork._before()
        order.append("second")
        fork._in_parent()

    other = threading.Thread(target=fork_again)
    other.start()
    assert client.lock.locked()
    order.append("first")
    fork._in_child()
    other.join(PATIENCE)
    assert (order, client.reopened, client.lock.locked()) == (["first", "second"], 1, False)


@pytest.mark.spec("R-105")
def test_a_client_created_by_another_thread_during_a_fork_is_added_afterwards(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    alive: set[object] = set()
    monkeypatch.setattr(fork, "_alive", alive)
    fork._before()
    adding = threading.Thread(target=fork.reopen_after_fork, args=(Forkable(),))
    adding.start()
    adding.join(0.05)
    assert alive == set()
    fork._in_parent()
    adding.join(PATIENCE)
    assert len(alive) == 1
