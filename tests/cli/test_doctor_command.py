"""`sbpair doctor` as a process, against a broker in good and in bad health."""

from __future__ import annotations

import asyncio
import json
from dataclasses import replace

import pytest

from sbpair.broker import Broker
from tests.syphon.pair import parked, put

BACKLOG = "contoso/x-servicebus-transfer/{}"
FLAGS = ("--backlogs", "2", "--primary-namespace-name", "contoso")


@pytest.fixture
def broker():
    with Broker({"contoso": 0, "contoso-dr": 0}) as running:
        running.namespace("contoso").create_queue("orders")
        running.namespace("contoso").create_queue("scratch")
        yield running


@pytest.fixture
def keys(broker):
    return {
        "SBPAIR_PRIMARY": broker.namespace("contoso").connection_string,
        "SBPAIR_SECONDARY": broker.namespace("contoso-dr").connection_string,
    }


@pytest.fixture
def doctor(sbpair, broker, keys):
    """Run `sbpair doctor --json`; its exit code and findings."""

    def run(*arguments, **env):
        done = sbpair("doctor", "--json", *FLAGS, "--ca-file", str(broker.ca_file), *arguments, **keys | env)
        assert done.stdout, done.stderr
        return done.returncode, json.loads(done.stdout)["findings"]

    return run


@pytest.fixture
def backlogs(sbpair, broker, keys):
    assert sbpair("backlog", "create", *FLAGS, "--ca-file", str(broker.ca_file), **keys).returncode == 0


def told(findings, about):
    return [each["what"] for each in findings if each["about"] == about and each["severity"] != "note"]


@pytest.mark.spec("P-31")
@pytest.mark.usefixtures("backlogs")
def test_a_healthy_pairing_passes_with_its_ping_probed(doctor, broker):
    assert doctor("--queue", "orders", "--scratch-queue", "scratch") == (0, [])
    assert broker.namespace("contoso").counts("orders").active == 0


@pytest.mark.usefixtures("backlogs")
def test_what_was_not_tried_is_a_note_and_no_failure(doctor):
    code, findings = doctor()

    assert code == 0
    assert [each["severity"] for each in findings] == ["note"]


@pytest.mark.spec("P-13", "P-14")
@pytest.mark.usefixtures("backlogs")
def test_odd_backlog_queues_are_found(doctor, broker):
    secondary = broker.namespace("contoso-dr")
    secondary.create_queue(BACKLOG.format(5))
    secondary.delete_queue(BACKLOG.format(0))
    secondary.delete_queue(BACKLOG.format(1))
    secondary.create_queue(BACKLOG.format(1))

    code, findings = doctor()

    assert code == 1
    assert told(findings, BACKLOG.format(0)) == ["the backlog queue does not exist"]
    assert "max_delivery_count is 10" in told(findings, BACKLOG.format(1))
    assert "beyond --backlogs" in told(findings, BACKLOG.format(5))[0]


@pytest.mark.usefixtures("backlogs")
def test_a_parked_message_without_a_destination_is_found_before_it_is_dead_lettered(doctor, broker):
    asyncio.run(put(broker.namespace("contoso-dr"), BACKLOG.format(0), [parked(1, path="nowhere")]))

    code, findings = doctor()

    assert code == 1
    assert "dead-lettered" in told(findings, "primary nowhere")[0]
    assert broker.namespace("contoso-dr").counts(BACKLOG.format(0)).active == 1


@pytest.mark.usefixtures("backlogs")
def test_a_disabled_destination_is_found(doctor, broker):
    primary = broker.namespace("contoso")
    primary.update_queue("orders", replace(primary.description("orders"), status="ReceiveDisabled"))

    code, findings = doctor("--queue", "orders")

    assert code == 1
    assert told(findings, "orders") == ["the queue is ReceiveDisabled"]


@pytest.mark.usefixtures("backlogs")
def test_a_scratch_queue_in_use_is_not_probed(doctor, broker):
    asyncio.run(put(broker.namespace("contoso"), "scratch", [parked(1)]))

    code, findings = doctor("--scratch-queue", "scratch")

    assert code == 1
    assert "not empty" in told(findings, "ping")[0]
    assert broker.namespace("contoso").counts("scratch").active == 1


@pytest.mark.usefixtures("backlogs")
def test_a_wrong_key_and_a_dead_side_are_findings_on_their_side(doctor, keys, wrong_key, pair_environment):
    _, refused = doctor(SBPAIR_SECONDARY=wrong_key(keys["SBPAIR_SECONDARY"]))
    code, dead = doctor(SBPAIR_PRIMARY=pair_environment["SBPAIR_PRIMARY"])

    assert "the key may not Send there" in told(refused, f"secondary {BACKLOG.format(0)}")
    assert code == 1
    assert "cannot be reached" in told(dead, "primary")[0]


def test_one_namespace_is_no_pair(doctor, keys):
    code, findings = doctor(SBPAIR_SECONDARY=keys["SBPAIR_PRIMARY"])

    assert (code, len(told(findings, "pair"))) == (1, 1)


@pytest.mark.usefixtures("backlogs")
def test_people_read_a_table(sbpair, broker, keys):
    arguments = ("doctor", *FLAGS, "--ca-file", str(broker.ca_file))

    healthy = sbpair(*arguments, "--scratch-queue", "scratch", **keys)
    broker.namespace("contoso-dr").delete_queue(BACKLOG.format(0))
    ill = sbpair(*arguments, **keys)

    assert healthy.stdout == "nothing found\n"
    assert (ill.returncode, "1 found" in ill.stdout) == (1, True)
    assert "sbpair backlog create" in ill.stdout
