"""`sbpair backlog` as a process against a broker: list, create, redrive and purge."""

from __future__ import annotations

import asyncio
import json
import re
import signal
from dataclasses import replace
from datetime import timedelta
from pathlib import Path

import pytest
from azure.servicebus.management import ServiceBusAdministrationClient

from sbpair.broker.entities.descriptions import QueueDescription
from sbpair.broker.faults import RejectWith, Withhold
from sbpair.pair.amqp.message import Message
from sbpair.pair.amqp.performatives import Condition, Rejected, TransactionalState
from sbpair.pair.amqp.sections import split
from sbpair.pair.amqp.types import Symbol
from sbpair.pair.auth.connection_string import parse
from sbpair.pair.client.connection import connect
from sbpair.pair.syphon.land.transaction import TransactionController
from tests.pair.cli.conftest import AS_CREATED, make_backlogs
from tests.pair.syphon.pair import message_id, parked, put, take
from tests.waiting import wait_until

ROOT = Path(__file__).resolve().parents[3]

BACKLOG = "contoso/x-servicebus-transfer/{}"
DEAD = BACKLOG + "/$DeadLetterQueue"
FLAGS = ("--backlogs", "2", "--primary-namespace-name", "contoso")


@pytest.fixture
def secondary(broker):
    return broker.namespace("contoso-dr")


@pytest.fixture
def backlog(sbpair, broker, secondary):
    """Run `sbpair backlog ...` on the secondary of the broker."""

    def run(*arguments, flags=FLAGS, **env):
        keys = {"SBPAIR_SECONDARY": secondary.connection_string} | env
        return sbpair("backlog", *arguments, *flags, "--ca-file", str(broker.ca_file), **keys)

    return run


@pytest.fixture
def backlogs(secondary):
    make_backlogs(secondary)


def administration(broker, secondary):
    return ServiceBusAdministrationClient.from_connection_string(
        secondary.connection_string, connection_verify=str(broker.ca_file)
    )


def fill(namespace, path, payloads):
    asyncio.run(put(namespace, path, payloads))


def dead_letter(namespace, path, count, reason):
    """Dead-letter the first ``count`` messages of a queue, as a syphon does."""

    async def run():
        connection = await connect(parse(namespace.connection_string))
        arrived = []
        receiver = await connection.open_receiver(path, arrived.append)
        receiver.flow(count, drain=True)
        await receiver.drained()
        condition = Condition("com.microsoft:dead-letter", "", {Symbol("DeadLetterReason"): reason})
        for event in arrived:
            assert await receiver.settle_and_wait(event.delivery_id, Rejected(condition)) is not None
        await connection.close()
        assert len(arrived) == count

    asyncio.run(run())


def set_aside(namespace, index, numbers, reason="DestinationNotFound"):
    path = BACKLOG.format(index)
    payloads = [parked(number) for number in numbers]
    fill(namespace, path, payloads)
    dead_letter(namespace, path, len(payloads), reason)
    return payloads


@pytest.mark.slow
@pytest.mark.spec("P-11", "P-12")
def test_create_creates_missing_queues_and_reports_them(backlog, broker, secondary):
    first, again = backlog("create", "--count", "3"), backlog("create", "--count", "4")

    assert "3 created, 0 existed" in first.stdout, first.stderr
    assert "1 created, 3 existed" in again.stdout, again.stderr
    assert set(secondary.queue_names()) == {BACKLOG.format(i) for i in range(4)}
    made = QueueDescription(**AS_CREATED, max_message_size_in_kilobytes=256)
    assert secondary.description(BACKLOG.format(0)) == made


@pytest.mark.spec("O-2")
def test_create_makes_the_ordered_queues_too_when_asked(backlog, secondary):
    done = backlog("create", "--ordered")

    assert "4 created, 0 existed" in done.stdout, done.stderr
    plain = [BACKLOG.format(index) for index in range(2)]
    ordered = [BACKLOG.format(f"ordered/{index}") for index in range(2)]
    assert set(secondary.queue_names()) == {*plain, *ordered}
    assert [secondary.description(name).requires_session for name in (*plain, *ordered)] == [
        False, False, True, True,
    ]  # fmt: skip
    listed = json.loads(backlog("list", "--ordered", "--json").stdout)["backlogs"]
    assert [(each["name"], each["differences"]) for each in listed] == [(name, []) for name in ordered]


@pytest.mark.spec("O-2")
def test_the_bicep_template_of_ordered_queues_requires_sessions(backlog):
    done = backlog("create", "--ordered", "--print", "bicep")

    assert done.returncode == 0, done.stderr
    assert done.stdout.count("requiresSession: true") == 1
    assert "name: 'contoso~x-servicebus-transfer~ordered~${i}'" in done.stdout


@pytest.mark.spec("R-80")
def test_the_bicep_template_asks_whether_the_namespace_is_partitioned(backlog):
    done = backlog("create", "--ordered", "--print", "bicep")

    assert done.stdout.count("param isPartitioned bool = false\n") == 1
    assert done.stdout.count("enablePartitioning: isPartitioned\n") == 2


@pytest.mark.slow
@pytest.mark.spec("P-11")
def test_the_bicep_template_has_the_properties_that_create_gives(backlog, broker, secondary):
    backlog("create", "--count", "1")
    done = backlog("create", "--print", "bicep")

    assert done.returncode == 0
    with administration(broker, secondary) as client:
        queue = client.get_queue(BACKLOG.format(0))
    assert f"maxSizeInMegabytes: {queue.max_size_in_megabytes}\n" in done.stdout
    assert f"maxDeliveryCount: {queue.max_delivery_count}\n" in done.stdout
    assert "lockDuration: 'PT1M'\n" in done.stdout
    assert queue.lock_duration == timedelta(minutes=1)
    assert "deadLetteringOnMessageExpiration: true\n" in done.stdout
    assert queue.dead_lettering_on_message_expiration is True
    assert "name: 'contoso~x-servicebus-transfer~${i}'" in done.stdout
    assert "param backlogCount int = 2" in done.stdout


def test_a_template_needs_no_key_and_creates_nothing(sbpair):
    done = sbpair("backlog", "create", "--print", "bicep", "--primary-namespace-name", "contoso")

    assert done.returncode == 0, done.stderr
    assert done.stdout.count("{") == done.stdout.count("}")


@pytest.mark.usefixtures("backlogs")
def test_list_counts_and_ages_every_backlog_queue(backlog, secondary):
    fill(secondary, BACKLOG.format(0), [parked(n) for n in range(3)])
    set_aside(secondary, 1, range(2))

    done = backlog("list", "--json")

    assert done.returncode == 0, done.stderr
    first, second = json.loads(done.stdout)["backlogs"]
    assert (first["active"], first["dead_lettered"], first["differences"]) == (3, 0, [])
    assert 0 <= first["oldest_age"] < 60
    assert first["oldest_dead_letter_age"] is None
    assert (second["active"], second["dead_lettered"], second["oldest_age"]) == (0, 2, None)
    assert 0 <= second["oldest_dead_letter_age"] < 60


@pytest.mark.spec("P-13")
@pytest.mark.usefixtures("backlogs")
def test_list_warns_of_an_extra_queue_and_keeps_it(backlog, secondary):
    backlog("create", "--count", "4")
    fill(secondary, BACKLOG.format(3), [parked(1)])

    listed, for_people = backlog("list", "--json"), backlog("list")

    extra = [row["name"] for row in json.loads(listed.stdout)["backlogs"] if row["is_extra"]]
    assert extra == [BACKLOG.format(2), BACKLOG.format(3)]
    assert f"{BACKLOG.format(3)} is extra" in for_people.stderr
    assert "1 messages are stranded" in for_people.stderr
    assert "--backlogs 4" in for_people.stderr
    assert len(secondary.queue_names()) == 4
    assert secondary.counts(BACKLOG.format(3)).active == 1


@pytest.mark.spec("P-14")
def test_list_names_settings_that_differ_from_the_expected_ones(backlog, secondary):
    secondary.create_queue(BACKLOG.format(0))

    row = json.loads(backlog("list", "--json").stdout)["backlogs"][0]

    assert any(text.startswith("max_delivery_count is 10") for text in row["differences"])
    assert "max_delivery_count is 10" in backlog("list").stdout


@pytest.mark.spec("R-83", "R-125")
def test_a_disabled_queue_is_not_ok_in_the_list(backlog, secondary):
    backlog("create", "--count", "1")
    made = secondary.description(BACKLOG.format(0))
    assert "ok" in backlog("list", "--backlogs", "1").stdout
    secondary.update_queue(BACKLOG.format(0), replace(made, status="SendDisabled"))

    (row,) = json.loads(backlog("list", "--backlogs", "1", "--json").stdout)["backlogs"]
    for_people = backlog("list", "--backlogs", "1").stdout

    assert row["differences"] == ["status is SendDisabled"]
    assert "status is SendDisabled" in for_people
    assert " ok " not in for_people


@pytest.mark.spec("R-125")
def test_the_page_about_the_list_names_its_columns(backlog, secondary):
    secondary.create_queue(BACKLOG.format(0))
    shown = backlog("list").stdout
    page = (ROOT / "docs" / "how-to" / "operate.md").read_text("utf-8")
    section = page.split("## Reading `backlog list`")[1].split("\n## ")[0]
    columns = re.findall(r"^\| ([a-z ]+) \|", section, flags=re.MULTILINE)[1:]
    assert columns == ["number", "active", "oldest", "dead", "oldest dead", "note"]
    (head,) = [line for line in shown.splitlines() if "number" in line and "note" in line]
    assert [cell.strip() for cell in re.split(r"[┃|│]", head) if cell.strip()] == columns


def test_list_names_missing_queues_and_the_backlogs_of_other_namespaces(backlog, secondary):
    secondary.create_queue("fabrikam/x-servicebus-transfer/0")

    listed, for_people = backlog("list", "--json"), backlog("list")

    found = json.loads(listed.stdout)
    assert found["missing"] == [BACKLOG.format(0), BACKLOG.format(1)]
    assert found["other_pairings"] == {"fabrikam": 1}
    assert "missing" in for_people.stdout
    assert "fabrikam (1)" in for_people.stderr


@pytest.mark.spec("P-20", "S-14")
@pytest.mark.usefixtures("backlogs")
def test_peek_shows_the_destination_and_never_the_body(backlog, secondary):
    payload = parked(7, body=b"SECRET-BODY", x_ms_sessionid="s-1", x_ms_timetolive="PT5M")
    fill(secondary, BACKLOG.format(1), [payload])

    done, for_people = backlog("peek", "--json"), backlog("peek", "--index", "1")

    (line,) = [json.loads(line) for line in done.stdout.splitlines()]
    assert (line["backlog"], line["message_id"], line["path"]) == (BACKLOG.format(1), "m7", "orders")
    assert line["aliases"] == {
        "x-ms-sessionid": "s-1",
        "x-ms-timetolive": "PT5M",
        "x-sbpair-version": "1",
    }
    assert line["sequence_number"] >= 1
    assert "x-ms-sessionid=s-1" in for_people.stdout
    assert "SECRET-BODY" not in done.stdout + for_people.stdout
    assert secondary.counts(BACKLOG.format(1)).active == 1


@pytest.mark.spec("R-166")
@pytest.mark.usefixtures("backlogs")
@pytest.mark.parametrize(("count", "said"), [("2", True), ("3", False)])
def test_peek_says_if_there_are_more_messages(backlog, secondary, count, said):
    fill(secondary, BACKLOG.format(1), [parked(number) for number in range(3)])
    done = backlog("peek", "--count", count, "--json")
    assert len(done.stdout.splitlines()) == int(count)
    assert (f"{BACKLOG.format(1)} has more messages than these {count}" in done.stderr) is said


@pytest.mark.usefixtures("backlogs")
def test_peek_shows_dead_letter_reasons_and_unreadable_aliases(backlog, secondary):
    fill(secondary, BACKLOG.format(0), [parked(1, x_ms_timetolive=True)])
    dead_letter(secondary, BACKLOG.format(0), 1, "InvalidAlias")

    (line,) = backlog("peek", "--dead-letter", "--json").stdout.splitlines()

    message = json.loads(line)
    assert message["reason"] == "InvalidAlias"
    assert "boolean" in message["aliases"]["x-ms-timetolive"]


@pytest.mark.spec("S-14")
@pytest.mark.usefixtures("backlogs")
def test_message_text_cannot_control_the_terminal_of_the_reader(backlog, secondary):
    fill(secondary, BACKLOG.format(0), [parked(1, path="a\x1b[31m[red]b")])

    done = backlog("peek")

    assert "\x1b" not in done.stdout
    assert "[red]b" in done.stdout


@pytest.mark.usefixtures("backlogs")
def test_peek_shows_at_most_the_requested_number(backlog, secondary):
    fill(secondary, BACKLOG.format(0), [parked(n) for n in range(5)])

    assert len(backlog("peek", "--count", "3", "--json").stdout.splitlines()) == 3
    assert "no messages" in backlog("peek", "--dead-letter").stdout


@pytest.mark.usefixtures("backlogs")
def test_redrive_puts_dead_letters_back_with_every_byte_of_the_application(backlog, secondary):
    payloads = [*set_aside(secondary, 0, range(120)), *set_aside(secondary, 1, range(120, 130))]

    done = backlog("redrive", "--json")

    assert done.returncode == 0, done.stderr
    assert json.loads(done.stdout)["redriven"] == 130
    for index, count in ((0, 120), (1, 10)):
        counts = secondary.counts(BACKLOG.format(index))
        assert (counts.active, counts.dead_letter) == (count, 0)
    back = [asyncio.run(take(secondary, BACKLOG.format(i), n)) for i, n in ((0, 120), (1, 10))]
    assert {kept(each) for each in back[0] + back[1]} == {kept(each) for each in payloads}


def kept(payload):
    sections = split(payload)
    return sections.properties, sections.application_properties, sections.body


@pytest.mark.spec("P-42")
@pytest.mark.usefixtures("backlogs")
def test_a_redriven_message_is_brought_home_by_the_syphon(backlog, sbpair, broker, secondary):
    fill(secondary, BACKLOG.format(0), [parked(1, path="invoices")])
    keys = {
        "SBPAIR_PRIMARY": broker.namespace("contoso").connection_string,
        "SBPAIR_SECONDARY": secondary.connection_string,
    }
    sbpair("syphon", "--drain", *FLAGS, **keys)
    assert secondary.counts(BACKLOG.format(0)).dead_letter == 1
    broker.namespace("contoso").create_queue("invoices")

    assert backlog("redrive").returncode == 0
    sbpair("syphon", "--drain", *FLAGS, **keys)

    (home,) = asyncio.run(take(broker.namespace("contoso"), "invoices", 1))
    assert Message.decode(home).application_properties == {"number": 1}


@pytest.mark.slow
@pytest.mark.spec("C-2", "C-3")
@pytest.mark.usefixtures("backlogs")
def test_messages_refused_after_landing_are_found_and_sent_home(backlog, sbpair, broker, secondary):
    primary = broker.namespace("contoso")
    secondary.create_queue("orders", max_size_in_megabytes=1)
    fill(secondary, BACKLOG.format(1), [parked(n, body=b"x" * 20_000) for n in range(100)])
    keys = {"SBPAIR_PRIMARY": primary.connection_string, "SBPAIR_SECONDARY": secondary.connection_string}
    primary.take_down("refuse")
    drained = sbpair("syphon", "--drain", "--land", "either", "--land-after", "0s", *FLAGS, **keys)
    assert drained.returncode == 0, drained.stderr
    assert "landed and were refused after all" in drained.stderr
    primary.bring_up()
    landed = secondary.counts("orders").active
    refused = 100 - landed
    assert 0 < landed < 100

    assert f"{refused} landed messages were refused on the secondary" in backlog("list").stdout
    listed = json.loads(backlog("list", "--json").stdout)["backlogs"]
    assert [row["untransferred"] for row in listed] == [0, refused]
    seen = [
        json.loads(line)
        for line in backlog("peek", "--transfer", "--count", "200", "--json").stdout.splitlines()
    ]
    assert {(each["path"], each["reason"]) for each in seen} == {("orders", "QuotaExceededException")}
    examined = sbpair("doctor", *FLAGS, "--ca-file", str(broker.ca_file), **keys)
    assert examined.returncode == 1
    assert "landed messages were refused on the secondary" in examined.stdout

    done = backlog("redrive", "--transfer")
    assert (done.returncode, done.stdout) == (0, f"{refused} redriven, 0 left\n"), done.stderr
    again = backlog("redrive", "--transfer", "--json")
    assert json.loads(again.stdout)["redriven"] == 0, "each once"
    sbpair("syphon", "--drain", *FLAGS, **keys)

    both = [
        message_id(each)
        for namespace, count in ((primary, refused), (secondary, landed))
        for each in asyncio.run(take(namespace, "orders", count))
    ]
    assert sorted(both) == sorted(f"m{n}" for n in range(100))


@pytest.mark.usefixtures("backlogs")
def test_a_failed_transfer_without_a_destination_stays_and_is_counted(backlog, secondary):
    """Another application sent it via the queue."""
    secondary.create_queue("small", max_size_in_megabytes=1)

    async def send_via() -> None:
        connection = await connect(parse(secondary.connection_string))
        controller = TransactionController(connection)
        sender = await connection.open_sender("small", via=BACKLOG.format(0))
        txn_id = await controller.declare()
        for number in range(60):
            state = TransactionalState(txn_id)
            await sender.send(parked(number, None, body=b"x" * 20_000), 0, state)
        await controller.commit(txn_id)
        await connection.close()

    asyncio.run(send_via())
    there = secondary.counts(BACKLOG.format(0)).transfer_dead_letter
    assert there > 0

    done = backlog("redrive", "--transfer")

    assert (done.returncode, done.stdout) == (0, f"0 redriven, {there} left\n"), done.stderr
    assert secondary.counts(BACKLOG.format(0)).transfer_dead_letter == there


@pytest.mark.usefixtures("backlogs")
def test_redrive_by_reason_keeps_the_other_dead_letters(backlog, secondary):
    set_aside(secondary, 0, range(3), "DestinationNotFound")
    set_aside(secondary, 0, range(3, 5), "InvalidAlias")

    done = backlog("redrive", "--index", "0", "--reason", "destinationnotfound")

    assert "3 redriven, 2 left" in done.stdout, done.stderr
    assert secondary.counts(BACKLOG.format(0)).active == 3
    lines = backlog("peek", "--dead-letter", "--json").stdout.splitlines()
    assert [json.loads(line)["reason"] for line in lines] == ["InvalidAlias"] * 2


@pytest.mark.usefixtures("backlogs")
def test_matching_dead_letters_are_found_behind_a_round_of_others(backlog, secondary):
    set_aside(secondary, 0, range(250), "InvalidAlias")
    set_aside(secondary, 0, range(250, 255), "DestinationNotFound")

    done = backlog("redrive", "--reason", "DestinationNotFound")

    assert "5 redriven, 250 left" in done.stdout, done.stderr
    assert secondary.counts(BACKLOG.format(0)).active == 5
    assert secondary.counts(BACKLOG.format(0)).dead_letter == 250


@pytest.mark.usefixtures("backlogs")
def test_redrive_ends_although_a_syphon_dead_letters_everything_again(backlog, start, broker, secondary):
    keys = {
        "SBPAIR_PRIMARY": broker.namespace("contoso").connection_string,
        "SBPAIR_SECONDARY": secondary.connection_string,
    }
    start("syphon", *FLAGS, **keys)
    fill(secondary, BACKLOG.format(0), [parked(n, path="nowhere") for n in range(150)])
    wait_until(lambda: secondary.counts(BACKLOG.format(0)).dead_letter == 150)

    done = backlog("redrive", "--json")

    assert json.loads(done.stdout)["redriven"] == 150, done.stderr
    wait_until(lambda: secondary.counts(BACKLOG.format(0)).dead_letter == 150)


@pytest.mark.usefixtures("backlogs")
def test_two_redrives_at_once_put_each_message_back_once(start, secondary):
    set_aside(secondary, 0, range(400))
    environment = {"SBPAIR_SECONDARY": secondary.connection_string}

    both = [start("backlog", "redrive", "--json", *FLAGS, **environment) for _ in range(2)]
    codes = [running.wait(60)[0] for running in both]

    assert codes == [0, 0]
    assert sum(json.loads(running.line())["redriven"] for running in both) == 400
    counts = secondary.counts(BACKLOG.format(0))
    assert (counts.active, counts.dead_letter) == (400, 0)


@pytest.mark.usefixtures("backlogs")
def test_redrive_killed_before_the_accept_loses_nothing(backlog, start, broker, secondary):
    set_aside(secondary, 0, range(20))
    path = BACKLOG.format(0)
    with secondary.fault(path, Withhold()):
        running = start("backlog", "redrive", *FLAGS, SBPAIR_SECONDARY=secondary.connection_string)
        wait_until(lambda: secondary.counts(path).active == 20)  # sent, but the accept never comes
        running.process.send_signal(signal.SIGKILL)
        running.wait()

    assert secondary.counts(path).active == 20
    assert secondary.counts(path).dead_letter == 20  # some arrive twice, but none is missing


@pytest.mark.usefixtures("backlogs")
def test_the_first_sigterm_finishes_work_in_hand_and_the_second_does_not(start, secondary):
    set_aside(secondary, 0, range(20))
    path = BACKLOG.format(0)
    with secondary.fault(path, Withhold()):
        running = start("backlog", "redrive", *FLAGS, SBPAIR_SECONDARY=secondary.connection_string)
        wait_until(lambda: secondary.counts(path).active == 20)
        running.signal(signal.SIGTERM)
        wait_until(lambda: "second signal" in "".join(running.errors))
        assert running.process.poll() is None
        code, _ = running.stop(signal.SIGTERM)

    assert code == 1
    assert secondary.counts(path).dead_letter == 20


@pytest.mark.usefixtures("backlogs")
def test_a_redriven_message_refused_by_the_backlog_stays_dead_lettered_with_the_reason(backlog, secondary):
    set_aside(secondary, 0, range(3))
    with secondary.fault(BACKLOG.format(0), RejectWith("amqp:resource-limit-exceeded", "it is full")):
        done = backlog("redrive", "--json")

    assert done.returncode == 1
    counts = json.loads(done.stdout)
    assert (counts["redriven"], counts["refused"]) == (0, 3)
    assert "it is full" in counts["refusal"]
    assert secondary.counts(BACKLOG.format(0)).dead_letter == 3


@pytest.mark.usefixtures("backlogs")
def test_purge_asks_for_yes_and_for_dead_letter_and_counts(backlog, secondary):
    set_aside(secondary, 0, range(7))
    fill(secondary, BACKLOG.format(0), [parked(99)])

    vague, asked = backlog("purge", "--yes"), backlog("purge", "--dead-letter")
    assert (vague.returncode, asked.returncode) == (2, 2)
    assert "would permanently delete 7" in asked.stderr
    assert secondary.counts(BACKLOG.format(0)).dead_letter == 7

    done = backlog("purge", "--dead-letter", "--yes")
    assert done.stdout == "deleted 7\n"
    assert secondary.counts(BACKLOG.format(0)).dead_letter == 0
    assert secondary.counts(BACKLOG.format(0)).active == 1


@pytest.mark.parametrize("command", [("peek",), ("redrive",), ("purge", "--dead-letter", "--yes")])
def test_a_named_backlog_queue_that_is_missing_is_exit_code_3(backlog, command):
    done = backlog(*command, "--index", "5")

    assert done.returncode == 3, done.stderr
    assert BACKLOG.format(5) in done.stderr


@pytest.mark.parametrize("command", [("list",), ("create",), ("peek",), ("redrive",)])
def test_a_wrong_key_is_exit_code_4_and_a_dead_address_exit_code_5(
    backlog, wrong_key, secondary, pair_environment, command
):
    refused = backlog(*command, SBPAIR_SECONDARY=wrong_key(secondary.connection_string))
    silent = backlog(*command, SBPAIR_SECONDARY=pair_environment["SBPAIR_SECONDARY"])

    assert (refused.returncode, silent.returncode) == (4, 5), refused.stderr + silent.stderr


def test_an_untrusted_certificate_is_a_configuration_error(sbpair, secondary):
    done = sbpair("backlog", "list", *FLAGS, SBPAIR_SECONDARY=secondary.connection_string)

    assert done.returncode == 3, done.stderr
    assert "--ca-file" in done.stderr


def test_a_missing_ca_file_is_a_configuration_error(sbpair, secondary):
    done = sbpair(
        "backlog", "list", *FLAGS, "--ca-file", "nowhere.pem", SBPAIR_SECONDARY=secondary.connection_string
    )
    assert done.returncode == 3
    assert "'nowhere.pem' is not a file of trusted certificates" in done.stderr
    assert "check the address and --ca-file" in done.stderr


def test_a_missing_name_or_secondary_is_reported_with_its_flag(sbpair, secondary):
    nameless = sbpair("backlog", "list", SBPAIR_SECONDARY=secondary.connection_string)
    nowhere = sbpair("backlog", "list", *FLAGS)

    assert (nameless.returncode, nowhere.returncode) == (2, 2)
    assert "--primary" in nameless.stderr
    assert "--secondary" in nowhere.stderr


def test_the_backlog_name_is_derived_from_the_primary(sbpair, secondary):
    primary = (
        "Endpoint=sb://fabrikam.servicebus.windows.net/;SharedAccessKeyName=a;SharedAccessKey=CANARYkey="
    )
    done = sbpair("backlog", "create", "--print", "bicep", SBPAIR_PRIMARY=primary)

    assert "fabrikam~x-servicebus-transfer~" in done.stdout


@pytest.mark.spec("R-25")
@pytest.mark.parametrize(
    "command", [("peek",), ("redrive",), ("purge", "--dead-letter"), ("purge", "--dead-letter", "--yes")]
)
def test_missing_backlog_queues_are_not_reported_as_empty(sbpair, broker, command):
    secondary = broker.namespace("contoso-dr").connection_string
    wrong = ("--backlogs", "2", "--primary-namespace-name", "kontoso", "--ca-file", str(broker.ca_file))

    done = sbpair("backlog", *command, *wrong, SBPAIR_SECONDARY=secondary)

    assert done.returncode == 3, done.stdout
    assert "not-found" in done.stderr
