"""The bounds on the heads of a connection's HTTP requests, on a driven loop (R-115, R-116)."""

from __future__ import annotations

import asyncio

import pytest

from sbpair.broker.server.guarded_requests import (
    HEAD_WITHIN,
    MAX_HEAD_BYTES,
    MAX_STRANGE_BYTES,
    GuardedRequests,
)

REQUEST = b"GET / HTTP/1.1\r\nHost: localhost\r\n\r\n"


class Timer:
    def __init__(self, after: float, act: object) -> None:
        self.after, self.act, self.is_set = after, act, True

    def cancel(self) -> None:
        self.is_set = False


class Connection(asyncio.Transport):
    """A transport, the library's protocol, and the timers of the loop, all recorded."""

    def __init__(self) -> None:
        super().__init__()
        self.written, self.ends, self.passed_on = b"", [], b""
        self.timers: list[Timer] = []
        self.is_lost = False

    def write(self, data: bytes) -> None:
        self.written += data

    def close(self) -> None:
        self.ends.append("closed")

    def abort(self) -> None:
        self.ends.append("aborted")

    def elapse(self) -> None:
        """Fire the timers that are set."""
        waiting, self.timers = [timer for timer in self.timers if timer.is_set], []
        for timer in waiting:
            assert timer.after == HEAD_WITHIN
            timer.act()


class Library(asyncio.Protocol):
    def __init__(self, connection: Connection) -> None:
        self._connection = connection

    def data_received(self, data: bytes) -> None:
        self._connection.passed_on += data


@pytest.fixture
def connection(monkeypatch: pytest.MonkeyPatch) -> Connection:
    made = Connection()

    class Loop:
        def call_later(self, after: float, act: object) -> Timer:
            made.timers.append(Timer(after, act))
            return made.timers[-1]

    monkeypatch.setattr(asyncio, "get_running_loop", Loop)
    return made


@pytest.fixture
def guard(connection: Connection) -> GuardedRequests:
    guard = GuardedRequests(Library(connection), lost=lambda: setattr(connection, "is_lost", True))
    guard.connection_made(connection)
    return guard


def answer(guard: GuardedRequests, request: bytes = REQUEST) -> None:
    """Have one request answered."""
    guard.data_received(request)
    guard.begun(has_body=False)
    guard.answered(is_last=False)


@pytest.mark.spec("R-116")
@pytest.mark.parametrize("earlier", [0, 1, 5])
def test_every_request_head_has_the_same_time_limit(
    guard: GuardedRequests, connection: Connection, earlier: int
) -> None:
    for _ in range(earlier):
        answer(guard)
        connection.elapse()
    assert connection.ends == []
    guard.data_received(b"GET / HTTP/1.1\r\nHost: loc")
    connection.elapse()
    assert connection.ends == ["aborted"]


@pytest.mark.spec("R-116")
def test_a_head_that_arrives_byte_by_byte_gets_no_extra_time(
    guard: GuardedRequests, connection: Connection
) -> None:
    answer(guard)
    for byte in REQUEST[:-1]:
        guard.data_received(bytes([byte]))
    assert sum(timer.is_set for timer in connection.timers) == 1
    connection.elapse()
    assert connection.ends == ["aborted"]


@pytest.mark.spec("R-116")
def test_a_complete_request_may_take_as_long_as_it_needs(
    guard: GuardedRequests, connection: Connection
) -> None:
    guard.data_received(REQUEST)
    guard.begun(has_body=True)
    connection.elapse()
    guard.data_received(b"a body")
    connection.elapse()
    guard.answered(is_last=False)
    connection.elapse()
    assert connection.ends == []


def lines(size: int) -> bytes:
    """A head of this size, without its end."""
    head = b"GET / HTTP/1.1\r\n"
    return head + b"A: b\r\n" * ((size - len(head)) // 6) + b"C" * ((size - len(head)) % 6)


@pytest.mark.spec("R-115")
@pytest.mark.parametrize("piece", [1000, 65_536, 2**20])
def test_the_total_size_of_a_head_is_bounded(
    guard: GuardedRequests, connection: Connection, piece: int
) -> None:
    answer(guard)
    head = lines(MAX_HEAD_BYTES + 1)
    for at in range(0, len(head), piece):
        guard.data_received(head[at : at + piece])
    assert connection.written.startswith(b"HTTP/1.1 431 ")
    assert connection.ends == ["closed"]
    assert len(connection.passed_on) <= len(REQUEST) + MAX_HEAD_BYTES


@pytest.mark.spec("R-115")
def test_the_largest_head_is_accepted_and_its_body_not_counted(
    guard: GuardedRequests, connection: Connection
) -> None:
    head = lines(MAX_HEAD_BYTES - 4) + b"\r\n\r\n"
    for sent in (head[:-2], head[-2:] + b"x" * 100_000, b"x" * 100_000):
        guard.data_received(sent)
    guard.begun(has_body=True)
    guard.data_received(b"x" * 100_000)
    assert (connection.ends, len(connection.passed_on)) == ([], len(head) + 300_000)


@pytest.mark.spec("R-115")
def test_data_sent_before_the_answer_is_bounded(guard: GuardedRequests, connection: Connection) -> None:
    guard.data_received(REQUEST)
    guard.begun(has_body=False)
    guard.data_received(lines(MAX_HEAD_BYTES))
    assert connection.ends == []
    guard.data_received(b"x")
    assert (connection.ends, connection.written) == (["closed"], b"")


@pytest.mark.spec("R-115")
def test_unauthenticated_websocket_data_is_bounded(guard: GuardedRequests, connection: Connection) -> None:
    claims: list[str] = []
    answer(guard)
    guard.data_received(REQUEST)
    guard.begun(has_body=False)
    guard.opened(lambda: bool(claims))
    guard.data_received(b"x" * MAX_STRANGE_BYTES)
    assert connection.ends == []
    claims.append("orders")
    for _ in range(3):
        guard.data_received(b"x" * MAX_STRANGE_BYTES)
    assert connection.ends == []


@pytest.mark.spec("R-115")
def test_an_unauthenticated_client_that_fills_a_websocket_is_disconnected(
    guard: GuardedRequests, connection: Connection
) -> None:
    guard.data_received(REQUEST)
    guard.begun(has_body=False)
    guard.opened(lambda: False)
    before = len(connection.passed_on)
    for _ in range(3):
        guard.data_received(b"x" * (MAX_STRANGE_BYTES // 2))
    assert connection.ends == ["aborted"]
    assert len(connection.passed_on) - before == MAX_STRANGE_BYTES


@pytest.mark.spec("R-115")
def test_a_closed_connection_leaves_no_state(guard: GuardedRequests, connection: Connection) -> None:
    guard.data_received(b"GET")
    guard.connection_lost(None)
    connection.elapse()
    assert (connection.is_lost, connection.ends) == (True, [])


def test_empty_lines_before_a_request_are_not_its_head(
    guard: GuardedRequests, connection: Connection
) -> None:
    answer(guard)
    guard.data_received(b"\r\n\r\n" + REQUEST[:20])
    connection.elapse()
    assert connection.ends == ["aborted"]
