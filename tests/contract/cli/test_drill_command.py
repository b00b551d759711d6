"""`sbpair drill` as a process: the canaries arrive, and nothing is left behind."""

from __future__ import annotations

import asyncio
import json
import signal
import threading

import pytest
from azure.servicebus import ServiceBusClient

from sbpair.broker import Broker
from sbpair.broker.faults import Withhold
from sbpair.contract.cli.drill.plan import CONTENT_TYPE, PROPERTY, DrillPlan, Proof, operations, steps
from tests.pair.syphon.pair import parked, put
from tests.waiting import wait_until

NAMES = ("--backlogs", "2", "--primary-namespace-name", "contoso")
BACKLOG = "contoso/x-servicebus-transfer/{}"


@pytest.fixture
def broker():
    with Broker({"contoso": 0, "contoso-dr": 0}) as running:
        running.namespace("contoso").create_queue("orders")
        running.namespace("contoso").create_queue("shipments", requires_session=True)
        running.namespace("contoso").create_topic("prices")
        running.namespace("contoso").create_subscription("prices", "audit")
        for index in range(2):
            running.namespace("contoso-dr").create_queue(BACKLOG.format(index))
        yield running


@pytest.fixture
def flags(broker):
    return (*NAMES, "--ca-file", str(broker.ca_file))


@pytest.fixture
def drill(sbpair, flags, keys):
    """Run `sbpair drill --json`; return the exit code and the report."""

    def run(*arguments):
        done = sbpair("drill", "--json", *flags, *arguments, **keys)
        assert done.stdout, done.stderr
        return done.returncode, json.loads(done.stdout)

    return run


def fates(report):
    return [each["fate"] for each in report["canaries"]]


def nothing_is_left(broker):
    return waiting_in_backlogs(broker) == 0


def waiting_in_backlogs(broker):
    return sum(broker.namespace("contoso-dr").counts(BACKLOG.format(index)).total for index in range(2))


def only_the_ping_is_left(broker, entity):
    """A ping counts until it is removed, but is never received (P-31)."""
    is_topic = entity == "prices"
    counts = broker.namespace("contoso").counts("prices/Subscriptions/audit" if is_topic else entity)
    return counts.active <= 1 and counts.total == counts.active


@pytest.mark.slow
@pytest.mark.spec("P-4", "P-33", "P-42")
@pytest.mark.parametrize("entity", ["orders", "shipments", "prices"])
def test_canaries_come_home_and_no_consumer_sees_one(drill, broker, entity):
    code, report = drill("--entity", entity, "--with-syphon", "--canaries", "4")

    assert (code, report["outcome"], fates(report)) == (0, "passed", ["home"] * 4)
    assert report["recovered_by_ping"]
    assert report["restored"]
    assert report["pings"] == 1
    assert {each["backlog"] for each in report["canaries"]} <= {0, 1}
    assert only_the_ping_is_left(broker, entity)
    assert nothing_is_left(broker)


def test_the_drill_searches_only_behind_existing_messages(drill, broker):
    asyncio.run(put(broker.namespace("contoso"), "orders", [parked(number) for number in range(250)]))

    code, report = drill("--entity", "orders", "--with-syphon", "--canaries", "1")

    assert (code, fates(report)) == (0, ["home"])
    assert report["peeks"] < 20


@pytest.mark.spec("P-44")
def test_a_running_syphon_brings_the_canaries_home(drill, start, flags, keys):
    start("syphon", *flags, **keys)

    code, report = drill("--entity", "orders", "--canaries", "3")

    assert (code, fates(report)) == (0, ["home"] * 3)


@pytest.mark.slow
def test_without_a_syphon_the_drill_fails_and_says_where_the_canaries_are(sbpair, broker, flags, keys):
    done = sbpair("drill", *flags, "--entity", "orders", "--canaries", "2", "--wait", "300ms", **keys)

    assert done.returncode == 1, done.stderr
    assert "0 of 2 canaries came home; a ping brought it home" in done.stdout
    assert "2 parked: perhaps no syphon runs" in done.stdout
    assert not nothing_is_left(broker)


def test_canaries_in_a_subscription_are_seen_by_peeking(drill, broker):
    code, report = drill("--entity", "prices", "--subscription", "audit", "--with-syphon", "--canaries", "2")

    assert (code, fates(report), report["proof"]) == (0, ["home"] * 2, "peek")
    assert broker.namespace("contoso").counts("prices/Subscriptions/audit").active == 2


@pytest.mark.slow
def test_a_consumer_that_receives_a_canary_first_is_no_failure(start, broker, flags, keys):
    seen = []
    over = threading.Event()

    def consume():
        client = ServiceBusClient.from_connection_string(keys["SBPAIR_PRIMARY"])
        with client, client.get_queue_receiver("orders") as receiver:
            while not over.is_set():
                for message in receiver.receive_messages(max_message_count=10, max_wait_time=0.3):
                    seen.append(message)
                    receiver.complete_message(message)

    thread = threading.Thread(target=consume)
    thread.start()
    try:
        options = ("--entity", "orders", "--proof", "peek", "--with-syphon", "--canaries", "5", "--json")
        running = start("drill", *flags, *options, **keys)
        report = json.loads(running.line())
        code, errors = running.wait()
        wait_until(lambda: len(seen) == 5)
    finally:
        over.set()
        thread.join()

    assert code == 0, errors
    assert set(fates(report)) <= {"home", "taken"}
    assert {message.content_type for message in seen} == {CONTENT_TYPE}
    assert {message.application_properties[PROPERTY.encode()].decode() for message in seen} == {
        report["drill"]
    }


@pytest.mark.slow
def test_a_scratch_queue_may_be_used_for_the_drill(drill, broker):
    code, report = drill("--entity", "orders", "--proof", "receive", "--with-syphon", "--canaries", "3")

    assert (code, fates(report)) == (0, ["home"] * 3)
    assert only_the_ping_is_left(broker, "orders")


def test_messages_of_others_are_not_received(sbpair, broker, flags, keys):
    with (
        ServiceBusClient.from_connection_string(keys["SBPAIR_PRIMARY"]) as client,
        client.get_queue_sender("orders") as sender,
    ):
        from azure.servicebus import ServiceBusMessage

        sender.send_messages(ServiceBusMessage("an order"))

    done = sbpair("drill", *flags, "--entity", "orders", "--proof", "receive", **keys)

    assert done.returncode == 3
    assert "is not empty" in done.stderr
    assert broker.namespace("contoso").counts("orders").active == 1


def test_a_dead_lettered_canary_is_reported_with_its_reason(start, drill, flags, keys):
    start("syphon", *flags, "--allowed-destinations", "shipments", **keys)

    code, report = drill("--entity", "orders", "--canaries", "1", "--wait", "60s", "--proof", "peek")

    assert (code, fates(report)) == (1, ["dead-lettered"])
    assert "not" in report["canaries"][0]["why"]


@pytest.mark.parametrize(
    ("change", "arguments", "code", "says"),
    [
        ({}, ("--entity", "nowhere"), 3, "nowhere"),
        ({}, ("--entity", "prices", "--subscription", "nobody"), 3, "nobody"),
        ({"dead": "contoso"}, ("--entity", "orders"), 5, ""),
        ({}, ("--entity", "prices", "--subscription", "audit", "--proof", "cancel"), 2, "for queues"),
        ({}, (), 2, "--entity"),
        ({}, ("--entity", "orders", "--canaries", "0"), 2, "--canaries"),
    ],
)
def test_an_invalid_drill_is_refused_in_one_line(sbpair, broker, flags, keys, change, arguments, code, says):
    if "dead" in change:
        broker.namespace(change["dead"]).take_down("refuse")

    done = sbpair("drill", *flags, *arguments, **keys)

    assert (done.returncode, done.stdout) == (code, "")
    assert says in done.stderr
    assert len(done.stderr.splitlines()) == 1
    assert nothing_is_left(broker)


def test_a_missing_backlog_queue_is_a_failure_and_is_not_created(drill, broker):
    for index in range(2):
        broker.namespace("contoso-dr").delete_queue(BACKLOG.format(index))

    code, report = drill("--entity", "orders", "--canaries", "1")

    assert (code, fates(report)) == (1, ["refused"])
    assert "not" in report["canaries"][0]["why"]


def test_ctrl_c_during_the_drill_restores_the_entity(start, broker, flags, keys):
    running = start(
        "drill", "--json", *flags, "--entity", "orders", "--canaries", "2", "--wait", "10m", **keys
    )
    wait_until(lambda: "2 are parked" in "".join(running.errors))

    code, errors = running.stop(signal.SIGINT)
    report = json.loads(running.line())

    assert (code, report["outcome"]) == (130, "interrupted"), errors
    assert report["restored"]
    assert set(fates(report)) == {"parked"}


def test_a_canary_send_unanswered_before_ctrl_c_is_in_doubt(start, broker, flags, keys):
    secondary = broker.namespace("contoso-dr")
    with secondary.fault(BACKLOG.format(0), Withhold()), secondary.fault(BACKLOG.format(1), Withhold()):
        running = start("drill", "--json", *flags, "--entity", "orders", "--canaries", "1", **keys)
        wait_until(lambda: waiting_in_backlogs(broker) == 1)
        code, errors = running.stop(signal.SIGINT)

    report = json.loads(running.line())
    assert (code, fates(report)) == (130, ["in doubt"]), errors
    assert report["restored"]


def test_a_dry_run_opens_no_connection_and_prints_counts(sbpair, pair_environment):
    done = sbpair("drill", "--entity", "orders", "--dry-run", **pair_environment)
    counted = sbpair("drill", "--entity", "orders", "--dry-run", "--json", **pair_environment)

    assert done.returncode == 0, done.stderr
    assert done.stdout.startswith("1. ")
    assert "your senders are not affected" in done.stdout
    assert "43 operations" in done.stdout
    assert sum(json.loads(counted.stdout)["operations"].values()) == 43


@pytest.mark.parametrize("proof", Proof)
def test_every_plan_says_how_it_proves_arrival_and_what_remains(proof):
    plan = DrillPlan(
        entity="orders",
        subscription=None,
        count=3,
        proof=proof,
        with_syphon=False,
        wait=1.0,
        backlogs=2,
        primary_namespace_name=None,
        ca_file=None,
    )

    assert len(steps(plan)) == 7
    assert sum(operations(plan).values()) == 3 + 4 * 3


def test_ctrl_c_before_any_send_reports_it(start, flags, keys, broker):
    with broker.namespace("contoso").fault("orders", Withhold()):  # the first message is never answered
        options = ("--entity", "orders", "--canaries", "2", "--json")
        running = start("drill", *flags, *options, **keys)
        wait_until(lambda: broker.namespace("contoso").counts("orders").scheduled == 1)
        code, errors = running.stop(signal.SIGINT)

    report = json.loads(running.line())
    assert (code, report["outcome"]) == (130, "interrupted"), errors
    assert fates(report) == ["not sent"] * 2
    assert "never retrieved" not in errors
    assert nothing_is_left(broker)
