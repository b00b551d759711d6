"""Monitoring `sbpair syphon`: the journal and the status pages of a real process."""

from __future__ import annotations

import errno
import re
import socket

import httpx
import pytest

from sbpair.observation import journal_files, read
from sbpair.pair.cli.errors import CommandError, ExitCode
from sbpair.pair.cli.syphon.monitoring import PROBE_TIMEOUT, SIDE_TIMEOUT, Monitoring, _probe_sides, monitor
from sbpair.pair.client.errors import ClientError
from sbpair.syphon import Syphon
from tests.pair.cli.parking import FLAGS, park
from tests.waiting import wait_until

STRINGS = {
    f"SBPAIR_{side}": f"Endpoint=sb://{host}.servicebus.windows.net/;SharedAccessKeyName=a;SharedAccessKey=a2V5"
    for side, host in (("PRIMARY", "contoso"), ("SECONDARY", "contoso-dr"))
}
PAGE = re.compile(r"status on (http://127\.0\.0\.1:\d+)/state")


def test_a_drain_leaves_a_complete_journal(sbpair, broker, keys, tmp_path):
    park(broker, 5)

    done = sbpair("syphon", "--drain", *FLAGS, "--journal", str(tmp_path / "journal"), **keys)

    assert done.returncode == 0, done.stderr
    (path,) = journal_files(tmp_path / "journal", with_open=True)
    records = list(read(path))
    events = [record["event"] for record in records]
    assert events[0] == "journal_opened"
    assert events[-3:] == ["backlogs_drained", "syphon_counters", "journal_closed"]
    assert records[-2]["completed"] == 5
    assert records[-1]["is_last"] is True
    assert [record["ordinal"] for record in records] == list(range(len(records)))
    assert records[0]["pair"]["primary"] == "contoso"
    for connection_string in keys.values():
        key = connection_string.split("SharedAccessKey=")[1].split(";")[0]
        assert key not in path.read_text()


@pytest.mark.slow
def test_the_status_pages_show_a_running_daemon_and_an_outage(start, broker, keys):
    park(broker, 3)
    running = start("syphon", "--status-port", "0", *FLAGS, **keys)
    wait_until(lambda: any(PAGE.search(line) for line in running.errors))
    url = next(found[1] for line in running.errors if (found := PAGE.search(line)))

    def code(page):
        return httpx.get(f"{url}/{page}", timeout=30).status_code

    wait_until(lambda: httpx.get(f"{url}/state", timeout=30).json()["counters"]["completed"] == 3)
    wait_until(lambda: code("health") == 200)  # the probe allows five seconds to reach both sides
    assert (code("live"), code("ready")) == (200, 200)
    metrics = httpx.get(f"{url}/metrics", timeout=30).text
    assert "sbpair_syphon_forwarded_total 3.0" in metrics
    assert 'sbpair_syphon_state{state="running"} 1.0' in metrics

    broker.namespace("contoso").take_down("refuse")
    wait_until(lambda: httpx.get(f"{url}/state", timeout=30).json()["state"] == "connecting")
    assert (code("live"), code("ready")) == (200, 200)  # waiting for a side that is down is normal operation
    answer = httpx.get(f"{url}/health", timeout=30)
    assert answer.status_code == 503
    assert "primary: " in answer.json()["reason"]
    assert "cannot be reached" in answer.json()["reason"]
    assert "secondary: " not in answer.json()["reason"]
    assert answer.json()["state"] == "connecting"

    broker.namespace("contoso").bring_up()
    wait_until(lambda: httpx.get(f"{url}/state", timeout=30).json()["state"] == "running")
    wait_until(lambda: code("health") == 200)  # the probe allows five seconds to reach both sides
    assert (code("live"), code("ready")) == (200, 200)
    exit_code, errors = running.stop()
    assert exit_code == 0, errors


@pytest.mark.spec("R-26", "R-61")
def test_the_status_pages_show_a_refusing_side(start, broker, keys, wrong_key):
    wrong = keys | {"SBPAIR_PRIMARY": wrong_key(keys["SBPAIR_PRIMARY"])}
    running = start("syphon", "--status-port", "0", *FLAGS, **wrong)
    wait_until(lambda: any(PAGE.search(line) for line in running.errors))
    url = next(found[1] for line in running.errors if (found := PAGE.search(line)))
    wait_until(lambda: httpx.get(f"{url}/state", timeout=30).json()["state"] == "refused")

    codes = {page: httpx.get(f"{url}/{page}", timeout=30).status_code for page in ("live", "ready", "health")}
    assert codes == {"live": 200, "ready": 503, "health": 503}
    assert list(httpx.get(f"{url}/state", timeout=30).json()["refused"]) == ["primary"]
    assert list(httpx.get(f"{url}/health", timeout=30).json()["refused"]) == ["primary"]
    metrics = httpx.get(f"{url}/metrics", timeout=30).text
    assert 'sbpair_syphon_side_refused{side="primary"} 1.0' in metrics
    assert 'sbpair_syphon_side_refused{side="secondary"} 0.0' in metrics
    assert 'sbpair_syphon_state{state="refused"} 1.0' in metrics


@pytest.mark.spec("R-61", "R-62")
def test_a_syphon_with_a_wrong_prefix_is_live_but_never_ready(start, broker, keys):
    running = start("syphon", "--status-port", "0", *FLAGS, "--primary-namespace-name", "elsewhere", **keys)
    wait_until(lambda: any(PAGE.search(line) for line in running.errors))
    url = next(found[1] for line in running.errors if (found := PAGE.search(line)))
    wait_until(lambda: httpx.get(f"{url}/state", timeout=30).json()["state"] == "no_backlogs")

    codes = {page: httpx.get(f"{url}/{page}", timeout=30).status_code for page in ("live", "ready")}
    assert codes == {"live": 200, "ready": 503}
    state = httpx.get(f"{url}/state", timeout=30).json()
    assert "not even elsewhere/x-servicebus-transfer/0" in state["reason"]
    assert "elsewhere/x-servicebus-transfer/0" in state["missing"]
    wait_until(lambda: any("no backlog queue exists" in line for line in running.errors))


@pytest.mark.spec("R-61")
@pytest.mark.parametrize(("host", "shown"), [("0.0.0.0", r"0\.0\.0\.0"), ("::1", r"\[::1\]")])
def test_the_status_pages_are_served_on_the_given_address(start, keys, host, shown):
    if ":" in host and not has_ipv6():
        pytest.skip("no IPv6 here")
    running = start("syphon", "--status-port", "0", "--status-host", host, *FLAGS, **keys)
    page = re.compile(rf"status on http://{shown}:(\d+)/state")
    wait_until(lambda: any(page.search(line) for line in running.errors))
    port = next(found[1] for line in running.errors if (found := page.search(line)))

    reached = "[::1]" if ":" in host else "127.0.0.1"
    assert httpx.get(f"http://{reached}:{port}/live", timeout=30).status_code == 200


def syphon_of(keys):
    return Syphon.from_connection_strings(keys["SBPAIR_PRIMARY"], keys["SBPAIR_SECONDARY"])


def has_ipv6():
    try:
        with socket.create_server(("::1", 0), family=socket.AF_INET6):
            return True
    except OSError:
        return False


def test_messages_that_wait_too_long_are_logged_once_and_so_is_their_end(start, broker, keys, tmp_path):
    park(broker, 2)
    broker.namespace("contoso").take_down("refuse")
    running = start("syphon", "--overdue-after", "1s", "--journal", str(tmp_path), *FLAGS, **keys)

    def told():
        records = [record for file in journal_files(tmp_path, with_open=True) for record in read(file)]
        return [record for record in records if record["event"] in ("backlog_overdue", "backlog_caught_up")]

    wait_until(lambda: len(told()) == 1)
    broker.namespace("contoso").bring_up()
    wait_until(lambda: len(told()) == 2)
    exit_code, errors = running.stop()

    assert exit_code == 0, errors
    begun, over = told()
    assert (begun["event"], begun["threshold"], over["event"]) == (
        "backlog_overdue",
        1.0,
        "backlog_caught_up",
    )
    assert begun["backlog"] == over["backlog"]
    assert "has waited" in errors


@pytest.mark.spec("R-190")
def test_a_port_in_use_may_be_free_at_the_next_start(sbpair, pair_environment):
    with socket.socket() as taken:
        taken.bind(("127.0.0.1", 0))
        taken.listen()
        port = taken.getsockname()[1]
        done = sbpair("syphon", "--status-port", str(port), *FLAGS, **pair_environment)

    assert done.returncode == 5
    assert f"127.0.0.1:{port}: Address already in use" in done.stderr
    assert len(done.stderr.splitlines()) == 1


def test_an_unwritable_journal_is_a_configuration_error(sbpair, pair_environment, tmp_path):
    (tmp_path / "file").write_text("")

    done = sbpair("syphon", "--journal", str(tmp_path / "file" / "journal"), *FLAGS, **pair_environment)

    assert done.returncode == 3
    assert "cannot write a journal to" in done.stderr


@pytest.mark.spec("R-190")
@pytest.mark.parametrize(
    ("number", "code"),
    [
        (errno.ENOSPC, ExitCode.UNAVAILABLE),
        (errno.EROFS, ExitCode.UNAVAILABLE),
        (errno.EACCES, ExitCode.CONFIGURATION),
        (errno.ENOTDIR, ExitCode.CONFIGURATION),
    ],
)
async def test_a_full_disk_is_retried_and_a_wrong_directory_is_an_error(monkeypatch, tmp_path, number, code):
    def refuse(*arguments):
        raise OSError(number, "no")

    monkeypatch.setattr("sbpair.pair.observation.journal.os.open", refuse)
    with pytest.raises(CommandError, match="cannot write a journal to") as caught:
        async with monitor(syphon_of(STRINGS), Monitoring(tmp_path, None, "127.0.0.1")):
            pass
    assert caught.value.code is code


@pytest.mark.spec("R-61")
async def test_an_unreachable_side_is_named(broker, keys, monkeypatch):
    monkeypatch.setattr("sbpair.pair.cli.syphon.monitoring.SIDE_TIMEOUT", 0.2)
    for name in ("contoso", "contoso-dr"):
        broker.namespace(name).take_down("silent")
    with pytest.raises(ClientError) as caught:
        await _probe_sides(syphon_of(keys))
    assert str(caught.value) == "primary: no answer within 0.2 s; secondary: no answer within 0.2 s"


def test_the_health_check_gives_up_on_the_sides_before_the_page_times_out():
    assert SIDE_TIMEOUT < PROBE_TIMEOUT
