"""Addresses of namespaces, and errors of connection strings."""

from __future__ import annotations

import inspect
import shutil
import subprocess
import sys
from datetime import timedelta
from pathlib import Path
from types import ModuleType

import certifi
import pytest
from azure.servicebus import TransportType
from azure.servicebus.exceptions import ServiceBusError

import sbpair
import sbpair.aio
from sbpair import CaFileError, EntityState, PairedNamespaceOptions, PairedServiceBusClient

SECRET = "CANARY+/=%"
KEYS = f"SharedAccessKeyName=Root;SharedAccessKey={SECRET}"


def string(host: str, *, emulator: bool = True, extra: str = "") -> str:
    flag = ";UseDevelopmentEmulator=true" if emulator else ""
    return f"Endpoint=sb://{host};{KEYS}{flag}{extra}"


def paired(primary: str, secondary: str, name: str | None = None) -> PairedServiceBusClient:
    options = PairedNamespaceOptions(primary_namespace_name=name, assume_backlogs_exist=True)
    return PairedServiceBusClient.from_connection_strings(primary, secondary, options=options)


GOOD = string("contoso-dr.servicebus.windows.net", emulator=False)


@pytest.mark.parametrize(
    ("text", "missing"),
    [
        ("", "is empty"),
        ("   ", "is empty"),
        (KEYS, "no Endpoint"),
        (f"Endpoint=;{KEYS}", "no Endpoint"),
        (f"Endpoint=sb://;{KEYS}", "no Endpoint"),
        (f"Endpoint=sb://a;SharedAccessKey={SECRET}", "no SharedAccessKeyName"),
        ("Endpoint=sb://a;SharedAccessKeyName=Root", "no SharedAccessKey"),
        (f"Endpoint=sb://a;{KEYS};nonsense", "malformed"),
        (f"Endpoint=sb://a;{KEYS};{KEYS}", "twice"),
    ],
)
@pytest.mark.parametrize("side", ["primary", "secondary"])
def test_a_bad_connection_string_is_reported_with_side_and_fault_and_never_the_key(
    side: str, text: str, missing: str
) -> None:
    both = {"primary": GOOD, "secondary": GOOD, side: text}
    with pytest.raises(ValueError, match=f"the {side} connection string .*{missing}") as raised:
        paired(both["primary"], both["secondary"])
    assert SECRET not in str(raised.value)
    assert raised.value.__cause__ is None


def test_a_connection_string_of_one_entity_opens_only_that_entity() -> None:
    primary = string("contoso.servicebus.windows.net", emulator=False, extra=";EntityPath=orders")
    with paired(primary, GOOD) as client:
        client.get_queue_sender("orders").close()
        with pytest.raises(ValueError, match="queue_name 'invoices' does not match the EntityPath 'orders'"):
            client.get_queue_sender("invoices")
    with pytest.raises(
        ValueError, match="the secondary connection string is limited to one entity"
    ) as raised:
        paired(string("contoso.servicebus.windows.net", emulator=False), f"{GOOD};EntityPath=orders")
    assert SECRET not in str(raised.value)


@pytest.mark.parametrize(
    ("primary", "secondary"),
    [
        (GOOD, GOOD),
        (string("localhost:5001"), string("LOCALHOST:5001")),
        (string("localhost:5671", emulator=False), string("localhost:5672", emulator=False)),
    ],
)
def test_a_namespace_cannot_be_paired_with_itself(primary: str, secondary: str) -> None:
    with pytest.raises(ValueError, match="same namespace"):
        paired(primary, secondary, name="contoso")


def test_two_namespaces_with_one_name_must_be_distinguished() -> None:
    both = string("contoso.example:5001"), string("contoso.other.example:5002")
    with pytest.raises(ValueError, match="primary_namespace_name"):
        paired(*both)
    with paired(*both, name="contoso") as client:
        assert client.primary.endpoint == "contoso.example:5001"
        assert client.secondary.endpoint == "contoso.other.example:5002"


@pytest.mark.spec("R-60")
def test_two_local_brokers_are_distinguished_by_their_ports() -> None:
    with paired(string("localhost:5001"), string("localhost:5002")) as client:
        assert (client.primary.label, client.secondary.label) == ("localhost-5001", "localhost-5002")


@pytest.mark.spec("R-60")
def test_a_client_is_created_from_environment_references(monkeypatch, tmp_path) -> None:
    (tmp_path / "primary").write_text(GOOD)
    monkeypatch.setenv("SBPAIR_PRIMARY", f"file:{tmp_path / 'primary'}")
    monkeypatch.setenv("SBPAIR_SECONDARY", string("localhost:5002"))
    with PairedServiceBusClient.from_environment() as client:
        assert (client.primary.label, client.secondary.label) == ("contoso-dr", "localhost-5002")
    monkeypatch.delenv("SBPAIR_SECONDARY")
    with pytest.raises(ValueError, match="'SBPAIR_SECONDARY' is not set"):
        PairedServiceBusClient.from_environment()


@pytest.mark.spec("R-122")
def test_a_client_of_the_environment_takes_the_keywords_of_the_sdk(monkeypatch) -> None:
    monkeypatch.setenv("SBPAIR_PRIMARY", GOOD)
    monkeypatch.setenv("SBPAIR_SECONDARY", string("localhost:5002"))
    with PairedServiceBusClient.from_environment(retry_total=7, user_agent="mine") as client:
        settings = client._primary.settings
        assert (settings.retry.total, settings.user_agent) == (7, "mine")
    ours, theirs = (
        inspect.signature(form).parameters
        for form in (PairedServiceBusClient.from_environment, PairedServiceBusClient.from_connection_strings)
    )
    assert [*ours] == [name for name in theirs if name not in ("primary", "secondary")]


@pytest.mark.spec("R-122")
def test_the_package_runs_as_a_module() -> None:
    run = subprocess.run(
        [sys.executable, "-m", "sbpair", "--help"], capture_output=True, text=True, check=True
    )
    assert run.stdout.startswith("Usage: sbpair ")


@pytest.mark.spec("P-1")
def test_the_names_of_real_namespaces_are_read_from_their_hosts() -> None:
    with paired(string("contoso.servicebus.windows.net", emulator=False), GOOD) as client:
        assert client.primary.label == "contoso"
        assert client.secondary.label == "contoso-dr"


def test_a_closed_client_and_an_empty_queue_name_are_refused() -> None:
    with paired(string("localhost:5001"), string("localhost:5002"), name="contoso") as client:
        with pytest.raises(ValueError, match="queue_name"):
            client.get_queue_sender("/")
        with pytest.raises(TypeError, match="queue_name"):
            client.get_queue_sender(None)  # type: ignore[arg-type]
        sender = client.get_queue_sender("orders")
    with pytest.raises(ValueError, match="closed"):
        client.get_queue_sender("orders")
    with pytest.raises(ValueError, match="closed"):
        sender.send_messages({"body": "late"})


async def done(answer: object) -> object:
    return await answer if inspect.isawaitable(answer) else answer


@pytest.mark.spec("P-2", "F-31", "S-6")
@pytest.mark.parametrize("skin", [sbpair, sbpair.aio])
@pytest.mark.parametrize("transport", TransportType)
@pytest.mark.parametrize("content", [None, "no certificate"])
async def test_unreadable_ca_files_are_reported_at_the_first_use_and_are_no_outage(
    skin: ModuleType, transport: TransportType, content: str | None, tmp_path: Path
) -> None:
    file = tmp_path / "authorities.pem"
    if content is not None:
        file.write_text(content)
    client = skin.PairedServiceBusClient.from_connection_strings(
        string("contoso.servicebus.windows.net", emulator=False),
        GOOD,
        options=PairedNamespaceOptions(failover_interval=timedelta(0)),
        connection_verify=str(file),
        transport_type=transport,
    )
    assert issubclass(CaFileError, ServiceBusError)  # as the SDK's own error at that point
    sender = client.get_queue_sender("orders")
    for use in (lambda: sender.send_messages({"body": "x"}), lambda: client.get_queue_receiver("orders")):
        with pytest.raises(CaFileError, match=r"connection_verify.*authorities\.pem"):
            await done(use())
    assert client.state_of("orders") is EntityState.HEALTHY
    shutil.copy(certifi.where(), file)
    assert client.get_queue_receiver("orders")  # it is looked at again
    await done(client.close())
