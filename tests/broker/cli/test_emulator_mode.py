"""`sbpair broker --emulator`, `--advertise` and `--print-env`, for suites of the vendor's emulator."""

from __future__ import annotations

import json
import ssl
import subprocess
import urllib.request
from collections.abc import Callable
from pathlib import Path

import pytest
from azure.servicebus import ServiceBusClient, ServiceBusMessage
from azure.servicebus.management import ServiceBusAdministrationClient

from tests.pair.cli.conftest import Running, environment

EMULATORS = (
    "Endpoint=sb://localhost{port};SharedAccessKeyName=RootManageSharedAccessKey;"
    "SharedAccessKey=SAS_KEY_VALUE;UseDevelopmentEmulator=true;"
)
CONFIG = {
    "UserConfig": {
        "Namespaces": [
            {
                "Name": "sbemulatorns",
                "Queues": [
                    {"Name": "queue.1", "Properties": {"LockDuration": "PT1M", "MaxDeliveryCount": 3}}
                ],
                "Topics": [{"Name": "topic.1", "Subscriptions": [{"Name": "subscription.1"}]}],
            }
        ],
        "Logging": {"Type": "File"},
    }
}


def emulator(start: Callable[..., Running], *arguments: str) -> tuple[Running, dict[str, str]]:
    running = start("broker", "--emulator", "--management-port", "0", "--json", *arguments)
    return running, json.loads(running.line())


@pytest.mark.spec("E-3")
def test_the_emulator_file_and_connection_string_work_unchanged(start, tmp_path: Path) -> None:
    (tmp_path / "config.json").write_text(json.dumps(CONFIG))
    _, printed = emulator(start, "--config", str(tmp_path / "config.json"), "--namespace", "sbemulatorns:0")
    row = printed["namespaces"][0]
    assert row["queues"] == ["queue.1"]
    assert row["connection_string"] + ";" == EMULATORS.format(port=f":{row['port']}")
    text = EMULATORS.format(port=f":{row['port']}")
    with (
        ServiceBusClient.from_connection_string(text) as client,
        client.get_queue_sender("queue.1") as sender,
        client.get_queue_receiver("queue.1") as receiver,
    ):
        sender.send_messages(ServiceBusMessage("hello"))
        assert [str(each) for each in receiver.receive_messages(max_wait_time=30)] == ["hello"]


@pytest.mark.spec("E-3")
def test_the_management_port_administers_and_reports_health(start) -> None:
    _, printed = emulator(start, "--namespace", "sbemulatorns:0")
    url = printed["management_url"]
    port = url.rpartition(":")[2]
    with urllib.request.urlopen(f"{url}/health", timeout=30) as answer:
        assert json.loads(answer.read())["status"] == "healthy"
    with ServiceBusAdministrationClient.from_connection_string(
        EMULATORS.format(port=f":{port}"), connection_verify=printed["ca_file"]
    ) as administration:
        administration.create_queue("orders")
        assert [each.name for each in administration.list_queues()] == ["orders"]


@pytest.mark.spec("E-3")
def test_default_ports_are_those_of_the_emulator(sbpair) -> None:
    with_ports = sbpair("broker", "--emulator", "--namespace", "sbemulatorns:70000")
    assert with_ports.returncode == 2
    from sbpair.broker.cli.broker import EMULATOR_MANAGEMENT, EMULATOR_NAMESPACES

    assert (EMULATOR_NAMESPACES, EMULATOR_MANAGEMENT) == ((("sbemulatorns", 5672),), 5300)


@pytest.mark.spec("E-4")
def test_an_advertised_host_is_in_the_connection_strings_and_the_certificate(start) -> None:
    running = start(
        "broker", "--namespace", "contoso:0", "--advertise", "127.0.0.2", "--host", "0.0.0.0", "--json"
    )
    printed = json.loads(running.line())
    row = printed["namespaces"][0]
    assert row["connection_string"].startswith(f"Endpoint=sb://127.0.0.2:{row['port']};")
    context = ssl.create_default_context(cafile=printed["ca_file"])
    with urllib.request.urlopen(
        f"https://127.0.0.2:{row['port']}/health", context=context, timeout=30
    ) as answer:
        assert answer.status == 200


@pytest.mark.spec("E-4")
@pytest.mark.parametrize("host", ["build.example:5672", "", "a b", "-x", "http://x"])
def test_an_invalid_host_cannot_be_advertised(sbpair, host: str) -> None:
    done = sbpair("broker", "--advertise", host)
    assert done.returncode == 2
    assert "is not a host name or an address" in done.stderr


@pytest.mark.spec("E-3")
def test_a_shell_evaluates_the_output_of_print_env(start, tmp_path: Path) -> None:
    running = start("broker", "--namespace", "contoso:0", "--queue", "contoso/orders", "--print-env")
    script = f'{running.line()}{running.line()}\n[ -f "$SBPAIR_CA_FILE" ] && printf \'%s\' "$SBPAIR_PRIMARY"'
    done = subprocess.run(["/bin/sh", "-euc", script], capture_output=True, text=True, env=environment())
    assert done.stdout.startswith("Endpoint=sb://localhost:"), done.stderr


@pytest.mark.spec("E-3")
@pytest.mark.parametrize(
    ("words", "expected"), [("sbpair bro", "plain,broker"), ("sbpair broker --emu", "plain,--emulator")]
)
def test_a_shell_completes_commands_and_flags(sbpair, words: str, expected: str) -> None:
    place = str(words.count(" "))
    done = sbpair(_SBPAIR_COMPLETE="bash_complete", COMP_WORDS=words, COMP_CWORD=place)
    assert expected in done.stdout.splitlines()
