"""`sbpair broker` as a process: its output is usable, and a signal ends it cleanly."""

from __future__ import annotations

import json
import re
import signal
import socket
import subprocess
import sys
import tempfile
import urllib.request
from datetime import timedelta

import pytest
from azure.servicebus import ServiceBusClient, ServiceBusMessage
from azure.servicebus.management import ServiceBusAdministrationClient

from tests.pair.cli.conftest import environment, evaluate
from tests.tools.proofs import ROOT

NOT_BEFORE_IT_IS_READY = (  # each would cost every start some milliseconds
    "aiohttp", "azure", "rich", "xml", "defusedxml", "sqlite3", "tomllib", "http.client", "pyspark",
    "sbpair.pair.paired_client.blocking",
    "sbpair.pair.syphon", "sbpair.pair.observation", "sbpair.data", "sbpair.broker.testing",
    "sbpair.broker.store", "sbpair.broker.configuration", "sbpair.broker.frontends.admin.requests",
    "sbpair.broker.frontends.rest.requests",
    "sbpair.broker.frontends.dashboard.views", "sbpair.broker.server.http",
    "sbpair.broker.server.dashboard_application",
    "sbpair.broker.server.fault_control", "sbpair.broker.faults.plan", "sbpair.broker.faults.scenarios",
    "sbpair.broker.entities.rules.parser", "sbpair.broker.entities.rules.evaluation",
)  # fmt: skip


def ready(start, *arguments):
    running = start("broker", "--namespace", "contoso:0", "--namespace", "contoso-dr:0", "--json", *arguments)
    return running, json.loads(running.line())


@pytest.mark.spec("R-85")
def test_a_partitioned_premium_namespace_partitions_all_entities_by_default(start):
    _, printed = ready(
        start, "--partitions", "contoso:2", "--queue", "contoso/orders", "--topic", "contoso/prices"
    )

    where = printed["namespaces"][0]["connection_string"]
    with ServiceBusAdministrationClient.from_connection_string(
        where, connection_verify=printed["ca_file"]
    ) as administration:
        assert administration.get_queue("orders").enable_partitioning
        assert administration.get_topic("prices").enable_partitioning


@pytest.mark.spec("R-129")
def test_topics_and_the_javascript_ca_variable_are_listed_at_start(start):
    running = start(
        "broker", "--namespace", "contoso:0", "--topic", "contoso/prices", "--topic", "contoso/stock"
    )

    lines = [running.line() for _ in range(3)]
    assert lines[0].rstrip().endswith("  queues: none yet  topics: prices, stock")
    assert "JavaScript: tlsOptions.ca" in lines[2]


@pytest.mark.spec("R-82")
@pytest.mark.parametrize("by", ["a flag", "a key of the configuration", "a plan"])
def test_the_number_of_front_ends_is_set_by_flag_key_or_plan(start, tmp_path, by):
    file = tmp_path / "given.toml"
    file.write_text(
        '[[fault]]\nnamespace = "contoso"\neffect = "front-end-cache"\n'
        if by == "a plan"
        else "[broker]\nfront_end_cache = true\n"
    )
    flags = {
        "a flag": ("--front-end-cache",),
        "a key of the configuration": ("--config", str(file)),
        "a plan": ("--faults", str(file)),
    }
    _, printed = ready(start, "--queue", "contoso/orders,partitioned", *flags[by])

    where = printed["namespaces"][0]["connection_string"]
    with (
        ServiceBusClient.from_connection_string(where) as one,
        ServiceBusClient.from_connection_string(where) as other,
    ):
        with one.get_queue_sender("orders") as sender:
            for _ in range(3):
                sender.send_messages(ServiceBusMessage("x"))
        with one.get_queue_receiver("orders") as mine, other.get_queue_receiver("orders") as theirs:
            assert len(mine.receive_messages(1, max_wait_time=10)) == 1
            assert theirs.receive_messages(1, max_wait_time=0.3) == []


@pytest.mark.parametrize("number", [signal.SIGTERM, signal.SIGINT])
def test_a_signal_stops_the_broker_with_exit_code_0(start_cold, number):
    running, _ = ready(start_cold)

    assert running.stop(number) == (0, "")


def test_the_broker_loads_no_module_that_it_does_not_need_at_start():
    command = (sys.executable, "-X", "importtime", "-m", "sbpair", "broker")
    where = ("--namespace", "contoso:0", "--queue", "contoso/orders", "--json")
    with (
        tempfile.TemporaryFile("w+") as imports,  # not a pipe, which could fill before the line is read
        subprocess.Popen([*command, *where], stdout=subprocess.PIPE, stderr=imports, text=True) as run,
    ):
        try:
            assert run.stdout is not None
            json.loads(run.stdout.readline())
            run.terminate()
            assert run.wait(timeout=30) == 0
        finally:
            run.kill()
        imports.seek(0)
        told = imports.read()
    loaded = {line.rpartition("|")[2].strip() for line in told.splitlines()}
    assert "sbpair.broker.server.dashboard" in loaded  # the lines are interpreted as documented
    assert [name for name in NOT_BEFORE_IT_IS_READY if name in loaded] == []


def test_the_sdk_sends_receives_and_administers_with_the_printed_connection_string(start):
    running, printed = ready(start, "--queue", "contoso/orders")
    first, second = printed["namespaces"]
    assert (first["name"], first["queues"]) == ("contoso", ["orders"])
    assert (second["name"], second["queues"]) == ("contoso-dr", [])

    with ServiceBusClient.from_connection_string(first["connection_string"]) as client:
        with client.get_queue_sender("orders") as sender:
            sender.send_messages(ServiceBusMessage("hello", message_id="1"))
        with client.get_queue_receiver("orders") as receiver:
            (message,) = receiver.receive_messages(max_wait_time=10)
            receiver.complete_message(message)
            assert message.message_id == "1"
    with ServiceBusAdministrationClient.from_connection_string(
        second["connection_string"], connection_verify=printed["ca_file"]
    ) as administration:
        administration.create_queue("made-later")
        assert [queue.name for queue in administration.list_queues()] == ["made-later"]

    assert running.stop() == (0, "")


def test_topics_and_subscriptions_exist_from_the_start(start):
    topics = ("contoso/events/a", "contoso/events/a/subscriptions/billing", "contoso/b/Subscriptions/audit")
    running, printed = ready(start, *(word for topic in topics for word in ("--topic", topic)))
    first = printed["namespaces"][0]
    assert (first["queues"], first["topics"]) == ([], ["b", "events/a"])

    with ServiceBusClient.from_connection_string(first["connection_string"]) as client:
        for topic, subscription in (("events/a", "billing"), ("b", "audit")):
            with client.get_topic_sender(topic) as sender:
                sender.send_messages(ServiceBusMessage("hello"))
            with client.get_subscription_receiver(topic, subscription) as receiver:
                (message,) = receiver.receive_messages(max_wait_time=10)
                receiver.complete_message(message)

    assert running.stop() == (0, "")


@pytest.mark.spec("Q-2")
def test_queues_and_topics_are_partitioned_as_the_command_line_says(start):
    running, printed = ready(start, "--queue", "contoso/spread,partitioned", "--queue", "contoso/plain",
                             "--topic", "contoso/events/Subscriptions/billing,partitioned")  # fmt: skip
    first = printed["namespaces"][0]
    assert (first["queues"], first["topics"]) == (["plain", "spread"], ["events"])
    with ServiceBusAdministrationClient.from_connection_string(
        first["connection_string"], connection_verify=printed["ca_file"]
    ) as administration:
        kinds = [administration.get_queue(name).enable_partitioning for name in ("plain", "spread")]
        assert kinds == [False, True]
        assert administration.get_topic("events").enable_partitioning is True
    assert running.stop() == (0, "")


@pytest.mark.spec("E-9")
def test_entities_have_the_settings_given_on_the_command_line(start):
    _, printed = ready(
        start,
        "--queue", "contoso/carts,requires_session=true,lock_duration=30s,partitioned",
        "--topic", "contoso/events/Subscriptions/billing,max_delivery_count=3,forward_to=carts,partitioned",
        "--topic", "contoso/events,default_message_time_to_live=PT1H,user_metadata=ours,partitioned",
    )  # fmt: skip
    with ServiceBusAdministrationClient.from_connection_string(
        printed["namespaces"][0]["connection_string"], connection_verify=printed["ca_file"]
    ) as administration:
        carts, events = administration.get_queue("carts"), administration.get_topic("events")
        billing = administration.get_subscription("events", "billing")
    assert (carts.requires_session, carts.lock_duration, carts.enable_partitioning) == (
        True,
        timedelta(seconds=30),
        True,
    )
    assert (events.default_message_time_to_live, events.user_metadata) == (timedelta(hours=1), "ours")
    assert events.enable_partitioning
    assert (billing.max_delivery_count, billing.forward_to.rpartition("/")[2]) == (3, "carts")


def test_connection_strings_and_the_ca_file_are_printed_for_people(start):
    running = start("broker", "--namespace", "contoso:0")
    lines = [running.line() for _ in range(5)]

    assert lines[0].startswith("contoso  port ")
    assert lines[1].strip().startswith("Endpoint=sb://localhost:")
    assert lines[2].startswith("CA file")
    assert lines[3].startswith("Web page: http://127.0.0.1:")
    assert lines[4].startswith("Ready.")
    assert running.stop() == (0, "")


def test_a_taken_port_is_a_configuration_error_that_names_the_port(sbpair):
    with socket.socket() as taken:
        taken.bind(("127.0.0.1", 0))
        taken.listen()
        port = taken.getsockname()[1]
        done = sbpair("broker", "--namespace", f"contoso:{port}")

    assert done.returncode == 3
    assert str(port) in done.stderr
    assert "contoso" in done.stderr
    assert len(done.stderr.splitlines()) == 1


@pytest.mark.parametrize(
    "value",
    ["contoso", "contoso:", ":5672", "contoso:65536", "contoso:-1", "contoso:x", "con toso:0", "a/b:0"],
)
def test_a_bad_host_and_port_is_a_usage_error(sbpair, value):
    done = sbpair("broker", "--namespace", value)

    assert done.returncode == 2
    assert "NAME:PORT" in done.stderr


@pytest.mark.parametrize(
    ("arguments", "says"),
    [
        (("--namespace", "a:0", "--namespace", "A:0"), "namespace a is given twice"),
        (("--namespace", "a:4711", "--namespace", "b:4711"), "port 4711 is given twice"),
        (("--namespace", "a:0", "--queue", "b/orders"), "--queue names no --namespace: b"),
        (("--queue", "orders"), "NAMESPACE/QUEUE"),
        (("--namespace", "a:0", "--topic", "b/events"), "--topic names no --namespace: b"),
        (("--topic", "events"), "NAMESPACE/TOPIC"),
        (("--queue", "contoso/orders,partition"), "contoso/orders: 'partition' is not NAME=VALUE"),
        (("--queue", "contoso/orders,forward_to="), "contoso/orders: 'forward_to=' is not NAME=VALUE"),
        (("--queue", "contoso/"), "NAMESPACE/QUEUE"),
        (
            ("--queue", "contoso/carts,requires_sesion=true"),
            "'--queue': contoso/carts: requires_sesion: expected no such key; did you mean requires_session?",
        ),
        (
            ("--queue", "contoso/carts,requires_session=1"),
            "contoso/carts: requires_session: expected true or false, not 1",
        ),
        (
            ("--topic", "contoso/events/Subscriptions/billing,lock_duration=10m"),
            "contoso/events/Subscriptions/billing: lock_duration: expected a duration, from 5 seconds to",
        ),
        (("--topic", "contoso/events/Subscriptions/"), "NAMESPACE/TOPIC"),
    ],
)
def test_malformed_namespaces_and_queues_are_usage_errors(sbpair, arguments, says):
    done = sbpair("broker", *arguments)

    assert done.returncode == 2
    assert says in " ".join(done.stderr.split())


def test_an_invalid_queue_name_is_a_configuration_error(sbpair):
    done = sbpair("broker", "--namespace", "contoso:0", "--queue", "contoso/" + "x" * 300)

    assert done.returncode == 3
    assert len(done.stderr.splitlines()) == 1


def test_open_access_beyond_this_machine_prints_a_warning(start):
    running = start("broker", "--namespace", "contoso:0", "--host", "0.0.0.0", "--open-access", "--json")
    running.line()

    code, errors = running.stop()
    assert code == 0
    assert "anyone who can reach 0.0.0.0 may send and receive" in errors


@pytest.mark.spec("T-8")
def test_the_basic_tier_has_no_topics(sbpair):
    done = sbpair("broker", "--namespace", "contoso:0", "--tier", "Basic", "--topic", "contoso/news")
    assert done.returncode == 3
    assert "Topics are not allowed in a namespace of the Basic tier" in done.stderr


def test_the_printed_web_page_opens_and_shows_the_journals(start, tmp_path):
    running, printed = ready(start, "--queue", "contoso/orders", "--story", str(tmp_path))
    record = {
        "event": "entity_failed_over",
        "at": "2026-11-21T06:34:00.000Z",
        "path": "orders",
        "role": "sender",
    }
    (tmp_path / "_open-sender-1-000001.jsonl").write_text(json.dumps(record) + "\n")
    address, _, token = printed["page_url"].partition("?token=")
    shown = {"Authorization": f"Bearer {token}"}
    with urllib.request.urlopen(urllib.request.Request(f"{address}api/overview", headers=shown)) as answer:
        told = json.loads(answer.read())
    assert [each["name"] for each in told["namespaces"]] == ["contoso", "contoso-dr"]
    assert [(each["path"], each["state"]) for each in told["story"]["entities"]] == [
        ("orders", "failed_over")
    ]
    assert running.stop() == (0, "")


def test_the_web_page_can_be_switched_off_or_bound_to_a_given_address(start, sbpair):
    running, printed = ready(start, "--page", "off")
    assert "page_url" not in printed
    assert running.stop() == (0, "")
    for wrong in ("8080", "127.0.0.1:", "127.0.0.1:99999", ":1"):
        refused = sbpair("broker", "--page", wrong)
        assert refused.returncode == 2
        assert "is not HOST:PORT, e.g. 127.0.0.1:8080, nor off" in " ".join(refused.stderr.split())
    with socket.create_server(("127.0.0.1", 0)) as holder:
        port = holder.getsockname()[1]
        taken = sbpair("broker", "--namespace", "a:0", "--page", f"127.0.0.1:{port}")
    assert (taken.returncode, taken.stdout) == (3, "")
    assert f"The page cannot be served on 127.0.0.1:{port}: Address already in use." in taken.stderr


@pytest.fixture
def evaluated(start) -> dict[str, str]:
    """Return a shell's environment after it evaluated the output of a running broker."""
    running = start(
        "broker", "--namespace", "contoso:0", "--namespace", "contoso-dr:0", "--queue", "contoso/orders",
        "--print-env",
    )  # fmt: skip
    exported = evaluate("".join(running.line() for _ in range(3)))
    assert set(exported) == {"SBPAIR_PRIMARY", "SBPAIR_SECONDARY", "SBPAIR_CA_FILE"}
    return exported


@pytest.mark.spec("R-60")
def test_commands_work_with_the_printed_environment(evaluated, sbpair):
    created = sbpair("backlog", "create", "--count", "2", **evaluated)
    assert created.returncode == 0, created.stderr
    listed = json.loads(sbpair("backlog", "list", "--json", **evaluated).stdout)
    assert len(listed["backlogs"]) == 2
    drained = sbpair("syphon", "--drain", "--backlogs", "2", **evaluated)
    assert drained.returncode == 0, drained.stderr


@pytest.mark.slow
@pytest.mark.spec("R-60")
def test_the_readme_program_sends_with_the_printed_environment(evaluated):
    readme = (ROOT / "README.md").read_text("utf-8")
    (program,) = (text for text in re.findall(r"```python\n(.*?)```", readme, re.S) if "receipt" in text)
    done = subprocess.run(
        [sys.executable, "-W", "error", "-c", program],
        capture_output=True, text=True, timeout=60, env=environment(**evaluated),
    )  # fmt: skip
    assert (done.returncode, done.stdout) == (0, "StoredIn.PRIMARY\n"), done.stderr


@pytest.mark.spec("E-9")
@pytest.mark.parametrize("page", [("Web page: http://127.0.0.1:", ()), ("", ("--page", "off"))])
def test_print_env_prints_only_variables_and_the_page_address(start, page):
    said, flags = page
    running = start("broker", "--namespace", "contoso:0", "--print-env", *flags)
    assert set(evaluate(running.line() + running.line())) == {"SBPAIR_PRIMARY", "SBPAIR_CA_FILE"}
    code, told = running.stop()
    assert (code, told[: len(said)], told.count("\n")) == (0, said, len(flags) == 0)


@pytest.mark.spec("E-9")
@pytest.mark.parametrize(
    ("topic", "said"),
    [
        (
            "contoso/events/billing",
            "sbpair: 'events/billing' is the name of a topic; "
            "a subscription is written contoso/events/Subscriptions/billing\n",
        ),
        ("contoso/a/events/billing", "is written contoso/a/events/Subscriptions/billing\n"),
        ("contoso/events/Subscriptions/billing", ""),
        ("contoso/events", ""),
    ],
)
def test_a_topic_that_looks_like_a_subscription_is_created_with_a_note(start, topic, said):
    running, printed = ready(start, "--topic", topic)
    assert printed["namespaces"][0]["topics"] == [topic.removeprefix("contoso/").split("/Subscriptions/")[0]]
    code, told = running.stop()
    assert (code, told.endswith(said), told.count("\n")) == (0, True, said != "")


def test_the_two_output_formats_exclude_each_other(sbpair):
    done = sbpair("broker", "--json", "--print-env")
    assert done.returncode == 2
    assert "--json and --print-env exclude each other" in done.stderr


@pytest.mark.spec("R-127")
def test_publicly_resolvable_names_are_not_printed_for_a_shell(sbpair):
    done = sbpair("broker", "--one-port", "--print-env")
    assert (done.returncode, done.stdout) == (2, "")
    assert "--one-port and --print-env exclude each other" in done.stderr


@pytest.mark.spec("W-1")
def test_strict_broker_reports_requests_that_the_service_would_reject_and_fails(start):
    running, printed = ready(start, "--strict", "--page", "off")

    where = printed["namespaces"][0]["connection_string"]
    with ServiceBusAdministrationClient.from_connection_string(
        where, connection_verify=printed["ca_file"]
    ) as administration:
        administration.create_queue("archive")
        administration.create_queue("orders", forward_to="archive", enable_express=False)
    code, told = running.stop()
    assert "sbpair: strict: contoso: PUT /orders: not in force: ForwardTo" in told
    assert code == 1
