"""`sbpair doctor` as a process, against healthy and unhealthy brokers."""

from __future__ import annotations

import asyncio
import json
import re
import uuid
from dataclasses import replace

import pytest

from sbpair.broker import Broker
from sbpair.broker.auth import Right
from sbpair.pair.amqp.message import Message
from tests.pair.cli.conftest import AS_CREATED, make_backlogs
from tests.pair.syphon.pair import parked, put
from tests.waiting import wait_until

BACKLOG = "contoso/x-servicebus-transfer/{}"
FLAGS = ("--backlogs", "2", "--primary-namespace-name", "contoso")


@pytest.fixture
def broker():
    with Broker({"contoso": 0, "contoso-dr": 0}) as running:
        running.namespace("contoso").create_queue("orders")
        running.namespace("contoso").create_queue("scratch")
        yield running


@pytest.fixture
def doctor(sbpair, broker, keys):
    """Run `sbpair doctor --json`; return the exit code and the findings."""

    def run(*arguments, **env):
        done = sbpair("doctor", "--json", *FLAGS, "--ca-file", str(broker.ca_file), *arguments, **keys | env)
        assert done.stdout, done.stderr
        return done.returncode, json.loads(done.stdout)["findings"]

    return run


@pytest.fixture
def backlogs(broker):
    make_backlogs(broker.namespace("contoso-dr"))


@pytest.fixture
def status_page(start, keys):
    """Start a syphon; return the URL of its status page."""
    running = start("syphon", *FLAGS, "--max-rate", "1000", "--status-port", "0", **keys)
    wait_until(lambda: any("connected" in line for line in running.errors))
    found = next(line.split()[-1] for line in running.errors if "status on" in line)
    return found.removesuffix("/state")


def told(findings, about):
    return [each["what"] for each in findings if each["about"] == about and each["severity"] != "note"]


@pytest.mark.slow
@pytest.mark.spec("P-31")
@pytest.mark.usefixtures("backlogs")
def test_a_healthy_pairing_passes_with_a_probed_ping(doctor, broker, status_page):
    flags = ("--queue", "orders", "--scratch-queue", "scratch", "--syphon-status", status_page)
    assert doctor(*flags) == (0, [])
    assert broker.namespace("contoso").counts("orders").active == 0


@pytest.mark.usefixtures("backlogs")
def test_a_scratch_queue_is_created_for_the_ping_and_deleted(doctor, broker):
    _, findings = doctor("--create-scratch")

    assert "ping" not in {each["about"] for each in findings}
    assert sorted(broker.namespace("contoso").queue_names()) == ["orders", "scratch"]


@pytest.mark.spec("F-49")
@pytest.mark.usefixtures("backlogs")
def test_a_syphon_with_a_different_backlog_count_is_found_by_its_status_page(doctor, status_page):
    code, findings = doctor("--backlogs", "3", "--syphon-status", status_page)

    assert code == 1
    assert "does not read 1 of the backlog queues" in told(findings, "syphon")[0]


@pytest.mark.usefixtures("backlogs")
@pytest.mark.parametrize("url", ["http://127.0.0.1:1", "not a url", "http://127.0.0.1:1/state"])
def test_an_unreachable_syphon_is_found(doctor, url):
    code, findings = doctor("--syphon-status", url)

    assert code == 1
    assert "no syphon answers" in told(findings, "syphon")[0]


@pytest.mark.usefixtures("backlogs")
def test_the_capacity_of_the_backlogs_is_computed_from_their_sizes(doctor):
    _, findings = doctor("--rate", "1000/s", "--size", "10kB")

    (room,) = [each for each in findings if each["about"] == "room"]
    assert "2 backlog queues with 10240 MiB free last 16 min" in room["what"]
    assert room["severity"] == "warning"


def with_one_right(namespace, right):
    """Return the connection string of a policy with this right; Manage implies the other two."""
    rights = ("Manage", "Send", "Listen") if right is Right.MANAGE else (right.value,)
    return namespace.add_policy(f"single-{uuid.uuid4().hex}", rights)


@pytest.mark.spec("F-60", "S-18")
def test_a_key_that_cannot_create_backlogs_is_reported_with_the_needed_rights(sbpair, broker, keys):
    namespace = broker.namespace("contoso-dr")
    sender = with_one_right(namespace, Right.SEND)
    arguments = ("backlog", "create", *FLAGS, "--ca-file", str(broker.ca_file))

    done = sbpair(*arguments, **keys | {"SBPAIR_SECONDARY": sender})

    assert done.returncode == 4
    assert "creating queues needs the Manage right" in done.stderr
    assert namespace.queue_names() == []


@pytest.mark.parametrize(
    "flags", [("--rate", "0/s"), ("--rate", "fast"), ("--size", "1 parsec"), ("--size", "")]
)
def test_an_invalid_rate_or_size_is_a_usage_error(sbpair, pair_environment, flags):
    done = sbpair("doctor", *flags, **pair_environment)

    assert done.returncode == 2
    assert "such as" in done.stderr


@pytest.mark.spec("F-60", "S-18")
@pytest.mark.usefixtures("backlogs")
@pytest.mark.parametrize(
    ("side", "right", "role", "missing"),
    [
        ("secondary", Right.SEND, "both", ["secondary: the key may not Listen there"]),
        ("secondary", Right.LISTEN, "both", ["secondary: the key may not Send there"]),
        ("secondary", Right.SEND, "sender", []),
        ("secondary", Right.LISTEN, "syphon", []),
        ("primary", Right.SEND, "both", []),
        ("primary", Right.LISTEN, "both", ["primary: the key may not Send there"]),
        ("primary", Right.MANAGE, "both", []),
        ("secondary", Right.MANAGE, "both", []),
    ],
)
def test_each_right_is_tested_with_a_key_that_has_no_other(doctor, broker, side, right, role, missing):
    namespace = broker.namespace("contoso" if side == "primary" else "contoso-dr")
    key = with_one_right(namespace, right)

    _, findings = doctor("--queue", "orders", "--role", role, **{f"SBPAIR_{side.upper()}": key})

    refused = [each for each in findings if each["severity"] == "error"]
    assert [f"{each['about'].split()[0]}: {each['what']}" for each in refused] == missing
    unseen = {each["about"] for each in findings if "were not checked" in each["what"]}
    sees_nothing_to_describe = side == "primary" and right is Right.LISTEN
    assert unseen == (set() if right is Right.MANAGE or sees_nothing_to_describe else {side})


@pytest.mark.usefixtures("backlogs")
def test_a_check_that_was_not_run_is_a_note_and_not_a_failure(doctor):
    code, findings = doctor()

    assert code == 0
    assert [each["severity"] for each in findings] == ["note", "note"]


@pytest.mark.spec("P-13", "P-14")
@pytest.mark.usefixtures("backlogs")
def test_unusual_backlog_queues_are_found(doctor, broker):
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
    assert told(findings, "primary nowhere") == ["the entity does not exist"]
    assert broker.namespace("contoso-dr").counts(BACKLOG.format(0)).active == 1


@pytest.mark.usefixtures("backlogs")
def test_a_disabled_destination_is_found(doctor, broker):
    primary = broker.namespace("contoso")
    primary.update_queue("orders", replace(primary.description("orders"), status="ReceiveDisabled"))

    code, findings = doctor("--queue", "orders")

    assert code == 1
    assert told(findings, "orders") == ["it is ReceiveDisabled"]


@pytest.mark.usefixtures("backlogs")
def test_a_scratch_queue_in_use_is_not_probed(doctor, broker):
    asyncio.run(put(broker.namespace("contoso"), "scratch", [parked(1)]))

    code, findings = doctor("--scratch-queue", "scratch")

    assert code == 1
    assert "not empty" in told(findings, "ping")[0]
    assert broker.namespace("contoso").counts("scratch").active == 1


@pytest.mark.usefixtures("backlogs")
def test_a_wrong_key_and_an_unreachable_side_are_reported_for_their_side(
    doctor, keys, wrong_key, pair_environment
):
    _, refused = doctor(SBPAIR_SECONDARY=wrong_key(keys["SBPAIR_SECONDARY"]))
    code, dead = doctor(SBPAIR_PRIMARY=pair_environment["SBPAIR_PRIMARY"])

    (finding,) = told(refused, f"secondary {BACKLOG.format(0)} and 1 more")
    assert re.match("the key is refused: .*the signature does not match", finding)
    assert code == 1
    assert "cannot be reached" in told(dead, "primary")[0]


@pytest.mark.spec("R-26")
@pytest.mark.usefixtures("backlogs")
def test_a_wrong_primary_key_is_found_without_a_queue(doctor, keys, wrong_key):
    code, findings = doctor(SBPAIR_PRIMARY=wrong_key(keys["SBPAIR_PRIMARY"]))

    assert code == 1
    assert "the namespace refuses the key" in told(findings, "primary")[0]


def test_one_namespace_given_twice_is_not_a_pair(doctor, keys):
    code, findings = doctor(SBPAIR_SECONDARY=keys["SBPAIR_PRIMARY"])

    assert (code, len(told(findings, "pair"))) == (1, 1)


@pytest.mark.slow
@pytest.mark.usefixtures("backlogs")
def test_the_default_output_is_a_table(sbpair, broker, keys, status_page):
    arguments = ("doctor", *FLAGS, "--ca-file", str(broker.ca_file))

    healthy = sbpair(*arguments, "--scratch-queue", "scratch", "--syphon-status", status_page, **keys)
    broker.namespace("contoso-dr").delete_queue(BACKLOG.format(0))
    ill = sbpair(*arguments, **keys)

    assert healthy.stdout == "nothing found\n"
    assert (ill.returncode, "1 found" in ill.stdout) == (1, True)
    assert "sbpair backlog create" in ill.stdout


# Ordered sessions.


@pytest.fixture
def ordered(broker):
    """Create a queue with sessions, and all backlog queues of an ordered pairing."""
    broker.namespace("contoso").create_queue(
        "sessions", requires_session=True, requires_duplicate_detection=True
    )
    make_backlogs(broker.namespace("contoso-dr"), is_ordered=True)


@pytest.fixture
def status_of_ordered(start, keys):
    """Start an ordered syphon; return the URL of its status page."""
    running = start(
        "syphon", *FLAGS, "--max-rate", "1000", "--ordering", "session", "--status-port", "0", **keys
    )
    wait_until(lambda: any("connected" in line for line in running.errors))
    return next(line.split()[-1] for line in running.errors if "status on" in line)


@pytest.mark.slow
@pytest.mark.spec("O-2", "O-4", "O-6")
@pytest.mark.usefixtures("backlogs", "ordered")
def test_a_pairing_that_keeps_order_passes(doctor, status_of_ordered):
    flags = ("--ordering", "session", "--queue", "sessions", "--scratch-queue", "scratch")
    assert doctor(*flags, "--syphon-status", status_of_ordered) == (0, [])


@pytest.mark.spec("O-6")
@pytest.mark.usefixtures("backlogs", "ordered")
def test_a_syphon_without_ordering_is_found(doctor, status_page):
    code, findings = doctor("--ordering", "session", "--syphon-status", status_page)

    assert code == 1
    assert "does not read 2 of the backlog queues" in told(findings, "syphon")[0]
    assert "--ordering" in findings[0]["next_step"]


@pytest.mark.spec("O-2")
@pytest.mark.usefixtures("backlogs")
def test_missing_ordered_queues_and_order_breaking_receivers_are_found(doctor):
    code, findings = doctor("--ordering", "session", "--queue", "orders")

    assert code == 1
    for index in range(2):
        about = BACKLOG.format(f"ordered/{index}")
        assert told(findings, about) == ["the ordered backlog queue does not exist"]
    assert told(findings, "orders") == ["it does not require sessions"]


@pytest.mark.spec("O-4")
@pytest.mark.usefixtures("backlogs", "ordered")
def test_a_sender_key_without_peek_rights_on_ordered_queues_is_found(doctor, broker):
    key = with_one_right(broker.namespace("contoso-dr"), Right.SEND)

    code, findings = doctor("--role", "sender", "--ordering", "session", SBPAIR_SECONDARY=key)

    assert code == 1
    (refused,) = [each for each in findings if each["severity"] == "error"]
    assert refused["what"] == "the key may not Listen there"
    assert "keeps parking" in refused["why"]


@pytest.mark.spec("O-2", "O-6")
@pytest.mark.usefixtures("backlogs", "ordered")
def test_clients_with_and_without_ordering_are_found_by_their_parked_messages(doctor, broker):
    secondary = broker.namespace("contoso-dr")
    asyncio.run(put(secondary, BACKLOG.format(0), [parked(1, "sessions", x_ms_sessionid="s")]))
    message = Message.decode(parked(2, "sessions", x_ms_sessionid="s"))
    assert message.properties is not None
    of_session = replace(message, properties=replace(message.properties, group_id="aa")).encode()
    asyncio.run(put(secondary, BACKLOG.format("ordered/1"), [of_session]))

    _, asked = doctor("--ordering", "session")
    _, unasked = doctor()

    assert told(asked, BACKLOG.format(0)) == ["messages of sessions are parked in it, where no order is kept"]
    assert told(unasked, BACKLOG.format("ordered/1")) == ["it holds 1 messages of ordered sessions"]


@pytest.mark.spec("O-4", "P-14")
@pytest.mark.usefixtures("backlogs")
def test_an_ordered_queue_that_cannot_keep_order_is_found(doctor, broker):
    secondary = broker.namespace("contoso-dr")
    as_created = AS_CREATED | {"requires_session": True}
    secondary.create_queue(BACKLOG.format("ordered/0"), **as_created | {"enable_partitioning": True})
    secondary.create_queue(BACKLOG.format("ordered/1"), **as_created | {"requires_duplicate_detection": True})

    code, findings = doctor("--ordering", "session")

    assert code == 1
    assert "enable_partitioning is True" in told(findings, BACKLOG.format("ordered/0"))
    assert "requires_duplicate_detection is True" in told(findings, BACKLOG.format("ordered/1"))


@pytest.mark.spec("H-55")
@pytest.mark.usefixtures("backlogs")
def test_a_syphon_without_a_rate_is_noted(doctor, start, keys):
    running = start("syphon", *FLAGS, "--status-port", "0", **keys)
    wait_until(lambda: any("SyphonConnected" in line for line in running.errors))
    page = next(line.split()[-1] for line in running.errors if "status on" in line)

    code, findings = doctor("--scratch-queue", "scratch", "--syphon-status", page)

    assert code == 0
    assert [each["what"] for each in findings] == ["no rate limits the syphon (max_rate)"]
