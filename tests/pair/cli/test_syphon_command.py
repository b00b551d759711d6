"""`sbpair syphon` as a process: draining, stopping, and reporting what keeps it from working."""

from __future__ import annotations

import json
import re
import signal

import pytest

from sbpair.broker.faults import Withhold
from tests.pair.cli.parking import FLAGS, park
from tests.waiting import wait_until


@pytest.mark.spec("P-42")
def test_drain_brings_all_messages_home_and_prints_its_counters(sbpair, broker, keys):
    park(broker, 40)

    done = sbpair("syphon", "--drain", "--json", *FLAGS, **keys)

    assert done.returncode == 0, done.stderr
    counters = json.loads(done.stdout)
    assert counters["received"] == counters["forwarded"] == counters["completed"] == 40
    assert counters["pending"] == 0
    assert broker.namespace("contoso").counts("orders").active == 40


@pytest.mark.spec("R-124")
def test_a_drain_that_dead_letters_messages_has_its_own_exit_code_and_message(sbpair, broker, keys):
    park(broker, 3)

    done = sbpair("syphon", "--drain", "--json", "--allowed-destinations", "prices", *FLAGS, **keys)

    assert done.returncode == 6, done.stderr
    assert json.loads(done.stdout)["dead_lettered"] == 3
    assert "dead-lettered and did not come home: 3" in done.stderr.splitlines()[-1]


@pytest.mark.spec("C-1", "C-3")
def test_a_drain_with_landing_needs_no_primary(sbpair, broker, keys):
    park(broker, 20)
    broker.namespace("contoso-dr").create_queue("orders")
    broker.namespace("contoso").take_down("refuse")

    landing = ("--land", "either", "--land-after", "0")
    done = sbpair("syphon", "--drain", "--json", *landing, *FLAGS, **keys)

    assert done.returncode == 0, done.stderr
    counters = json.loads(done.stdout)
    assert (counters["landed"], counters["completed"]) == (20, 20)
    assert "orders has been out of reach for" in done.stderr
    assert broker.namespace("contoso-dr").counts("orders").active == 20


def test_the_syphon_output_contains_no_key(sbpair, broker, keys):
    park(broker, 1)

    done = sbpair("syphon", "--drain", *FLAGS, **keys)

    for connection_string in keys.values():
        key = connection_string.split("SharedAccessKey=")[1].split(";")[0]
        assert key not in done.stdout + done.stderr
    assert "completed 1" in done.stdout


@pytest.mark.spec("P-40")
def test_the_daemon_moves_messages_until_sigterm_and_exits_with_0(start, broker, keys):
    running = start("syphon", "--json", "--missing-backlog-interval", "1s", *FLAGS, **keys)
    park(broker, 5)
    wait_until(lambda: broker.namespace("contoso").counts("orders").active == 5)

    code, errors = running.stop()

    assert code == 0, errors
    assert "stopping" in errors
    assert json.loads(running.line())["completed"] == 5


@pytest.mark.spec("O-6")
def test_a_session_blocked_for_an_operator_is_logged(start, broker, keys):
    park(broker, 1, session="s-1")
    holds = ("--ordering", "session", "--on-poison", "hold", "--allowed-destinations", "prices")

    running = start("syphon", *holds, *FLAGS, **keys)
    wait_until(lambda: any("is held" in text for text in running.errors))
    code, errors = running.stop()

    assert code == 0, errors
    held = next(line for line in errors.splitlines() if "is held" in line)
    assert re.search(
        r"contoso/x-servicebus-transfer/ordered/\d: session \S+ is held: .* PathNotAllowed", held
    )
    assert "--on-poison dead-letter" in held


def test_a_second_signal_exits_at_once(start, broker, keys):
    primary = broker.namespace("contoso")
    park(broker, 5)
    with primary.fault("orders", Withhold()):  # stored but never answered, so the first signal has to wait
        running = start("syphon", *FLAGS, "--stop-timeout", "10m", **keys)
        wait_until(lambda: primary.counts("orders").total == 5)
        running.signal(signal.SIGTERM)
        wait_until(lambda: any("second signal" in text for text in running.errors))
        code, _ = running.stop()

    assert code == 1


def test_equal_namespaces_are_a_configuration_error(sbpair, keys):
    done = sbpair("syphon", SBPAIR_PRIMARY=keys["SBPAIR_PRIMARY"], SBPAIR_SECONDARY=keys["SBPAIR_PRIMARY"])

    assert done.returncode == 3
    assert "same namespace" in done.stderr


@pytest.mark.parametrize("side", ["SBPAIR_PRIMARY", "SBPAIR_SECONDARY"])
@pytest.mark.parametrize(
    "text", ["contoso;", "Endpoint=sb://contoso", "SharedAccessKeyName=a;SharedAccessKey=b"]
)
def test_a_wrong_connection_string_is_a_configuration_error_that_names_the_side(
    sbpair, pair_environment, side, text
):
    done = sbpair("syphon", **{**pair_environment, side: text})

    assert done.returncode == 3
    assert f"--{side.removeprefix('SBPAIR_').lower()}" in done.stderr
    assert len(done.stderr.splitlines()) == 1


SIDES = pytest.mark.parametrize("side", ["SBPAIR_PRIMARY", "SBPAIR_SECONDARY"])


@pytest.mark.slow
@pytest.mark.spec("R-26")
@SIDES
@pytest.mark.parametrize("mode", ["--exit-on-refusal", "--drain"])
@pytest.mark.parametrize("count", [0, 1])
def test_a_key_refused_by_a_side_is_an_authorization_error(
    sbpair, broker, keys, wrong_key, mode, side, count
):
    backlogs = broker.namespace("contoso-dr")
    backlogs.create_queue("contoso/x-servicebus-transfer/0")
    if count:
        park(broker, count)

    done = sbpair("syphon", mode, *FLAGS, **keys | {side: wrong_key(keys[side])})

    assert done.returncode == 4, done.stderr
    assert "check the keys" in done.stderr
    assert sum(backlogs.counts(name).active for name in backlogs.queue_names()) == count


@pytest.mark.spec("R-26")
def test_a_refused_daemon_reports_it_and_keeps_trying(start, keys, wrong_key):
    running = start("syphon", *FLAGS, **keys | {"SBPAIR_PRIMARY": wrong_key(keys["SBPAIR_PRIMARY"])})
    wait_until(lambda: any("; again in" in text for text in running.errors))  # said once, while it lasts

    code, errors = running.stop()

    assert code == 0, errors
    assert "primary: no access to" in errors
    assert "SyphonConnected" not in errors


@pytest.mark.spec("R-26")
def test_a_refused_daemon_uses_the_new_key_in_its_file(start, broker, keys, wrong_key, tmp_path):
    park(broker, 1)
    file = tmp_path / "primary"
    file.write_text(wrong_key(keys["SBPAIR_PRIMARY"]))
    often = ("--retry-backoff-max", "200ms")
    running = start("syphon", *often, *FLAGS, **keys | {"SBPAIR_PRIMARY": f"file:{file}"})
    wait_until(lambda: any("the primary refuses the syphon" in text for text in running.errors))

    file.write_text("half a conn")  # while it is being written
    file.write_text(keys["SBPAIR_PRIMARY"])
    wait_until(lambda: broker.namespace("contoso").counts("orders").active == 1)

    code, errors = running.stop()
    assert code == 0, errors
    assert "the primary accepts the syphon again" in errors


@pytest.mark.spec("R-25")
def test_an_interrupted_drain_does_not_report_empty_backlogs(start, broker, keys):
    park(broker, 5)
    broker.namespace("contoso").take_down("refuse")
    running = start("syphon", "--drain", "--patience", "10m", *FLAGS, **keys)
    wait_until(lambda: any("again in" in text for text in running.errors))

    code, errors = running.stop()

    assert code == 1, errors
    assert "stopped before every backlog was found empty" in errors


def test_a_drain_without_any_answer_gives_up(sbpair, pair_environment):
    done = sbpair(
        "syphon", "--drain", "--patience", "500ms", "--primary-namespace-name", "contoso", **pair_environment
    )

    assert done.returncode == 5
    assert "gave up after 0.5 s" in done.stderr
    assert "drain again later" in done.stderr


def test_a_drain_without_any_backlog_queue_is_a_configuration_error(sbpair, broker, keys):
    done = sbpair("syphon", "--drain", "--backlogs", "2", "--primary-namespace-name", "kontoso", **keys)

    assert done.returncode == 3
    assert "not even kontoso/x-servicebus-transfer/0" in done.stderr
    assert "`sbpair backlog create` does" in done.stderr
    assert "--primary-namespace-name" in done.stderr


def test_a_drain_names_missing_backlog_queues_and_empties_the_others(sbpair, broker, keys):
    park(broker, 3)

    done = sbpair("syphon", "--drain", "--backlogs", "4", "--primary-namespace-name", "contoso", **keys)

    assert done.returncode == 0
    assert re.search("backlog queues do not exist: .*contoso/x-servicebus-transfer/3", done.stderr)
    assert broker.namespace("contoso").counts("orders").active == 3


def test_a_ca_file_that_is_not_there_is_a_configuration_error(sbpair, pair_environment, tmp_path):
    tls = {name: text.replace(";UseDevelopmentEmulator=true", "") for name, text in pair_environment.items()}
    tls["SBPAIR_SECONDARY"] = tls["SBPAIR_SECONDARY"].replace("127.0.0.1", "127.0.0.2")
    done = sbpair("syphon", "--drain", "--ca-file", str(tmp_path / "missing.pem"), **tls)

    assert done.returncode == 3
    assert "missing.pem" in done.stderr


@pytest.mark.spec("F-48", "F-49")
def test_a_drain_that_leaves_messages_beyond_its_count_reports_them_and_exits_with_1(sbpair, broker, keys):
    park(broker, 3)  # on one of two
    flags = ("--backlogs", "1", "--primary-namespace-name", "contoso")
    left = broker.namespace("contoso-dr").counts("contoso/x-servicebus-transfer/1").active

    done = sbpair("syphon", "--drain", *flags, **keys)

    assert "contoso/x-servicebus-transfer/1" in done.stderr
    assert "--backlogs" in done.stderr
    assert done.returncode == (1 if left else 0), done.stderr
    assert ("messages are left in" in done.stderr) is bool(left)
    assert broker.namespace("contoso-dr").counts("contoso/x-servicebus-transfer/1").active == left


@pytest.mark.spec("R-126")
def test_each_log_line_has_time_and_level_and_the_level_can_be_chosen(sbpair, broker, keys):
    park(broker, 2)
    broker.namespace("contoso-dr").create_queue("contoso/x-servicebus-transfer/2")  # beyond the count

    done = sbpair("syphon", "--drain", *FLAGS, **keys)
    quiet = sbpair("syphon", "--drain", "--log-level", "error", *FLAGS, **keys)

    stamp = r"\d{4}-\d\d-\d\dT\d\d:\d\d:\d\d\.\d+Z (INFO|WARNING|ERROR) sbpair\.\w+: \S+"
    assert all(re.match(stamp, line) for line in done.stderr.splitlines()), done.stderr
    assert "SyphonConnected: connected; messages" in done.stderr
    assert "SyphonConnected" not in quiet.stderr
    assert quiet.returncode == 0


def test_with_json_log_every_stderr_line_is_json_with_the_fields_of_its_event(sbpair, broker, keys):
    park(broker, 2)

    done = sbpair("syphon", "--drain", "--json-log", *FLAGS, **keys)

    assert done.returncode == 0, done.stderr
    lines = [json.loads(line) for line in done.stderr.splitlines()]
    assert {"at", "level", "logger", "message"} <= lines[0].keys()
    assert [line["event"] for line in lines if "event" in line][-1] == "BacklogsDrained"
    told = [line["event"] for line in lines if "event" in line]
    assert told.count("SyphonConnected") == 1
    assert sum("connected; messages" in line["message"] for line in lines) == 1
    for connection_string in keys.values():
        assert connection_string.split("SharedAccessKey=")[1].split(";")[0] not in done.stderr


@pytest.mark.spec("R-63")
def test_with_json_log_the_status_address_and_the_last_error_are_json(sbpair, keys):
    wrong = keys | {"SBPAIR_PRIMARY": keys["SBPAIR_PRIMARY"].replace("localhost", "127.0.0.1:1;X=")}
    done = sbpair(
        "syphon", "--drain", "--json-log", "--status-port", "0", "--patience", "1s", *FLAGS, **wrong
    )

    assert done.returncode != 0
    levels = [json.loads(line)["level"] for line in done.stderr.splitlines()]
    assert levels[-1] == "ERROR"


def test_all_messages_come_home_over_websocket(sbpair, broker, keys):
    park(broker, 5)

    done = sbpair("syphon", "--drain", "--websocket", *FLAGS, **keys)

    assert done.returncode == 0, done.stderr
    assert broker.namespace("contoso").counts("orders").active == 5
